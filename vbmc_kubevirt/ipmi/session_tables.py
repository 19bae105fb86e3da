# SPDX-License-Identifier: Apache-2.0
"""Tables of the sessions of one BMC, by progress of the login.

Every table is bounded, and divided by `shares.surplus` when it is full, so
that no client can lock out others:

* requested: after an Open Session Request or, with IPMI v1.5, a Get Session
  Challenge. Costs the sender one packet, and its address may be forged.
  Divided among networks.
* authenticating: after RAKP message 1 with a valid user name, from the address
  that received the session id. Requested sessions do not evict these.
  Divided among networks.
* established: the client proved that it knows the password. Divided among
  users, and the sessions of each user among its networks.
"""

from __future__ import annotations

import asyncio
import collections
from collections import abc
import logging
import operator
import os
import struct
import typing

from sushy_kubevirt.bmc import shares
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import packet
from vbmc_kubevirt.ipmi import session20

LOG = logging.getLogger(__name__)

#: Seconds without a valid packet after which an established session ends:
#: the default session inactivity timeout (section 6.12.15), 60 s +/- 3.
IDLE_SECONDS = 60.0

#: Seconds until an incomplete handshake is dropped. Clients need
#: milliseconds.
HANDSHAKE_SECONDS = 10.0

#: Maximum number of sessions in each table.
REQUESTED_MAX = 512
AUTHENTICATING_MAX = 256
ESTABLISHED_MAX = 64

#: Sessions by id, the oldest first.
Table: typing.TypeAlias = collections.OrderedDict[int, channel.Session]

_network = operator.attrgetter('network')
_user = operator.attrgetter('user.name')


class _Limit(typing.NamedTuple):
    # Size, timeout in seconds, and owners of a table's sessions.

    table: Table
    most: int
    seconds: float
    owners: tuple[abc.Callable[[channel.Session], abc.Hashable], ...]


class SessionTables:
    """The sessions of one BMC. Not thread-safe: for one event loop.

    :param keep: called with each established session every second: ends it
        if its user has changed
    :param now: returns the loop's time in seconds
    :ivar requested: sessions after their first request
    :ivar authenticating: sessions after RAKP message 1
    :ivar established: sessions whose client knows the password
    """

    def __init__(self, keep: abc.Callable[[channel.Session], object],
                 now: abc.Callable[[], float]) -> None:
        self._keep = keep
        self._now = now
        self.requested: Table = collections.OrderedDict()
        self.authenticating: Table = collections.OrderedDict()
        self.established: Table = collections.OrderedDict()
        self._limits = (
            _Limit(self.requested, REQUESTED_MAX, HANDSHAKE_SECONDS,
                   (_network,)),
            _Limit(self.authenticating, AUTHENTICATING_MAX, HANDSHAKE_SECONDS,
                   (_network,)),
            _Limit(self.established, ESTABLISHED_MAX, IDLE_SECONDS,
                   (_user, _network)),
        )
        self._sweep: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()

    def new_id(self) -> int:
        """Return an unused random session id, not 0."""
        while True:
            number, = struct.unpack('<I', os.urandom(4))
            if number and not any(number in limit.table
                                  for limit in self._limits):
                return number

    @staticmethod
    def find(number: int, address: packet.Address,
             *tables: Table) -> session20.Session:
        """Return a session of IPMI v2.0.

        :param number: session id
        :param address: of the client
        :raises: `packet.Malformed` if the tables have no such session
        """
        for table in tables:
            session = table.get(number)
            if (isinstance(session, session20.Session)
                    and session.address == address):
                return session
        raise packet.Malformed()

    def store(self, table: Table, session: channel.Session) -> None:
        """Move a session to a table as its newest; evict one if it is full.
        """
        session.used = self._now()
        if session.session_id in table:
            table.move_to_end(session.session_id)
            return
        self._remove(session)
        table[session.session_id] = session
        for limit in self._limits:
            if limit.table is table and len(table) > limit.most:
                self.end(shares.surplus(
                    table.values(), session, *limit.owners))
        if self._sweep is None:
            self._sweep_later()

    def establish(self, session: channel.Session) -> None:
        """Give a session a handle and store it as established."""
        used = {other.handle for other in self.established.values()}
        session.handle = next(handle for handle in range(1, 256)
                              if handle not in used)
        self.store(self.established, session)

    def end(self, session: channel.Session) -> None:
        """Drop a session and its SOL."""
        self._remove(session)
        self._ended.set()
        if session.sol is not None:
            session.sol.close()

    def end_all(self) -> None:
        """Drop all sessions without notice."""
        for limit in self._limits:
            for session in list(limit.table.values()):
                self.end(session)

    async def wait_closed(self) -> None:
        """Wait until no session is established."""
        while self.established:
            self._ended.clear()
            await self._ended.wait()

    def stop(self) -> None:
        """End all sessions and the watch for timeouts."""
        self.end_all()
        if self._sweep is not None:
            self._sweep.cancel()

    def _remove(self, session: channel.Session) -> None:
        for limit in self._limits:
            limit.table.pop(session.session_id, None)

    def _expire(self) -> None:
        """Drop timed-out sessions and those whose user has changed.

        Reschedule while any session is left. A client of SOL may only
        receive: its packets alone do not reveal that its user has changed.
        """
        try:
            self._drop_timed_out()
            for session in list(self.established.values()):
                self._keep(session)
        except Exception:
            LOG.exception('The search for sessions to end has failed; it is '
                          'repeated every second')
        self._sweep = None
        if any(limit.table for limit in self._limits):
            self._sweep_later()

    def _drop_timed_out(self) -> None:
        for table, _most, seconds, _owners in self._limits:
            while table:
                session = next(iter(table.values()))
                if session.pending:
                    self.store(table, session)
                    break
                if session.used + seconds > self._now():
                    break
                self.end(session)

    def _sweep_later(self) -> None:
        self._sweep = asyncio.get_running_loop().call_later(1, self._expire)
