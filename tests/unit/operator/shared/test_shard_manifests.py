# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json

from oslotest import base

from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator.shared import entry
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator.shared import shard_manifests
from sushy_kubevirt.operator.shared import shard_state
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies

NAME = 'sushy-kubevirt-shared-3-virtbmc'


class PlacementTestCase(base.BaseTestCase):

    def test_where_a_bmc_runs(self):
        for fields, default, shared in (
                ({}, 'PerVM', False), ({}, 'Shared', True),
                ({'placement': 'Shared'}, 'PerVM', True),
                ({'placement': 'PerVM'}, 'Shared', False),
                ({'image': 'a'}, 'Shared', False),
                ({'nodeSelector': {'a': 'b'}}, 'Shared', False),
                ({'tolerations': [{}]}, 'Shared', False),
                ({'resources': {'ipmi': {}}}, 'Shared', False)):
            with self.subTest(fields=fields, default=default):
                self.assertEqual(shared, placement.is_shared(
                    bodies.bmc(**fields), default))

    def test_service_stays_until_the_other_pod_serves(self):
        slot = placement.Slot(0, 1)
        for wanted, served, own_pod, expected in (
                (True, False, True, None), (True, True, True, slot),
                (True, False, False, slot), (False, True, True, None),
                (False, True, False, slot)):
            with self.subTest(wanted=wanted, served=served, own_pod=own_pod):
                self.assertEqual(expected, placement.Placement(
                    wanted, slot=slot, served=served).serving(own_pod))


class EntryTestCase(base.BaseTestCase):

    def test_of_both_protocols(self):
        found = json.loads(entry.entry(bodies.bmc(), 4, '7', '8'))
        options = found.pop('options')
        self.assertNotIn('SUSHY_EMULATOR_LISTEN_PORT', options)
        # A pod of before the operator's upgrade refuses names that it does not
        # know.
        self.assertNotIn(config_map.OPTION_NAMES, options)
        self.assertIn('MEDIA_SIZE_MARGIN', found.pop('option_names'))
        self.assertEqual({
            'uid': bodies.UID, 'slot': 4, 'vm': 'lab/vm',
            'redfish': {'http': False, 'tls': {
                'secret': 'node-virtbmc-tls', 'version': '8'}},
            'ipmi': {'port': 623}, 'account_management': True,
            'run_strategy': None,
            'auth': {'secret': 'node-virtbmc-auth', 'version': '7'}}, found)

    def test_plain_http_and_no_redfish(self):
        bmc = bodies.bmc(redfish={'plainHTTP': True}, ipmi={'enabled': False})
        found = json.loads(entry.entry(bmc, 0, '7', None))
        self.assertEqual({'http': False, 'tls': None}, found['redfish'])
        self.assertIsNone(found['ipmi'])
        found = json.loads(entry.entry(
            bodies.bmc(redfish={'enabled': False}), 0, '7', None))
        self.assertIsNone(found['redfish'])

    def test_upload_proxy(self):
        found = json.loads(entry.entry(
            bodies.bmc(), 0, '7', '8', config_map.Proxy('https://p', 'PEM')))
        self.assertEqual(
            ['https://p', 'upload-proxy.crt'],
            [found['options']['SUSHY_EMULATOR_KUBEVIRT_MEDIA_UPLOAD_PROXY_'
                              + name] for name in ('URL', 'CA')])

    def test_what_others_have_written(self):
        self.assertEqual(('u', 3), entry.recorded(
            entry.reservation('u', 3))[:2])
        for text in ('', '[]', '{', '{"uid": 1, "slot": 1}',
                     '{"uid": "u", "slot": true}', '{"uid": "u", "slot": -1}',
                     '[' * 100000):
            with self.subTest(text=text[:30]):
                self.assertIsNone(entry.recorded(text))
                self.assertEqual(('', ''), entry.report(text))


