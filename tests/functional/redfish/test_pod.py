# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-redfish`` as it runs in a BMC pod, with real clients."""

import json
import pathlib
import signal
import socket
import ssl
import subprocess
import time

import fixtures
import requests
import sushy
from sushy import auth

from kubevirt_sandbox.testing import process
from sushy_kubevirt.pod import http_server
from tests.fixtures import base
from tests.fixtures import link_crawler
from tests.fixtures import operator
from tests.fixtures import processes
from tests.fixtures import redfish_pod

SESSIONS = '/redfish/v1/SessionService/Sessions'
SYSTEM = '/redfish/v1/Systems/1'
MANAGER = '/redfish/v1/Managers/BMC'
STREAM = '/redfish/v1/EventService/SSE'


class PodTestCase(base.SandboxTestCase):

    PLAIN = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pod = cls.share(redfish_pod.RedfishPod(cls.sandbox,
                                                   plain=cls.PLAIN))

    def login(self):
        answer = self.pod.curl(
            SESSIONS, '-X', 'POST', '-H', 'Content-Type: application/json',
            '-d', json.dumps({'UserName': redfish_pod.USER,
                              'Password': self.pod.password}))
        self.assertEqual(201, answer.code)
        return answer

    def connect_silently(self):
        found = socket.create_connection(('127.0.0.1', self.pod.port),
                                         timeout=30)
        self.addCleanup(found.close)
        return found


