# SPDX-License-Identifier: Apache-2.0
"""What the plugin touches of upstream, and that it still is as it was read.

A test of `TestUpstream` that fails says: sushy-tools has moved, read what
`plugin` replaces again.
"""

import base64
from concurrent import futures
import inspect
import json
import os
import subprocess
import sys
import threading

import bcrypt
import fixtures
import flask
from oslotest import base
from sushy_tools.emulator import api_utils
from sushy_tools.emulator import auth_basic
from sushy_tools.emulator import main
from sushy_tools.emulator.resources import vmedia
from sushy_tools import error

from sushy_kubevirt.emulator import media_driver
from sushy_kubevirt.emulator import plugin
from sushy_kubevirt.redfish import routes
from tests.unit.redfish import base as redfish
from tests.unit.redfish import fakes

# Asked of a process of its own: in this one the plugin may be in already.
UPSTREAM = '''
import inspect, json
from sushy_tools.emulator import main
app = main.Application
source = inspect.getsource
print(json.dumps({
    'properties': [name for name in ('systems', 'vmedia', 'feature_set',
                                     'chassis', 'indicators')
                   if isinstance(vars(app).get(name), property)],
    'own': [name for name in ('run', 'wsgi_app', 'register_blueprint',
                              '__call__') if name in vars(app)],
    'configure': source(app.configure),
    'init': source(app.__init__),
    'systems': source(app.systems.fget),
    'vmedia': source(app.vmedia.fget),
    'middleware': sorted(name for name in vars(main.RedfishAuthMiddleware)
                         if callable(
                             vars(main.RedfishAuthMiddleware)[name])),
    'rules': {rule.endpoint: rule.rule
              for rule in main.app.url_map.iter_rules()},
    'arguments': {
        endpoint: sorted(inspect.signature(view).parameters)
        for endpoint, view in main.app.view_functions.items()},
}))
'''


