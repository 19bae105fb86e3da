# SPDX-License-Identifier: Apache-2.0
"""The emulator process: startup, servers, drivers and access to systems.

The tests use the config file that the project ships, the unpatched command
and gunicorn.
"""

import concurrent.futures
import contextlib
import http.client
import json
import os
import socket
import ssl
import subprocess
from urllib import parse

import fixtures
import yaml

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import process
from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import redfish_case
from tests.fixtures import sandbox


# The Secret that the account may read; each VM's BMC has its own.
STATE = {'SUSHY_EMULATOR_KUBEVIRT_STATE_SECRET':
         sandbox.NAMESPACE + '/sushy-kubevirt-state'}


class TestStart(base.SandboxTestCase):
    """Errors at the start of the emulator."""

    VMS = 1

    def start(self, settings=None, kubeconfig=None, server='werkzeug'):
        fixture = emulator.Emulator(
            kubeconfig or self.sandbox.bmc_account(), settings, server)
        fixture.setUp()
        self.addCleanup(fixture.cleanUp)
        return fixture

    def assert_fails(self, words, *arguments, **options):
        exc = self.assertRaises(fixtures.MultipleExceptions, self.start,
                                *arguments, **options)
        text = str(exc.args[0][1])
        for word in words:
            self.assertIn(word, text)
        self.assertNotIn('Traceback', text)

    def test_invalid_options(self):
        self.assert_fails(['SUSHY_EMULATOR_KUBEVIRT_VM', "'no-slash'"],
                          {'SUSHY_EMULATOR_KUBEVIRT_VM': 'no-slash'})
        self.assert_fails(['SUSHY_EMULATOR_KUBEVIRT_NAMESPACE '],
                          {'SUSHY_EMULATOR_KUBEVIRT_NAMESPACE': 'x'})
        self.assert_fails(['no-context'],
                          {'SUSHY_EMULATOR_KUBEVIRT_CONTEXT': 'no-context'})
        self.assert_fails(["'nonsense'", 'kubevirt, libvirt'],
                          {'SUSHY_EMULATOR_SYSTEM_DRIVER': 'nonsense'})
        self.assert_fails(['/nonexistent'], kubeconfig='/nonexistent')

    def test_invalid_options_end_gunicorn(self):
        # gunicorn listens before its worker reads the options, and must not
        # restart it again and again.
        started = self.start({'SUSHY_EMULATOR_KUBEVIRT_VM': 'no-slash'},
                             server='gunicorn')
        self.assertEqual(3, started.process.wait())
        self.assertIn("SUSHY_EMULATOR_KUBEVIRT_VM must be one VM as "
                      "'namespace/name'; it is 'no-slash'",
                      started.process.output)
        self.assertNotIn('Traceback', started.process.output)

    def test_unreachable_cluster(self):
        kubeconfig = yaml.safe_load(self.sandbox.kubeconfig.read_text())
        kubeconfig['clusters'][0]['cluster']['server'] = 'https://127.0.0.1:1'
        path = self.sandbox.kubeconfig.with_name('unreachable')
        path.write_text(yaml.safe_dump(kubeconfig))
        started = self.start(kubeconfig=path)
        response = started.request('GET', redfish_case.SYSTEMS, expect=503)
        self.assertIn('Retry-After', response.headers)
        started.request('GET', '/redfish/v1/', expect=200)

    def test_wrong_token(self):
        kubeconfig = yaml.safe_load(self.sandbox.kubeconfig.read_text())
        kubeconfig['users'][0]['user']['token'] = 'wrong-token-7'
        path = self.sandbox.kubeconfig.with_name('wrong-token')
        path.write_text(yaml.safe_dump(kubeconfig))
        started = self.start(kubeconfig=path)
        response = started.request('GET', redfish_case.SYSTEMS, expect=500)
        self.assertEqual('AccessDenied', response.json()['error'][
            'code'].rpartition('.')[2])
        self.assertNotIn('Retry-After', response.headers)
        started.process.wait_output('denied access')
        self.assertNotIn('wrong-token-7',
                         started.process.output + response.text)


