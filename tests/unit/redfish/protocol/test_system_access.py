# SPDX-License-Identifier: Apache-2.0

import re

import fixtures
from oslotest import base

from sushy_kubevirt.bmc import clock
from sushy_kubevirt.redfish.protocol import system_access
from tests.unit.redfish import fakes

# Values of the URL arguments that name no system.
ARGUMENTS = {
    'device': 'Cd', 'cert_id': 'Default', 'nic_id': 'default',
    'processor_id': 'CPU0', 'simple_storage_id': 'virtio',
    'storage_id': 'virtio', 'stg_id': 'virtio', 'drv_id': 'root',
    'drive_id': 'root', 'vol_id': 'root', 'sensor_id': 'Power',
    'filename': 'x', 'session_id': '1', 'reference': 'Boot0001',
    'memory_id': 'RAM', 'firmware': 'BMC', 'controller_id': '1', 'entry': '1',
}


def urls(app, identity):
    """Yield (method, path) of all routes of one system."""
    app.test_client().get('/redfish')       # The first request adds routes.
    for rule in list(app.url_map.iter_rules()):
        argument = system_access.system_argument(rule.rule)
        if argument is None:
            continue
        path = re.sub(
            '<(?:[^:>]*:)?([^>]*)>',
            lambda match: identity if match[1] == argument
            else ARGUMENTS[match[1]], rule.rule)
        for method in sorted(rule.methods):
            yield method, path


class SystemAccessTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.a = fakes.Machine(fakes.A, 'vm-a')
        self.b = fakes.Machine(fakes.B, 'vm-b')
        self.other = fakes.Machine(fakes.OTHER, 'vm-b', 'other')
        self.cluster = fakes.Cluster(self.a, self.b, self.other)

    def client(self, **config):
        self.app = fakes.application(self, self.cluster, **config)
        return self.app.test_client()


class TestSystemArgument(base.BaseTestCase):

    def test_finds_argument_that_names_a_system(self):
        for rule, argument in (
                ('/redfish/v1/Systems/<identity>', 'identity'),
                ('/redfish/v1/Systems/<identity>/Storage/<x>', 'identity'),
                ('/redfish/v1/Systems/<string:thing>/New', 'thing'),
                ('/redfish/v1/Managers/<manager_id>/New', 'manager_id'),
                ('/redfish/v1/Managers', None),
                ('/redfish/v1/Systems/Bios/BiosRegistry', None),
                ('/redfish/v1/Chassis', None),
                ('/redfish/v1/Chassis/<identity>/Thermal', 'identity')):
            self.assertEqual(argument, system_access.system_argument(rule))


