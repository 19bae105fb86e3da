# SPDX-License-Identifier: Apache-2.0
"""Accounts in mounted Secrets and in plain folders."""

import os
import pathlib
import shutil

import fixtures
from oslotest import base

from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import users
from vbmc_kubevirt import mounted_secret


class AccountTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'auth'
        self.folder.mkdir()
        self.log = self.useFixture(fixtures.FakeLogger('vbmc_kubevirt'))
        self.number = 0

    def mount(self, **files):
        """Mount or update a Secret as the kubelet does."""
        self.number += 1
        data = self.folder / f'..2026_11_{self.number}'
        data.mkdir()
        for name, value in files.items():
            (data / name).write_bytes(value)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to('..data/' + name)
        (self.folder / '..data_tmp').symlink_to(data.name)
        before = self.folder / '..data'
        old = os.readlink(before) if before.is_symlink() else None
        os.rename(self.folder / '..data_tmp', before)
        for name in os.listdir(self.folder):
            if not name.startswith('..') and name not in files:
                (self.folder / name).unlink()
        if old:
            shutil.rmtree(self.folder / old)

    def account(self):
        return mounted_secret.MountedAccount(self.folder)


def user(name, password, limit=constants.Privilege.ADMINISTRATOR):
    """Return the users of a Secret with these values."""
    return users.User(2, name, password, limit),


