# SPDX-License-Identifier: Apache-2.0
"""Logins: correct and wrong passwords, and their cost."""

from concurrent import futures
import contextlib
import itertools
import pathlib
import threading
import time
from unittest import mock

import bcrypt
import fixtures
from oslotest import base

from sushy_kubevirt.redfish.services import account_files
from sushy_kubevirt.redfish.services import authenticator
from sushy_kubevirt.redfish.services import login_accounts
from sushy_kubevirt.redfish.services import login_throttle
from sushy_kubevirt.redfish.services import server_threads

HERE = '10.0.0.1'


def line(name, password, cost=4):
    return f'{name}:{bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode()}\n'


class AuthenticatorTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        # The waits below have no limit of their own.
        self.useFixture(fixtures.Timeout(60, gentle=True))
        self.base = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.log = self.useFixture(fixtures.FakeLogger())
        self.path = self.base / 'accounts'
        self.path.write_text(line('admin', b'secret') + line('bob', b'other'))
        self.login = self.authenticator_of(self.path)
        self.checkpw = self.useFixture(fixtures.MockPatchObject(
            bcrypt, 'checkpw', wraps=bcrypt.checkpw)).mock
        for name, seconds in ('SHORTEST_DELAY', 0.001), ('LONGEST_DELAY', .01):
            self.useFixture(fixtures.MockPatchObject(
                login_throttle, name, seconds))
        self.refusals = []
        self.login.refused.append(lambda *args: self.refusals.append(args))

    def authenticator_of(self, path):
        found = account_files.Accounts([account_files.Source(path)])
        found.require()
        return authenticator.Authenticator(
            login_accounts.LoginAccounts(found))

    def assert_accepted(self, name, password, source=HERE):
        self.assertEqual(name, self.login.check(name, password, source).name)

    def assert_refused(self, name, password, source=HERE):
        self.assertRaises(
            authenticator.LoginRefused,
            self.login.check,
            name,
            password,
            source,
        )

    def assert_throttled(self, name, password, source=HERE):
        self.assertRaises(authenticator.LoginThrottled, self.login.check,
                          name, password, source)

    def test_hashes_correct_password_once(self):
        for _ in range(5):
            self.assert_accepted('admin', b'secret')
            self.assert_accepted('bob', b'other')
        self.assertEqual(2, self.checkpw.call_count)
        self.assertEqual([], self.refusals)

    def test_hashes_wrong_password_once(self):
        for _ in range(50):
            self.assert_refused('admin', b'wrong')
            self.assert_refused('nobody', b'wrong')
        self.assertEqual(2, self.checkpw.call_count)
        # Repeating one wrong password does not throttle the client.
        self.assert_accepted('admin', b'secret')
        self.assertEqual([('admin', HERE), (None, HERE)], self.refusals)

    def test_password_belongs_to_one_account(self):
        self.assert_refused('admin', b'other')
        self.assert_refused('bob', b'secret')
        self.assert_refused('', b'secret')
        self.assert_refused('admin', b'')
        self.assert_accepted('admin', b'secret')

    def test_name_and_password_are_separate(self):
        self.assert_refused('admi', b'nsecret')
        self.assert_refused('adminsecret', b'')

    def test_unusual_passwords(self):
        for password in b'x' * 73, b'x' * 10 ** 5, b'secret\0', b'\xff':
            self.assert_refused('admin', password, str(len(password)))
        self.assertEqual(4, self.checkpw.call_count)

    def test_rejects_bytes_beyond_limit_of_bcrypt(self):
        """bcrypt reads 72 bytes; further bytes must not be ignored."""
        self.path.write_text(line('admin', b'x' * 72))
        self.assert_refused('admin', b'x' * 73)
        self.assert_accepted('admin', b'x' * 72)

    def test_unusual_names(self):
        for name in 'x' * 10 ** 5, '\ud800', 'a\0b', 'a\nb':
            self.assert_refused(name, b'secret')
        self.assertNotIn('a\nb', self.log.output)

    def test_unknown_name_takes_as_long_as_wrong_password(self):
        self.path.write_text(line('admin', b'secret', 9))
        times = {'admin': [], 'nobody': []}
        for number in range(5):
            # Alternate, because the load of the processor varies.
            for name, spent in times.items():
                begin = time.thread_time()
                self.assert_refused(name, b'%d' % number,
                                    f'{name}-{number}')
                spent.append(time.thread_time() - begin)
        times = {name: min(spent) for name, spent in times.items()}
        self.assertLess(times['admin'] / times['nobody'], 1.5)
        self.assertLess(times['nobody'] / times['admin'], 1.5)

    def test_digests_of_apache(self):
        """Apache writes the prefix $2y$."""
        self.path.write_text(line('admin', b'secret').replace('$2b$', '$2y$'))
        self.assert_accepted('admin', b'secret')
        self.assert_refused('admin', b'wrong')

    def test_password_of_mounted_secret(self):
        password = b'\0' + b'x' * 500
        self.mounted('admin', password)
        self.assert_accepted('admin', password)
        self.assert_refused('admin', password[:-1])

    def test_password_change(self):
        self.assert_accepted('admin', b'secret')
        self.path.write_text(line('admin', b'new'))
        self.assert_accepted('admin', b'new')
        self.assert_refused('admin', b'secret')
        self.path.write_text(line('admin', b'secret'))
        self.assert_accepted('admin', b'secret')
        self.assert_refused('bob', b'other')

    def in_threads(self, number, function):
        """Call a function in threads; return its results or exceptions."""
        def one(argument):
            try:
                return function(argument)
            except Exception as exc:
                return type(exc)

        with futures.ThreadPoolExecutor(number) as pool:
            return [pool.submit(one, each) for each in range(number)]

    def test_accepts_correct_password_among_guesses(self):
        """Guesses occupy all places for delayed answers, at one address."""
        self.delays(60)
        self.mounted('admin', b'secret of Secret')
        guess = threading.Thread(target=self.in_threads, args=(
            30, lambda number: self.login.check('admin', b'%d' % number, HERE)
        ))
        guess.start()
        while self.login._held < authenticator._MAX_HELD:
            time.sleep(0.001)
        begin = time.monotonic()
        for _ in range(1000):
            self.assert_accepted('admin', b'secret of Secret')
        self.assertLess(time.monotonic() - begin, 30)
        self.assertTrue(guess.is_alive())
        # Without a free place, the answer is not delayed.
        self.assert_refused('admin', b'more')
        self.assertLess(time.monotonic() - begin, 50)
        self.login.close()
        guess.join(10)
        self.assertEqual(0, self.login._held)
        self.assertEqual(0, self.checkpw.call_count)

    def test_delays_wrong_passwords_more_and_more(self):
        self.delays(0.05)
        spent = []
        for number in range(login_throttle.PAIR + 2):
            begin = time.monotonic()
            self.assert_refused('admin', b'%d' % number)
            spent.append(time.monotonic() - begin)
        self.assertGreaterEqual(min(spent), 0.05)
        self.assertGreaterEqual(spent[-1], 0.2)

    def delays(self, shortest):
        self.useFixture(fixtures.MockPatchObject(
            login_throttle, 'SHORTEST_DELAY', shortest))
        self.useFixture(fixtures.MockPatchObject(
            login_throttle, 'LONGEST_DELAY', 60))

    def test_holds_no_answer_where_threads_are_few(self):
        self.delays(60)
        self.useFixture(fixtures.MockPatchObject(
            server_threads, '_worker', lambda: mock.Mock(
                cfg=mock.Mock(threads=2))))
        begin = time.monotonic()
        for password in b'wrong', b'wrong', b'another':
            self.assert_refused('admin', password)
        self.assertLess(time.monotonic() - begin, 30)
        self.assert_accepted('admin', b'secret')

    def test_guesses_do_not_refuse_known_bcrypt_password(self):
        self.assert_accepted('admin', b'secret')
        go = threading.Event()
        self.addCleanup(go.set)
        self.checkpw.side_effect = lambda *args: go.wait(10) and False
        guess = threading.Thread(target=self.in_threads, args=(
            20, lambda number: self.login.check('admin', b'%d' % number, HERE)
        ))
        guess.start()
        while not self.checkpw.call_count > 1:
            time.sleep(0.001)
        self.assert_accepted('admin', b'secret')
        self.assertTrue(guess.is_alive())
        go.set()
        guess.join(10)

    def test_reports_few_of_many_guesses(self):
        # More may be reported as time goes by.
        self.login._throttle = login_throttle.Throttle(clock=lambda: 0)
        for number in range(100):
            self.assert_refused('admin', b'%d' % number)
        self.assertEqual([('admin', HERE)] * 7, self.refusals)
        for number in range(200):
            self.assert_refused('admin', b'%d' % number, f'from-{number}')
        self.assertLessEqual(len(self.refusals), 21)

    def mounted(self, name, password):
        """Replace the accounts by a mounted Secret."""
        folder = self.base / 'secret'
        folder.mkdir()
        (folder / 'username').write_text(name)
        (folder / 'password').write_bytes(password)
        self.login = self.authenticator_of(folder)

    def test_concurrent_correct_logins_hash_once(self):
        """All threads of a client send the same password."""
        self.path.write_text(line('admin', b'secret', 8))
        self.login.account('admin', recheck=True)
        barrier = threading.Barrier(20)

        def one(_number):
            barrier.wait(10)
            return self.login.check('admin', b'secret', HERE).name

        with futures.ThreadPoolExecutor(20) as pool:
            self.assertEqual({'admin'}, set(pool.map(one, range(20))))
        self.assertEqual(1, self.checkpw.call_count)

    def test_concurrent_wrong_logins_hash_once(self):
        """Concurrent attempts with one wrong password count once."""
        self.path.write_text(line('admin', b'secret', 8))
        self.login.account('admin', recheck=True)
        barrier = threading.Barrier(20)

        def one(_number):
            barrier.wait(10)
            self.assert_refused('admin', b'old')

        with futures.ThreadPoolExecutor(20) as pool:
            list(pool.map(one, range(20)))
        self.assertEqual(1, self.checkpw.call_count)
        self.assert_accepted('admin', b'secret')
        self.assertEqual([('admin', HERE)], self.refusals)

    def test_limits_concurrent_guesses(self):
        """A few attempts wait for bcrypt; the others are refused at once."""
        go = threading.Event()
        self.checkpw.side_effect = lambda *args: go.wait(10) and False
        most = authenticator._MAX_PARALLEL + authenticator._MAX_WAITING
        with futures.ThreadPoolExecutor(20) as pool:
            running = [pool.submit(self.assert_refused, 'admin', b'%d' % one,
                                   f'from-{one}') for one in range(20)]
            sent_away = [each.exception(10) for each in itertools.islice(
                futures.as_completed(running), 20 - most)]
            self.assertEqual(
                [authenticator.LoginThrottled] * (20 - most),
                list(map(type, sent_away)))
            go.set()
        self.assertEqual(most, self.checkpw.call_count)

    def test_correct_password_gets_a_turn_among_unknown_names(self):
        """A guesser at the owner's address, with other names each time."""
        for number in range(5):
            self.assert_refused('admin', b'%d' % number)
        go = threading.Event()
        self.addCleanup(go.set)
        tries = []

        def checked(password, digest):
            go.wait(30)
            return bcrypt.hashpw(password, digest) == digest

        self.checkpw.side_effect = checked
        most = authenticator._MAX_PARALLEL + authenticator._MAX_WAITING

        def log_in():
            while len(tries) < 200:
                tries.append(1)
                try:
                    return self.login.check('admin', b'secret', HERE).name
                except authenticator.LoginThrottled:
                    pass

        with futures.ThreadPoolExecutor(most + 1) as pool:
            guesses = [pool.submit(self.login.check, f'user-{number}', b'x',
                                   HERE) for number in range(most)]
            while (len(self.login._queue._waiting)
                   < authenticator._MAX_WAITING):
                time.sleep(0.001)
            owner = pool.submit(log_in)
            # Either the owner or one of the guessers is sent away.
            futures.wait([owner, *guesses], 30, futures.FIRST_COMPLETED)
            go.set()
            self.assertEqual('admin', owner.result(30))

    def test_limits_time_in_queue(self):
        self.useFixture(
            fixtures.MockPatchObject(
                authenticator,
                '_QUEUE_SECONDS',
                0.1))
        with contextlib.ExitStack() as slots:
            for _ in range(authenticator._MAX_PARALLEL):
                slots.enter_context(self.login._queue.slot(0, 9, 1))
            self.assert_throttled('admin', b'secret')
        self.assert_accepted('admin', b'secret')

    def test_logs_no_password(self):
        self.assert_refused('admin', b'password-7')
        self.assert_refused('password-in-the-wrong-field', b'password-8')
        self.assertNotIn('password', self.log.output + repr(self.refusals))
        self.assertIn('user admin, from 10.0.0.1', self.log.output)
        self.assertIn('an unknown user, from 10.0.0.1', self.log.output)

    def test_limits_cached_wrong_passwords(self):
        self.useFixture(fixtures.MockPatchObject(
            authenticator, '_MAX_REJECTED', 10))
        for number in range(50):
            self.assert_refused('admin', b'%d' % number, f'from-{number}')
        self.assertEqual(10, len(self.login._rejected))

    def test_no_credentials(self):
        login = authenticator.Authenticator(None)
        self.assertFalse(login.required)
        self.assertEqual([], login.configured())
