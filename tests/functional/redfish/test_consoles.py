# SPDX-License-Identifier: Apache-2.0
"""Consoles as WebSockets: of a pod, of ``sushy-emulator``, and of gunicorn."""

import base64
import fcntl
import json
import pathlib
import signal
import sys
import termios
import time

import bcrypt
import fixtures
import requests
from websockets import exceptions

from kubevirt_sandbox.testing import certificates
from sushy_kubevirt.redfish.services import service_context
from tests.fixtures import base
from tests.fixtures import console_client
from tests.fixtures import emulator
from tests.fixtures import processes
from tests.fixtures import redfish_pod

SESSIONS = '/redfish/v1/SessionService/Sessions'
ACCOUNTS = '/redfish/v1/AccountService/Accounts'
VM = 'vm-0'

#: MiB of anonymous memory that a client adds which does not read.
MAX_GROWTH = 4


def _unread(sock):
    """Return the number of bytes in the buffer of a socket."""
    return int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)),
                          sys.byteorder)


class ConsolesTestCase(base.SandboxTestCase):

    VMS = 1
    USER = redfish_pod.USER

    #: ``url``, ``request``, ``process`` of the server, password, CA
    server = password = ca = None

    def setUp(self):
        super().setUp()
        self.sandbox.patch('virtualmachines', VM, {
            'spec': {'runStrategy': 'Always'}})
        self.sandbox.wait_running(VM)
        self.path = self.server.request(
            'GET', '/redfish/v1/Systems', expect=200).json()['Members'][0][
                '@odata.id']

    def login(self, user=None, password=None):
        """Open a session; return its path and token."""
        answer = self.server.request('POST', SESSIONS, {
            'UserName': user or self.USER,
            'Password': password or self.password}, expect=201)
        return (answer.headers['Location'].partition(self.server.url)[2]
                or answer.headers['Location'], answer.headers['X-Auth-Token'])

    def connect(self, token=None, name='SerialConsole', url=None, **headers):
        found = console_client.Client(
            (url or self.server.url) + f'{self.path}/{name}', token, self.ca,
            headers)
        self.addCleanup(found.close)
        if token:
            self.assertEqual('binary', found.subprotocol)
        return found

    def refused(self, *args, **options):
        """Return code and text of a refusal."""
        try:
            self.connect(*args, **options)
        except exceptions.InvalidStatus as exc:
            error = json.loads(exc.response.body)['error']
            return exc.response.status_code, error['message']
        raise AssertionError('not refused')

    def shell(self, token=None, **options):
        """Connect, and wait until the guest's shell answers."""
        found = self.connect(token or self.login()[1], **options)
        # The VM may have begun to run before.
        found.say(b'')
        return found


class EveryTransport:
    """Tests for each server, with and without TLS."""

    def test_input_output_and_restart(self):
        one = self.shell()
        self.assertIn(b'hello there', one.say(b'hello there'))
        self.sandbox.do(VM, 'restart')
        one.notice('The console connects when it ')
        one.notice('is connected.')
        self.assertIn(b'again', one.say(b'again'))

    def output(self):
        return self.server.process.output

    def sends(self, token, data, abort):
        """Send bytes on a new console, and wait for its end or abort it.

        :returns: False if the console was refused, as those of clients that
            have gone are still open
        """
        one = self.connect(token)
        try:
            one.transport.write(data)
        except RuntimeError:
            return False
        if abort:
            one.transport.abort()
        else:
            one.end()
        return True

    def test_damaged_frames(self):
        """The log has no traceback, whatever a client sends."""
        token = self.login()[1]
        for data in console_client.DAMAGED:
            for abort in False, True:
                self.until(lambda: self.sends(token, data, abort))
        self.server.request('GET', self.path, expect=200)
        self.assertNotIn('Traceback', self.output())

    def test_slow_reader(self):
        """It stops the guest's output, and others are served."""
        size = 2 * 10 ** 7
        one = self.shell()
        before = processes.anonymous(self.server.process.pid)
        mark = len(one.output)
        one.send(b'print %d\r' % size)
        self.until(lambda: _unread(
            one.transport.get_extra_info('socket')))
        for _ in range(30):
            self.server.request('GET', self.path, expect=200)
        self.assertLess(processes.anonymous(self.server.process.pid) - before,
                        MAX_GROWTH * 1024)
        deadline = time.monotonic() + 240
        while len(one.output) < mark + size:
            one.read(deadline)
        one.wait(b'\r\n# ', mark + size - 10)
        self.assertLess(processes.anonymous(self.server.process.pid) - before,
                        MAX_GROWTH * 1024)


