# SPDX-License-Identifier: Apache-2.0
"""Redfish accounts and sessions with real servers, Secrets and clients."""

from concurrent import futures
import contextlib
import itertools
import os
import pathlib
import threading
import time

import bcrypt
import fixtures
import requests
from requests import adapters
import sushy
from sushy import auth

from tests.fixtures import account_secret
from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import redfish_case

SERVICE = '/redfish/v1/SessionService'
SESSIONS = SERVICE + '/Sessions'
ADMIN = ('admin', 'secret-of-admin')


class SourceAddressAdapter(adapters.HTTPAdapter):
    """Adapter whose requests come from another address of this host."""

    def __init__(self, address):
        self.address = address
        super().__init__()

    def init_poolmanager(self, *args, **kwargs):
        super().init_poolmanager(
            *args, source_address=(self.address, 0), **kwargs)


class AccountsTestCase(base.SandboxTestCase):
    """Three accounts, one of each role."""

    VMS = 1
    SERVER = 'werkzeug'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(cls.share(fixtures.TempDir()).path)
        cls.secret = cls.share(account_secret.Secret(
            cls.folder / 'admin', username='admin',
            password='secret-of-admin\n'))
        for name, role in ('bob', 'Operator'), ('ann', 'ReadOnly'):
            cls.share(
                account_secret.Secret(
                    cls.folder / name,
                    username=name,
                    role=role,
                    password='secret-of-' + name,
                )
            )
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(),
            {'SUSHY_EMULATOR_KUBEVIRT_ACCOUNTS': str(cls.folder)},
            cls.SERVER))
        cls.tokens = []

    def setUp(self):
        super().setUp()
        self.addCleanup(self.secret.change, username='admin',
                        password='secret-of-admin\n')
        self.addCleanup(self.assert_no_secret_in_log)

    def assert_no_secret_in_log(self):
        text = self.emulator.process.output
        for word in ('secret-', 'Traceback', *self.tokens):
            self.assertNotIn(word, text)

    def ask(self, method, where, credentials=None, token=None, expect=200,
            body=None, address='127.0.0.1'):
        """Send a request over a new connection."""
        with requests.Session() as session:
            session.trust_env = False
            session.mount('http://', SourceAddressAdapter(address))
            headers = {'X-Auth-Token': token} if token else {}
            response = session.request(
                method, self.emulator.url + where, json=body, timeout=30,
                auth=credentials, headers=headers)
        self.assertEqual(expect, response.status_code, response.text)
        return response

    def wait_code(self, expect, credentials=None, token=None):
        """Wait until changed accounts take effect."""
        def seen():
            try:
                self.ask('GET', SESSIONS, credentials, token, expect)
            except AssertionError:
                return False
            return True

        self.until(seen)

    def log_in(self, credentials=ADMIN, expect=201, **options):
        """Create a session; return its token and path."""
        answer = self.ask('POST', SESSIONS, expect=expect, body={
            'UserName': credentials[0], 'Password': credentials[1]},
            **options)
        token = answer.headers.get('X-Auth-Token')
        if token:
            self.tokens.append(token)
        return token, answer.headers.get('Location')


