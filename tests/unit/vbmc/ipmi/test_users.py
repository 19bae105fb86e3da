# SPDX-License-Identifier: Apache-2.0
"""Several users and their privilege limits, in both session formats."""

import struct

from tests.unit.vbmc.ipmi import base
from tests.unit.vbmc.ipmi import client15
from vbmc_kubevirt.ipmi import users

READER = users.User(3, b'reader', b'read', users.LIMITS['ReadOnly'])
OPERATOR = users.User(4, b'operator', b'x' * 20, users.LIMITS['Operator'])
DISABLED = users.User(5, b'disabled', b'secret', enabled=False)


class UsersTestCase(base.ServerTestCase):

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.others = [DISABLED, OPERATOR, READER]

    def v15_client(self, **options):
        return client15.Client(self.server, self.socket, **options)


class UsersTest(UsersTestCase):

    async def test_users_are_ordered_by_id(self):
        found = users.Users(self.users)
        self.assertEqual([2, 3, 4, 5], [user.id for user in found.all()])
        self.assertEqual(READER, found.by_name(b'reader'))
        self.assertIsNone(found.by_name(b'disabled'))
        self.assertIsNone(found.by_name(b''))
        self.assertNotIn('xxx', repr(found.all()))

    async def test_each_user_has_a_password(self):
        for name, password, role, status in (
                (b'admin', b'secret', 0x14, 0),
                (b'reader', b'read', 0x12, 0),
                (b'reader', b'secret', 0x12, 0x0F),
                (b'operator', b'x' * 20, 0x13, 0),
                (b'operator', b'read', 0x13, 0x0F)):
            one = self.client(username=name, password=password, role=role)
            one.open()
            one.rakp1()
            self.assertEqual(status, one.rakp3()[1])

    async def test_login_above_the_limit_is_refused(self):
        """Bit 4 of the role: look up by name; else by name and limit."""
        for name, role, status in (
                (b'reader', 0x11, 0), (b'reader', 0x12, 0),
                (b'reader', 0x13, 0x0A), (b'reader', 0x14, 0x0A),
                (b'operator', 0x13, 0), (b'operator', 0x14, 0x0A),
                (b'reader', 0x01, 0x0D), (b'reader', 0x02, 0),
                (b'reader', 0x04, 0x0D), (b'operator', 0x03, 0),
                (b'operator', 0x02, 0x0D), (b'operator', 0x04, 0x0D),
                (b'admin', 0x04, 0), (b'admin', 0x03, 0x0D),
                (b'disabled', 0x14, 0x0D), (b'disabled', 0x04, 0x0D)):
            one = self.client(username=name, role=role)
            one.open()
            self.assertEqual(status, one.rakp1()[1], (name, role))

    async def test_limit_holds_within_a_session(self):
        one = self.client(username=b'reader', password=b'read',
                          role=0x12).login()
        self.assertEqual((0, b'read'), await one.command(0, 1))
        self.assertEqual([(0xD4, b'')], one.request(0, 2, b'\0'))
        for level in b'\3', b'\4':
            self.assertEqual([(0x81, b'')], one.request(6, 0x3b, level))
        self.assertEqual([(0, b'\2')], one.request(6, 0x3b, b'\2'))
        self.assertEqual([(0xD4, b'')], one.request(0, 2, b'\0'))
        one = self.client(username=b'operator', password=b'x' * 20,
                          role=0x13).login()
        self.assertEqual([(0, b'\3')], one.request(6, 0x3b, b'\3'))
        self.assertEqual(0, (await one.command(0, 2, b'\0'))[0])
        self.assertEqual([(0x81, b'')], one.request(6, 0x3b, b'\4'))

    async def test_only_sessions_of_a_changed_user_end(self):
        admin = self.client().login()
        reader = self.client(username=b'reader', password=b'read',
                             role=0x12).login()
        self.others = [users.User(
            3, b'reader', b'read', users.LIMITS['Administrator'])]
        self.assertEqual([], reader.request(6, 1))
        self.assertEqual([(0, b'quick')], admin.request(6, 1))
        reader = self.client(username=b'reader', password=b'read').login()
        self.others = []
        self.assertEqual([], reader.request(6, 1))
        self.assertEqual([(0, b'quick')], admin.request(6, 1))
        self.assertEqual(1, self.server.sessions)