class TestStockDriver(base.FunctionalTestCase):
    """With a stock driver, the emulator is that of upstream."""

    def test_fake(self):
        started = self.useFixture(emulator.Emulator(
            settings={'SUSHY_EMULATOR_SYSTEM_DRIVER': 'fake'}))
        [path] = started.systems()
        body = started.request('GET', path, expect=200).json()
        self.assertEqual('Sushy Emulator', body['Manufacturer'])
        started.request('PATCH', path, {'Boot': {
            'BootSourceOverrideTarget': 'Cd'}}, expect=204)
        self.assertEqual('Cd', started.request('GET', path).json()['Boot'][
            'BootSourceOverrideTarget'])

    def test_libvirt(self):
        started = self.useFixture(emulator.Emulator(settings={
            'SUSHY_EMULATOR_SYSTEM_DRIVER': 'libvirt',
            'SUSHY_EMULATOR_LIBVIRT_URI': 'test:///default'}))
        [path] = started.systems()
        self.assertEqual('test', started.request(
            'GET', path, expect=200).json()['Name'])


class TestAccess(base.SandboxTestCase):
    """One system of several may be reached, by an option or by scope."""

    VMS = 0

    def check(self, settings, name='mine'):
        started = self.useFixture(emulator.Emulator(
            self.sandbox.bmc_account(), {**STATE, **settings}))
        mine, others = self.uuids['mine'], self.uuids['others']
        # The only VM of a service has the Id 1.
        id_ = '1' if 'SUSHY_EMULATOR_KUBEVIRT_VM' in settings else mine
        self.assertEqual([f'{redfish_case.SYSTEMS}/{id_}'],
                         started.systems())
        started.reset('mine', 'On')
        self.sandbox.wait_running('mine')
        for identity in (others, others.upper(), 'others',
                         f'{sandbox.NAMESPACE}:others',
                         f'{sandbox.NAMESPACE}%2Fothers'):
            for where in (redfish_case.SYSTEMS + '/%s',
                          redfish_case.SYSTEMS + '/%s/BIOS',
                          redfish_case.SYSTEMS + '/%s/VirtualMedia',
                          redfish_case.SYSTEMS + '/%s/VirtualMedia/Cd',
                          redfish_case.SYSTEMS + '/%s/Storage',
                          '/redfish/v1/Managers/%s',
                          '/redfish/v1/Chassis/%s'):
                started.request('GET', where % identity, expect=404)
            started.request(
                'POST',
                redfish_case.SYSTEMS
                + f'/{identity}/Actions/ComputerSystem.Reset',
                {'ResetType': 'On'},
                expect=404,
            )
        for where in '/redfish/v1/Managers', '/redfish/v1/Chassis':
            text = started.request('GET', where, expect=200).text
            self.assertIn(where + '/' + id_, text)
            self.assertNotIn(others, text)
        self.assertEqual([], self.sandbox.boots('others'))
        started.reset('mine', 'ForceOff')
        self.sandbox.wait_stopped('mine')

    def setUp(self):
        super().setUp()
        self.uuids = {}
        for name in 'mine', 'others':
            self.uuids[name] = machines.uuid_of(self.sandbox.create(
                'virtualmachines', machines.vm(name, 'Halted')))
            self.addCleanup(self.sandbox.wait, 'virtualmachines', name,
                            lambda vm: vm is None)
            self.addCleanup(self.sandbox.delete, 'virtualmachines', name)

    def test_allowed_by_uuid(self):
        self.check({'SUSHY_EMULATOR_ALLOWED_INSTANCES':
                    [self.uuids['mine']]})

    def test_allowed_by_name(self):
        self.check({'SUSHY_EMULATOR_ALLOWED_INSTANCES': [
            f'{sandbox.NAMESPACE}/mine']})

    def test_allowed_by_option_vm(self):
        self.check({'SUSHY_EMULATOR_KUBEVIRT_VM': f'{sandbox.NAMESPACE}/mine'})


