# SPDX-License-Identifier: Apache-2.0
"""Hosts of users whose credentials are a Secret that the operator made.

What baremetal-operator does to the Secret is written here by hand, as
``EnsureSecret`` and ``ReleaseSecret`` of its ``pkg/secretutils`` do it.
"""

import json

from tests.fixtures import checkout
from tests.fixtures import operator

DEFINITIONS = checkout.ROOT / 'tests/fixtures/metal3/definitions.yaml'
SECRET = 'n0-virtbmc-auth'
FINALIZER = 'baremetalhost.metal3.io/secret'


class HostSecretTestCase(operator.OperatorTestCase):

    SANDBOX = operator.PRETENDED_PODS

    def setUp(self):
        super().setUp()
        self.admin('apply', '-f', DEFINITIONS)
        self.vm('n0')
        self.bmc('n0', 'n0', None)
        self.until('Secret', lambda: self.kubectl.names('secret', SECRET),
                   [f'secret/{SECRET}'])
        self.kubectl.apply({
            'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
            'metadata': {'name': 'n0'}, 'spec': {
                'online': False, 'bmc': {'credentialsName': SECRET}}})
        self.use()
        self.password = self.secret_now()['data']['password']

    def secret_now(self):
        return self.kubectl.get('secret', SECRET)

    def owners(self):
        return [one['kind'] for one in self.secret_now()['metadata'].get(
            'ownerReferences', ())]

    def patch(self, **metadata):
        self.kubectl('patch', 'secret', SECRET, '--type=merge', '-p',
                     json.dumps({'metadata': metadata}))

    def use(self):
        """Do what baremetal-operator does to the Secret of a host."""
        host = self.kubectl.get('bmh', 'n0')['metadata']
        self.patch(labels={'environment.metal3.io': 'baremetal'},
                   finalizers=[FINALIZER], ownerReferences=[
                       *self.secret_now()['metadata']['ownerReferences'], {
                           'apiVersion': 'metal3.io/v1alpha1',
                           'kind': 'BareMetalHost', 'name': 'n0',
                           'uid': host['uid']}])

    def release(self, *words):
        """Do what it does when the host is deleted."""
        self.patch(finalizers=None)
        self.kubectl('delete', 'bmh', 'n0', *words)

    def recreate(self):
        self.kubectl('delete', 'vmbmc', 'n0')
        self.until('Deployment', lambda: self.kubectl.names(
            'deployments', '-l', operator.LABEL + 'n0'), [])
        self.bmc('n0', 'n0', None)

    def test_deletion_of_the_host(self):
        for words in (), ('--cascade=foreground',):
            self.release(*words)
            self.until('owners', self.owners, ['VirtualMachineBMC'])
            self.assertNotIn('deletionTimestamp',
                             self.secret_now()['metadata'])
            self.assertEqual(self.password,
                             self.secret_now()['data']['password'])
            self.kubectl.apply({
                'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
                'metadata': {'name': 'n0'}, 'spec': {'online': False}})
            self.use()

    def test_secret_of_a_user(self):
        """The status warns of a Secret that is deleted with the host."""
        self.secret('mine')
        box = self.bmc('n1', 'n0', 'mine')
        host = self.kubectl.get('bmh', 'n0')['metadata']
        self.kubectl('patch', 'secret', 'mine', '--type=merge', '-p',
                     json.dumps({'metadata': {'ownerReferences': [{
                         'apiVersion': 'metal3.io/v1alpha1',
                         'kind': 'BareMetalHost', 'name': 'n0',
                         'uid': host['uid']}]}}))
        self.until('warning', lambda: box.condition('SecretAvailable'),
                   ('True', 'SecretOwnedByHost'))
        self.until('event', lambda: 'SecretOwnedByHost' in [
            one['reason'] for one in self.kubectl.get('events')['items']])
        self.kubectl('patch', 'secret', 'mine', '--type=merge', '-p',
                     '{"metadata": {"ownerReferences": null}}')
        self.until('no warning', lambda: box.condition('SecretAvailable'),
                   ('True', 'SecretFound'))

    def test_recreated_bmc(self):
        self.recreate()
        self.until('owners', self.owners, [
            'BareMetalHost', 'VirtualMachineBMC'])
        self.assertEqual(self.password, self.secret_now()['data']['password'])
        # The host is deleted before the BMC, then the BMC.
        self.release()
        self.until('owners', self.owners, ['VirtualMachineBMC'])
        self.kubectl('delete', 'vmbmc', 'n0')
        self.until('no Secret', lambda: f'secret/{SECRET}'
                   in self.kubectl.names('secrets'), False)

    def test_recreated_bmc_with_a_secret_that_is_being_deleted(self):
        self.kubectl('delete', 'secret', SECRET, '--wait=false')
        self.recreate()
        self.until('owners', self.owners, [
            'BareMetalHost', 'VirtualMachineBMC'])
        self.assertEqual(self.password, self.secret_now()['data']['password'])
        uid = self.secret_now()['metadata']['uid']
        self.release()
        self.until('another Secret', lambda: f'secret/{SECRET}'
                   in self.kubectl.names('secrets')
                   and self.secret_now()['metadata']['uid'] != uid)
        self.assertEqual(['VirtualMachineBMC'], self.owners())
