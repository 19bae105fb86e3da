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
import logging
import operator
import os
import struct

from sushy_kubevirt.bmc import shares
from vbmc_kubevirt.ipmi import packet

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

_network = operator.attrgetter('network')
_user = operator.attrgetter('user.name')


class SessionTables:
    """The sessions of one BMC. Not thread-safe: for one event loop.

    :param keep: function of an established session, called every second:
        ends the session if its user has changed
    :param now: function that returns the loop's time in seconds
    :ivar requested: sessions by id, the oldest first; so are the others
    :ivar authenticating: sessions after RAKP message 1
    :ivar established: sessions whose client knows the password
    """

    def __init__(self, keep, now) -> None:
        self._keep = keep
        self._now = now
        self.requested = collections.OrderedDict()
        self.authenticating = collections.OrderedDict()
        self.established = collections.OrderedDict()
        self._limits = (
            (self.requested, REQUESTED_MAX, HANDSHAKE_SECONDS, _network),
            (self.authenticating, AUTHENTICATING_MAX, HANDSHAKE_SECONDS,
             _network),
            (self.established, ESTABLISHED_MAX, IDLE_SECONDS, _user,
             _network),
        )
        self._sweep = None
        self._ended = asyncio.Event()

    def new_id(self):
        """Return an unused random session id, not 0."""
        while True:
            number, = struct.unpack('<I', os.urandom(4))
            if number and not any(number in table
                                  for table, *_ in self._limits):
                return number

    @staticmethod
    def find(number, address, *tables):
        """Return a session of IPMI v2.0.

        :param number: session id
        :param address: of the client
        :raises: `packet.Malformed` if the tables have no such session
        """
        for table in tables:
            session = table.get(number)
            if (session is not None and session.address == address
                    and session.rmcpp):
                return session
        raise packet.Malformed()

    def store(self, table, session) -> None:
        """Move a session to a table as its newest; evict one if it is full.
        """
        session.used = self._now()
        if session.session_id in table:
            table.move_to_end(session.session_id)
            return
        self._remove(session)
        table[session.session_id] = session
        for one, limit, _seconds, *owners in self._limits:
            if one is table and len(table) > limit:
                self.end(shares.surplus(table.values(), session, *owners))
        if self._sweep is None:
            self._sweep_later()

    def establish(self, session) -> None:
        """Give a session a handle and store it as established."""
        used = {one.handle for one in self.established.values()}
        session.handle = next(handle for handle in range(1, 256)
                              if handle not in used)
        self.store(self.established, session)

    def end(self, session) -> None:
        """Drop a session and its SOL."""
        self._remove(session)
        self._ended.set()
        if session.sol is not None:
            session.sol.close()

    def end_all(self) -> None:
        """Drop all sessions without notice."""
        for table, *_ in self._limits:
            for session in list(table.values()):
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

    def _remove(self, session) -> None:
        for table, *_ in self._limits:
            table.pop(session.session_id, None)

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
        if any(table for table, *_ in self._limits):
            self._sweep_later()

    def _drop_timed_out(self) -> None:
        for table, _limit, seconds, *_ in self._limits:
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
