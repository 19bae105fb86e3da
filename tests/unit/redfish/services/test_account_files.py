# SPDX-License-Identifier: Apache-2.0
"""Accounts from files and mounted Secrets, and their changes."""

import os
import pathlib
import time

import bcrypt
import fixtures
from oslotest import base

from sushy_kubevirt.redfish.services import account_files


def digest(password, cost=4):
    return bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode()


ADMIN = digest(b'secret-of-admin')


class AccountFilesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.base = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        # Nothing settles by itself.
        self.useFixture(fixtures.MockPatchObject(
            account_files, '_SETTLE_SECONDS', 3600))
        self.log = self.useFixture(fixtures.FakeLogger())

    def accounts(self, *paths):
        found = account_files.Accounts(map(account_files.Source, paths))
        found.require()
        return found

    def names(self, accounts):
        return sorted(accounts.current(recheck=True))

    def settle(self):
        """Let all files have been written long ago."""
        for path in (self.base, *self.base.rglob('*')):
            status = path.stat()
            os.utime(path, ns=(status.st_atime_ns,
                               status.st_mtime_ns - 2 * 3600 * 10 ** 9))

    def assert_invalid(self, *paths):
        exc = self.assertRaises(account_files.Invalid, self.accounts, *paths)
        for text in str(exc), self.log.output:
            self.assertNotIn('secret', text)
            self.assertNotIn('$2b$', text)
        return str(exc)