class GuessesMixin:
    """Guesses from the address of the accounts' owner, for each server."""

    #: Guesses that are sent at once, and a second afterwards.
    FIRST, RATE = 40, 20

    def guess(self, number):
        """Send a wrong password or token.

        :returns: (seconds until the response to a password, None for a token;
            status code)
        """
        wrong = f'secret-guess-{number}'
        where, options = (
            (SESSIONS, {'json': {'UserName': 'admin', 'Password': wrong}}),
            (SERVICE, {'auth': ('admin', wrong)}),
            (SERVICE, {'headers': {'X-Auth-Token': wrong}}),
        )[number % 3]
        answer = requests.request(
            'POST' if where == SESSIONS else 'GET', self.emulator.url + where,
            timeout=30, **options)
        return (None if 'headers' in options
                else answer.elapsed.total_seconds()), answer.status_code

    @contextlib.contextmanager
    def guessing(self):
        """Guess in the background.

        :returns: list of futures of `guess`, which have ended after the body
            of the with statement
        """
        sent, stop = [], threading.Event()

        def send():
            begin = time.monotonic()
            for number in itertools.count():
                sent.append(pool.submit(self.guess, number))
                due = begin + (number - self.FIRST) / self.RATE
                if stop.wait(max(0, due - time.monotonic())):
                    return

        with futures.ThreadPoolExecutor(64) as pool:
            sender = threading.Thread(target=send)
            sender.start()
            try:
                yield sent
            finally:
                stop.set()
                sender.join()

    def slowest(self, token, pause):
        """Send valid credentials; return the longest seconds to a response."""
        spent = []
        for _ in range(37):
            for credentials in {'credentials': ADMIN}, {'token': token}:
                begin = time.monotonic()
                self.ask('GET', '/redfish/v1/Systems', **credentials)
                spent.append(time.monotonic() - begin)
            time.sleep(pause)
        return max(spent)

    def test_guesses_neither_refuse_nor_delay_logins(self):
        token, _session = self.log_in()
        undisturbed = self.slowest(token, pause=0)
        with self.guessing() as sent:
            disturbed = self.slowest(token, pause=0.05)
            self.log_in()
        waited, codes = zip(*(one.result() for one in sent))
        waited = [seconds for seconds in waited if seconds is not None]
        # Guesses wait up to 5 s, and at once after all places are taken.
        self.assertGreater(max(waited), 4)
        self.assertLess(min(waited), 0.25)
        self.assertEqual({401}, set(codes))
        self.assertLess(disturbed, undisturbed + 3)


class TestClients(GuessesMixin, AccountsTestCase):
    """An emulator with its own server, werkzeug."""

    def connect(self, kind, *credentials):
        return sushy.Sushy(self.emulator.url + '/redfish/v1/',
                           auth=kind(*credentials))

    def test_sushy_logs_in_and_out(self):
        for member in self.ask('GET', SESSIONS, ADMIN).json()['Members']:
            self.ask('DELETE', member['@odata.id'], ADMIN, expect=204)
        for kind in (auth.BasicAuth, auth.SessionAuth,
                     auth.SessionOrBasicAuth):
            with kind(*ADMIN) as each:
                root = sushy.Sushy(self.emulator.url + '/redfish/v1/',
                                   auth=each)
                [system] = root.get_system_collection().get_members()
                self.assertEqual('vm-0', system.name)
                if kind is not auth.BasicAuth:
                    self.tokens.append(each.get_session_key())
                    service = root.get_session_service()
                    self.assertEqual(1800, service.session_timeout)
                    self.assertEqual(
                        ['admin'], [one.username for one
                                    in service.sessions.get_members()])
        # Each client has logged out.
        self.assertEqual([], self.ask('GET', SESSIONS, ADMIN).json()[
            'Members'])

    def test_sushy_reports_wrong_password(self):
        for kind in auth.BasicAuth, auth.SessionAuth, auth.SessionOrBasicAuth:
            def connect():
                root = self.connect(kind, 'admin', 'secret-wrong')
                root.get_system_collection().get_members()
            self.assertRaises(sushy.exceptions.AccessError, connect)

    def test_sushy_renews_ended_session(self):
        """A 401 response makes it create a new session."""
        root = self.connect(auth.SessionAuth, *ADMIN)
        system = root.get_system_collection().get_members()[0]
        for member in self.ask('GET', SESSIONS, ADMIN).json()['Members']:
            self.ask('DELETE', member['@odata.id'], ADMIN, expect=204)
        system.refresh(force=True)
        self.tokens.append(root._auth.get_session_key())
        root._auth.close()

    def test_roles(self):
        where = self.emulator_system() + '/Actions/ComputerSystem.Reset'
        for name, code in ('ann', 403), ('bob', 204):
            credentials = name, 'secret-of-' + name
            self.ask('POST', where, credentials, expect=code,
                     body={'ResetType': 'On'})
            self.ask('GET', '/redfish/v1/Systems', credentials)
            self.ask('PATCH', SERVICE, credentials, expect=403,
                     body={'SessionTimeout': 60})

    def emulator_system(self):
        return self.ask('GET', '/redfish/v1/Systems', ADMIN).json()[
            'Members'][0]['@odata.id']

    def test_sessions_end_with_the_process(self):
        token, _session = self.log_in()
        self.emulator.process.kill()
        self.emulator.process.restart()
        self.emulator.url = self.emulator.process.match[1].rstrip('/')
        self.ask('GET', SESSIONS, token=token, expect=401)