class TestAllowedInstances(SystemAccessTestCase):
    """Systems that are not in the list look like missing ones."""

    def test_routes_of_other_systems_get_404(self):
        client = self.client(SUSHY_EMULATOR_ALLOWED_INSTANCES=[fakes.A])

        def answers(identity):
            return {
                (method, path.replace(identity, 'nobody')): client.open(
                    path, method=method, json={})
                for method, path in urls(self.app, identity)}

        missing = answers('nobody')
        for identity in (fakes.B, fakes.B.upper(), 'vm-b', 'default:vm-b',
                         'other:vm-b', fakes.OTHER):
            denied = answers(identity)
            self.assertEqual(missing.keys(), denied.keys())
            for request, answer in denied.items():
                self.assertEqual(404, answer.status_code, request)
                # A denied system cannot be told from a missing one.
                self.assertEqual(
                    missing[request].text.replace('nobody', identity),
                    answer.text)
                self.assertNotIn('Location', answer.headers)
        # The same routes of an allowed system do not all return 404.
        allowed = answers(fakes.A)
        self.assertEqual(missing.keys(), allowed.keys())
        self.assertIn(200, [each.status_code for each in allowed.values()])
        self.assertEqual([], self.b.calls + self.other.calls)

    def test_empty_list_denies_all(self):
        client = self.client(SUSHY_EMULATOR_ALLOWED_INSTANCES=[])
        answer = client.get('/redfish/v1/Systems/' + fakes.A)
        self.assertEqual(404, answer.status_code)

    def test_list_with_qualified_name(self):
        client = self.client(
            SUSHY_EMULATOR_ALLOWED_INSTANCES=['default/vm-b'])
        self.assertEqual(200, client.get(
            '/redfish/v1/Systems/' + fakes.B).status_code)
        self.assertEqual(404, client.get(
            '/redfish/v1/Systems/' + fakes.OTHER).status_code)

    def test_uuid_in_list_does_not_match_a_name(self):
        self.a.name = fakes.B
        self.cluster.all.remove(self.b)
        client = self.client(SUSHY_EMULATOR_ALLOWED_INSTANCES=[fakes.B])
        for identity in fakes.A, fakes.B, 'default:' + fakes.B:
            self.assertEqual(404, client.get(
                '/redfish/v1/Systems/' + identity).status_code)

    def test_denied_systems_do_not_make_a_name_ambiguous(self):
        client = self.client(SUSHY_EMULATOR_ALLOWED_INSTANCES=[fakes.B])
        answer = client.get('/redfish/v1/Systems/vm-b')
        self.assertEqual(307, answer.status_code)
        self.assertEqual('/redfish/v1/Systems/' + fakes.B,
                         answer.headers['Location'])

    def test_collections_omit_denied_systems(self):
        client = self.client(SUSHY_EMULATOR_ALLOWED_INSTANCES=[fakes.B])
        for path in ('/redfish/v1/Systems', '/redfish/v1/Managers',
                     '/redfish/v1/Chassis',
                     '/redfish/v1/Chassis/' + fakes.B,
                     '/redfish/v1/CertificateService/CertificateLocations'):
            text = client.get(path).get_data(as_text=True)
            for denied in fakes.A, fakes.OTHER, 'vm-a':
                self.assertNotIn(denied, text, path)
        self.assertIn(fakes.B, client.get(
            '/redfish/v1/Systems').get_data(as_text=True))
        self.assertIn(fakes.B, client.get(
            '/redfish/v1/Chassis/' + fakes.B).get_data(as_text=True))

    def test_uris_in_bodies_do_not_reach_denied_systems(self):
        client = self.client(SUSHY_EMULATOR_ALLOWED_INSTANCES=[fakes.B])
        for identity in fakes.A, 'vm-a', fakes.B:
            answer = client.post(
                '/redfish/v1/UpdateService/Actions/'
                'UpdateService.SimpleUpdate',
                json={'ImageURI': 'http://x',
                      'Targets': ['/redfish/v1/Systems/' + identity]})
            self.assertEqual(501, answer.status_code)
            answer = client.post(
                '/redfish/v1/CertificateService/Actions/'
                'CertificateService.ReplaceCertificate',
                json={'CertificateString': 'x', 'CertificateType': 'PEM',
                      'CertificateUri':
                      f'/redfish/v1/Managers/{identity}/VirtualMedia/Cd/'
                      'Certificates/Default'})
            self.assertEqual(404, answer.status_code)


