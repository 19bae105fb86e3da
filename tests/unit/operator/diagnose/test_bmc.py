# SPDX-License-Identifier: Apache-2.0
"""Conditions of one BMC, and the list of those that are not ready."""

import datetime

from oslotest import base

from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator.diagnose import bmc as bmcs
from sushy_kubevirt.operator.diagnose import operator_state
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary
from tests.unit.operator import bodies
from tests.unit.operator.diagnose import fakes

OWNER = {'ownerReferences': [{'uid': bodies.UID, 'controller': True}],
         'uid': 'u'}


def condition(type_, reason, status='False', message=''):
    return {'type': type_, 'status': status, 'reason': reason,
            'message': message, 'lastTransitionTime': ''}


class BmcTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.client = fakes.Client()
        self.body = bodies.body(authSecret={'name': 'key'})
        self.client.put(fakes.BMC, self.body)
        self.client.put(bmc_resources.VM, bodies.vm())
        self.client.put(fakes.SECRET, bodies.secret())
        pair = pki.issue(pki.make('test'), ('node',))
        self.pem = pair.certificate
        self.client.put(fakes.SECRET, fakes.named(
            'node-virtbmc-tls', 'lab', metadata=OWNER,
            data=secret_summary.data(pair)))
        deployment = bodies.deployment(
            observedGeneration=2, updatedReplicas=1, readyReplicas=1)
        deployment['spec'] = {'template': {'spec': {'containers': []}}}
        for resource, one in ((bmc_resources.DEPLOYMENT, deployment),
                              (bmc_resources.SERVICE, bodies.service())):
            metadata = one.setdefault('metadata', {})
            metadata.update(name='node-virtbmc', namespace='lab', **OWNER)
            self.client.put(resource, one)

    def read(self, name='node'):
        taken = []
        found = list(bmcs.read(fakes.reading(self.client), 'lab', name,
                               taken.append))
        return found, taken

    def status(self):
        found, [bmc] = self.read()
        self.assertEqual([], found)
        return list(bmcs.status(bmc))

    def stored(self, *given):
        self.body['status'] = {'conditions': [
            *given, condition('Ready', 'ServiceReady', 'True')]}

    def all_fulfilled(self, *others):
        types = {one['type'] for one in others}
        self.stored(*others, *(
            condition(type_, reason, 'True') for type_, reason in (
                (conditions.VM, 'VirtualMachineFound'),
                (conditions.SECRET, 'SecretFound'),
                (conditions.EMULATOR, 'EmulatorReady'),
                (conditions.ENDPOINT, 'EndpointAssigned'),
                (conditions.SERVICE, 'ServiceReady'))
            if type_ not in types))

    def test_ready(self):
        self.all_fulfilled()
        self.assertEqual([('ok', 'ServiceReady')],
                         fakes.brief(self.status()))
        [bmc] = self.read()[1]
        self.assertEqual(self.pem, bmc.certificate)
        self.assertEqual('10.0.0.7', bmc.service['spec']['clusterIP'])

    def test_words_are_those_of_the_status(self):
        del self.client.objects[bmc_resources.VM, 'lab', 'vm']
        self.all_fulfilled(condition(conditions.VM,
                                     'VirtualMachineNotFound'))
        [found] = self.status()
        self.assertEqual(('problem', 'VirtualMachineNotFound'),
                         fakes.brief([found])[0])
        self.assertEqual(
            'VirtualMachine lab/vm does not exist. The BMC works as soon as '
            'it is created.', found.message)

    def test_status_that_is_not_up_to_date(self):
        # The operator was down when the Secret was changed.
        self.all_fulfilled()
        self.client.put(fakes.SECRET, bodies.secret(username='me'))
        found = self.status()
        self.assertEqual([('problem', 'SecretIncomplete'),
                          ('warning', 'StatusOutdated')], fakes.brief(found))
        self.assertEqual('Its status is not up to date: SecretAvailable.',
                         found[1].message)

    def test_secret_that_optional_ipmi_cannot_use(self):
        self.body['spec'] = bodies.by_ref(
            authSecretRef={'name': 'key'})['spec']
        self.client.put(fakes.SECRET, bodies.secret(
            username='me', password='x' * 21))
        self.all_fulfilled(condition(
            conditions.SECRET, 'SecretUnusableForIPMI', 'True'))
        self.assertEqual([('ok', 'ServiceReady')],
                         fakes.brief(self.status()))
        self.assertFalse(self.read()[1][0].spec.ipmi)

    def test_no_status(self):
        self.assertEqual(('problem', 'NotManaged'),
                         fakes.brief(self.status())[0])

    def test_reasons_that_only_the_operator_knows(self):
        self.all_fulfilled(condition(conditions.EMULATOR, 'Refused',
                                     message='exceeded quota'))
        [found] = self.status()
        self.assertEqual('exceeded quota', found.message)

    def test_placement_that_only_the_operator_knows(self):
        self.all_fulfilled(condition(
            conditions.EMULATOR, 'PlacementWaiting', 'True'))
        self.assertEqual([('ok', 'ServiceReady')],
                         fakes.brief(self.status()))
        self.all_fulfilled(condition(
            conditions.EMULATOR, 'NameTaken', message='delete it'))
        self.body['status']['placement'] = {'type': 'Shared'}
        self.client.objects.pop((bmc_resources.DEPLOYMENT, 'lab',
                                 'node-virtbmc'))
        [found] = self.status()
        self.assertEqual('delete it', found.message)

    def test_waiting_conditions_are_left_out(self):
        del self.client.objects[fakes.SECRET, 'lab', 'key']
        del self.client.objects[bmc_resources.DEPLOYMENT, 'lab',
                                'node-virtbmc']
        self.all_fulfilled(
            condition(conditions.SECRET, 'SecretNotFound'),
            condition(conditions.EMULATOR, 'WaitingForSecret'))
        self.assertEqual([('problem', 'SecretNotFound')],
                         fakes.brief(self.status()))

    def test_expired_certificate_of_a_user(self):
        self.body['spec']['redfish'] = {'tls': {'secretName': 'mine'}}
        old = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        self.client.put(fakes.SECRET, fakes.named(
            'mine', 'lab', data=secret_summary.data(pki.issue(
                pki.make('test'), ('node',), old))))
        self.all_fulfilled(condition(conditions.ENDPOINT,
                                     'CertificateExpired'))
        [found] = self.status()
        self.assertEqual('CertificateExpired', found.reason)
        self.assertIn('Secret lab/mine expired at 2020-12-31', found.message)

    def test_not_there_and_without_vm(self):
        found, taken = self.read('other')
        self.assertEqual([('problem', 'BMCNotFound')], fakes.brief(found))
        self.assertEqual([], taken)
        self.body['spec'] = {}
        found, taken = self.read()
        self.assertEqual([('problem', 'VirtualMachineNotNamed')],
                         fakes.brief(found))
        self.assertEqual([], taken)

    def test_user_who_may_read_only_bmcs(self):
        self.client.denied.add(fakes.SECRET)
        self.stored(condition(conditions.VM, 'VirtualMachineNotFound',
                              message='as the operator said'))
        found, [bmc] = self.read()
        self.assertEqual([('unknown', 'NotChecked')], fakes.brief(found))
        [found] = bmcs.status(bmc)
        self.assertEqual('as the operator said', found.message)
        self.assertIsNone(bmc.service)

    def test_list(self):
        def listed(*namespaces):
            return list(bmcs.not_ready(
                fakes.reading(self.client), operator_state.Settings(
                    'system', namespaces=namespaces)))
        self.body['status'] = {'conditions': [
            condition('Ready', 'SecretNotFound', message='Create it.')]}
        ready = bodies.body('good')
        ready['status'] = {'conditions': [
            condition('Ready', 'ServiceReady', 'True')]}
        self.client.put(fakes.BMC, ready, bodies.body('new'))
        found = listed()
        self.assertEqual(
            [('problem', 'SecretNotFound'), ('problem', 'NotManaged'),
             ('ok', 'BMCsListed')], fakes.brief(found))
        self.assertEqual('Create it.', found[0].message)
        self.assertIn('There are 3 BMCs', found[-1].message)
        self.assertEqual([('ok', 'BMCsListed')],
                         fakes.brief(listed('elsewhere')))