class TestGunicorn(GuessesMixin, AccountsTestCase):

    SERVER = 'gunicorn'

    def test_changed_password_ends_sessions(self):
        token, _session = self.log_in()
        self.secret.change(username='admin', password='secret-new')
        self.wait_code(401, token=token)
        self.ask('GET', SESSIONS, ADMIN, expect=401)
        self.ask('GET', SESSIONS, ('admin', 'secret-new'))
        new, _session = self.log_in(('admin', 'secret-new'))
        self.ask('GET', SESSIONS, token=new)

    def test_unreadable_secret_denies_all(self):
        token, _session = self.log_in()
        now = os.readlink(self.secret.path / '..data')
        (self.secret.path / '..data').unlink()
        self.addCleanup(self.emulator.process.wait_output, 'cannot be read')
        self.wait_code(401, ADMIN)
        self.ask('GET', SESSIONS, token=token, expect=401)
        self.ask('GET', SESSIONS, expect=401)
        (self.secret.path / '..data').symlink_to(now)
        self.ask('GET', SESSIONS, ADMIN)
        self.ask('GET', SESSIONS, token=token)


class TestPod(GuessesMixin, AccountsTestCase):
    """The server of a BMC that the operator runs."""

    SERVER = 'pod'


class TestFile(redfish_case.RedfishTestCase):
    """A file of users in the format of upstream."""

    def start(self, text, server='werkzeug'):
        path = self.sandbox.kubeconfig.with_name('accounts')
        path.write_text(text)
        started = emulator.Emulator(
            self.sandbox.bmc_account(),
            {'SUSHY_EMULATOR_AUTH_FILE': str(path)}, server)
        started.setUp()
        self.addCleanup(started.cleanUp)
        return started, path

    def test_changes_of_file(self):
        def line(password):
            hashed = bcrypt.hashpw(password, bcrypt.gensalt(4))
            return f'admin:{hashed.decode()}\n'

        started, path = self.start(line(b'secret'))
        for password in 'secret', 'another', 'secret':
            path.write_text(line(password.encode()))
            started.request('GET', redfish_case.SYSTEMS, expect=200,
                            auth=('admin', password))
        path.unlink()
        self.until(lambda: started.request(
            'GET', redfish_case.SYSTEMS,
            auth=('admin', 'secret')).status_code == 401)
        started.request('GET', redfish_case.SYSTEMS, expect=401)
        started.request('GET', '/redfish/v1/', expect=200)

    def test_name_that_requests_sends_in_latin1(self):
        digest = bcrypt.hashpw('pässword'.encode(), bcrypt.gensalt(4))
        text = f'jürgen:{digest.decode()}:Operator\n'
        for server in 'werkzeug', 'gunicorn', 'pod':
            started, _path = self.start(text, server)
            pair = ('jürgen', 'pässword')
            for credentials in pair, tuple(part.encode() for part in pair):
                started.request('GET', redfish_case.SYSTEMS, expect=200,
                                auth=credentials)
            for header in ({'Authorization': 'Bearer x'},
                           {'Authorization': 'Basic J\xfc'}):
                answer = started.request('GET', redfish_case.SYSTEMS,
                                         expect=401, headers=header)
                self.assertIn('Basic', answer.headers['WWW-Authenticate'])

    def test_invalid_file_prevents_start(self):
        exc = self.assertRaises(fixtures.MultipleExceptions, self.start,
                                'admin:secret-in-clear\n')
        text = str(exc.args[0][1])
        self.assertIn('line 1', text)
        self.assertIn('htpasswd -nB', text)
        self.assertNotIn('secret-in-clear', text)
        self.assertNotIn('Traceback', text)
        started, _path = self.start('', 'gunicorn')
        self.assertEqual(3, started.process.wait())
        started.process.wait_output('it has no account')
        self.assertNotIn('Traceback', started.process.output)
