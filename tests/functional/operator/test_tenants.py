# SPDX-License-Identifier: Apache-2.0
"""Users who may create BMCs in their namespace gain no other permission."""

import json

from tests.fixtures import access_case
from tests.fixtures import operator


class TenantTestCase(access_case.AccessTestCase):
    """A user who may create BMCs in one namespace and nothing else."""

    SANDBOX = ('--pods', 'pretended')

    def setUp(self):
        super().setUp()
        self.kubectl('create', 'serviceaccount', 'tenant')
        self.kubectl('create', 'role', 'tenant',
                     '--verb=get,list,watch,create,patch,delete',
                     '--resource=virtualmachinebmcs')
        self.kubectl('create', 'rolebinding', 'tenant', '--role=tenant',
                     f'--serviceaccount={self.namespace}:tenant')
        self.tenant = self.user('tenant')
        self.mark = self.operator.process.mark()

    def make(self, name, vm='box', **spec):
        """Create, as the tenant, a BMC that does not become ready.

        :returns: :class:`operator.Bmc`, after its first reconciliation.
        """
        self.tenant('create', '--validate=false', '-f', '-', stdin=json.dumps(
            operator.bmc_manifest(name, vm, **spec)))
        found = operator.Bmc(self.kubectl, name, 'admin', None)
        self.until('condition', lambda: (found.condition() or ('',))[0],
                   'False')
        return found

    def assert_refused(self, bmc, reason, text):
        self.until('reason', bmc.condition, ('False', reason))
        self.assertIn(text, bmc.message())

    def assert_none_named(self, name, *kinds):
        self.assertEqual([], [
            one for one in self.kubectl.names(
                ','.join(kinds or ('deployments', 'roles', 'rolebindings')))
            if name in one])

    def test_foreign_objects_are_not_used(self):
        """Account, Deployment and Secret with a name that a BMC needs."""
        self.vm()
        self.kubectl('create', 'serviceaccount', 'a-virtbmc')
        self.kubectl('create', 'rolebinding', 'a-virtbmc',
                     '--clusterrole=admin',
                     f'--serviceaccount={self.namespace}:a-virtbmc')
        labels = {'app': 'x'}
        self.kubectl.apply({
            'apiVersion': 'apps/v1', 'kind': 'Deployment',
            'metadata': {'name': 'b-virtbmc'}, 'spec': {
                'replicas': 0, 'selector': {'matchLabels': labels},
                'template': {'metadata': {'labels': labels}, 'spec': {
                    'containers': [{'name': 'x', 'image': 'x'}]}}}})
        self.vm('database')
        self.kubectl('create', 'secret', 'generic', 'database-bmc-state',
                     '--from-literal=password=very-secret')
        before = self.kubectl.get('secret', 'database-bmc-state')
        a = self.make('a')
        self.assert_refused(a, 'NameTaken', 'ServiceAccount a-virtbmc')
        self.assertEqual([], self.kubectl.names(
            'deployments', '-l', operator.LABEL + 'a'))
        b = self.make('b')
        self.assert_refused(b, 'NameTaken', 'Deployment b-virtbmc')
        self.assertEqual('x', self.kubectl.get('deployment', 'b-virtbmc')[
            'spec']['template']['spec']['containers'][0]['image'])
        # The Role of the pod would grant access to it.
        c = self.make('c', 'database')
        self.assert_refused(c, 'NameTaken', 'Secret database-bmc-state')
        self.assert_none_named('c-virtbmc')
        self.assertEqual(before, self.kubectl.get(
            'secret', 'database-bmc-state'))

    def test_foreign_secrets_are_not_used(self):
        self.vm()
        self.kubectl('create', 'secret', 'generic', 'token',
                     '--from-literal=token=very-secret')
        box = self.make('box', secret='token')
        self.assert_refused(box, 'SecretIncomplete', 'username')
        self.assertNotIn('very-secret', json.dumps(box.resource))
        self.assertEqual([], self.kubectl.names('deployments'))
        # The operator's Secret in its own namespace.
        away = self.make('away', virtualMachine={'namespace': self.namespace,
                                                 'name': 'box'},
                         authSecret={'namespace': operator.NAMESPACE,
                                     'name': 'sushy-kubevirt-ca'})
        self.assert_refused(away, 'ReferenceNotPermitted', 'allow-from')
        self.assertNotIn('away-virtbmc-auth', ' '.join(
            self.kubectl.names('secrets')))

    def test_foreign_vms_are_not_used(self):
        far = self.new_namespace()
        self.vm('far', namespace=far)
        # The message does not reveal whether the VM exists.
        said = set()
        for name in 'far', 'none':
            bmc = self.make(
                'to-' + name, virtualMachine={'namespace': far, 'name': name},
                authSecret={'namespace': self.namespace, 'name': 'none'})
            self.assert_refused(bmc, 'ReferenceNotPermitted',
                                'bmc.kubevirt.io/allow-from')
            said.add(bmc.message().replace(name, 'X'))
        self.assertEqual(1, len(said), said)
        self.assertEqual([], self.admin.within(far).names(
            'roles,rolebindings,secrets'))

    def test_foreign_images_and_code_are_refused(self):
        self.vm()
        self.secret()
        evil = self.make('evil', secret='box-bmc', image='evil.test/evil:1')
        self.assert_refused(evil, 'ImageNotAllowed', 'evil.test/evil:1')
        self.assertEqual([], self.kubectl.names('deployments'))
        # Text in the spec cannot become code of the configuration.
        text = "'; import os; os.abort() #"
        for media in ({'allowedHosts': [text]}, {'storageClassName': text},
                      {'defaultSize': text}):
            self.assertIn('is invalid', self.kubectl.refused(
                'create', '-f', '-', stdin=json.dumps(operator.bmc_manifest(
                    'injected', 'box', 'box-bmc', virtualMedia=media))))
        self.assertEqual([], self.kubectl.names('configmaps', '-l',
                                                operator.LABEL + 'injected'))

    def test_tenant_gains_no_permissions(self):
        before = self.can(self.tenant)
        self.vm()
        self.secret()
        self.tenant('create', '--validate=false', '-f', '-', stdin=json.dumps(
            operator.bmc_manifest('box', secret='box-bmc')))
        bmc = operator.Bmc(self.kubectl, 'box', 'admin', None).ready()
        self.assertEqual(before, self.can(self.tenant))
        self.assertEqual({'virtualmachinebmcs.bmc.kubevirt.io'},
                         {what for _, what in before})
        # The tenant cannot write the status.
        self.assertIn('forbidden', self.tenant.refused(
            'patch', 'vmbmc', 'box', '--subresource=status', '--type=merge',
            '-p', '{"status": {"serviceIP": "192.0.2.1"}}'))
        self.assertNotEqual('192.0.2.1', bmc.status['serviceIP'])
