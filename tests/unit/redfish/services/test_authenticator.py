# SPDX-License-Identifier: Apache-2.0
"""Names and passwords, right and wrong, and what they cost."""

from concurrent import futures
import itertools
import pathlib
import threading
import time

import bcrypt
import fixtures
from oslotest import base

from sushy_kubevirt.redfish.services import account_files
from sushy_kubevirt.redfish.services import authenticator
from sushy_kubevirt.redfish.services import login_throttle

HERE = '10.0.0.1'


def line(name, password, cost=4):
    return f'{name}:{bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode()}\n'


class TestLogin(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.base = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.log = self.useFixture(fixtures.FakeLogger())
        self.path = self.base / 'accounts'
        self.path.write_text(line('admin', b'secret') + line('bob', b'other'))
        self.login = self.made(self.path)
        self.asked = self.useFixture(fixtures.MockPatchObject(
            bcrypt, 'checkpw', wraps=bcrypt.checkpw)).mock
        self.told = []
        self.login.refused.append(lambda *args: self.told.append(args))

    def made(self, path):
        found = account_files.Accounts([account_files.Source(path)])
        found.require()
        return authenticator.Authenticator(found)

    def right(self, name, password, source=HERE):
        self.assertEqual(name, self.login.check(name, password, source).name)

    def wrong(self, name, password, source=HERE):
        self.assertRaises(
            authenticator.LoginRefused,
            self.login.check,
            name,
            password,
            source,
        )

    def slowed(self, name, password, source=HERE):
        return self.assertRaises(
            authenticator.LoginThrottled,
            self.login.check,
            name,
            password,
            source,
        ).retry_after

    def test_right_is_asked_once(self):
        for _ in range(5):
            self.right('admin', b'secret')
            self.right('bob', b'other')
        self.assertEqual(2, self.asked.call_count)
        self.assertEqual([], self.told)

    def test_wrong_is_asked_once(self):
        for _ in range(50):
            self.wrong('admin', b'wrong')
            self.wrong('nobody', b'wrong')
        self.assertEqual(2, self.asked.call_count)
        # A client that goes on with an old password is no guesser.
        self.right('admin', b'secret')
        self.assertEqual([('admin', HERE), (None, HERE)], self.told)

    def test_each_its_own(self):
        self.wrong('admin', b'other')
        self.wrong('bob', b'secret')
        self.wrong('', b'secret')
        self.wrong('admin', b'')
        self.right('admin', b'secret')

    def test_no_words_run_together(self):
        self.wrong('admi', b'nsecret')
        self.wrong('adminsecret', b'')

    def test_odd_passwords(self):
        for password in b'x' * 73, b'x' * 10 ** 5, b'secret\0', b'\xff':
            self.wrong('admin', password, str(len(password)))
        self.assertEqual(4, self.asked.call_count)

    def test_72_bytes(self):
        """bcrypt looks at no more; what follows must not be ignored."""
        self.path.write_text(line('admin', b'x' * 72))
        self.wrong('admin', b'x' * 73)
        self.right('admin', b'x' * 72)

    def test_odd_names(self):
        for name in 'x' * 10 ** 5, '\ud800', 'a\0b', 'a\nb':
            self.wrong(name, b'secret')
        self.assertNotIn('a\nb', self.log.output)

    def test_unknown_costs_the_same(self):
        self.path.write_text(line('admin', b'secret', 9))
        times = {'admin': [], 'nobody': []}
        for number in range(5):
            # By turns: how fast a processor is depends on who shares it.
            for name, spent in times.items():
                begin = time.thread_time()
                self.wrong(name, b'%d' % number, '%s-%d' % (name, number))
                spent.append(time.thread_time() - begin)
        times = {name: min(spent) for name, spent in times.items()}
        self.assertLess(times['admin'] / times['nobody'], 1.5)
        self.assertLess(times['nobody'] / times['admin'], 1.5)

    def test_htpasswd(self):
        """What Apache writes: $2y$, else the same."""
        self.path.write_text(line('admin', b'secret').replace('$2b$', '$2y$'))
        self.right('admin', b'secret')
        self.wrong('admin', b'wrong')

    def test_secret(self):
        folder = self.base / 'secret'
        folder.mkdir()
        password = b'\0' + b'x' * 500
        (folder / 'username').write_text('admin')
        (folder / 'password').write_bytes(password)
        self.login = self.made(folder)
        self.right('admin', password)
        self.wrong('admin', password[:-1])
        self.wrong('admin', account_files.hashed(password))

    def test_changed(self):
        self.right('admin', b'secret')
        self.path.write_text(line('admin', b'new'))
        self.right('admin', b'new')
        self.wrong('admin', b'secret')
        self.path.write_text(line('admin', b'secret'))
        self.right('admin', b'secret')
        self.wrong('bob', b'other')

    def test_guesser_waits(self):
        for number in range(login_throttle.PAIR.free):
            self.wrong('admin', b'%d' % number)
        asked = self.asked.call_count
        for number in range(100):
            self.assertGreater(self.slowed('admin', b'more%d' % number), 0)
        self.assertEqual(asked, self.asked.call_count)
        # Not even a right guess is told from there; the owner elsewhere is.
        self.slowed('admin', b'secret')
        self.right('admin', b'secret', '10.0.0.2')
        self.slowed('admin', b'secret')

    def test_first_logins_at_once(self):
        """All of a client's threads come with the same password."""
        self.path.write_text(line('admin', b'secret', 8))
        self.login.account('admin', sure=True)
        barrier = threading.Barrier(20)

        def one(_number):
            barrier.wait(10)
            return self.login.check('admin', b'secret', HERE).name

        with futures.ThreadPoolExecutor(20) as pool:
            self.assertEqual({'admin'}, set(pool.map(one, range(20))))
        self.assertEqual(1, self.asked.call_count)

    def test_old_password_of_many_threads(self):
        """One wrong password, whoever else sends it at the same time."""
        self.path.write_text(line('admin', b'secret', 8))
        self.login.account('admin', sure=True)
        barrier = threading.Barrier(20)

        def one(_number):
            barrier.wait(10)
            self.wrong('admin', b'old')

        with futures.ThreadPoolExecutor(20) as pool:
            list(pool.map(one, range(20)))
        self.assertEqual(1, self.asked.call_count)
        self.right('admin', b'secret')
        self.assertEqual([('admin', HERE)], self.told)

    def test_many_guesses_at_once(self):
        """Few wait for their turn; the others are sent away at once."""
        go = threading.Event()
        self.asked.side_effect = lambda *args: go.wait(10) and False

        def one(number):
            try:
                self.login.check('admin', b'%d' % number, 'from-%d' % number)
            except (
                authenticator.LoginRefused,
                authenticator.LoginThrottled,
            ) as exc:
                return type(exc)

        most = authenticator._AT_ONCE + authenticator._WAITING
        with futures.ThreadPoolExecutor(20) as pool:
            running = [pool.submit(one, number) for number in range(20)]
            sent_away = [each.result(10) for each in itertools.islice(
                futures.as_completed(running), 20 - most)]
            self.assertEqual([authenticator.LoginThrottled]
                             * (20 - most), sent_away)
            go.set()
            self.assertEqual(most, [each.result(10) for each in running].count(
                authenticator.LoginRefused))
        self.assertEqual(most, self.asked.call_count)

    def test_waits_not_for_ever(self):
        self.useFixture(
            fixtures.MockPatchObject(
                authenticator,
                '_QUEUE_SECONDS',
                0.1))
        for _ in range(authenticator._AT_ONCE):
            self.login._slots.acquire()
        self.slowed('admin', b'secret')
        for _ in range(authenticator._AT_ONCE):
            self.login._slots.release()
        self.right('admin', b'secret')

    def test_nothing_secret_is_told(self):
        self.wrong('admin', b'password-7')
        self.wrong('password-in-the-wrong-field', b'password-8')
        self.assertNotIn('password', self.log.output + repr(self.told))
        self.assertIn('user admin, from 10.0.0.1', self.log.output)
        self.assertIn('an unknown user, from 10.0.0.1', self.log.output)

    def test_memory_is_bounded(self):
        self.useFixture(fixtures.MockPatchObject(authenticator, '_WRONG', 10))
        for number in range(50):
            self.wrong('admin', b'%d' % number, 'from-%d' % number) \
                if number < login_throttle.ACCOUNT.free else None
        self.assertEqual(10, len(self.login._wrong))

    def test_no_credentials(self):
        login = authenticator.Authenticator(None)
        self.assertFalse(login.required)
        self.assertEqual([], login.accounts())