class EveryServer(EveryTransport):
    """Tests for each server."""

    def test_second_client(self):
        token = self.login()[1]
        one = self.shell(token)
        two = self.shell(token)
        one.notice('another client has connected to it. Press a key')
        one.send(b' ')
        one.notice('is connected.')
        self.assertIn(b'mine', one.say(b'mine'))
        two.notice('another client')

    def test_ends_with_session(self):
        session, token = self.login()
        one = self.shell(token)
        self.server.request('DELETE', session, expect=204)
        self.assertEqual((1008, 'The login is no longer valid. Log in again.'),
                         one.end())
        self.assertNotIn(token, self.output())

    def test_refusals(self):
        self.assertEqual(401, self.refused()[0])
        session, token = self.login()
        self.assertEqual(401, self.refused('not' + token)[0])
        self.assertEqual(403, self.refused(
            token, Origin='https://elsewhere.example')[0])
        self.assertEqual(403, self.refused(
            token, Sec_Fetch_Site='same-site')[0])
        answer = self.server.request('GET', self.path + '/SerialConsole',
                                     expect=426)
        self.assertEqual('websocket', answer.headers['Upgrade'])
        # The subprotocol is no login of other requests.
        self.assertEqual(401, requests.get(
            self.server.url + self.path, verify=str(self.ca), headers={
                'Sec-WebSocket-Protocol': 'x-auth-token.' + token},
            timeout=30).status_code)
        host = self.server.url.partition('://')[2]
        self.shell(token, Origin='https://' + host.upper())
        self.server.request('DELETE', session, expect=204)

    def test_display_of_a_guest_without_one(self):
        one = self.connect(self.login()[1], 'GraphicalConsole')
        self.assertIn('have no display', one.notice('vnc'))


