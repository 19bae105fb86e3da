# SPDX-License-Identifier: Apache-2.0
"""One BMC's UDP port: its sessions, their limits, and who carries out what.

Everything here runs in one event loop. What may take time, because it asks
a cluster, is carried out by threads, and its answer is sent when it is
there; meanwhile the loop serves on.

What a stranger can make this keep is bounded, and old things give way to
new ones, so that nobody is locked out by a table that is full:

* opened: sent an Open Session Request, or with IPMI v1.5 a Get Session
  Challenge. Costs the sender one packet, and the address may be forged.
* greeted: sent RAKP 1 with a user name there is, and a session id which only
  the one at that address was told. Not displaced by any number of the first.
* established: proved to know the password.
"""

import asyncio
import collections
import contextlib
import functools
import logging
import os
import struct

from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import packet
from vbmc_kubevirt.ipmi import session as session_
from vbmc_kubevirt.ipmi import session15

LOG = logging.getLogger(__name__)

#: An established session ends when nothing came for this long: the default
#: session inactivity timeout (section 6.12.15), 60 s +/- 3.
IDLE_SECONDS = 60.0

#: A session that is not established yet. A client takes milliseconds.
HANDSHAKE_SECONDS = 10.0

#: How many sessions a BMC keeps of each sort.
OPENED_MAX = 512
GREETED_MAX = 256
ESTABLISHED_MAX = 64

#: Requests of one session that are being worked on.
PENDING_MAX = 4

#: Responses kept, for clients that ask again because one was lost, and for
#: how many seconds. Clients wait up to some ten seconds before they do.
ANSWERED_MAX = 8
ANSWERED_SECONDS = 30.0

#: What takes longer is answered by its not being known what becomes of it,
#: and goes on. ``ipmitool`` waits for ten seconds in all.
ANSWER_SECONDS = 9.0

#: A client that has had its last answer closes its session, and asks for ten
#: seconds more when that is not answered.
GOODBYE_SECONDS = 0.5

#: Datagrams read before others have their turn, and the size of one. All
#: that is served here fits into 255 bytes and a header.
READ_MAX = 64
DATAGRAM_MAX = 1024


class Command(collections.namedtuple(
        'Command', 'handle privilege length changes quick',
        defaults=(0, False, False))):
    """What a BMC can do when asked.

    :ivar handle: function of (session, data) that returns the completion
        code and the bytes behind it. It is called in a thread, and may block.
    :ivar privilege: a session needs this `constants.Privilege` for it
    :ivar length: bytes of data it needs at least
    :ivar changes: it changes something, so it is carried out once, however
        often the request arrives, and not two at a time
    :ivar quick: it does not block and is called in the loop
    """

    __slots__ = ()