class TestTls(base.SandboxTestCase):
    """HTTPS, with the command sushy-emulator."""

    VMS = 1

    def test_silent_tls_client_does_not_block(self):
        certificate = self.useFixture(certificates.Certificate())
        served = self.useFixture(emulator.Emulator(
            self.sandbox.bmc_account(), tls=certificate.tls))
        place = parse.urlsplit(served.url)
        for data in b'', b'\x16', b'GET / HTTP/1.1\r\n\r\n':
            with socket.create_connection(
                    (place.hostname, place.port)) as other:
                other.sendall(data)
                served.request('GET', '/redfish/v1/', expect=200, timeout=5,
                               headers={'Connection': 'close'})

    def test_refused_upload_gets_its_response(self):
        certificate = self.useFixture(certificates.Certificate())
        served = self.useFixture(emulator.Emulator(
            self.sandbox.bmc_account(), tls=certificate.tls))
        served.request('POST', '/redfish/v1/Systems', expect=405,
                       data=bytes(2 ** 26))

    def test_damaged_record_behind_a_request(self):
        certificate = self.useFixture(certificates.Certificate())
        served = self.useFixture(emulator.Emulator(
            self.sandbox.bmc_account(), tls=certificate.tls))
        place = parse.urlsplit(served.url)
        context = ssl.create_default_context(cafile=str(certificate.tls[2]))
        with socket.create_connection((place.hostname, place.port),
                                      timeout=30) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            with context.wrap_socket(
                    sock, server_hostname=place.hostname) as tls:
                tls.sendall(b'GET /redfish/v1/ HTTP/1.1\r\n'
                            b'Host: localhost\r\n\r\n')
                os.write(tls.fileno(), b'x' * 100)
                tls.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
                # An alert may come before or after the response.
                with contextlib.suppress(ssl.SSLError):
                    while tls.recv(4096):
                        pass
                tls.settimeout(None)
                while os.read(tls.fileno(), 4096):
                    pass
        served.request('GET', '/redfish/v1/odata', expect=200)
        served.process.wait_output('/redfish/v1/odata')
        self.assertNotIn('Traceback', served.process.output)


class TestGunicorn(redfish_case.RedfishTestCase):
    """One worker with several threads."""

    SERVER = 'gunicorn'

    def test_many_clients(self):
        self.make()

        def ask(_number):
            url = parse.urlsplit(self.emulator.url)
            connection = http.client.HTTPConnection(url.hostname, url.port,
                                                    timeout=60)
            try:
                connection.request('GET', self.path)
                response = connection.getresponse()
                return response.status, json.loads(response.read())['UUID']
            finally:
                connection.close()

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual({(200, self.uuid)},
                             set(pool.map(ask, range(200))))

    def test_escaped_slash_in_name(self):
        self.make()
        self.assertEqual(self.uuid, self.emulator.system(
            f'{sandbox.NAMESPACE}%2F{self.name}')['Id'])

    def test_power_and_boot(self):
        self.make()
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootSourceOverrideTarget': 'Pxe',
            'BootSourceOverrideEnabled': 'Once'}})
        self.emulator.reset(self.uuid, 'On')
        self.assertEqual('Pxe', self.sandbox.wait_boot(self.name, 1)['class'])
        self.sandbox.wait_running(self.name)
        self.until(lambda: self.emulator.system(self.uuid)['Boot'][
            'BootSourceOverrideEnabled'] == 'Disabled')
        self.until(lambda: self.emulator.request(
            'POST', self.path + '/Actions/ComputerSystem.Reset',
            {'ResetType': 'ForceRestart'}).status_code == 204)
        self.assertEqual('Hdd', self.sandbox.wait_boot(self.name, 2)['class'])


class TestManyVms(redfish_case.RedfishTestCase):
    """``sushy-kubevirt-redfish`` for the VMs of a namespace."""

    SERVER = 'pod'
    #: More than a BMC's pod has.
    CLIENTS = 100

    def test_clients_with_open_connections(self):
        self.make()
        url = parse.urlsplit(self.emulator.url)
        self.assertEqual('127.0.0.1', url.hostname)
        clients = [http.client.HTTPConnection(url.hostname, url.port,
                                              timeout=60)
                   for _ in range(self.CLIENTS)]
        for client in clients:
            self.addCleanup(client.close)
            client.connect()
        socks = [client.sock for client in clients]
        for _ in range(2):
            for client in clients:
                client.request('GET', self.path)
            for client in clients:
                response = client.getresponse()
                body = json.loads(response.read())
                self.assertEqual((200, self.uuid),
                                 (response.status, body['UUID']))
        self.assertEqual(socks, [client.sock for client in clients])

    def test_other_driver_is_refused(self):
        [config] = self.create_tempfiles([('other', (
            "SUSHY_EMULATOR_FAKE_DRIVER = True\n"))], ext='.conf')
        done = subprocess.run(
            ['sushy-kubevirt-redfish'], capture_output=True, text=True,
            timeout=60, env=process.environment(
                self.useFixture(fixtures.TempDir()).path,
                {'SUSHY_EMULATOR_CONFIG': config}))
        self.assertEqual(2, done.returncode, done.stderr)
        self.assertIn('does not enable the driver kubevirt', done.stderr)