class RedfishPodTestCase(PodTestCase):

    def test_commands_of_kubevirtbmc_readme(self):
        # The requests of KubeVirtBMC's README, one after the other.
        def call(method, path, body=None):
            words = ['-X', method, '-H', 'X-Auth-Token: ' + token]
            if body is not None:
                words += ['-H', 'Content-Type: application/json',
                          '-d', json.dumps(body)]
            return self.pod.curl(path, *words)

        root = self.pod.curl('/redfish/v1', '-L')
        self.assertEqual(200, root.code)
        self.assertIn('Systems', root.json())
        login = self.login()
        token = login.headers['x-auth-token']
        session = login.headers['location']
        system = call('GET', SYSTEM)
        self.assertEqual(200, system.code)
        self.assertEqual('Off', system.json()['PowerState'])
        self.assertEqual(204, call('PATCH', SYSTEM, {'Boot': {
            'BootSourceOverrideTarget': 'Pxe',
            'BootSourceOverrideEnabled': 'Continuous'}}).code)
        self.assertEqual('Pxe', call('GET', SYSTEM).json()['Boot'][
            'BootSourceOverrideTarget'])
        reset = SYSTEM + '/Actions/ComputerSystem.Reset'

        def power(state):
            self.until(lambda: call('GET', SYSTEM).json()[
                'PowerState'] == state)

        for kind, state in (('On', 'On'), ('ForceRestart', 'On'),
                            ('GracefulShutdown', 'Off')):
            self.assertEqual(204, call('POST', reset,
                                       {'ResetType': kind}).code)
            power(state)
        self.assertEqual(204, call('DELETE', session).code)
        self.assertEqual(401, call('GET', SYSTEM).code)

    def test_virtual_media_by_aliases(self):
        token = self.login().headers['x-auth-token']
        device = MANAGER + '/VirtualMedia/CD1'
        found = self.pod.curl(device, '-H', 'X-Auth-Token: ' + token)
        self.assertEqual(200, found.code)
        self.assertEqual(['CD', 'DVD'], found.json()['MediaTypes'])
        answer = self.pod.curl(
            device + '/Actions/VirtualMedia.EjectMedia', '-X', 'POST', '-H',
            'Content-Type: application/json', '-H', 'X-Auth-Token: ' + token,
            '-d', '{}')
        # The device is empty, but found without a redirect.
        self.assertNotIn(answer.code, (307, 404))

    def test_sushy_by_aliases(self):
        account = auth.SessionOrBasicAuth(redfish_pod.USER, self.pod.password)
        client = sushy.Sushy(self.pod.url, verify=str(self.pod.ca),
                             auth=account)
        self.addCleanup(account.close)
        system = client.get_system(SYSTEM)
        self.assertEqual('vm-0', system.name)
        manager = client.get_manager(MANAGER)
        self.assertEqual('1', manager.identity)
        self.assertEqual(system.uuid, manager.uuid)
        # A node that was enrolled with the UUID.
        stored = client.get_system('/redfish/v1/Systems/' + system.uuid)
        self.assertEqual('1', stored.identity)
        self.assertEqual(['1'], [one.identity for one in stored.managers])
        self.assertEqual(
            {'Cd'}, {one.identity
                     for one in manager.virtual_media.get_members()} & {'Cd'})
        system.set_system_boot_options(
            sushy.BOOT_SOURCE_TARGET_CD, sushy.BOOT_SOURCE_ENABLED_ONCE)
        system.refresh(force=True)
        self.assertEqual(sushy.BOOT_SOURCE_TARGET_CD, system.boot.target)
        system.set_system_boot_options(
            enabled=sushy.BOOT_SOURCE_ENABLED_DISABLED)

    def test_ports_are_those_of_the_service(self):
        found = self.pod.request('GET', '/redfish/v1/Managers/1/'
                                 'NetworkProtocol', expect=200).json()
        self.assertEqual(
            [False, 443, 623],
            [found['HTTP']['ProtocolEnabled'], found['HTTPS']['Port'],
             found['IPMI']['Port']])

    def test_consoles_are_those_of_the_vm(self):
        account = auth.SessionOrBasicAuth(redfish_pod.USER, self.pod.password)
        client = sushy.Sushy(self.pod.url, verify=str(self.pod.ca),
                             auth=account)
        self.addCleanup(account.close)

        def system():
            return client.get_system(SYSTEM).json

        manager = client.get_manager(MANAGER)
        # Serial over LAN, at the port of the Service; both in KubeVirt's API.
        self.assertEqual(
            {'MaxConcurrentSessions': 1, 'IPMI': {
                'ServiceEnabled': True, 'Port': 623,
                'SharedWithManagerCLI': False}, 'WebSocket': {
                'ServiceEnabled': True, 'Interactive': True,
                'ConsoleURI': SYSTEM + '/SerialConsole'}},
            system()['SerialConsole'])
        self.assertEqual(
            {'ServiceEnabled': True, 'MaxConcurrentSessions': 1,
             'ConnectTypesSupported': ['OEM']}, system()['GraphicalConsole'])
        self.assertEqual({sushy.SERIAL_CONSOLE_IPMI, sushy.SERIAL_CONSOLE_OEM},
                         manager.get_supported_serial_console_types())
        self.assertEqual({sushy.GRAPHICAL_CONSOLE_OEM},
                         manager.get_supported_graphical_console_types())
        devices = '/spec/template/spec/domain/devices/'
        for device, name in (('autoattachSerialConsole', 'SerialConsole'),
                             ('autoattachGraphicsDevice',
                              'GraphicalConsole')):
            self.sandbox.patch('virtualmachines', 'vm-0', [{
                'op': 'add', 'path': devices + device, 'value': False}])
            self.addCleanup(self.sandbox.patch, 'virtualmachines', 'vm-0', [{
                'op': 'remove', 'path': devices + device}])
            self.until(lambda name=name: name not in system())
            manager.refresh(force=True)
            self.assertEqual(
                {'ServiceEnabled': False, 'ConnectTypesSupported': []},
                manager.json[name])

    def test_links_have_canonical_ids(self):
        uuid = self.pod.request('GET', SYSTEM, expect=200).json()['UUID']
        for start in '/redfish/v1/', '/redfish/v1/Systems/' + uuid, MANAGER:
            found = link_crawler.crawl(
                lambda path: self.pod.request('GET', path, stream=True),
                start)
            self.assertEqual({}, {
                path: code for path, (code, _body, _source) in found.items()
                if code != 200})
            self.assertGreater(len(found), 40)
            del found[start]
            self.assertEqual([], [
                path for path in found
                if path.split('/')[3:4] in (['Systems'], ['Managers'],
                                            ['Chassis'])
                and path.split('/')[4:5] not in ([], ['1'], ['Bios'])])

    def test_events_have_canonical_ids(self):
        uuid = self.pod.request('GET', SYSTEM, expect=200).json()['UUID']
        alias = '/redfish/v1/Systems/' + uuid
        with requests.get(
                self.pod.url + STREAM, stream=True, verify=str(self.pod.ca),
                params={'$filter': f"OriginResource eq '{alias}'"},
                auth=(redfish_pod.USER, self.pod.password),
                timeout=30) as stream:
            self.assertEqual(200, stream.status_code)
            lines = stream.iter_lines()
            next(lines)
            # A URI that was stored when the UUID was the Id.
            self.pod.request(
                'POST', alias + '/Actions/ComputerSystem.Reset',
                {'ResetType': 'On'}, expect=204)
            event = next(line for line in lines if line.startswith(b'data:'))
        event = json.loads(event.removeprefix(b'data:'))['Events'][0]
        self.assertEqual({'@odata.id': SYSTEM}, event['OriginOfCondition'])

        def origins():
            log = self.pod.request(
                'GET', alias + '/LogServices/Events/Entries', expect=200)
            return {entry['Links']['OriginOfCondition']['@odata.id']
                    for entry in log.json()['Members'] if 'Links' in entry}

        self.assertEqual({SYSTEM}, self.until(origins))
        self.pod.request(
            'POST', alias + '/Actions/ComputerSystem.Reset',
            {'ResetType': 'ForceOff'}, expect=204)
        self.until(lambda: self.pod.request('GET', SYSTEM).json()[
            'PowerState'] == 'Off')

    def test_metrics_have_routes_not_paths(self):
        before = self.pod.metric('virtbmc_redfish_sessions')
        self.login()
        self.assertEqual(before + 1,
                         self.pod.metric('virtbmc_redfish_sessions'))
        for number in range(20):
            self.pod.request('GET', f'/redfish/v1/guess/{number}',
                             expect=404)
            self.pod.request('GET', f'/redfish/v1/Systems/guess{number}',
                             expect=404)
        self.pod.request('GET', SYSTEM, expect=200)
        text = self.pod.probe('/metrics')[1]
        self.assertNotIn('guess', text)
        self.assertLess(text.count('\n'), 400)
        rule = ('virtbmc_redfish_requests_total{route="/redfish/v1/Systems/'
                '<identity>",method="GET",code="%d"}')
        self.assertGreaterEqual(self.pod.metric(rule % 404), 20)
        self.assertGreaterEqual(self.pod.metric(rule % 200), 1)
        self.assertGreaterEqual(self.pod.metric(
            'virtbmc_redfish_requests_total{route="none"'), 20)
        self.assertGreater(self.pod.metric(
            'virtbmc_api_calls_total{verb="list"'), 0)
        self.assertEqual(0, self.pod.metric('virtbmc_cache_age_seconds'))

    def test_renewed_certificate(self):
        pid, old = self.pod.process.pid, self.pod.ca
        with requests.get(
                self.pod.url + STREAM, stream=True, verify=str(old),
                auth=(redfish_pod.USER, self.pod.password),
                timeout=30) as stream:
            self.assertEqual(200, stream.status_code)
            lines = stream.iter_lines()
            next(lines)
            self.pod.renew()
            self.assertEqual(200, self.pod.curl('/redfish/v1/').code)
            self.assertRaisesRegex(AssertionError, 'certificate',
                                   self.pod.curl, '/redfish/v1/', ca=old)
            # Existing connections stay open.
            self.pod.request(
                'POST', '/redfish/v1/EventService/Actions/'
                'EventService.SubmitTestEvent', {}, expect=204)
            for line in lines:
                if b'TestMessage' in line or b'"Events"' in line:
                    break
        self.assertEqual(pid, self.pod.process.pid)
        self.assertEqual((200, 'ok'), self.pod.probe('/readyz'))

    def test_changed_password(self):
        old = self.pod.password
        token = self.login().headers['x-auth-token']

        def with_token():
            return self.pod.curl(
                SYSTEM, '-H', 'X-Auth-Token: ' + token).code

        self.assertEqual(200, with_token())
        self.pod.set_password('another password')
        self.until(lambda: self.pod.request(
            'GET', SYSTEM).status_code == 200)
        self.assertEqual(401, self.pod.request(
            'GET', SYSTEM, password=old).status_code)
        self.assertEqual(401, with_token())
        for secret in old, self.pod.password, token:
            self.assertNotIn(secret, self.pod.process.output)

    def test_unusable_secret_is_not_ready(self):
        self.pod.auth.write(username=b'admin')
        self.addCleanup(self.pod.set_password, self.pod.password)
        self.until(lambda: self.pod.probe('/readyz')[0] == 503)
        self.assertIn('No login is possible', self.pod.probe('/readyz')[1])
        self.assertEqual((200, 'ok'), self.pod.probe('/livez'))
        self.assertEqual(401, self.pod.request('GET', SYSTEM).status_code)
        self.pod.set_password(self.pod.password)
        self.until(lambda: self.pod.probe('/readyz')[0] == 200)

    def test_broken_watch_is_not_ready(self):
        self.sandbox.fault('503', verb='*', where='kubevirt.io',
                           count=10 ** 6)
        self.sandbox.fault('break', verb='WATCH', where='kubevirt.io',
                           count=10)
        self.until(lambda: self.pod.probe('/readyz')[0] == 503)
        self.assertIn('virtualmachine', self.pod.probe('/readyz')[1])
        self.assertEqual((200, 'ok'), self.pod.probe('/livez'))
        self.sandbox.clear_faults()
        self.until(lambda: self.pod.probe('/readyz') == (200, 'ok'))

    def test_silent_clients_do_not_block(self):
        clients = [self.connect_silently() for _ in range(150)]
        begin = time.monotonic()
        self.pod.request('GET', SYSTEM, expect=200)
        self.assertEqual(200, self.pod.curl('/redfish/v1/').code)
        self.assertLess(time.monotonic() - begin, 15)
        self.assertEqual((200, 'ok'), self.pod.probe('/readyz'))
        for each in clients:
            each.close()

    def test_tls_1_3(self):
        context = ssl.create_default_context(cafile=str(self.pod.ca))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        with context.wrap_socket(self.connect_silently(),
                                 server_hostname='127.0.0.1') as sock:
            self.assertEqual('TLSv1.3', sock.version())

    def test_memory_after_reading_all(self):
        def crawl():
            link_crawler.crawl(
                lambda path: self.pod.request('GET', path, stream=True))

        crawl()
        before = processes.anonymous(self.pod.process.pid)
        crawl()
        after = processes.anonymous(self.pod.process.pid)
        # 31 MiB on Python 3.11; drivers that are not loaded need 25 MiB.
        self.assertLess(after, 38 * 1024)
        self.assertLess(after - before, 1024)

    def test_no_api_call_is_denied(self):
        self.assertEqual({}, self.sandbox.stats()['refused'])


