# SPDX-License-Identifier: Apache-2.0
import asyncio
from concurrent import futures
import threading
import unittest
from unittest import mock

from tests.unit.vbmc.ipmi import client
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt.ipmi import users

GUID = bytes(range(16))


class ServerTestCase(unittest.IsolatedAsyncioTestCase):
    """Test case with an IPMI server whose socket and clock are fakes.

    :ivar account: (user name, password) of user 2, or None
    :ivar limit: privilege limit of that user
    :ivar others: list of further `users.User`
    :ivar calls: list of (handler, request data)
    :ivar unblock: Event for which the handlers of Read and Write wait;
        unless it is set, an attempt to read would block
    :ivar socket: `client.Socket` that records what the server sends
    """

    async def asyncSetUp(self):
        self.account = b'admin', b'secret'
        self.limit = constants.Privilege.ADMINISTRATOR
        self.others = []
        self.calls = []
        self.attempted = []
        self.unblock = threading.Event()
        self.unblock.set()
        self.commands = {
            (0, 1): server.Command(
                'Read', self.read, constants.Privilege.USER
            ),
            (0, 2): server.Command(
                'Write',
                self.write,
                constants.Privilege.OPERATOR,
                min_length=1,
                modifies=True,
            ),
            (0, 3): server.Command(
                'Faulty', self.faulty, constants.Privilege.USER
            ),
            (6, 1): server.Command(
                'Inline',
                lambda session, data: (0, b'quick'),
                constants.Privilege.USER,
                inline=True,
            ),
        }
        self.readers = futures.ThreadPoolExecutor(2)
        self.writers = futures.ThreadPoolExecutor(2)
        self.addCleanup(self.readers.shutdown)
        self.addCleanup(self.writers.shutdown)
        self.addCleanup(self.unblock.set)
        self.server = server.Server(
            'vm', users.Users(self.users), lambda: self.commands, lambda: GUID,
            self.readers, self.writers, self.attempt)
        self.socket = client.Socket()
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        for name in 'add_reader', 'remove_reader':
            patch = mock.patch.object(loop, name)
            patch.start()
            self.addCleanup(patch.stop)
        self.server.start(self.socket)
        # Tests advance the clock.
        self.server._loop = mock.Mock(wraps=loop)
        self.server._loop.time = lambda: self.now
        self.addCleanup(self.server.stop)

    def users(self):
        if self.account is not None:
            yield users.User(2, *self.account, self.limit)
        yield from self.others

    def attempt(self, handler, session, data):
        self.attempted.append(handler)
        if not self.unblock.is_set():
            raise BlockingIOError()
        return handler(session, data)

    def read(self, session, data):
        self.calls.append(('read', data))
        self.unblock.wait(30)
        return 0, b'read'

    def write(self, session, data):
        self.calls.append(('write', data))
        self.unblock.wait(30)
        return 0, bytes((len(self.calls),))

    def faulty(self, session, data):
        raise RuntimeError('a fault')

    def client(self, **options):
        return client.Client(self.server, self.socket, **options)

    def table_sizes(self):
        """Return the numbers of sessions.

        :returns: list of requested, authenticating, established
        """
        return [len(table) for table, *_ in self.server._sessions._limits]

    def advance_clock(self, seconds):
        self.now += seconds
        if self.server._sessions._sweep is not None:
            self.server._sessions._sweep.cancel()
            self.server._sessions._expire()

    async def wait_for_tasks(self):
        async with asyncio.timeout(30):
            while self.server._tasks:
                await asyncio.sleep(0.001)
