# SPDX-License-Identifier: Apache-2.0
"""The rights that are asked about, and what is missing."""

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator.diagnose import kinds
from sushy_kubevirt.operator.diagnose import operator_state
from sushy_kubevirt.operator.diagnose import rights
from sushy_kubevirt.operator import naming
from tests.unit.operator import bodies
from tests.unit.operator.diagnose import fakes

OPERATOR = 'system:serviceaccount:system:sushy-kubevirt-operator'


class RightsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.client = fakes.Client()

    def operator(self, **settings):
        return list(rights.operator(
            fakes.reading(self.client),
            operator_state.Settings('system', **settings)))

    def asked(self):
        """Return what was asked as (verb, resource.group, namespace)."""
        return {(one['verb'], '/'.join(filter(None, (
            one['resource'], one['subresource']))) + '.' + one['group'],
            one['namespace']) for one in (
                spec['resourceAttributes'] for spec in self.client.asked)}

    def test_all_granted(self):
        self.assertEqual([('ok', 'RightsGranted')],
                         fakes.brief(self.operator()))
        self.assertEqual({OPERATOR}, {
            spec['user'] for spec in self.client.asked})
        self.assertEqual({(
            'system:serviceaccounts', 'system:serviceaccounts:system',
            'system:authenticated')}, {
                tuple(spec['groups']) for spec in self.client.asked})
        for one in (('patch', 'virtualmachinebmcs/status.bmc.kubevirt.io',
                     ''),
                    ('create', 'deployments.apps', ''),
                    ('update', 'leases.coordination.k8s.io', 'system'),
                    ('update', 'virtualmachines/start.subresources.'
                     'kubevirt.io', '')):
            self.assertIn(one, self.asked())
        self.assertNotIn(('create', 'virtualmachinebmcs.bmc.kubevirt.io',
                          ''), self.asked())

    def test_namespaces_and_automatic_bmcs(self):
        self.operator(namespaces=('a', 'b'), auto_create=True)
        self.assertEqual(
            {('list', 'servicecidrs.networking.k8s.io', ''),
             ('get', 'endpointslices.discovery.k8s.io', '')},
            {asked for asked in self.asked()
             if asked[2] not in ('a', 'b', 'system')})
        self.assertIn(('create', 'virtualmachinebmcs.bmc.kubevirt.io', 'b'),
                      self.asked())

    def test_routes_of_openshift(self):
        self.client.groups += ('route.openshift.io',)
        self.operator()
        self.assertIn(('create', 'routes/custom-host.route.openshift.io', ''),
                      self.asked())

    def test_missing_rights(self):
        self.client.lacking = [
            {'resource': 'deployments', 'verb': 'create'},
            {'resource': 'deployments', 'verb': 'patch'},
            {'resource': 'leases', 'verb': 'update'}]
        [found] = self.operator()
        self.assertEqual([('problem', 'RightsMissing')],
                         fakes.brief([found]))
        self.assertEqual(
            f'{OPERATOR} may not create, patch deployments.apps in all '
            'namespaces; update leases.coordination.k8s.io '
            'sushy-kubevirt-operator in namespace system.', found.message)

    def test_many_missing_rights_are_counted(self):
        self.client.lacking = [{}]
        [found] = self.operator()
        self.assertRegex(found.message, r'; and so on, \d+ more\.$')
        self.assertLess(len(found.message), 700)

    def test_operator_asks_about_itself(self):
        # Its account may not ask about others.
        self.client.username = OPERATOR
        self.client.denied.add(kinds.ACCESS_REVIEW)
        self.assertEqual([('ok', 'RightsGranted')],
                         fakes.brief(self.operator()))
        self.assertEqual({False}, {
            'user' in spec for spec in self.client.asked})

    def test_user_who_may_not_ask(self):
        self.client.denied.add(kinds.ACCESS_REVIEW)
        self.assertRaises(errors.AccessDenied, self.operator)

    def bmc(self, uploads=False, account='node-virtbmc'):
        return list(rights.bmc(
            fakes.reading(self.client), bodies.bmc(), account,
            operator_state.Settings('system', uploads=uploads)))

    def test_rights_of_a_bmc_name_its_objects(self):
        self.assertEqual([('problem', 'AccountMissing')],
                         fakes.brief(self.bmc()))
        self.client.put(bmc_resources.ACCOUNT,
                        fakes.named('node-virtbmc', 'lab'))
        self.assertEqual([('ok', 'RightsGranted')], fakes.brief(self.bmc()))
        named = {(one['resource'], one['verb'], one['name']) for one in (
            spec['resourceAttributes'] for spec in self.client.asked)}
        for one in (('virtualmachines', 'patch', 'vm'),
                    ('secrets', 'watch', 'vm-bmc-state'),
                    ('datavolumes', 'create', 'vm-bmc-cd-0')):
            self.assertIn(one, named)
        self.assertNotIn('uploadtokenrequests', {one[0] for one in named})
        self.client.lacking = [{'resource': 'uploadtokenrequests'}]
        [found] = self.bmc(uploads=True)
        self.assertIn('may not create uploadtokenrequests', found.message)
        self.assertIn('Role and RoleBinding lab/node-virtbmc', found.remedy)

    def test_rights_of_a_shared_pod(self):
        account = naming.shared(2)
        self.client.put(bmc_resources.ACCOUNT, fakes.named(account, 'lab'))
        self.client.lacking = [{'resource': 'virtualmachines'}]
        [found] = self.bmc(account=account)
        self.assertIn(f'system:serviceaccount:lab:{account} may not',
                      found.message)
        self.assertIn(f'Role and RoleBinding lab/{account}-vms-N',
                      found.remedy)
