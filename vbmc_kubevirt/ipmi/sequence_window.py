# SPDX-License-Identifier: Apache-2.0
"""Which sequence numbers a session has seen (section 6.12.13).

What was recorded and is sent again is not taken for something new, while
packets may overtake each other.
"""

#: How far behind the highest number a packet may come.
_BEHIND = 15


class Window:
    """The numbers of one session's inbound packets.

    :param start: the number before the first
    """

    __slots__ = '_highest', '_seen'

    def __init__(self, start=0):
        self._highest = start
        # Bit n: the number that is n below the highest was here. What is
        # before the first, 0 among it, never comes.
        self._seen = 0xffff

    def accept(self, sequence):
        """Note a number; that of a packet which was checked.

        :returns: False if it was here before, or is too old to know
        """
        ahead = sequence - self._highest
        if ahead > 0:
            self._seen = ((self._seen << ahead | 1) & 0xffff
                          if ahead <= _BEHIND else 1)
            self._highest = sequence
            return True
        if ahead < -_BEHIND or self._seen >> -ahead & 1:
            return False
        self._seen |= 1 << -ahead
        return True