class TestNames(SystemAccessTestCase):

    def test_redirect_keeps_subpath_and_query(self):
        client = self.client()
        for name in 'vm-a', 'default:vm-a':
            for method, path in urls(self.app, name):
                answer = client.open(path + '?only=1', method=method,
                                     json={'ResetType': 'On'})
                self.assertEqual(307, answer.status_code, path)
                self.assertEqual(
                    path.replace(name, fakes.A) + '?only=1',
                    answer.headers['Location'])
        self.assertEqual([], self.a.calls)

    def test_encoded_slash_in_qualified_name(self):
        client = self.client()
        for path in ('/redfish/v1/Systems/default%2Fvm-a',
                     '/redfish/v1/Systems/default%2fvm-a/BIOS',
                     '/redfish/v1/Managers/default%2Fvm-a'):
            answer = client.get(
                path, environ_overrides={'REQUEST_URI': path})
            self.assertEqual(307, answer.status_code)
            self.assertEqual(
                path.replace('default%2Fvm-a', fakes.A).replace(
                    'default%2fvm-a', fakes.A), answer.headers['Location'])

    def test_encoded_slash_elsewhere_gets_404(self):
        client = self.client()
        path = f'/redfish/v1/Systems/{fakes.A}/Storage%2F1'
        answer = client.get(path, environ_overrides={'REQUEST_URI': path})
        self.assertEqual(404, answer.status_code)

    def test_ambiguous_name_gets_409(self):
        answer = self.client().get('/redfish/v1/Systems/vm-b')
        self.assertEqual(409, answer.status_code)
        text = answer.json['error']['message']
        self.assertIn('default/vm-b', text)
        self.assertIn('other/vm-b', text)

    def test_uuid_is_case_insensitive(self):
        answer = self.client().get('/redfish/v1/Systems/' + fakes.A.upper())
        self.assertEqual(200, answer.status_code)
        self.assertEqual(fakes.A, answer.json['Id'])

    def test_chassis_by_name_redirects(self):
        client = self.client()
        answer = client.get('/redfish/v1/Chassis/vm-a/Thermal')
        self.assertEqual(307, answer.status_code)
        self.assertEqual(f'/redfish/v1/Chassis/{fakes.A}/Thermal',
                         answer.headers['Location'])
        self.assertEqual(404, client.get(
            '/redfish/v1/Chassis/none').status_code)


