# SPDX-License-Identifier: Apache-2.0
"""Commands about users, and the users they make."""

import random
from unittest import mock

import fixtures

from sushy_kubevirt.bmc import accounts
from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import errors
from tests.unit.bmc import test_state_secret
from tests.unit.vbmc import bmc_case
from vbmc_kubevirt import bmc_users
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt.ipmi import users

APPLICATION = constants.APPLICATION
ACCESS, GET_ACCESS, NAME, GET_NAME, PASSWORD = range(0x43, 0x48)
DISABLE, ENABLE, SET, TEST = range(4)

ADMIN = users.User(2, b'admin', b'secret-of-admin')


class UsersTestCase(bmc_case.BmcTestCase):

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.cluster = test_state_secret.Cluster()
        self.configured = (ADMIN,)
        self.users = self.bmc.users = bmc_users.BmcUsers(
            lambda: self.configured, managed=True)
        state = state_secret.StateSecret(self.cluster, ('default', 's'))
        state.read('')
        self.events = mock.create_autospec(event_log.Log, instance=True)
        self.users.attach(state, self.events)
        self.session.user = ADMIN

    def another(self):
        """Return the accounts as another process sees them."""
        state = state_secret.StateSecret(self.cluster, ('default', 's'))
        state.read('')
        return accounts.Accounts(state)

    def ask(self, command, *data):
        """Send a command. :returns: (completion code, data)"""
        return super().ask(APPLICATION, command, *data)

    def code(self, *arguments):
        code, data = self.ask(*arguments)
        self.assertEqual(b'', data)
        return code

    def set_name(self, id_, name):
        return self.code(NAME, id_, *name.ljust(16, b'\0'))

    def set_password(self, id_, operation, password, size=16):
        return self.code(PASSWORD, id_ | (size == 20) << 7, operation,
                         *password.ljust(size, b'\0'))

    def create(self, id_=3, name=b'bob', password=b'secret-of-bob', limit=3):
        """What ``ipmitool user set``, ``priv`` and ``enable`` send."""
        size = 16 if len(password) <= 16 else 20
        self.assertEqual([0, 0, 0, 0], [
            self.set_name(id_, name),
            self.set_password(id_, SET, password, size),
            self.code(ACCESS, 0x91, id_, limit),
            self.code(PASSWORD, id_, ENABLE)])

    def access(self, id_):
        code, data = self.ask(GET_ACCESS, 1, id_)
        self.assertEqual(0, code)
        return tuple(data)

    def test_fixed_users(self):
        self.assertEqual((15, 0x81, 2, 0x0f), self.access(1))
        self.assertEqual((15, 0x41, 2, 0x14), self.access(2))
        self.assertEqual((15, 0x81, 2, 0x1f), self.access(3))
        for id_, name in (1, b''), (2, b'admin'), (3, b''), (15, b''):
            self.assertEqual((0, name.ljust(16, b'\0')),
                             self.ask(GET_NAME, id_))
        self.configured = ()
        self.assertEqual((15, 0x80, 2, 0x1f), self.access(2))

    def test_create_user(self):
        self.create()
        self.assertEqual((15, 0x42, 2, 0x13), self.access(3))
        self.assertEqual((0, b'bob'.ljust(16, b'\0')), self.ask(GET_NAME, 3))
        self.assertEqual(
            [ADMIN, users.User(3, b'bob', b'secret-of-bob',
                               constants.Privilege.OPERATOR)],
            self.users.all())
        self.assertIn('Account 3 (bob) changed by admin over IPMI: password',
                      self.log.output)
        self.assertNotIn('secret-', self.log.output
                         + repr(self.users.slot(3)))
        texts = [call.args[0].text
                 for call in self.events.record.call_args_list]
        self.assertEqual(4, len(texts))
        self.assertEqual("The account 'bob' (3) was changed by admin over "
                         'IPMI: password.', texts[1])

    def test_user_is_incomplete_until_all_is_set(self):
        steps = [lambda: self.set_name(4, b'bob'),
                 lambda: self.set_password(4, SET, b'secret-of-bob'),
                 lambda: self.code(ACCESS, 0x01, 4, 4),
                 lambda: self.code(PASSWORD, 4, ENABLE)]
        for step in steps:
            self.assertIsNone(self.users.by_name(b'bob'))
            self.assertEqual(0, step())
        self.assertEqual(4, self.users.by_name(b'bob').limit)

    def test_privilege_limits(self):
        self.create()
        for limit, expected in ((2, 2), (3, 3), (4, 4), (0xf, None)):
            self.assertEqual(0, self.code(ACCESS, 0x01, 3, limit))
            self.assertEqual(0x10 | limit, self.access(3)[3])
            user = self.users.by_name(b'bob')
            self.assertEqual(expected, user and user.limit)
        for limit in 0, 1, 5, 9:
            self.assertEqual(0xcc, self.code(ACCESS, 0x01, 3, limit))

    def test_messaging(self):
        self.create()
        # The bit applies only with bit 7; bit 5, link authentication, does
        # not exist here.
        for data, messaging in ((0x81, 0), (0x11, 0), (0xb1, 1), (0x21, 1)):
            self.assertEqual(0, self.code(ACCESS, data, 3, 3))
            self.assertEqual(messaging << 4 | 3, self.access(3)[3])
            self.assertEqual(bool(messaging),
                             self.users.by_name(b'bob') is not None)
        self.assertEqual(0xcc, self.code(ACCESS, 0xd1, 3, 3))
        self.assertEqual(0, self.code(ACCESS, 0x91, 3, 3, 0))
        self.assertEqual(0xcc, self.code(ACCESS, 0x91, 3, 3, 1))

    def test_enable_and_disable(self):
        self.create()
        self.assertEqual(0, self.code(PASSWORD, 3, DISABLE))
        self.assertEqual((0x81, None), (self.access(3)[1],
                                        self.users.by_name(b'bob')))
        # ipmitool sends sixteen zeros with it.
        self.assertEqual(0, self.set_password(3, ENABLE, b''))
        self.users.change(self.users.slot(3), ADMIN, locked=True)
        self.assertEqual(0x81, self.access(3)[1])
        self.assertEqual(0, self.code(PASSWORD, 3, ENABLE))
        self.assertIsNotNone(self.users.by_name(b'bob'))

    def test_passwords(self):
        self.create()
        for password, size in ((b'x' * 8, 16), (b'x' * 16, 16),
                               (b'x' * 17, 20), (b'x' * 20, 20),
                               (b'y' * 8, 20), ('ä'.encode() * 8, 16)):
            self.assertEqual(0, self.set_password(3, SET, password, size))
            self.assertEqual(password, self.users.by_name(b'bob').password)
            self.assertEqual(0, self.set_password(3, TEST, password, size))
            self.assertEqual(0x80, self.set_password(3, TEST, b'other', size))
        for password in (b'', b'x' * 7, b'\xff' * 8, b'line\nbreak',
                         b'secret\0secret'):
            self.assertEqual(0xcc, self.set_password(3, SET, password))
        for data in b'', b'secret-of-bob', b'x' * 15, b'x' * 17, b'x' * 20:
            self.assertEqual(0xc7, self.code(PASSWORD, 3, SET, *data))
        self.assertEqual(0xc7, self.code(PASSWORD, 0x83, TEST, *b'x' * 16))

    def test_test_of_long_password_with_short_size(self):
        self.create(password=b'x' * 20)
        self.assertEqual(0x81, self.set_password(3, TEST, b'x' * 16))
        self.assertEqual(0, self.set_password(3, TEST, b'x' * 20, 20))

    def test_test_of_fixed_and_empty_users(self):
        self.assertEqual(0, self.set_password(2, TEST, b'secret-of-admin'))
        self.assertEqual(0, self.set_password(2, TEST, b'secret-of-admin',
                                              20))
        for id_ in 1, 2, 3:
            self.assertEqual(0x80, self.set_password(id_, TEST, b''))

    def test_fixed_users_cannot_be_changed(self):
        for id_ in 1, 2:
            self.assertEqual([0xd5] * 5, [
                self.set_name(id_, b'bob'),
                self.set_password(id_, SET, b'secret-new'),
                self.code(ACCESS, 0x91, id_, 3),
                self.code(ACCESS, 0x81 if id_ == 2 else 0x91, id_,
                          4 if id_ == 2 else 0xf),
                self.code(PASSWORD, id_, DISABLE if id_ == 2 else ENABLE)])
        self.assertEqual(0xd5, self.set_name(2, b''))
        self.assertEqual([ADMIN], self.users.all())

    def test_same_values_can_be_written_back(self):
        self.assertEqual([0] * 8, [
            self.set_name(1, b''), self.code(ACCESS, 0x81, 1, 0xf),
            self.code(PASSWORD, 1, DISABLE),
            self.set_name(2, b'admin'), self.code(ACCESS, 0x91, 2, 4),
            self.set_password(2, SET, b'secret-of-admin'),
            self.code(PASSWORD, 2, ENABLE), self.set_name(3, b'')])
        self.assertEqual(0, self.code(ACCESS, 0x91, 3, 0xf))
        self.assertEqual(0, self.code(PASSWORD, 3, DISABLE))
        self.assertIsNone(self.cluster.client.secret)

    def test_names(self):
        self.create()
        for name, code in ((b'x' * 16, 0), (b'eve', 0), (b'admin', 0xcc),
                           (b'a:b', 0xcc), (b'\xff', 0xcc), (b'a\n', 0xcc)):
            self.assertEqual(code, self.set_name(3, name))
        self.create(4, b'bob')
        self.assertEqual(0xcc, self.set_name(4, b'eve'))
        self.assertEqual({b'admin', b'eve', b'bob'},
                         {user.name for user in self.users.all()})

    def test_empty_name_deletes_user(self):
        self.create()
        self.assertEqual(0, self.set_name(3, b''))
        self.assertEqual((15, 0x81, 2, 0x1f), self.access(3))
        self.assertEqual([ADMIN], self.users.all())
        self.assertIn('Account 3 (bob) deleted by admin over IPMI',
                      self.log.output)

    def test_empty_name_deletes_user_without_a_name(self):
        self.assertEqual(0, self.set_password(3, SET, b'secret-of-bob'))
        self.assertEqual(0, self.code(ACCESS, 0x91, 3, 4))
        self.assertEqual(0, self.code(PASSWORD, 3, ENABLE))
        self.assertEqual(0, self.set_name(3, b''))
        self.assertEqual((15, 0x81, 2, 0x1f), self.access(3))
        self.assertEqual(0x80, self.set_password(3, TEST, b'secret-of-bob'))

    def test_another_client_is_faster(self):
        self.create()
        with fixtures.MockPatchObject(
                accounts.Accounts, 'delete',
                side_effect=accounts.NotFound('gone')):
            self.assertEqual(0, self.set_name(3, b''))
        with fixtures.MockPatchObject(
                accounts.Accounts, 'change',
                side_effect=accounts.NotFound('gone')):
            self.assertEqual(0xcb, self.set_name(3, b'eve'))

    def test_user_is_replaced_meanwhile(self):
        other = self.another()

        def replace():
            if other.get(3):
                other.delete(3, 'x')
            other.create('x', name='boss', password='secret-of-boss',
                         role='ReadOnly')

        for command in (
                lambda: self.set_name(3, b''),
                lambda: self.set_name(3, b'eve'),
                lambda: self.set_password(3, SET, b'another secret'),
                lambda: self.code(ACCESS, 0x91, 3, 4),
                lambda: self.code(ACCESS, 0x81, 3, 3),
                lambda: self.code(PASSWORD, 3, DISABLE)):
            self.create(name=b'bob')
            other.all(max_age=0)
            # Between the command's reading and its writing.
            self.cluster.client.meanwhile = [replace]
            self.assertEqual(0xd5, command())
            self.assertEqual([], self.cluster.client.meanwhile)
            self.assertEqual(
                ('boss', 'secret-of-boss', 'ReadOnly', True, True),
                ((boss := other.get(3)).name, boss.password, boss.role,
                 boss.enabled, boss.ipmi))
            # The next command sees the new user.
            self.assertEqual((0, b'boss'.ljust(16, b'\0')),
                             self.ask(GET_NAME, 3))
            self.assertEqual(0, self.set_name(3, b''))
        # Not created yet when the command reads it.
        other.all(max_age=0)
        self.cluster.client.meanwhile = [replace]
        self.assertEqual(0xd5, self.code(ACCESS, 0x91, 3, 4))
        self.assertEqual('ReadOnly', other.get(3).role)

    def test_changes_of_another_process_are_seen_at_once(self):
        self.create()
        other = self.another()
        with mock.patch.object(accounts, 'NEWEST_SECONDS', 0):
            other.change(3, 'x', role='ReadOnly')
            self.assertEqual(0, self.code(ACCESS, 0x91, 3, 3))
            self.assertEqual(
                'Operator', self.another().get(3).role)
            other.delete(3, 'x')
            self.assertEqual(0, self.set_password(3, SET, b'another secret'))
            self.assertEqual('', self.another().get(3).name)

    def test_invalid_ids_and_channels(self):
        for id_ in 0, 16, 63:
            self.assertEqual(0xcc, self.set_name(id_, b'bob'))
            self.assertEqual(0xcc, self.set_password(id_, SET, b'secret-x'))
            self.assertEqual(0xcc, self.code(ACCESS, 0x91, id_, 3))
            self.assertEqual(0xcc, self.code(GET_ACCESS, 1, id_))
            self.assertEqual(0xcc, self.code(GET_NAME, id_))
        for channel, code in (0x0e, 0), (0, 0xcc), (2, 0xcc):
            self.assertEqual(code, self.ask(GET_ACCESS, channel, 2)[0])
            self.assertEqual(code, self.code(ACCESS, channel, 2, 4))

    def test_account_with_required_password_change(self):
        """IPMI cannot ask for a change, so the account is refused."""
        self.create()
        self.users.change(self.users.slot(3), ADMIN, change_required=True)
        self.assertIsNone(self.users.by_name(b'bob'))
        self.assertEqual(0, self.set_password(3, SET, b'secret-new'))
        self.assertIsNotNone(self.users.by_name(b'bob'))

    def test_secret_takes_name_of_stored_account(self):
        self.create()
        self.configured = (users.User(2, b'bob', b'secret-of-admin'),)
        self.assertEqual(2, self.users.by_name(b'bob').id)

    def test_unchanged_users_are_equal(self):
        """Otherwise their sessions would end."""
        self.create()
        before = self.users.by_name(b'bob')
        self.create(4, b'eve')
        self.assertEqual(before, self.users.by_name(b'bob'))

    def test_without_management(self):
        self.bmc.users = bmc_users.BmcUsers(lambda: self.configured)
        self.assertEqual((2, 0x41, 2, 0x14), self.access(2))
        self.assertEqual(0xcc, self.set_name(3, b'bob'))
        self.assertEqual(0xd5, self.set_name(2, b'bob'))

    def test_before_connection(self):
        self.bmc.users = bmc_users.BmcUsers(lambda: self.configured, True)
        self.assertEqual((15, 0x41, 2, 0x14), self.access(2))
        self.assertEqual(0xc0, self.set_name(3, b'bob'))

    def test_cluster_errors(self):
        for error, code in ((errors.Unavailable('away'), 0xc0), (
                errors.AccessDenied('no', 'get', 'secrets', ''), 0xd4)):
            with fixtures.MockPatchObject(state_secret.StateSecret, 'update',
                                          side_effect=error):
                self.assertEqual(code, self.set_name(3, b'bob'))

    def test_random_requests(self):
        """No data makes a command fail unexpectedly or log a password."""
        source = random.Random(7)
        codes = set()
        for _ in range(20000):
            command = source.randrange(ACCESS, PASSWORD + 1)
            data = [source.choice((1, 3, 0x91, source.randrange(256))),
                    source.randrange(8)]
            data += source.choices(
                (0, 0x61, 0x62, source.randrange(256)), k=source.randrange(24))
            if len(data) >= self.commands[
                    APPLICATION, command].min_length:
                codes.add(int(self.ask(command, *data)[0]))
        self.assertLessEqual(codes, {0, 0x80, 0x81, 0xc7, 0xcc, 0xd5})
        self.assertLessEqual({0, 0xcc, 0xd5}, codes)

    def test_privileges(self):
        levels = constants.Privilege
        self.assertEqual({
            ACCESS: levels.ADMINISTRATOR, GET_ACCESS: levels.OPERATOR,
            NAME: levels.ADMINISTRATOR, GET_NAME: levels.OPERATOR,
            PASSWORD: levels.ADMINISTRATOR,
        }, {command: self.commands[APPLICATION, command].privilege
            for command in range(ACCESS, PASSWORD + 1)})
        for command in self.commands.values():
            self.assertIsInstance(command, server.Command)
