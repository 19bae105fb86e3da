# SPDX-License-Identifier: Apache-2.0
"""IPMI server of one BMC: UDP port, logins, command dispatch.

Everything runs in one event loop. A command that changes the VM runs in an
executor thread, and so does one that would block in the loop. Responses are
sent from the loop.
"""

from __future__ import annotations

import asyncio
import collections
from collections import abc
from concurrent import futures
import contextlib
import functools
import logging
import socket
import struct
import typing

from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import packet
from vbmc_kubevirt.ipmi import session15
from vbmc_kubevirt.ipmi import session20
from vbmc_kubevirt.ipmi import session_tables
from vbmc_kubevirt.ipmi import users

LOG = logging.getLogger(__name__)

#: Maximum number of concurrent requests of one session, and of all sessions
#: of one user: those of other users wait behind these at most.
PENDING_MAX = 4
USER_PENDING_MAX = 16

#: Maximum number of threads for commands of a BMC that read. The executor may
#: be that of many BMCs.
READS_MAX = 4

#: Responses cached for each session, and for how many seconds. A client that
#: lost a response repeats its request within about ten seconds.
CACHED_RESPONSES_MAX = 8
CACHED_RESPONSE_SECONDS = 30.0

#: Commands that take longer are answered before they have ended: with success
#: if their effect shows, else with completion code C3h. The operation
#: continues. ``ipmitool`` gives up after ten seconds in total.
RESPONSE_SECONDS = 8.0

#: Seconds that `Server.finish` waits for Close Session from clients. Without
#: a response to it ``ipmitool`` retries for another ten seconds.
CLOSE_SECONDS = 0.5

#: Datagrams read before other tasks of the loop run, by default, and the size
#: limit of one in bytes. All supported commands fit into 255 bytes and a
#: header.
READ_MAX = 64
DATAGRAM_MAX = 1024

# CPython 3.11 takes three times as long to read it from the enumeration, and
# each packet is compared with it.
_IPMI = constants.Payload.IPMI

T = typing.TypeVar('T')

#: Of `Server.run_later`.
Timer: typing.TypeAlias = 'futures.Future[None]'


class Command(typing.NamedTuple):
    """An IPMI command that the BMC supports.

    :ivar name: name in the specification (appendix G); label in metrics
    :ivar handler: `bmc.Bmc` wraps methods that return response data alone.
        It runs in a thread and may block, except in an attempt, see `Server`
    :ivar privilege: that the session needs; or `constants.NEVER`
    :ivar min_length: minimum number of request data bytes
    :ivar modifies: the command changes the VM: run it once even if the
        request is repeated, and never two at a time
    :ivar inline: the handler does not block and is not attempted: run it in
        the event loop
    :ivar begun: returns whether the effect of a command that changes the VM
        shows, for one that has not ended in time; it must not block
    """

    name: str
    handler: channel.Handler
    privilege: int
    min_length: int = 0
    modifies: bool = False
    inline: bool = False
    begun: abc.Callable[[channel.Session, bytes], bool] | None = None


