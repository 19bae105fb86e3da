# SPDX-License-Identifier: Apache-2.0
"""Kill the operator after each write; its successor finishes the work."""

import base64
import copy
import itertools
import json

from tests.fixtures import operator
from tests.fixtures import operator_kills

FIRST = {'ipmi': {'enabled': True}, 'redfish': {'plainHTTP': False},
         'networkPolicy': {'enabled': False}, 'service': {
             'type': 'ClusterIP', 'annotations': None},
         'authSecret': {'name': 'box-bmc'}, 'runStrategy': None}

SECOND = {'ipmi': {'enabled': False}, 'redfish': {'plainHTTP': True},
          'networkPolicy': {'enabled': True, 'allowedCIDRs': ['10.0.0.0/8']},
          'service': {'type': 'NodePort', 'annotations': {'a': 'b'}},
          'authSecret': {'name': 'other'}, 'runStrategy': 'Manual'}

# Fields that the cluster sets or that are random.
CHOSEN = {'uid', 'resourceVersion', 'creationTimestamp', 'generation',
          'managedFields', 'clusterIP', 'clusterIPs', 'nodePort', 'status',
          'deployment.kubernetes.io/revision', 'bmc.kubevirt.io/applied',
          'bmc.kubevirt.io/account'}


def without(value, keys):
    """Return a value without members of some names, at any depth."""
    if isinstance(value, dict):
        return {key: without(one, keys) for key, one in value.items()
                if key not in keys}
    if isinstance(value, list):
        return [without(one, keys) for one in value]
    return value


class KilledTestCase(operator_kills.Kills, operator.OperatorTestCase):

    SANDBOX = ('--pods', 'pretended')

    def setUp(self):
        super().setUp()
        self.start()

    def objects(self):
        """Return all objects of the BMC, without the fields CHOSEN."""
        found = {}
        for one in self.kubectl.get(
                'deployments,services,serviceaccounts,roles,rolebindings,'
                'configmaps,secrets,networkpolicies', '-l',
                operator.LABEL + 'box')['items']:
            name = f"{one['kind']}/{one['metadata']['name']}"
            one = without(copy.deepcopy(one), CHOSEN)
            if one['kind'] == 'Secret':
                one['data'] = sorted(one['data'])
            found[name] = one
        return found

    def is_ready(self, generation=1):
        status = self.box.status
        return (status.get('observedGeneration') == generation
                and self.box.condition() == ('True', 'ServiceReady'))

    def wait_deleted(self, name='box'):
        self.until('nothing left', lambda: self.kubectl.names(
            operator.OWNED + ',vmbmc', '-l', operator.LABEL + name), [])

    def test_killed_while_creating(self):
        self.vm()
        self.secret()
        reference = None
        for writes in itertools.count(0):
            if writes:
                self.allow_writes(writes)
            self.box = self.bmc(networkPolicy={'enabled': True})
            finished = False
            if writes:
                finished = self.kill_after_writes(self.is_ready)
                self.start()
            self.until(f'ready, after {writes}', self.is_ready)
            if reference is None:
                reference = self.objects()
            self.assertEqual(reference, self.objects(), f'after {writes}')
            self.kubectl('delete', 'vmbmc', 'box')
            self.wait_deleted()
            if finished:
                break
        self.assertGreater(writes, 8)

    def test_killed_while_updating(self):
        self.secret('other')
        self.box = self.bmc()
        self.until('ready', self.is_ready)
        specs, references = (SECOND, FIRST), []
        for number in itertools.count(0):
            writes = number // 2
            if writes:
                self.allow_writes(writes)
            self.kubectl('patch', 'vmbmc', 'box', '--type=merge', '-p',
                         json.dumps({'spec': specs[number % 2]}))
            finished = False
            if writes:
                finished = self.kill_after_writes(
                    lambda n=number: self.is_ready(n + 2))
                self.start()
            self.until(f'ready, after {writes}',
                       lambda n=number: self.is_ready(n + 2))
            if not writes:
                references.append(self.objects())
            self.until(f'objects, after {writes}', self.objects,
                       references[number % 2])
            if finished and number % 2:
                break
        self.assertGreater(writes, 4)

    def test_killed_while_deleting(self):
        """Objects in another namespace are deleted too."""
        other_namespace = self.new_namespace()
        other = self.admin.within(other_namespace)
        self.vm('far', namespace=other_namespace)
        other('annotate', 'vm', 'far',
              'bmc.kubevirt.io/allow-from=' + self.namespace)
        for writes in itertools.count(1):
            self.kubectl.apply(operator.bmc_manifest(
                'box', virtualMachine={
                    'name': 'far', 'namespace': other_namespace}))
            self.box = operator.Bmc(self.kubectl, 'box', 'admin', None)
            self.until('ready', self.is_ready)
            self.assertEqual(2, len(other.names(
                'roles,rolebindings', '-l', operator.LABEL + 'box')))
            self.allow_writes(writes)
            self.kubectl('delete', 'vmbmc', 'box', '--wait=false')

            def is_deleted():
                return not self.kubectl.names('vmbmc')
            finished = self.kill_after_writes(is_deleted)
            self.start()
            self.until(f'deleted, after {writes}', is_deleted)
            self.wait_deleted()
            self.until('nothing in the other namespace', lambda: other.names(
                'roles,rolebindings,secrets', '-l', operator.LABEL + 'box'),
                [])
            if finished:
                break
        self.assertGreater(writes, 2)

    def test_killed_while_creating_the_ca(self):
        """The CA's Secret is created once although the operator is killed."""
        for writes in (1, 2, 3):
            self.stop()
            self.admin('delete', 'secret', 'sushy-kubevirt-ca', '-n',
                       operator.NAMESPACE, '--ignore-not-found')
            self.allow_writes(writes)
            self.box = self.bmc('box', secret=None)
            self.start(wait=False)
            self.kill_after_writes(self.is_ready)
            self.start()
            self.until('ready', self.is_ready)
            text = self.kubectl.get('configmap', 'box-virtbmc-ca')['data'][
                'ca.crt']
            made = self.admin.get('secret', 'sushy-kubevirt-ca', '-n',
                                  operator.NAMESPACE)['data']['tls.crt']
            self.assertEqual(base64.b64decode(made).decode(), text)
            self.kubectl('delete', 'vmbmc', 'box')
            self.wait_deleted()