class CloseTest(UsersTestCase):

    async def test_sessions_have_handles(self):
        clients = [self.client(address=('192.0.2.1', number)).login()
                   for number in range(3)]
        self.assertEqual([1, 2, 3], self.handles())
        clients[1].request(6, 0x3C, clients[1].session_id)
        self.assertEqual([1, 3], self.handles())
        self.v15_client().login()
        self.assertEqual([1, 2, 3], self.handles())
        # Use changes neither handle nor order.
        clients[0].request(6, 1)
        self.assertEqual(clients[0].session_id, struct.pack(
            '<I', self.server.active_sessions()[0].session_id))

    def handles(self):
        return [one.handle for one in self.server.active_sessions()]

    async def test_administrator_closes_sessions_of_others(self):
        for key in 'id', 'handle':
            admin = self.client(address=('192.0.2.1', 1)).login()
            other = self.client(address=('192.0.2.1', 2), username=b'reader',
                                password=b'read', role=0x12).login()
            mine, theirs = (
                (one.session_id, bytes(4) + bytes((handle,)))[key == 'handle']
                for handle, one in ((1, admin), (2, other)))
            self.assertEqual([(0xD4, b'')], other.request(6, 0x3C, mine))
            # Before it has asked for its level, it is a user.
            self.assertEqual([(0xD4, b'')], admin.request(6, 0x3C, theirs))
            admin.request(6, 0x3B, b'\4')
            self.assertEqual([(0, b'')], admin.request(6, 0x3C, theirs))
            self.assertEqual([], other.request(6, 1))
            self.assertEqual([(0, b'quick')], admin.request(6, 1))
            self.assertEqual([(0, b'')], admin.request(6, 0x3C, mine))
            self.assertEqual(0, self.server.sessions)

    async def test_unknown_sessions_cannot_be_closed(self):
        one = self.client().login()
        self.assertEqual([(0x87, b'')], one.request(6, 0x3C, b'\1\2\3\4'))
        self.assertEqual([(0x88, b'')], one.request(6, 0x3C, bytes(4)))
        self.assertEqual([(0x88, b'')],
                         one.request(6, 0x3C, bytes(4) + b'\2'))


class UsersOfV15Test(UsersTestCase):

    async def test_activation_above_the_limit_is_refused(self):
        for level, code in (1, 0), (2, 0), (3, 0x86), (4, 0x86), (5, 0x86):
            one = self.v15_client(username=b'reader', password=b'read',
                                  level=level)
            one.greet()
            self.assertEqual(code, one.activate()[0])

    async def test_limit_holds_within_a_session(self):
        one = self.v15_client(username=b'reader', password=b'read',
                              level=2).login()
        self.assertEqual([(0x81, b'')], one.request(6, 0x3b, b'\3'))
        self.assertEqual([(0xD4, b'')], one.request(0, 2, b'\0'))
        self.others = []
        self.assertEqual([], one.request(6, 1))

    async def test_users_who_cannot_log_in_look_like_unknown_ones(self):
        for name, password in ((b'operator', b'x' * 16), (b'nobody', b'x'),
                               (b'disabled', b'secret'), (b'', b'')):
            one = self.v15_client(username=name, password=password, level=2)
            self.assertEqual(0, one.greet()[0])
            self.assertIsNone(one.activate())
        # No user has a password that v1.5 can hold.
        self.account, self.others = None, [OPERATOR, DISABLED]
        self.assertEqual((0xCC, b''), self.v15_client().greet())