class TestUpstream(base.BaseTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.upstream = json.loads(subprocess.run(
            [sys.executable, '-c', UPSTREAM], check=True, text=True,
            stdout=subprocess.PIPE, env={
                name: value for name, value in os.environ.items()
                if not name.startswith('SUSHY_')}).stdout)

    def test_application(self):
        self.assertTrue(issubclass(main.Application, flask.Flask))
        self.assertEqual(
            ['systems', 'vmedia', 'feature_set', 'chassis', 'indicators'],
            self.upstream['properties'])
        # Flask's, which upstream calls and does not replace.
        self.assertEqual([], self.upstream['own'])

    def test_configure(self):
        """The file is read first; the middleware takes self.wsgi_app."""
        source = self.upstream['configure']
        self.assertLess(source.index('from_pyfile'),
                        source.index('RedfishAuthMiddleware'))
        self.assertIn('self.wsgi_app = RedfishAuthMiddleware(self.wsgi_app',
                      source)
        self.assertIn("SUSHY_EMULATOR_CONFIG", self.upstream['init'])

    def test_drivers(self):
        """What the stock drivers are given."""
        source = ' '.join(self.upstream['systems'].split())
        for text in (
                'fakedriver.FakeDriver.initialize( self.config, '
                'self.logger)()',
                'novadriver.OpenStackDriver.initialize( self.config, '
                'self.logger, os_cloud)()',
                'ironicdriver.IronicDriver.initialize( self.config, '
                'self.logger, ironic_cloud)()',
                'libvirtdriver.LibvirtDriver.initialize( self.config, '
                'self.logger, libvirt_uri)()',
                "get('SUSHY_EMULATOR_OS_CLOUD')",
                "get('SUSHY_EMULATOR_IRONIC_CLOUD')",
                "get('SUSHY_EMULATOR_LIBVIRT_URI', '')"):
            self.assertIn(text, source)

    def test_routes(self):
        """Every endpoint we answer, its rule and its arguments."""
        system = '/redfish/v1/Systems'
        one = system + '/<identity>'
        rules = {
            'system_collection_resource': system,
            'system_resource': one,
            'system_reset_action': one + '/Actions/ComputerSystem.Reset',
            'processors_collection': one + '/Processors',
            'processor': one + '/Processors/<processor_id>',
            'ethernet_interfaces_collection': one + '/EthernetInterfaces',
            'ethernet_interface': one + '/EthernetInterfaces/<nic_id>',
            'simple_storage_collection': one + '/SimpleStorage',
            'simple_storage': one + '/SimpleStorage/<simple_storage_id>',
            'storage_collection': one + '/Storage',
            'storage': one + '/Storage/<storage_id>',
            'drive_resource': one + '/Storage/<stg_id>/Drives/<drv_id>',
            'volumes_collection': one + '/Storage/<storage_id>/Volumes',
            'volume': one + '/Storage/<stg_id>/Volumes/<vol_id>',
            'bios': one + '/BIOS',
            'bios_settings': one + '/BIOS/Settings',
            'system_reset_bios': one + '/BIOS/Actions/Bios.ResetBios',
            'secure_boot': one + '/SecureBoot',
            'manager_collection_resource': '/redfish/v1/Managers',
            'manager_resource': '/redfish/v1/Managers/<identity>',
            'chassis_collection_resource': '/redfish/v1/Chassis',
            'chassis_resource': '/redfish/v1/Chassis/<identity>',
            'thermal_resource': '/redfish/v1/Chassis/<identity>/Thermal',
            'UpdateService.update_service_resource':
                '/redfish/v1/UpdateService/',
            'UpdateService.update_service_simple_update':
                '/redfish/v1/UpdateService/Actions/'
                'UpdateService.SimpleUpdate',
            'CertificateService.certificate_service_replace_certificate':
                '/redfish/v1/CertificateService/Actions/'
                'CertificateService.ReplaceCertificate',
        }
        self.assertLessEqual(set(rules), routes.replaced_endpoints())
        for endpoint, rule in rules.items():
            self.assertEqual(rule, self.upstream['rules'].get(endpoint))

    def test_every_route_of_a_system_is_known(self):
        """A new one of upstream's wants a look: ours, or theirs to answer?
        """
        theirs = {'VirtualMedia.' + name for name in (
            'virtual_media_collection_resource', 'virtual_media_resource',
            'virtual_media_patch', 'virtual_media_certificates',
            'virtual_media_add_certificate', 'virtual_media_get_certificate',
            'virtual_media_delete_certificate', 'virtual_media_insert',
            'virtual_media_eject')}
        found = {endpoint for endpoint, rule in self.upstream['rules'].items()
                 if rule.startswith(('/redfish/v1/Systems/<',
                                     '/redfish/v1/Managers/<'))}
        self.assertEqual(set(), found - theirs - routes.replaced_endpoints())

    def test_media(self):
        methods = {name for name in dir(vmedia.BaseDriver)
                   if not name.startswith('_')}
        self.assertEqual({
            'add_certificate', 'delete_certificate', 'devices', 'driver',
            'eject_image', 'get_device_image_info', 'get_device_media_types',
            'get_device_name', 'insert_image', 'list_certificates',
            'replace_certificate', 'update_device_info'}, methods)

    def test_authentication(self):
        self.assertEqual(['__call__', 'format_exception'],
                         self.upstream['middleware'])
        self.assertTrue(hasattr(auth_basic, 'authenticate'))

    def test_access(self):
        """Upstream's own check does not stand in the way of ours."""
        self.assertIn("SUSHY_EMULATOR_ALLOWED_INSTANCES",
                      inspect.getsource(api_utils.instance_denied))


class TestSelection(redfish.RedfishTestCase):

    def test_twice(self):
        before = dict(vars(main.Application))
        plugin.enable()
        self.assertEqual(before, dict(vars(main.Application)))

    def test_unknown_driver(self):
        self.app.config[plugin.DRIVER] = 'nonsense'
        exc = self.assertRaises(SystemExit, self.app.sushy_kubevirt.check)
        self.assertEqual(3, exc.code)

    def test_media(self):
        made = self.app.vmedia
        self.assertIsInstance(made, media_driver.KubeVirtDriver)
        self.assertIs(made, self.app.vmedia)
        fakes.application(self, fakes.Cluster(fakes.Machine(fakes.B, 'b')))
        self.assertIsNot(made, self.app.vmedia)
        self.assertIsInstance(self.app.vmedia, media_driver.KubeVirtDriver)

    def test_many_first_requests(self):
        installed = []
        self.useFixture(fixtures.MockPatchObject(
            routes, 'install', lambda app: installed.append(app)))
        state = plugin._State(self.app)
        state.use(self.app.systems)
        barrier = threading.Barrier(8)

        def first():
            barrier.wait(10)
            return state.ours()

        with futures.ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(first) for _ in range(8)]
            self.assertEqual([True] * 8,
                             [answer.result(10) for answer in answers])
        self.assertEqual([self.app], installed)

    def test_stock_driver_with_its_own_options(self):
        # A list that upstream takes and the kubevirt driver would not.
        self.app.config.update({
            plugin.DRIVER: 'fake',
            'SUSHY_EMULATOR_ALLOWED_INSTANCES': ['a-name']})
        state = plugin._State(self.app)
        state.check()
        self.assertEqual('<fake>', state.systems(None).driver)

    def test_second_config_file(self):
        """--config names another driver than SUSHY_EMULATOR_CONFIG did."""
        state = plugin._State(self.app)
        state.use(self.app.systems)
        self.app.config[plugin.DRIVER] = 'fake'
        state.check()
        self.assertEqual('<fake>', state.systems(None).driver)
        self.app.config[plugin.DRIVER] = None
        state.check()
        self.assertEqual('upstream', state.systems(lambda app: 'upstream'))

    def test_same_options_same_driver(self):
        driver = self.app.systems
        self.app.sushy_kubevirt.check()
        self.assertIs(driver, self.app.systems)
        self.assertTrue(driver.cluster.started)


class TestAuthentication(redfish.RedfishTestCase):
    """Upstream's middleware steps aside for ours, and for ours alone."""

    def setUp(self):
        super().setUp()
        self.passwords = self.create_tempfiles([(
            'passwords', 'admin:%s\n' % bcrypt.hashpw(
                b'secret', bcrypt.gensalt(4)).decode())])[0]
        self.addCleanup(delattr, self.app, 'wsgi_app')

    def wrap(self, path):
        self.app.wsgi_app = main.RedfishAuthMiddleware(
            self.app.wsgi_app, path)

    def test_ours(self):
        self.wrap(self.passwords)
        # It would refuse this one.
        self.get(path='/redfish/v1/Systems')

    def test_ours_reads_the_file_itself(self):
        """And tells of it at the start: see `services.site`."""
        self.wrap('/no/such/file')
        self.get(path='/redfish/v1/Systems')

    def test_stock(self):
        self.app.config[plugin.DRIVER] = 'fake'
        state = self.app.sushy_kubevirt
        self.addCleanup(setattr, state, '_ours', state._ours)
        state._ours = None
        self.assertRaises(error.ConfigInvalid, self.wrap, '/no/such/file')
        self.wrap(self.passwords)
        answer = self.client.get('/redfish/v1/Systems', headers={
            'Authorization': 'Basic ' + base64.b64encode(
                b'admin:wrong').decode()})
        self.assertEqual(401, answer.status_code)