class FileTestCase(AccountFilesTestCase):

    def setUp(self):
        super().setUp()
        self.path = self.base / 'accounts'

    def write(self, text):
        self.path.write_text(text)

    def test_reads_roles(self):
        self.write(f'# people\n\nadmin:{ADMIN}\nbob:{ADMIN}:Operator\n '
                   f'ann:{ADMIN}:ReadOnly\n')
        found = self.accounts(self.path).current()
        self.assertEqual(
            {'admin': 'Administrator', 'bob': 'Operator', 'ann': 'ReadOnly'},
            {account.name: account.role for account in found.values()})
        self.assertIn('ConfigureUsers', found['admin'].privileges)
        self.assertNotIn('ConfigureManager', found['bob'].privileges)

    def test_reads_digests_of_apache(self):
        """Apache writes the prefix $2y$."""
        self.write(f"admin:{ADMIN.replace('$2b$', '$2y$')}\n")
        self.assertEqual(['admin'], self.names(self.accounts(self.path)))

    def test_error_for_invalid_lines(self):
        for text, words in (
                ('', 'it has no account'),
                ('admin', 'user:digest'),
                ('admin:', 'user:digest'),
                ('admin:secret', 'htpasswd -nB'),
                ('admin:$apr1$secret', 'htpasswd -nB'),
                (f'admin:{ADMIN[:-1]}', 'htpasswd -nB'),
                (f'admin:{ADMIN}:Root', 'Administrator, Operator'),
                (f'admin:{ADMIN}:', 'Administrator, Operator'),
                (f"admin:{ADMIN.replace('$04$', '$31$')}", 'cost'),
                (f':{ADMIN}', 'a user name has'),
                (f'a\tb:{ADMIN}', 'control characters'),
                (f"{'a' * 129}:{ADMIN}", 'a user name has'),
                (f'a:{ADMIN}\na:{ADMIN}', 'defined twice')):
            self.write(text)
            found = self.assert_invalid(self.path)
            self.assertIn(words, found)
            self.assertIn(str(self.path), found)

    def test_error_for_unreadable_file(self):
        self.assertIn('No such file', self.assert_invalid(self.path))
        self.path.write_bytes(b'\xff')
        self.assertIn('UTF-8', self.assert_invalid(self.path))

    def test_follows_changes_of_password_and_role(self):
        self.write(f'admin:{ADMIN}\n')
        accounts = self.accounts(self.path)
        before = accounts.current()['admin'].signature
        self.write(f"admin:{digest(b'new')}\nbob:{ADMIN}\n")
        self.assertEqual(['admin', 'bob'], self.names(accounts))
        self.assertNotEqual(before, accounts.current()['admin'].signature)
        self.settle()
        self.write(f'admin:{ADMIN}:ReadOnly\n')
        found = accounts.current(recheck=True)['admin']
        self.assertEqual('ReadOnly', found.role)
        self.assertNotEqual(before, found.signature)

    def test_notices_quick_change_of_same_size(self):
        self.write(f'admin:{ADMIN}\n')
        accounts = self.accounts(self.path)
        for _ in range(20):
            new = digest(b'another')
            self.write(f'admin:{new}\n')
            self.assertEqual(
                new.encode(), accounts.current(recheck=True)['admin'].digest)

    def test_ignores_incomplete_lines(self):
        self.write(f'admin:{ADMIN}\nbob:{ADMIN}\n')
        accounts = self.accounts(self.path)
        self.settle()
        self.write(f'admin:{ADMIN}\nbob:{ADMIN[:20]}')
        self.assertEqual(['admin'], self.names(accounts))
        self.write('')
        self.assertEqual([], self.names(accounts))
        self.write(f'admin:{ADMIN}\nbob:{ADMIN}\n')
        self.assertEqual(['admin', 'bob'], self.names(accounts))

    def test_ignores_line_whose_role_may_be_missing(self):
        """Without a role field, an account is an administrator."""
        self.write(f'admin:{ADMIN}\n')
        accounts = self.accounts(self.path)
        self.write(f'admin:{ADMIN}\nann:{ADMIN}')
        self.assertEqual(['admin'], self.names(accounts))
        self.write(f'admin:{ADMIN}\nann:{ADMIN}:ReadOnly\n')
        self.assertEqual(
            'ReadOnly', accounts.current(recheck=True)['ann'].role)
        # A last line without line end is valid after a while.
        self.write(f'ann:{ADMIN}')
        self.assertEqual([], self.names(accounts))
        self.useFixture(fixtures.MockPatchObject(
            account_files, '_SETTLE_SECONDS', 0))
        self.assertEqual(['ann'], self.names(accounts))

    def test_reads_last_line_without_line_end(self):
        self.write(f'admin:{ADMIN}')
        self.assertEqual(['admin'], self.names(self.accounts(self.path)))

    def test_missing_file_disables_accounts(self):
        self.write(f'admin:{ADMIN}\n')
        accounts = self.accounts(self.path)
        self.path.unlink()
        for _ in range(3):
            self.assertEqual([], self.names(accounts))
        # Logged once, not with each request.
        self.assertEqual(1, self.log.output.count('No such file'))
        self.write(f'admin:{ADMIN}\n')
        self.assertEqual(['admin'], self.names(accounts))

    def test_reads_file_only_after_changes(self):
        self.write(f'admin:{ADMIN}\n')
        accounts = self.accounts(self.path)
        self.settle()
        accounts.current(recheck=True)
        reads = self.useFixture(fixtures.MockPatchObject(
            account_files, '_read')).mock
        for _ in range(10):
            accounts.current(recheck=True)
        self.assertFalse(reads.called)

    def test_limits_age_of_accounts(self):
        """Also if the process was stopped during a check."""
        self.write(f'admin:{ADMIN}\n')
        accounts = self.accounts(self.path)
        stamps = accounts._stamps
        now = time.monotonic()
        self.useFixture(fixtures.MockPatch('time.monotonic', lambda: now))

        def stopped():
            nonlocal now
            now += 3600
            return stamps()

        accounts._stamps = stopped
        accounts.current()
        accounts._stamps = stamps
        self.path.unlink()
        now += account_files._CHECK_SECONDS
        self.assertEqual({}, accounts.current())

    def test_merges_sources(self):
        self.write(f'admin:{ADMIN}\n')
        other = self.base / 'other'
        other.write_text(f'bob:{ADMIN}\n')
        self.assertEqual(['admin', 'bob'], self.names(
            self.accounts(self.path, other)))
        other.write_text(f'admin:{ADMIN}\n')
        self.assertIn('defined twice', self.assert_invalid(self.path, other))