class PlainTestCase(PodTestCase):

    PLAIN = True

    def test_plain_http(self):
        self.assertTrue(self.pod.url.startswith('http://'))
        self.pod.request('GET', SYSTEM, expect=200)
        self.assertEqual((200, 'ok'), self.pod.probe('/readyz'))

    def test_sigterm_ends_streams(self):
        pod = self.useFixture(redfish_pod.RedfishPod(self.sandbox, 'vm-1',
                                                     plain=True))
        with requests.get(
                pod.url + STREAM, stream=True, timeout=30,
                auth=(redfish_pod.USER, pod.password)) as stream:
            self.assertEqual(200, stream.status_code)
            next(stream.iter_lines())
            with socket.create_connection(('127.0.0.1', pod.port)):
                begin = time.monotonic()
                pod.process.send(signal.SIGTERM)
                self.assertEqual(0, pod.process.wait())
            # It did not wait for the stream, which has no end.
            self.assertLess(time.monotonic() - begin,
                            http_server.GRACE_SECONDS)
        self.assertNotIn('Traceback', pod.process.output)


class PlainBesideTlsTestCase(base.SandboxTestCase):

    def test_serves_both_until_it_ends(self):
        pod = self.useFixture(redfish_pod.RedfishPod(self.sandbox, both=True))
        login = 'user = "%s:%s"\n' % (redfish_pod.USER, pod.password)
        answer = operator.curl(pod.http + SYSTEM, config=login)
        self.assertEqual(200, answer.code, answer.text)
        self.assertEqual(401, operator.curl(pod.http + SYSTEM).code)
        self.assertEqual(answer.text, pod.curl(SYSTEM, config=login).text)
        # One BMC: a session is valid for both.
        session = operator.curl(
            pod.http + SESSIONS, '-H', 'Content-Type: application/json', '-d',
            json.dumps({'UserName': redfish_pod.USER,
                        'Password': pod.password}))
        self.assertEqual(200, pod.curl(
            SYSTEM, '-H', 'X-Auth-Token: '
            + session.headers['x-auth-token']).code)
        self.assertEqual((200, 'ok'), pod.probe('/readyz'))
        silent = socket.create_connection(
            ('127.0.0.1', int(pod.http.rpartition(':')[2])), timeout=30)
        self.addCleanup(silent.close)
        began = time.monotonic()
        pod.process.send(signal.SIGTERM)
        self.assertEqual(0, pod.process.wait())
        self.assertLess(time.monotonic() - began, 5)