class PodTestCase(EveryServer, ConsolesTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = cls.share(redfish_pod.RedfishPod(
            cls.sandbox, VM, both=True))
        cls.password, cls.ca = cls.server.password, cls.server.ca

    def account(self, role):
        """Create an account; return its path and the token of a session."""
        name = 'user-' + role.lower()
        made = self.server.request('POST', ACCOUNTS, {
            'UserName': name, 'Password': 'a secret password',
            'RoleId': role}, expect=201).json()['@odata.id']
        self.addCleanup(self.server.request, 'DELETE', made)
        return made, self.login(name, 'a secret password')[1]

    def test_http_and_end_by_client(self):
        one = self.shell(url=self.server.http)
        mark = len(self.output())
        one.close()
        self.until(lambda: 'console disconnected' in self.output()[mark:])

    def test_consoles_leave_connections_for_requests(self):
        token = self.login()[1]
        for _ in range(service_context.MAX_CONSOLES):
            self.connect(token, url=self.server.http)
        one = self.connect(token, url=self.server.http)
        self.assertEqual(
            (1013, 'The maximum number of consoles is open. Close one, or try '
             'again later.'), one.end())
        # Another account has some left.
        self.shell(self.account('Operator')[1], url=self.server.http)
        for _ in range(8):
            self.assertEqual(200, requests.get(
                self.server.http + '/redfish/v1', timeout=30).status_code)
        self.assertEqual(200, self.server.probe('/livez')[0])

    def test_basic_authentication(self):
        """As a client that is no browser may do it."""
        credentials = base64.b64encode(
            f'{self.USER}:{self.password}'.encode()).decode()
        one = self.connect(Authorization='Basic ' + credentials)
        self.assertIsNone(one.subprotocol)
        one.say(b'')

    def test_roles(self):
        self.assertEqual(403, self.refused(self.account('ReadOnly')[1])[0])
        account, token = self.account('Operator')
        one = self.shell(token)
        self.server.request('PATCH', account, {'RoleId': 'Administrator'},
                            expect=200)
        self.assertEqual(1008, one.end()[0])

    def test_off_and_on(self):
        self.sandbox.patch('virtualmachines', VM, {
            'spec': {'runStrategy': 'Halted'}})
        self.sandbox.wait_stopped(VM)
        one = self.connect(self.login()[1])
        one.notice('is off. The console connects when it starts.')
        other = self.connect(self.login()[1], 'GraphicalConsole')
        other.notice('is off. The display connects when it starts.')
        self.sandbox.patch('virtualmachines', VM, {
            'spec': {'runStrategy': 'Always'}})
        one.notice('is connected.')
        one.say(b'')

    def test_long_input_and_too_long_input(self):
        one = self.shell()
        line = b'x' * 50000
        self.assertIn(line, one.say(line))
        one.send(bytes(2 ** 17 + 1))
        self.assertEqual(1009, one.end()[0])

    def test_sigterm(self):
        pod = self.useFixture(redfish_pod.RedfishPod(self.sandbox, VM))
        self.server, self.ca = pod, pod.ca
        one = self.shell(self.login()[1])
        pod.process.send(signal.SIGTERM)
        self.assertEqual((1001, 'The BMC is stopping.'), one.end())
        self.assertEqual(0, pod.process.wait())
        self.assertNotIn('Traceback', pod.process.output)

    def test_modules_are_loaded_with_the_first_console(self):
        pod = self.useFixture(redfish_pod.RedfishPod(self.sandbox, VM))
        pod.request('GET', self.path, expect=200)
        pod.request('GET', self.path + '/SerialConsole', expect=426)
        self.assertEqual(set(), {
            'websockets', 'sushy_kubevirt.redfish.protocol.websocket',
            'sushy_kubevirt.machine.console'} & pod.loaded.of(
                pod.process, self.until))


class WithoutPageTestCase(ConsolesTestCase):

    def test_disabled(self):
        self.server = self.useFixture(redfish_pod.RedfishPod(
            self.sandbox, VM,
            settings='SUSHY_EMULATOR_KUBEVIRT_WEB_PAGE = False\n'))
        self.ca, self.password = self.server.ca, self.server.password
        self.path = '/redfish/v1/Systems/1'
        self.assertEqual(404, self.refused(self.login()[1])[0])
        system = self.server.request('GET', self.path, expect=200).json()
        self.assertEqual({'SushyKubevirt': {'Namespace': 'default'}},
                         system['Oem'])
        self.assertNotIn('WebSocket', system['SerialConsole'])

    def setUp(self):
        base.SandboxTestCase.setUp(self)


class EmulatorCase(ConsolesTestCase):

    SERVER = 'werkzeug'
    HTTPS = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        home = pathlib.Path(cls.share(fixtures.TempDir()).path)
        cls.password = 'a secret password'
        accounts = home / 'accounts'
        hashed = bcrypt.hashpw(cls.password.encode(), bcrypt.gensalt(4))
        accounts.write_text(f'{cls.USER}:{hashed.decode()}\n')
        tls = cls.share(certificates.Certificate()).tls if cls.HTTPS else None
        cls.ca = tls and tls[2]
        cls.server = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(),
            {'SUSHY_EMULATOR_AUTH_FILE': str(accounts)}, cls.SERVER,
            # Half of them serve two consoles, beside those of an earlier test
            # that the server has not yet ended.
            threads=8, auth=(cls.USER, cls.password), tls=tls))


class EndOfServer:
    """What clients are told at the end of a server of the emulator."""

    def test_end_of_the_server(self):
        self.server = self.useFixture(emulator.Emulator(
            self.server.kubeconfig, self.server.settings, self.SERVER,
            auth=self.server.auth, tls=self.server.tls))
        one = self.shell()
        self.server.process.send(signal.SIGTERM)
        # Werkzeug's threads end with the process.
        self.assertEqual(None if self.SERVER == 'werkzeug' else (
            1001, 'The BMC is stopping.'), one.end())
        self.server.process.wait()
        self.assertNotIn('Traceback', self.output())


class EmulatorTestCase(EveryServer, EndOfServer, EmulatorCase):
    """Werkzeug's server."""

    def test_refusal_tells_that_the_connection_ends(self):
        answer = self.server.request('GET', self.path + '/SerialConsole',
                                     expect=426)
        # Python's http.client reads the first header only.
        self.assertEqual('Upgrade, close',
                         answer.raw.headers.getlist('Connection')[0])


class EmulatorHttpsTestCase(EveryTransport, EndOfServer, EmulatorCase):

    HTTPS = True


class GunicornTestCase(EveryTransport, EndOfServer, EmulatorCase):

    SERVER = 'gunicorn'


class GunicornHttpsTestCase(EveryServer, EndOfServer, EmulatorCase):

    SERVER = 'gunicorn'
    HTTPS = True