class SecretTestCase(AccountFilesTestCase):

    def mount(self, path, **values):
        """Write a Secret as the kubelet does: replace one symlink."""
        path.mkdir(exist_ok=True)
        new = path / f'..{time.monotonic_ns()}'
        new.mkdir()
        for name, value in values.items():
            (new / name).write_bytes(value)
        link = path / '..data_tmp'
        link.symlink_to(new.name)
        os.rename(link, path / '..data')
        for name in values:
            if not (path / name).is_symlink():
                (path / name).symlink_to('..data/' + name)

    def test_reads_mounted_secret(self):
        self.mount(self.base, username=b'admin\n', password=b'secret\r\n')
        account = self.accounts(self.base).current()['admin']
        self.assertEqual('Administrator', account.role)
        self.assertEqual(account_files.keyed_hash(b'secret'),
                         account.password_hash)
        self.assertNotIn('secret', repr(account))
        self.assertNotIn('$2b$', repr(account))

    def test_recognizes_accounts_that_fit_ipmi(self):
        for name, password, fits in (
                (b'x' * 16, b'y' * 20, True), (b'x' * 17, b'y', False),
                (b'x', b'y' * 21, False)):
            self.mount(self.base, username=name, password=password)
            [account] = self.accounts(self.base).current().values()
            self.assertEqual(fits, account.ipmi)

    def test_reads_role_of_secret(self):
        self.mount(self.base, username=b'bob', password=b'p', role=b'ReadOnly')
        self.assertEqual('ReadOnly', self.accounts(
            self.base).current()['bob'].role)

    def test_reads_several_secrets(self):
        for name in 'a', 'b':
            self.mount(self.base / name, username=name.encode(),
                       password=b'secret')
        accounts = self.accounts(self.base)
        self.assertEqual(['a', 'b'], self.names(accounts))
        self.mount(self.base / 'c', username=b'c', password=b'secret')
        self.assertEqual(['a', 'b', 'c'], self.names(accounts))

    def test_follows_update_of_secret(self):
        self.mount(self.base, username=b'admin', password=b'secret')
        accounts = self.accounts(self.base)
        before = accounts.current()['admin']
        self.settle()
        self.mount(self.base, username=b'admin', password=b'secreu')
        after = accounts.current(recheck=True)['admin']
        self.assertNotEqual(before.signature, after.signature)
        self.assertEqual(account_files.keyed_hash(b'secreu'),
                         after.password_hash)

    def test_error_for_invalid_secret(self):
        for words, values in (
                ('password: it cannot be read', {'username': b'a'}),
                ('username: it cannot be read', {'password': b'secret'}),
                ('password: it is empty', {'username': b'a',
                                           'password': b'\n'}),
                ('UTF-8', {'username': b'\xff', 'password': b'secret'}),
                ('a user name has', {'username': b'a:b',
                                     'password': b'secret'}),
                ('a role is one of', {'username': b'a', 'password': b'secret',
                                      'role': b'root'}),
                ('more than 1024', {'username': b'a',
                                    'password': b'secret' * 1000}),
                ('it has no account', {})):
            path = self.base / str(time.monotonic_ns())
            self.mount(path, **values)
            self.assertIn(words, self.assert_invalid(path))

    def test_removed_secret_disables_accounts(self):
        self.mount(self.base, username=b'admin', password=b'secret')
        accounts = self.accounts(self.base)
        (self.base / '..data').unlink()
        self.assertEqual([], self.names(accounts))

    def test_reads_plain_folder(self):
        (self.base / 'username').write_text('admin')
        (self.base / 'password').write_text('secret')
        accounts = self.accounts(self.base)
        self.assertEqual(['admin'], self.names(accounts))
        self.settle()
        (self.base / 'username').write_text('other')
        self.assertEqual(['other'], self.names(accounts))
        # A new account whose role file is not written yet.
        (self.base / 'password').unlink()
        self.assertEqual([], self.names(accounts))
        (self.base / 'password').write_text('secret')
        self.assertEqual([], self.names(accounts))
        (self.base / 'role').write_text('ReadOnly')
        self.assertEqual('ReadOnly', accounts.current(
            recheck=True)['other'].role)