class Server:
    """A BMC on a port.

    :param name: of the BMC, for the log
    :param account: function that returns (user name, password), both bytes,
        and the same tuple for as long as they are the same; None while
        nobody may log in. Asked at every packet: sessions end with the
        account they were opened with.
    :param commands: dict of (network function, command) to `Command`
    :param guid: function that returns the managed system's GUID, 16 bytes
    :param readers: executor for commands that change nothing
    :param writers: executor for those that do
    :ivar answers: how often each command was answered: dict of (network
        function, command, completion code) and a number. What is not served
        is (None, None, code).
    :ivar opened: how many sessions were established so far
    :ivar refused: how many were refused: no such user, another password, or
        no way to speak to one another
    """

    def __init__(self, name, account, commands, guid, readers, writers):
        self.name = name
        self.answers = collections.Counter()
        self.opened = self.refused = 0
        self._account = account
        self._commands = commands
        self._guid = guid
        self._free = channel.outside(self._way_in)
        self._inside = channel.inside(self._way_in)
        self._readers = readers
        self._writers = writers
        self._opened = collections.OrderedDict()
        self._greeted = collections.OrderedDict()
        self._established = collections.OrderedDict()
        self._limits = ((self._opened, OPENED_MAX, HANDSHAKE_SECONDS),
                        (self._greeted, GREETED_MAX, HANDSHAKE_SECONDS),
                        (self._established, ESTABLISHED_MAX, IDLE_SECONDS))
        self._loop = None
        self._socket = None
        self._sweep = None
        self._changing = None
        self._leaving = None
        self._tasks = set()
        self._complained = set()
        self._quiet_until = 0.0

    # The loop's side

    def start(self, sock):
        """Serve a bound socket, which is this server's from now on.

        To be called in the loop that is to serve it.
        """
        self._loop = asyncio.get_running_loop()
        self._changing = asyncio.Lock()
        self._socket = sock
        self._loop.add_reader(sock, self._read)

    async def finish(self, seconds):
        """Begin nothing any more, answer what was begun, and stop.

        :param seconds: that what was begun has for that
        """
        self._leaving = asyncio.Event()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        if self._established:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self._leaving.wait()
        self.stop()

    def stop(self):
        """End all sessions and give the port back."""
        for task in self._tasks:
            task.cancel()
        self.end_sessions()
        if self._sweep is not None:
            self._sweep.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def end_sessions(self):
        for table, _limit, _seconds in self._limits:
            table.clear()

    def _read(self):
        # Several at a time, as a flood is not stopped by being slow; but the
        # loop has other things to do.
        for _number in range(READ_MAX):
            try:
                self.receive(*self._socket.recvfrom(DATAGRAM_MAX))
            except BlockingIOError:
                return
            except OSError as exc:
                # What became of something sent before: nobody is there.
                LOG.debug('%s: %s', self.name, exc)

    def receive(self, data, address):
        """Take in a datagram.

        :param data: bytes
        :param address: where it is from, as sockets have it
        """
        try:
            tag = packet.pinged(data)
            if tag is None:
                self._receive(packet.parse(data), address)
            else:
                self._send(packet.pong(tag), address)
        except packet.Malformed:
            pass
        except Exception as exc:
            # A fault of this program. Its text goes to the log once: who
            # found a way to cause it can do so ten thousand times a second.
            if type(exc) not in self._complained:
                self._complained.add(type(exc))
                LOG.exception('%s: a packet could not be handled', self.name)

    def _send(self, data, address):
        try:
            self._socket.sendto(data, address)
        except OSError as exc:
            # What the network does not take is lost, as packets are.
            LOG.debug('%s: %s', self.name, exc)

    def _complain(self, text, *arguments):
        """Log what a stranger can cause, no more than once a second."""
        now = self._loop.time()
        if now >= self._quiet_until:
            self._quiet_until = now + 1
            LOG.info('%s: ' + text, self.name, *arguments)

    # Sessions

    def _receive(self, received, address):
        if received.session_id and (received.rmcpp or received.authenticated):
            session = self._established.get(received.session_id)
            if session is None and not received.rmcpp:
                self._activate(received, address)
                return
            # The type first: nothing but IPMI is served in a session.
            if (session is None or session.address != address
                    or session.rmcpp is not received.rmcpp
                    or received.payload_type != constants.Payload.IPMI):
                raise packet.Malformed()
            self._check_account(session)
            payload, new = session.unwrap(received)
            self._in_session(session, packet.parse_request(payload), new)
        elif received.session_id or received.authenticated \
                or received.encrypted:
            raise packet.Malformed()
        elif received.payload_type == constants.Payload.IPMI:
            self._outside(received.rmcpp,
                          packet.parse_request(received.payload), address)
        elif self._leaving is None:
            self._handshake(received, address)

    def _handshake(self, received, address):
        payload = received.payload
        if len(payload) < 8:
            raise packet.Malformed()
        try:
            if received.payload_type == constants.Payload.OPEN_SESSION_REQUEST:
                session = session_.Session(address, self._number(), payload)
                answer = session.open_response(payload[0])
                self._keep(self._opened, session)
            elif received.payload_type == constants.Payload.RAKP1:
                session = self._find(payload, address,
                                     self._opened, self._greeted)
                session.account = account = self._account()
                answer = session.rakp1(
                    payload, functools.partial(_password_of, account),
                    self._guid())
                self._keep(self._greeted, session)
            elif received.payload_type == constants.Payload.RAKP3:
                session = self._find(payload, address,
                                     self._greeted, self._established)
                self._check_account(session)
                answer = session.rakp3(payload)
                if session.session_id not in self._established:
                    self.opened += 1
                    LOG.debug('%s: session with %s', self.name, address[0])
                self._keep(self._established, session)
            else:
                raise packet.Malformed()
        except session_.Refused as exc:
            self.refused += 1
            if received.payload_type != constants.Payload.OPEN_SESSION_REQUEST:
                self._forget(session)
            self._complain('no session for %s: %s', address[0], exc)
            answer = exc.answer
        except session_.Abandoned:
            self.refused += 1
            self._forget(session)
            self._complain('no session for %s: it has another password',
                           address[0])
            return
        self._send(packet.wrap(*answer), address)

    def _way_in(self):
        return session15.way_in(self._account())

    def _challenge(self, request, address):
        """Get Session Challenge of IPMI v1.5 (section 22.16)."""
        account = self._account()
        if self._leaving is not None:
            raise packet.Malformed()
        code, data = channel.session_challenge(request.data)
        if not session15.way_in(account):
            code, data = constants.Completion.INVALID_FIELD, b''
        elif code == constants.Completion.OK:
            session = session15.Session(address, self._number(), account,
                                        data)
            self._keep(self._opened, session)
            data = struct.pack('<I', session.session_id) + session.challenge
        return code, data

    def _activate(self, received, address):
        """Activate Session of IPMI v1.5 (section 22.17)."""
        session = self._opened.get(received.session_id)
        if (session is None or session.rmcpp or session.address != address
                or self._leaving is not None):
            raise packet.Malformed()
        self._check_account(session)
        # A challenge is for one try.
        self._forget(session)
        try:
            request = packet.parse_request(session.check(received))
            if (request.netfn, request.command) != channel.ACTIVATE:
                raise packet.Malformed()
            answer = session.activate(request.data)
        except packet.Malformed:
            # Dropped like every packet with a wrong code. (RAKP answers.)
            self.refused += 1
            self._complain('no session for %s: it has another user name or '
                           'password', address[0])
            raise
        if answer[0] == constants.Completion.OK:
            self.opened += 1
            LOG.debug('%s: session with %s, v1.5', self.name, address[0])
            self._keep(self._established, session)
        else:
            self.refused += 1
        # Should it be lost, it is given once more.
        self._answer(session, request, answer, keep=True)

    def _number(self):
        """:returns: a session id that nobody can guess and no other has"""
        while True:
            number, = struct.unpack('<I', os.urandom(4))
            if number and not any(number in table
                                  for table, _limit, _seconds
                                  in self._limits):
                return number

    def _find(self, payload, address, *tables):
        number, = struct.unpack_from('<I', payload, 4)
        for table in tables:
            session = table.get(number)
            if (session is not None and session.address == address
                    and session.rmcpp):
                return session
        raise packet.Malformed()

    def _keep(self, table, session):
        """Put a session into a table, out of all others, as the newest."""
        self._forget(session)
        session.used = self._loop.time()
        table[session.session_id] = session
        for one, limit, _seconds in self._limits:
            if one is table and len(table) > limit:
                table.popitem(last=False)
        if self._sweep is None:
            self._sweep = self._loop.call_later(1, self._expire)

    def _forget(self, session):
        for table, _limit, _seconds in self._limits:
            table.pop(session.session_id, None)

    def _expire(self):
        """End what was idle for too long. Runs while there are sessions."""
        now = self._loop.time()
        left = False
        for table, _limit, seconds in self._limits:
            while table:
                session = next(iter(table.values()))
                if session.pending:
                    self._keep(table, session)
                    break
                if session.used + seconds > now:
                    break
                table.popitem(last=False)
            left = left or bool(table)
        self._sweep = (self._loop.call_later(1, self._expire)
                       if left else None)

    @property
    def sessions(self):
        """How many sessions are established."""
        return len(self._established)

    def _check_account(self, session):
        """End a session whose user name or password was replaced."""
        if session.account is not self._account():
            self._forget(session)
            self._complain('a session with %s has ended: it was of other '
                           'credentials', session.address[0])
            raise packet.Malformed()

    # Commands

    def _outside(self, rmcpp, request, address):
        """A command that needs no session (appendix G)."""
        code = request.netfn, request.command
        if code == channel.CHALLENGE and not rmcpp:
            answer = self._challenge(request, address)
        elif code in self._free:
            answer = self._free[code](None, request.data)
        else:
            raise packet.Malformed()
        self._count(request, answer)
        message = packet.response(request, *answer)
        self._send(packet.wrap(constants.Payload.IPMI, message) if rmcpp
                   else packet.wrap_v15(message), address)

    def _in_session(self, session, request, new):
        """A command in a session, decrypted and checked."""
        answered = session.answered.get(request)
        if request in session.pending or not new and answered is None:
            return
        self._keep(self._established, session)
        if answered is not None:
            # Its response was lost: the client gets the same once more.
            if self._loop.time() - answered[0] < ANSWERED_SECONDS:
                self._send(session.wrap(answered[1]), session.address)
                return
            del session.answered[request]
            if not new:
                return
        code = request.netfn, request.command
        handle = self._inside.get(code)
        if handle is not None:
            answer = handle(session, request.data)
            self._answer(session, request, answer)
            if code == channel.CLOSE and answer[0] == constants.Completion.OK:
                self._forget(session)
                if self._leaving is not None and not self._established:
                    self._leaving.set()
            return
        command = self._commands.get(code)
        if command is None:
            self._answer(session, request,
                         (constants.Completion.INVALID_COMMAND, b''))
        elif request.lun:
            self._answer(session, request,
                         (constants.Completion.INVALID_LUN, b''))
        elif session.privilege < command.privilege:
            self._answer(session, request,
                         (constants.Completion.ACCESS_DENIED, b''))
        elif len(request.data) < command.length:
            self._answer(session, request,
                         (constants.Completion.LENGTH_INVALID, b''))
        elif self._leaving is not None:
            self._answer(session, request,
                         (constants.Completion.NODE_BUSY, b''))
        elif command.quick:
            self._answer(session, request,
                         command.handle(session, request.data))
        elif len(session.pending) >= PENDING_MAX:
            self._answer(session, request,
                         (constants.Completion.NODE_BUSY, b''))
        else:
            session.pending.add(request)
            self._task(self._carry_out(session, request, command))

    async def _carry_out(self, session, request, command):
        """Have a thread carry out a command, and answer in time."""
        work = self._task(self._work(session, request, command))
        done, _pending = await asyncio.wait({work}, timeout=ANSWER_SECONDS)
        session.pending.discard(request)
        if session.session_id in self._established:
            answer = work.result() if done else (constants.Completion.TIMEOUT,
                                                 b'')
            self._answer(session, request, answer, keep=command.changes)

    async def _work(self, session, request, command):
        """:returns: (completion code, data)"""
        try:
            if command.changes:
                async with self._changing:
                    return await self._loop.run_in_executor(
                        self._writers, command.handle, session, request.data)
            return await self._loop.run_in_executor(
                self._readers, command.handle, session, request.data)
        except Exception:
            LOG.exception('%s: command %02Xh of network function %02Xh',
                          self.name, request.command, request.netfn)
            return constants.Completion.UNSPECIFIED, b''

    def _task(self, coroutine):
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _answer(self, session, request, answer, keep=False):
        self._count(request, answer)
        message = packet.response(request, *answer)
        if keep:
            session.answered[request] = self._loop.time(), message
            if len(session.answered) > ANSWERED_MAX:
                session.answered.popitem(last=False)
        self._send(session.wrap(message), session.address)

    def _count(self, request, answer):
        code = request.netfn, request.command
        if (code not in self._commands and code not in self._inside
                and code not in (channel.CHALLENGE, channel.ACTIVATE)):
            # A client may make up as many as it likes.
            code = None, None
        self.answers[*code, int(answer[0])] += 1


def _password_of(account, username):
    # What users there are is no secret: RAKP tells anyway.
    if account is None or username != account[0]:
        return None
    return account[1]