class TestSingleVm(SystemAccessTestCase):
    """The only VM is 1; its UUID, and names of KubeVirtBMC, are aliases."""

    VM = 'default/vm-a'
    ALIASES = (('/redfish/v1/Systems/', fakes.A),
               ('/redfish/v1/Systems/', fakes.A.upper()),
               ('/redfish/v1/Managers/', fakes.A),
               ('/redfish/v1/Managers/', 'BMC'),
               ('/redfish/v1/Chassis/', fakes.A))

    def test_alias_responses_are_equal(self):
        # The managers show the time.
        now = clock.Clock().now()
        self.useFixture(fixtures.MockPatchObject(
            clock.Clock, 'now', lambda self: now))
        client = self.client(SUSHY_EMULATOR_KUBEVIRT_VM=self.VM)
        number = 0
        for method, path in urls(self.app, '1'):
            wanted = client.open(path, method=method, json={})
            self.assertNotEqual(307, wanted.status_code)
            for prefix, alias in self.ALIASES:
                if not path.startswith(prefix):
                    continue
                number += 1
                found = client.open(path.replace('/1', '/' + alias, 1),
                                    method=method, json={})
                self.assertEqual(wanted.status_code, found.status_code, path)
                if wanted.status_code < 400:
                    self.assertEqual(wanted.data, found.data, path)
                for name in 'ETag', 'Location':
                    self.assertEqual(wanted.headers.get(name),
                                     found.headers.get(name), path)
        self.assertGreater(number, 200)

    def test_one_is_in_every_uri(self):
        client = self.client(SUSHY_EMULATOR_KUBEVIRT_VM=self.VM)
        number = 0
        for identity in '1', fakes.A:
            for method, path in urls(self.app, identity):
                answer = client.open(path, method=method, json={})
                if method == 'GET' and answer.status_code == 200:
                    number += 1
                    self.assertNotRegex(
                        answer.text,
                        f'/(Systems|Managers|Chassis)/{fakes.A}')
        self.assertGreater(number, 60)
        for name in 'Systems', 'Managers', 'Chassis':
            collection = '/redfish/v1/' + name
            self.assertEqual([{'@odata.id': collection + '/1'}],
                             client.get(collection).json['Members'])
            self.assertEqual('1', client.get(collection + '/1').json['Id'])
            self.assertEqual(fakes.A, client.get(
                collection + '/1').json['UUID'])

    def test_name_redirects_to_one(self):
        client = self.client(SUSHY_EMULATOR_KUBEVIRT_VM=self.VM)
        answer = client.get('/redfish/v1/Systems/vm-a/Bios?$select=Id')
        self.assertEqual(307, answer.status_code)
        self.assertEqual('/redfish/v1/Systems/1/Bios?$select=Id',
                         answer.headers['Location'])

    def test_links_of_expanded_alias(self):
        client = self.client(SUSHY_EMULATOR_KUBEVIRT_VM=self.VM)
        for expand in '*', '.', '~':
            query = f'?$expand={expand}($levels=2)'
            wanted = client.get('/redfish/v1/Systems/1' + query)
            found = client.get(f'/redfish/v1/Systems/{fakes.A}{query}')
            self.assertEqual(200, found.status_code)
            # A second may pass between the two.
            self.assertEqual(*(
                re.sub('"DateTime": ?"[^"]+"', '', one.get_data(as_text=True))
                for one in (wanted, found)))

    def test_action_by_alias(self):
        client = self.client(SUSHY_EMULATOR_KUBEVIRT_VM=self.VM)
        answer = client.post(
            '/redfish/v1/Systems/1/Actions/ComputerSystem.Reset',
            json={'ResetType': 'On'})
        self.assertEqual(204, answer.status_code)
        self.assertIn('reset', str(self.a.calls))

    def test_if_match_by_alias(self):
        client = self.client(SUSHY_EMULATOR_KUBEVIRT_VM=self.VM)
        paths = ['/redfish/v1/Systems/' + one for one in ('1', fakes.A)]
        for read, written in paths, reversed(paths):
            tag = client.get(read).headers['ETag']
            answer = client.patch(written, json={'AssetTag': 'x'},
                                  headers={'If-Match': tag})
            self.assertEqual(204, answer.status_code)

    def test_virtual_media_alias(self):
        client = self.client(SUSHY_EMULATOR_KUBEVIRT_VM=self.VM)
        for owner in 'Managers/BMC', 'Systems/1', 'Systems/' + fakes.A:
            answer = client.get(f'/redfish/v1/{owner}/VirtualMedia/CD1')
            self.assertEqual(200, answer.status_code)
            self.assertEqual('Cd', answer.json['Id'])
        answer = client.post(
            '/redfish/v1/Managers/BMC/VirtualMedia/CD1/Actions/'
            'VirtualMedia.InsertMedia', json={'Image': 'http://host/a.iso'})
        self.assertEqual(204, answer.status_code)
        self.assertEqual(404, client.get(
            '/redfish/v1/Managers/BMC/VirtualMedia/CD2').status_code)

    def test_manager_alias_belongs_to_managers(self):
        client = self.client(SUSHY_EMULATOR_KUBEVIRT_VM=self.VM)
        for path in 'Systems/BMC', 'Chassis/BMC', 'Managers/bmc', 'Systems/2':
            self.assertEqual(404, client.get(
                '/redfish/v1/' + path).status_code)

    def test_several_vms_are_uuids(self):
        self.cluster.all[:] = [self.a]
        client = self.client()
        for path in 'Systems/1', 'Managers/1', 'Managers/BMC', 'Chassis/1':
            self.assertEqual(404, client.get(
                '/redfish/v1/' + path).status_code)
        self.assertEqual(404, client.get(
            f'/redfish/v1/Systems/{fakes.A}/VirtualMedia/CD1').status_code)
        for name in 'Systems', 'Managers', 'Chassis':
            self.assertEqual(fakes.A, client.get(
                f'/redfish/v1/{name}/{fakes.A}').json['Id'])

    def test_alias_of_missing_vm_gets_404(self):
        self.cluster.all.remove(self.a)
        client = self.client(SUSHY_EMULATOR_KUBEVIRT_VM=self.VM)
        answer = client.get('/redfish/v1/Systems/1')
        self.assertEqual(404, answer.status_code)

    def test_alias_respects_allowed_instances(self):
        client = self.client(SUSHY_EMULATOR_KUBEVIRT_VM=self.VM,
                             SUSHY_EMULATOR_ALLOWED_INSTANCES=[fakes.B])
        for prefix, alias in (*self.ALIASES, ('/redfish/v1/Systems/', '1')):
            self.assertEqual(404, client.get(prefix + alias).status_code)
