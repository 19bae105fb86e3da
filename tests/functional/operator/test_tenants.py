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
        """Have him make a BMC, which does not come to be ready.

        :returns: :class:`operator.Bmc`, when it was looked at.
        """
        self.tenant('create', '--validate=false', '-f', '-', stdin=json.dumps(
            operator.bmc_manifest(name, vm, **spec)))
        found = operator.Bmc(self.kubectl, name, 'admin', None)
        self.until('looked at', lambda: (found.condition() or ('',))[0],
                   'False')
        return found

    def refused(self, bmc, reason, said):
        self.until('reason', bmc.condition, ('False', reason))
        self.assertIn(said, bmc.message())

    def nothing_of(self, name, *kinds):
        self.assertEqual([], [
            one for one in self.kubectl.names(
                ','.join(kinds or ('deployments', 'roles', 'rolebindings')))
            if name in one])

    def test_names_of_others(self):
        """An account, a binding, a Secret with the name that is needed."""
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
        self.refused(a, 'NameTaken', 'ServiceAccount a-virtbmc')
        self.assertEqual([], self.kubectl.names(
            'deployments', '-l', operator.LABEL + 'a'))
        b = self.make('b')
        self.refused(b, 'NameTaken', 'Deployment b-virtbmc')
        self.assertEqual('x', self.kubectl.get('deployment', 'b-virtbmc')[
            'spec']['template']['spec']['containers'][0]['image'])
        # A pod's rights would name it.
        c = self.make('c', 'database')
        self.refused(c, 'NameTaken', 'Secret database-bmc-state')
        self.nothing_of('c-virtbmc')
        self.assertEqual(before, self.kubectl.get(
            'secret', 'database-bmc-state'))

    def test_secrets_of_others(self):
        self.vm()
        self.kubectl('create', 'secret', 'generic', 'token',
                     '--from-literal=token=very-secret')
        box = self.make('box', secret='token')
        self.refused(box, 'SecretIncomplete', 'username')
        self.assertNotIn('very-secret', json.dumps(box.resource))
        self.assertEqual([], self.kubectl.names('deployments'))
        # That of the operator, in its namespace.
        away = self.make('away', authSecretRef=None, virtualMachineRef=None,
                         virtualMachine={'namespace': self.namespace,
                                         'name': 'box'},
                         authSecret={'namespace': operator.NAMESPACE,
                                     'name': 'sushy-kubevirt-ca'})
        self.refused(away, 'ReferenceNotPermitted', 'allow-from')
        self.assertNotIn('away-virtbmc-auth', ' '.join(
            self.kubectl.names('secrets')))

    def test_machines_of_others(self):
        far = self.new_namespace()
        self.vm('far', namespace=far)
        # It is not told whether there is one.
        said = set()
        for name in 'far', 'none':
            bmc = self.make(
                'to-' + name, virtualMachineRef=None,
                virtualMachine={'namespace': far, 'name': name},
                authSecret={'namespace': self.namespace, 'name': 'none'})
            self.refused(bmc, 'ReferenceNotPermitted',
                         'bmc.kubevirt.io/allow-from')
            said.add(bmc.message().replace(name, 'X'))
        self.assertEqual(1, len(said), said)
        self.assertEqual([], self.admin.within(far).names(
            'roles,rolebindings,secrets'))

    def test_what_runs_and_where(self):
        self.vm()
        self.secret()
        evil = self.make('evil', secret='box-bmc', image='evil.test/evil:1')
        self.refused(evil, 'ImageNotAllowed', 'evil.test/evil:1')
        self.assertEqual([], self.kubectl.names('deployments'))
        # Text is text.
        text = "'; import os; os.abort() #"
        told = self.make('told', secret='box-bmc', virtualMedia={
            'allowedHosts': [text]})
        self.assertEqual('False', told.condition()[0])
        for one in self.kubectl.get('configmaps')['items']:
            self.assertNotIn("\n'; import", json.dumps(one['data']))

    def test_he_gains_nothing(self):
        before = self.can(self.tenant)
        self.vm()
        self.secret()
        self.tenant('create', '--validate=false', '-f', '-', stdin=json.dumps(
            operator.bmc_manifest('box', secret='box-bmc')))
        bmc = operator.Bmc(self.kubectl, 'box', 'admin', None).ready()
        self.assertEqual(before, self.can(self.tenant))
        self.assertEqual({'virtualmachinebmcs.bmc.kubevirt.io'},
                         {what for _, what in before})
        # What is said of it is the operator's alone.
        self.assertIn('forbidden', self.tenant.refused(
            'patch', 'vmbmc', 'box', '--subresource=status', '--type=merge',
            '-p', '{"status": {"serviceIP": "192.0.2.1"}}'))
        self.assertNotEqual('192.0.2.1', bmc.status['serviceIP'])
