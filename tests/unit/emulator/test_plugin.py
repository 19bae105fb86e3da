# SPDX-License-Identifier: Apache-2.0
"""The parts of sushy-tools that the plugin replaces or depends on.

If a test of `TestUpstream` fails, sushy-tools has changed: check `plugin`
against the new version.
"""

import base64
from concurrent import futures
import inspect
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from unittest import mock

import bcrypt
import fixtures
import flask
from oslotest import base
from sushy_tools.emulator import api_utils
from sushy_tools.emulator import auth_basic
from sushy_tools.emulator import main
from sushy_tools import error

from sushy_kubevirt.emulator import plugin
from sushy_kubevirt.redfish.protocol import server_errors
from sushy_kubevirt.redfish import routes
from tests.unit.redfish import base as redfish
from tests.unit.redfish import fakes

# Runs in a separate process, because the plugin may be enabled in this one.
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

    def test_application_properties(self):
        self.assertTrue(issubclass(main.Application, flask.Flask))
        self.assertEqual(
            ['systems', 'vmedia', 'feature_set', 'chassis', 'indicators'],
            self.upstream['properties'])
        # Methods of Flask that upstream does not override.
        self.assertEqual([], self.upstream['own'])

    def test_order_of_configuration(self):
        """The file is read first; the middleware wraps self.wsgi_app."""
        source = self.upstream['configure']
        self.assertLess(source.index('from_pyfile'),
                        source.index('RedfishAuthMiddleware'))
        self.assertIn('self.wsgi_app = RedfishAuthMiddleware(self.wsgi_app',
                      source)
        self.assertIn("SUSHY_EMULATOR_CONFIG", self.upstream['init'])

    def test_arguments_of_stock_drivers(self):
        """The stock drivers get config, logger and a cloud or URI."""
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

    def test_rules_of_replaced_endpoints(self):
        """Each endpoint that we replace has the expected rule."""
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

    def test_every_upstream_route_is_known(self):
        """For a new upstream route, decide whether to replace it."""
        media_views = {'VirtualMedia.' + name for name in (
            'virtual_media_collection_resource', 'virtual_media_resource',
            'virtual_media_patch', 'virtual_media_certificates',
            'virtual_media_add_certificate', 'virtual_media_get_certificate',
            'virtual_media_delete_certificate', 'virtual_media_insert',
            'virtual_media_eject')}
        found = {endpoint for endpoint, rule in self.upstream['rules'].items()
                 if rule.startswith(('/redfish/v1/Systems/<',
                                     '/redfish/v1/Managers/<'))}
        self.assertEqual(
            set(), found - media_views - routes.replaced_endpoints())

    def test_methods_of_authentication_middleware(self):
        self.assertEqual(['__call__', 'format_exception'],
                         self.upstream['middleware'])
        self.assertTrue(hasattr(auth_basic, 'authenticate'))

    def test_upstream_check_of_allowed_instances(self):
        """Upstream's check reads the same option as ours."""
        self.assertIn("SUSHY_EMULATOR_ALLOWED_INSTANCES",
                      inspect.getsource(api_utils.instance_denied))