class Server:
    """IPMI over LAN on one UDP port.

    :param name: BMC name for log messages
    :param users: asked for every packet and every second: a session ends when
        its user has changed
    :param commands: called in the event loop before the first command in a
        session
    :param guid: returns the managed system's GUID, 16 bytes
    :param readers: executor for commands that do not modify the VM
    :param writers: executor for commands that do
    :param attempt: calls a handler with its arguments in the event loop, for
        commands that do not modify the VM. Its exception
        means that the handler would block, or has failed, and is to be
        repeated in a thread
    :ivar responses: Counter of (network function, command, completion code);
        unsupported commands are counted as (None, None, code)
    :ivar sessions_opened: number of sessions established so far
    :ivar sessions_refused: number of failed handshakes: unknown user, wrong
        password, privilege level above the user's limit, no common cipher
        suite
    """

    def __init__(self, name: str, users: users.Users,
                 commands: abc.Callable[
                     [], abc.Mapping[channel.Code, Command]],
                 guid: abc.Callable[[], bytes], readers: futures.Executor,
                 writers: futures.Executor,
                 attempt: abc.Callable[..., typing.Any]) -> None:
        self.name = name
        self.responses: collections.Counter[
            tuple[int | None, int | None, int]] = collections.Counter()
        #: Datagrams read before other tasks of the loop run, and seconds
        #: until the next are read then.
        self.read_max = READ_MAX
        self.read_pause = 0.0
        self.sessions_opened = self.sessions_refused = 0
        self._users = users
        self._make_commands = commands
        self._commands: abc.Mapping[channel.Code, Command] = {}
        self._guid = guid
        capabilities = functools.partial(
            channel.authentication_capabilities, self.v15_login_possible)
        self._sessionless_commands: dict[
            channel.Code, channel.Sessionless] = {
                channel.CAPABILITIES: capabilities,
                channel.CIPHER_SUITES: channel.cipher_suites,
                channel.SYSTEM_GUID: functools.partial(
                    channel.system_guid, guid)}
        # Those that are valid at any privilege level.
        self._session_commands: dict[channel.Code, channel.Handler] = {
            channel.CAPABILITIES: capabilities,
            channel.CIPHER_SUITES: channel.cipher_suites,
            channel.SET_PRIVILEGE: channel.set_session_privilege_level}
        self._readers = readers
        self._writers = writers
        self._attempt = attempt
        self._sessions = session_tables.SessionTables(
            self._user_unchanged, lambda: self._loop.time())
        # These four are set by `start`.
        self._loop: asyncio.AbstractEventLoop
        self._socket: socket.socket
        self._write_lock: asyncio.Lock
        self._reads: asyncio.Semaphore
        # The last request for a change whose command was run.
        self._writing: packet.Request | None = None
        self._finishing = False
        self._stopped = False
        self._tasks: set[asyncio.Task[typing.Any]] = set()
        self._logged_exceptions: set[type[Exception]] = set()
        self._next_log_at = 0.0

    # Work without a request

    def run_later(self, seconds: float,
                  function: abc.Callable[[], object]) -> Timer:
        """Run a function later, as a command that changes the VM. Thread-safe.

        Nothing is run after `finish` or `stop` was called.

        :param function: may block
        :returns: to be cancelled, which does not interrupt a function that
            has begun
        """
        return asyncio.run_coroutine_threadsafe(
            self._run(seconds, function), self._loop)

    async def _run(self, seconds: float,
                   function: abc.Callable[[], object]) -> None:
        await asyncio.sleep(seconds)
        if not (self._finishing or self._stopped):
            self._task(self._run_function(function))

    async def _run_function(self, function: abc.Callable[[], object]) -> None:
        try:
            async with self._write_lock:
                await self._loop.run_in_executor(self._writers, function)
        except Exception:
            LOG.exception('%s: %s failed', self.name, function.__qualname__)

    # Sockets and tasks

    def start(self, sock: socket.socket) -> None:
        """Serve a bound socket; call it in the serving event loop.

        :param sock: non-blocking UDP socket; closed by `stop`
        """
        self._loop = asyncio.get_running_loop()
        self._write_lock = asyncio.Lock()
        self._reads = asyncio.Semaphore(READS_MAX)
        self._socket = sock
        self._loop.add_reader(sock, self._read)

    async def finish(self, seconds: float) -> None:
        """Complete running commands, reject new ones, then stop.

        :param seconds: timeout for running commands
        """
        self._finishing = True
        for session in list(self._sessions.established.values()):
            if session.sol is not None:
                session.sol.close()
                # ipmitool ignores that SOL is deactivating. An empty datagram
                # ends it (recv_sol in ipmi_sol.c of 1.8.19), and other clients
                # ignore that.
                self._send(b'', session.address)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._sessions.wait_closed()
        self.stop()

    def stop(self) -> None:
        """End all sessions and close the port."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        self._sessions.stop()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def end_sessions(self) -> None:
        """Drop all sessions without notice, after the present request."""
        self._loop.call_soon(self._sessions.end_all)

    def _read(self) -> None:
        # Read in batches to keep up with a flood, but give other tasks of
        # the loop a turn.
        for _number in range(self.read_max):
            try:
                self.receive(*self._socket.recvfrom(DATAGRAM_MAX))
            except BlockingIOError:
                return
            except OSError as exc:
                # ICMP error for a datagram sent earlier.
                LOG.debug('%s: %s', self.name, exc)
        if self.read_pause:
            self._loop.remove_reader(self._socket)
            self._loop.call_later(self.read_pause, self._read_again)

    def _read_again(self) -> None:
        if not self._stopped:
            self._loop.add_reader(self._socket, self._read)

    def receive(self, data: bytes, address: packet.Address) -> None:
        """Process a datagram of the sender with that address."""
        try:
            tag = packet.parse_ping(data)
            if tag is None:
                self._receive(packet.parse(data), address)
            else:
                self._send(packet.pong(tag), address)
        except packet.Malformed:
            pass
        except Exception as exc:
            # A bug. Log each exception type once: a client that can trigger
            # it can do so ten thousand times a second.
            if type(exc) not in self._logged_exceptions:
                self._logged_exceptions.add(type(exc))
                LOG.exception('%s: packet dropped, unexpected error',
                              self.name)

    def _send(self, data: bytes, address: packet.Address) -> None:
        try:
            self._socket.sendto(data, address)
        except OSError as exc:
            # IPMI clients retry lost datagrams.
            LOG.debug('%s: %s', self.name, exc)

    def _log_limited(self, text: str, *arguments: object) -> None:
        """Log what unauthenticated clients cause, at most once a second."""
        now = self._loop.time()
        if now >= self._next_log_at:
            self._next_log_at = now + 1
            LOG.info('%s: ' + text, self.name, *arguments)

    def send_payload(self, session: session20.Session, payload_type: int,
                     payload: bytes) -> None:
        """Send a payload to the client of an established session."""
        if session.session_id in self._sessions.established:
            self._send(session.wrap(payload, payload_type), session.address)

    # Sessions

    def _receive(self, received: packet.Packet,
                 address: packet.Address) -> None:
        if received.session_id and (received.rmcpp or received.authenticated):
            session = self._sessions.established.get(received.session_id)
            if session is None and not received.rmcpp:
                self._activate(received, address)
                return
            # Reject other payload types before verifying the packet.
            if (session is None or session.address != address
                    or session.rmcpp is not received.rmcpp
                    or received.payload_type != _IPMI
                    and (received.payload_type != constants.Payload.SOL
                         or session.sol is None)):
                raise packet.Malformed()
            self._check_user(session)
            payload, new = session.unwrap(received)
            if received.payload_type == _IPMI:
                self._handle_in_session(
                    session, packet.parse_request(payload), new)
            elif new:
                self._sessions.store(self._sessions.established, session)
                assert session.sol is not None
                session.sol.receive(payload)
        elif received.session_id or received.authenticated \
                or received.encrypted:
            raise packet.Malformed()
        elif received.payload_type == _IPMI:
            self._handle_sessionless(
                received.rmcpp, packet.parse_request(received.payload),
                address)
        elif not self._finishing:
            self._handshake(received, address)

    def _handshake(self, received: packet.Packet,
                   address: packet.Address) -> None:
        payload, tables = received.payload, self._sessions
        if len(payload) < 8:
            raise packet.Malformed()
        number, = struct.unpack_from('<I', payload, 4)
        try:
            if received.payload_type == constants.Payload.OPEN_SESSION_REQUEST:
                session = session20.Session(
                    address, tables.new_id(), payload)
                answer = session.open_response(payload[0])
                tables.store(tables.requested, session)
            elif received.payload_type == constants.Payload.RAKP1:
                session = tables.find(number, address, tables.requested,
                                      tables.authenticating)
                answer = session.rakp1(
                    payload, self._users.by_name, self._guid())
                tables.store(tables.authenticating, session)
            elif received.payload_type == constants.Payload.RAKP3:
                session = tables.find(number, address, tables.authenticating,
                                      tables.established)
                self._check_user(session)
                answer = session.rakp3(payload)
                if session.session_id not in tables.established:
                    self._establish(session)
                else:
                    tables.store(tables.established, session)
            else:
                raise packet.Malformed()
        except session20.HandshakeRefused as exc:
            self.sessions_refused += 1
            if received.payload_type != constants.Payload.OPEN_SESSION_REQUEST:
                tables.end(session)
            self._log_limited('session for %s refused: %s', address[0], exc)
            answer = exc.answer
        except session20.HandshakeAborted:
            self.sessions_refused += 1
            tables.end(session)
            self._log_limited('session for %s aborted by the client: wrong '
                              'password', address[0])
            return
        self._send(packet.wrap(*answer), address)

    def v15_login_possible(self) -> bool:
        """Return whether any user can log in with IPMI v1.5."""
        return any(map(session15.login_possible, self._users.all()))

    def _challenge(self, request: packet.Request,
                   address: packet.Address) -> channel.Response:
        """Get Session Challenge of IPMI v1.5 (section 22.16)."""
        if self._finishing:
            raise packet.Malformed()
        code, data = channel.session_challenge(request.data)
        if not self.v15_login_possible():
            code, data = constants.Completion.INVALID_FIELD, b''
        elif code == constants.Completion.OK:
            session = session15.Session(
                address, self._sessions.new_id(),
                self._users.by_name(data.rstrip(b'\0')))
            self._sessions.store(self._sessions.requested, session)
            data = struct.pack('<I', session.session_id) + session.challenge
        return code, data

    def _activate(self, received: packet.Packet,
                  address: packet.Address) -> None:
        """Activate Session of IPMI v1.5 (section 22.17)."""
        session = self._sessions.requested.get(received.session_id)
        if (not isinstance(session, session15.Session)
                or session.address != address or self._finishing):
            raise packet.Malformed()
        self._check_user(session)
        # A challenge is valid for one attempt.
        self._sessions.end(session)
        try:
            request = packet.parse_request(session.check(received))
            if (request.netfn, request.command) != channel.ACTIVATE:
                raise packet.Malformed()
            answer = session.activate(request.data)
        except packet.Malformed:
            # Drop it like every packet with a wrong authentication code.
            self.sessions_refused += 1
            self._log_limited('session for %s refused: wrong user name or '
                              'password', address[0])
            raise
        if answer[0] == constants.Completion.OK:
            self._establish(session)
        else:
            self.sessions_refused += 1
        # Cache the response in case it is lost.
        self._respond(session, request, answer, keep=True)

    def _establish(self, session: channel.Session) -> None:
        self.sessions_opened += 1
        self._sessions.establish(session)
        LOG.debug('%s: session with %s', self.name, session.address[0])

    def active_sessions(self) -> list[channel.Session]:
        """Return the established sessions, ordered by handle.

        Call it in the event loop.
        """
        return sorted(self._sessions.established.values(),
                      key=lambda session: session.handle)

    @property
    def sessions(self) -> int:
        """Number of established sessions."""
        return len(self._sessions.established)

    def _user_unchanged(self, session: channel.Session) -> bool:
        """Drop a session whose user was changed or removed.

        :returns: whether the session is kept
        """
        user = session.user
        if user is None:
            return True
        current = self._users.by_name(user.name)
        if user is current or user == current:
            return True
        self._sessions.end(session)
        self._log_limited('session with %s ended: its user has changed',
                          session.address[0])
        return False

    def _check_user(self, session: channel.Session) -> None:
        if not self._user_unchanged(session):
            raise packet.Malformed()

    @property
    def command_names(self) -> dict[tuple[int | None, int | None], str]:
        """Names of all commands, in the specification."""
        return dict([*channel.NAMES.items(), *(
            (code, command.name) for code, command
            in self._commands.items())])

    # Commands

    def _handle_sessionless(self, rmcpp: bool, request: packet.Request,
                            address: packet.Address) -> None:
        """Handle a command sent outside of a session (appendix G)."""
        code = request.netfn, request.command
        if code == channel.CHALLENGE and not rmcpp:
            answer = self._challenge(request, address)
        elif code in self._sessionless_commands:
            answer = self._sessionless_commands[code](None, request.data)
        elif code == channel.PET_ACKNOWLEDGE:
            answer = constants.Completion.INVALID_COMMAND, b''
        else:
            raise packet.Malformed()
        self._count(request, answer)
        message = packet.response(request, *answer)
        self._send(packet.wrap(_IPMI, message) if rmcpp
                   else packet.wrap_v15(message), address)

    def _handle_in_session(self, session: channel.Session,
                           request: packet.Request, new: bool) -> None:
        """Handle a verified command of an established session."""
        answered = session.response_cache.get(request)
        if request in session.pending or not new and answered is None:
            return
        self._sessions.store(self._sessions.established, session)
        session.requester = request.requester
        if answered is not None:
            # The client lost the response: send the cached one.
            if self._loop.time() - answered[0] < CACHED_RESPONSE_SECONDS:
                self._send(session.wrap(answered[1]), session.address)
                return
            del session.response_cache[request]
            if not new:
                return
        code = request.netfn, request.command
        handle = self._session_commands.get(code)
        if handle is not None:
            self._respond(session, request, handle(session, request.data))
            return
        if code == channel.CLOSE:
            completion, target = channel.close_session(
                self._sessions.established.values(), session, request.data)
            self._respond(session, request, (completion, b''))
            if target is not None:
                self._sessions.end(target)
            return
        if not self._commands:
            self._commands = self._make_commands()
        refusal = self._start_command(session, request,
                                      self._commands.get(code))
        if refusal is not None:
            self._respond(session, request, (refusal, b''))

    def _start_command(self, session: channel.Session,
                       request: packet.Request, command: Command | None
                       ) -> constants.Completion | None:
        """Begin a command, which responds by itself, or refuse it.

        :param command: None for one that is not supported
        :returns: completion code of a refusal, else None
        """
        if command is None:
            return constants.Completion.INVALID_COMMAND
        if request.lun:
            return constants.Completion.INVALID_LUN
        if session.privilege < command.privilege:
            return constants.Completion.ACCESS_DENIED
        if len(request.data) < command.min_length:
            return constants.Completion.LENGTH_INVALID
        if self._finishing:
            return constants.Completion.NODE_BUSY
        if command.inline:
            self._respond(session, request,
                          command.handler(session, request.data))
        elif command.modifies or not self._attempted(
                session, request, command):
            if not self._may_wait(session):
                return constants.Completion.NODE_BUSY
            session.pending.add(request)
            self._task(self._execute(session, request, command))
        return None

    def _may_wait(self, session: channel.Session) -> bool:
        """Return whether a session may have a further request in progress."""
        return len(session.pending) < PENDING_MAX and sum(
            len(other.pending) for other
            in self._sessions.established.values()
            if other.user == session.user) < USER_PENDING_MAX

    def _attempted(self, session: channel.Session, request: packet.Request,
                   command: Command) -> bool:
        """Respond to a command without a thread, if that is possible."""
        try:
            answer = self._attempt(command.handler, session, request.data)
        except Exception:
            # A failure is logged when it is repeated.
            return False
        self._respond(session, request, answer)
        return True

    async def _execute(self, session: channel.Session,
                       request: packet.Request, command: Command) -> None:
        """Run a command in a thread; respond within RESPONSE_SECONDS."""
        work = self._task(self._run_handler(session, request, command))
        done, _pending = await asyncio.wait({work}, timeout=RESPONSE_SECONDS)
        session.pending.discard(request)
        answer = work.result() if done else self._early_answer(
            session, request, command)
        if session.session_id in self._sessions.established:
            self._respond(session, request, answer, keep=command.modifies)
        if (not done and command.modifies
                and answer[0] == constants.Completion.TIMEOUT):
            # A client that repeats its request gets the result.
            self._keep(session, request, await work)

    def _early_answer(self, session: channel.Session, request: packet.Request,
                      command: Command) -> channel.Response:
        """Return the answer to a command that has not ended in time."""
        if command.begun is not None and self._writing is request:
            with contextlib.suppress(Exception):
                if self._attempt(command.begun, session, request.data):
                    return constants.Completion.OK, b''
        return constants.Completion.TIMEOUT, b''

    async def _run_handler(self, session: channel.Session,
                           request: packet.Request,
                           command: Command) -> channel.Response:
        try:
            if command.modifies:
                async with self._write_lock:
                    self._writing = request
                    return await self._loop.run_in_executor(
                        self._writers, command.handler, session, request.data)
            async with self._reads:
                if request not in session.pending:
                    # It was answered meanwhile, with that code.
                    return constants.Completion.TIMEOUT, b''
                return await self._loop.run_in_executor(
                    self._readers, command.handler, session, request.data)
        except Exception:
            LOG.exception('%s: command %02Xh of network function %02Xh '
                          'failed', self.name, request.command,
                          request.netfn)
            return constants.Completion.UNSPECIFIED, b''

    def _task(self, coroutine: abc.Coroutine[typing.Any, typing.Any, T]
              ) -> asyncio.Task[T]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _respond(self, session: channel.Session, request: packet.Request,
                 answer: channel.Response, keep: bool = False) -> None:
        message = packet.response(request, *answer)
        if not session.rmcpp and len(message) > packet.V15_MESSAGE_MAX:
            answer = constants.Completion.TOO_MUCH_REQUESTED, b''
            message = packet.response(request, *answer)
        self._count(request, answer)
        if keep:
            self._keep(session, request, answer)
        self._send(session.wrap(message), session.address)

    def _keep(self, session: channel.Session, request: packet.Request,
              answer: channel.Response) -> None:
        """Keep the answer for repetitions of a request."""
        session.response_cache[request] = (
            self._loop.time(), packet.response(request, *answer))
        if len(session.response_cache) > CACHED_RESPONSES_MAX:
            session.response_cache.popitem(last=False)

    def _count(self, request: packet.Request,
               answer: channel.Response) -> None:
        code: tuple[int | None, int | None] = (
            request.netfn, request.command)
        if code not in self._commands and code not in channel.NAMES:
            # Bound the number of counters: clients choose the code.
            code = None, None
        self.responses[*code, int(answer[0])] += 1