class ObjectsTestCase(base.BaseTestCase):

    def test_names(self):
        for name, shard in ((NAME, 3), (NAME + '-served', 3), (
                NAME + '-vms-12', 3), (
                'sushy-kubevirt-shared-03-virtbmc', None), ('node', None)):
            self.assertEqual(shard, naming.shard_number(name))
        made = shard_manifests.account('lab', 3)
        self.assertEqual(3, naming.shard_of(made))
        del made['metadata']['labels'][naming.MANAGED_BY]
        self.assertIsNone(naming.shard_of(made))

    def test_roles_name_the_objects_of_their_slots(self):
        members = []
        for slot, vm, secrets, redfish in (
                (49, 'b', {'z', 'y'}, False), (0, 'a', {'x'}, True),
                (50, 'c', {'w'}, False), (51, '', {'v'}, True),
                (150, '', set(), False)):
            members.append(shard_state.Member('uid', slot, rights=entry.Rights(
                tuple(secrets), redfish, vm=vm)))
        whole, first, second = shard_manifests.roles('lab', 3, members, False)
        self.assertEqual(
            [NAME, NAME + '-vms-0', NAME + '-vms-1'],
            [one['metadata']['name'] for one in (whole, first, second)])
        self.assertEqual([set(), {'a', 'b'}, {'c'}], [
            shard_manifests.granted(one) for one in (whole, first, second)])
        # Rules without names would give all Secrets.
        self.assertFalse([rule for rule in whole['rules']
                          if 'secrets' in rule['resources']])
        for role, secrets, redfish in ((first, ['x', 'y', 'z'], 'a'),
                                       (second, ['v', 'w'], None)):
            self.assertIn(rbac.rule('', ['secrets'], ['get'], secrets),
                          role['rules'])
            self.assertEqual({redfish} - {None}, {
                name.partition('-')[0] for rule in role['rules']
                if 'datavolumes' in rule['resources']
                for name in rule['resourceNames']})
        binding = shard_manifests.binding(second)
        self.assertEqual(
            (NAME + '-vms-1', [NAME]),
            (binding['roleRef']['name'],
             [one['name'] for one in binding['subjects']]))

    def test_role_of_one_vm_has_the_rights_of_its_own_pod(self):
        tls = {'caBundleConfigMapRef': {'name': 'ca'}}
        for redfish in ({}, {'webPage': False}, {'enabled': False},
                        {'virtualMedia': {'tls': tls}}):
            bmc = bodies.bmc(redfish=redfish)
            member = shard_state.Member('uid', 0, rights=entry.rights(
                bmc)._replace(secrets=frozenset()))
            for uploads in (False, True):
                self.assertEqual(
                    rbac.rules(bmc, uploads),
                    shard_manifests.roles(
                        'lab', 3, [member], uploads)[1]['rules'])

    def test_rights_that_a_recorded_entry_has(self):
        for redfish, expected in (({}, (True, True)),
                                  ({'webPage': False}, (True, False)),
                                  ({'enabled': False}, (False, False))):
            text = entry.entry(bodies.bmc(redfish=redfish), 0, '1', '2')
            self.assertEqual(expected, entry.recorded(text).rights[1:3])
        tls = {'caBundleConfigMapRef': {'name': 'ca'}}
        bmc = bodies.bmc(redfish={'virtualMedia': {'tls': tls}})
        self.assertEqual(
            entry.rights(bmc)._replace(vm=''), entry.recorded(
                entry.entry(bmc, 0, '1', '2')).rights)

    def test_policy_opens_what_its_bmcs_admit(self):
        made = shard_manifests.policy('lab', 3, {
            0: spec.NetworkPolicy(True), 7: spec.NetworkPolicy(
                True, ('10.0.0.0/8',))})['spec']
        # Nobody may reach slot 0.
        [rule] = made['ingress']
        self.assertEqual([{'ipBlock': {'cidr': '10.0.0.0/8'}}], rule['from'])
        self.assertEqual(
            [('TCP', 10007), ('TCP', 20007), ('UDP', 30007)],
            [(one['protocol'], one['port']) for one in rule['ports']])

    def test_deployment(self):
        proxy = config_map.Proxy('https://p', 'PEM')
        defaults = deployments.Defaults('virtbmc:1', proxy=proxy)
        made = shard_manifests.deployment('lab', 3, defaults, 250, 'uid')
        pod = made['spec']['template']['spec']
        [container] = pod['containers']
        self.assertEqual(NAME, pod['serviceAccountName'])
        self.assertIn({'name': 'VIRTBMC_SHARED', 'value': f'lab/{NAME}'},
                      container['env'])
        # The CPU of one BMC, and 1m for each 5 that it has room for.
        self.assertEqual({'memory': '298Mi', 'cpu': '80m'},
                         container['resources']['requests'])
        self.assertEqual({'tmp', 'config'}, {
            one['name'] for one in pod['volumes']})
        self.assertIn({'name': 'VIRTBMC_OPTIONS_FOLDER',
                       'value': '/etc/virtbmc/config'}, container['env'])
        without = shard_manifests.deployment('lab', 3, dataclasses.replace(
            defaults, proxy=None), 1000, 'uid')
        [container] = without['spec']['template']['spec']['containers']
        self.assertEqual('1048Mi', container['resources']['requests'][
            'memory'])
        self.assertEqual(['tmp'], [one['name'] for one in without['spec'][
            'template']['spec']['volumes']])