class StartTestCase(base.SandboxTestCase):

    VMS = 1

    def start(self, settings):
        pod = redfish_pod.RedfishPod(self.sandbox, settings=settings)
        error = self.assertRaises(fixtures.MultipleExceptions, pod.setUp)
        return str(process.cause(error))

    def test_invalid_option_prevents_start(self):
        self.assertIn('SUSHY_EMULATOR_KUBEVIRT_VM', self.start(
            "SUSHY_EMULATOR_KUBEVIRT_VM = 'no name'\n"))

    def test_options_are_not_executed(self):
        """A user who may change the ConfigMap writes Python into it."""
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        options, proof = home / 'options.json', home / 'executed'
        for text, said in (
                (f'import pathlib; pathlib.Path({str(proof)!r}).touch()',
                 f'{options} cannot be read: Expecting value'),
                (json.dumps({'SUSHY_EMULATOR_KUBEVIRT_KUBECONFIG': str(
                    home / 'kubeconfig')}), 'cannot be set in a BMC')):
            options.write_text(text)
            found = subprocess.run(
                [process.BIN / 'sushy-kubevirt-bmc'], capture_output=True,
                text=True, timeout=60, env=process.environment(home, {
                    'VIRTBMC_OPTIONS': options, 'POD_IP': '127.0.0.1',
                    'VIRTBMC_AUTH_FOLDER': home}))
            self.assertEqual(2, found.returncode, found.stderr)
            self.assertIn(said, found.stderr)
            self.assertNotIn('Traceback', found.stderr)
        self.assertFalse(proof.exists())

    def test_missing_certificate_prevents_start(self):
        self.assertIn('No such file', self.start(
            "SUSHY_EMULATOR_SSL_CERT = '/nowhere'\n"))