class MountTest(AccountTestCase):

    def test_reads_account_and_follows_changes(self):
        self.mount(username=b'admin', password=b'secret')
        account = self.account()
        first = account.users()
        self.assertEqual(user(b'admin', b'secret'), first)
        self.assertEqual(first, account.users())
        self.mount(username=b'admin', password=b'hush')
        self.assertEqual(user(b'admin', b'hush'), account.users())
        self.assertEqual('', account.problem)
        self.assertIn('has changed', self.log.output)
        self.assertNotIn('hush', self.log.output)
        self.assertNotIn('secret', self.log.output)

    def test_rewrite_of_same_values_is_no_change(self):
        self.mount(username=b'admin', password=b'secret')
        account = self.account()
        first = account.users()
        self.mount(username=b'admin', password=b'secret', more=b'x')
        self.assertEqual(first, account.users())
        self.assertEqual('', self.log.output)

    def test_unusable_values_disable_login(self):
        for files, text in (
                ({'username': b'admin'}, 'password: No such file'),
                ({'password': b'x'}, 'username: No such file'),
                ({'username': b'admin', 'password': b''},
                 'password: must have 1 to 20 bytes'),
                ({'username': b'admin', 'password': b'\n'}, '1 to 20 bytes'),
                ({'username': b'admin', 'password': b'x' * 21},
                 '1 to 20 bytes'),
                ({'username': b'admin', 'password': b'x' * 99999},
                 '1 to 20 bytes'),
                ({'username': b'a' * 17, 'password': b'x'},
                 'username: must have 1 to 16 bytes'),
                ({'username': b'admin', 'password': b'hush\0'},
                 'control characters'),
                ({'username': b'\xff\xfe', 'password': b'hush'},
                 'username: must be printable UTF-8'),
                ({'username': b'admin', 'password': b'hush', 'role': b''},
                 'role: must be one of Administrator, Operator, ReadOnly'),
                ({'username': b'admin', 'password': b'hush', 'role': b'root'},
                 'role: must be one of'),
                ({'username': b'admin', 'password': b'hush',
                  'role': b'\xff\xfe'}, 'role: must be one of')):
            self.mount(**files)
            account = self.account()
            for _twice in range(2):
                self.assertEqual((), account.users())
                self.assertIn(text, account.problem)
            self.assertNotIn('hush', self.log.output)
            self.mount(username=b'admin', password=b'secret')
            self.assertEqual(user(b'admin', b'secret'), account.users())
            self.assertEqual('', account.problem)
            self.mount(**files)
            self.assertEqual((), account.users())

    def test_ignores_line_end_after_value(self):
        self.mount(username=b'admin\n', password=b' a b \r\n')
        self.assertEqual(user(b'admin', b' a b '), self.account().users())

    def test_role_limits_the_privilege_level(self):
        for role, limit in ((b'ReadOnly', 2), (b'Operator', 3),
                            (b'Administrator\n', 4)):
            self.mount(username=b'admin', password=b'secret', role=role)
            account = self.account()
            self.assertEqual(user(b'admin', b'secret', limit),
                             account.users())
        self.assertIs(type(account.users()[0].limit), constants.Privilege)
        # A Secret that is changed to have no role.
        self.mount(username=b'admin', password=b'secret')
        self.assertEqual(user(b'admin', b'secret'), account.users())
        self.mount(username=b'admin', password=b'secret', role=b'ReadOnly')
        self.assertEqual(user(b'admin', b'secret', 2), account.users())

    def test_role_counts_before_its_link_exists(self):
        # The kubelet makes the links of new files last.
        self.mount(username=b'admin', password=b'secret', role=b'ReadOnly')
        (self.folder / 'role').unlink()
        self.assertEqual(user(b'admin', b'secret', 2),
                         self.account().users())

    def test_accepts_values_of_maximum_length(self):
        self.mount(username=b'a' * 16, password='ä'.encode() * 10)
        self.assertEqual(user(b'a' * 16, 'ä'.encode() * 10),
                         self.account().users())

    def test_logs_problem_once(self):
        account = self.account()
        for _number in range(5):
            account.users()
        self.assertEqual(1, self.log.output.count('is unusable'))

    def test_missing_folder_disables_login(self):
        self.mount(username=b'admin', password=b'secret')
        account = self.account()
        account.users()
        away = self.folder.with_name('away')
        self.folder.rename(away)
        self.assertEqual((), account.users())
        away.rename(self.folder)
        self.assertEqual(user(b'admin', b'secret'), account.users())

    def test_removed_target_of_the_link_disables_login(self):
        self.mount(username=b'admin', password=b'secret')
        account = self.account()
        account.users()
        shutil.rmtree(self.folder / os.readlink(self.folder / '..data'))
        self.assertEqual((), account.users())
        self.assertIn('username: No such file', account.problem)

    def test_follows_a_file_replaced_behind_the_link(self):
        self.mount(username=b'admin', password=b'secret')
        account = self.account()
        account.users()
        data = self.folder / '..data'
        # Modified at another time than at the start, whatever the clock's
        # resolution.
        os.utime(data, (1, 1))
        account.users()
        (data / 'new').write_bytes(b'hush')
        (data / 'new').rename(data / 'password')
        self.assertEqual(user(b'admin', b'hush'), account.users())

    def test_never_mixes_values_of_two_versions(self):
        self.mount(username=b'admin', password=b'secret')
        account = self.account()
        read = account._read

        def slow(name):
            value = read(name)
            if name == 'username' and self.number == 1:
                self.mount(username=b'root', password=b'other')
            return value

        account._read = slow
        self.assertEqual(user(b'root', b'other'), account.users())


class PlainFolderTest(AccountTestCase):
    """Files that are written one after the other, without symlinks."""

    def write(self, age=0, **files):
        for name, value in files.items():
            path = self.folder / name
            path.write_bytes(value)
            then = path.stat().st_mtime - age
            os.utime(path, (then, then))

    def test_reads_existing_files_at_start(self):
        self.write(username=b'admin', password=b'secret')
        self.assertEqual(user(b'admin', b'secret'), self.account().users())

    def test_ignores_files_that_are_being_written(self):
        self.write(username=b'admin', password=b'secret')
        account = self.account()
        account.users()
        self.write(password=b'oth')
        self.assertEqual((), account.users())
        self.assertIn('being written', account.problem)
        self.write(age=2, username=b'admin', password=b'other')
        self.assertEqual(user(b'admin', b'other'), account.users())

    def test_accepts_modification_time_in_the_future(self):
        self.write(username=b'admin', password=b'secret')
        account = self.account()
        account.users()
        self.write(age=-3600, username=b'admin', password=b'other')
        self.assertEqual(user(b'admin', b'other'), account.users())