class TestSelection(redfish.RedfishTestCase):

    def test_enable_is_idempotent(self):
        before = dict(vars(main.Application))
        plugin.enable()
        self.assertEqual(before, dict(vars(main.Application)))

    def test_server_of_several_processes_is_refused(self):
        state = self.app.sushy_kubevirt
        path = '/redfish/v1/'
        self.assertEqual(200, self.client.get(path).status_code)
        log = self.useFixture(fixtures.FakeLogger())
        for state_pid, environ, option in (
                (None, {'wsgi.multiprocess': True}, '--threads'),
                (1, {}, '--lazy-apps')):
            with mock.patch.object(state, '_started_in', state_pid):
                answer = self.client.get(path, environ_overrides=environ)
            self.assertEqual(503, answer.status_code)
            for text in answer.text, log.output:
                self.assertIn(option, text)
                self.assertIn('sushy-kubevirt-redfish', text)
            self.check_error(answer)

    def test_unknown_driver(self):
        self.app.config[plugin.DRIVER] = 'nonsense'
        exc = self.assertRaises(SystemExit, self.app.sushy_kubevirt.check)
        self.assertEqual(3, exc.code)

    def test_media_driver_refuses_all_calls(self):
        self.assertRaises(error.NotSupportedError,
                          lambda: self.app.vmedia.devices)

    def test_concurrent_first_requests_install_routes_once(self):
        installed = []
        self.useFixture(fixtures.MockPatchObject(
            routes, 'install', lambda app: installed.append(app)))
        state = plugin._State(self.app)
        fakes.use(state, self.app.systems)
        barrier = threading.Barrier(8)

        def first():
            barrier.wait(10)
            return state.serves_kubevirt()

        with futures.ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(first) for _ in range(8)]
            self.assertEqual([True] * 8,
                             [response.result(10) for response in answers])
        self.assertEqual([self.app], installed)

    def test_stock_driver_ignores_our_option_rules(self):
        # A list that upstream accepts and the kubevirt driver does not.
        self.app.config.update({
            plugin.DRIVER: 'fake',
            'SUSHY_EMULATOR_ALLOWED_INSTANCES': ['a-name']})
        state = plugin._State(self.app)
        state.check()
        self.assertEqual('<fake>', state.systems(None).driver)

    def test_driver_of_second_config_file(self):
        """--config may name another driver than SUSHY_EMULATOR_CONFIG."""
        state = plugin._State(self.app)
        fakes.use(state, self.app.systems)
        self.app.config[plugin.DRIVER] = 'fake'
        state.check()
        self.assertEqual('<fake>', state.systems(None).driver)
        self.app.config[plugin.DRIVER] = None
        state.check()
        self.assertEqual('upstream', state.systems(lambda app: 'upstream'))

    def test_driver_is_kept_for_same_options(self):
        driver = self.app.systems
        # Or a fork of another test would stop it and start it again.
        self.addCleanup(self.app.sushy_kubevirt.close)
        self.app.sushy_kubevirt.check()
        self.assertIs(driver, self.app.systems)
        self.assertTrue(driver.cluster.started)


class TestAuthentication(redfish.RedfishTestCase):
    """Upstream's middleware is replaced only for the kubevirt driver."""

    def setUp(self):
        super().setUp()
        self.passwords = self.create_tempfiles([(
            'passwords', 'admin:%s\n' % bcrypt.hashpw(
                b'secret', bcrypt.gensalt(4)).decode())])[0]
        self.addCleanup(delattr, self.app, 'wsgi_app')

    def wrap(self, path):
        self.app.wsgi_app = main.RedfishAuthMiddleware(
            self.app.wsgi_app, path)

    def test_our_driver_replaces_upstream_authentication(self):
        self.wrap(self.passwords)
        # Upstream would refuse this request.
        self.get(path='/redfish/v1/Systems')

    def test_our_driver_reads_auth_file_itself(self):
        self.wrap('/no/such/file')
        self.get(path='/redfish/v1/Systems')

    def test_stock_driver_uses_upstream_authentication(self):
        self.app.config[plugin.DRIVER] = 'fake'
        state = self.app.sushy_kubevirt
        self.addCleanup(setattr, state, '_serves_kubevirt',
                        state._serves_kubevirt)
        state._serves_kubevirt = None
        self.assertRaises(error.ConfigInvalid, self.wrap, '/no/such/file')
        self.wrap(self.passwords)
        response = self.client.get('/redfish/v1/Systems', headers={
            'Authorization': 'Basic ' + base64.b64encode(
                b'admin:wrong').decode()})
        self.assertEqual(401, response.status_code)


class TestGunicorn(base.BaseTestCase):
    """What is replaced in gunicorn 27."""

    def test_errors_have_transport_security(self):
        for kind, expected in (ssl.SSLSocket, True), (socket.socket, False):
            sent = []
            server_errors.for_gunicorn(lambda sock, data: sent.append(data))(
                mock.Mock(spec=kind), 400, 'x', 'y')
            self.assertEqual(
                expected, b'\r\nStrict-Transport-Security: ' in sent[0])

    def test_write_error(self):
        from gunicorn import util
        from gunicorn.workers import base as workers

        self.assertEqual(['sock', 'status_int', 'reason', 'mesg'], list(
            inspect.signature(util.write_error).parameters))
        self.assertEqual(['sock', 'data'], list(inspect.signature(
            util.write_nonblock).parameters)[:2])
        self.assertIn('util.write_error(client, status_int, reason, mesg)',
                      inspect.getsource(workers.Worker.handle_error))
