# SPDX-License-Identifier: Apache-2.0
"""Groups of parameters, of which the first is "set in progress".

It lets one session at a time change a group of parameters (section 23.1; the
same for SOL, section 26.2, and boot options, section 28.12).
"""

from __future__ import annotations

import weakref

from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

#: Number of the parameter in each group.
PARAMETER = 0

_COMPLETE, _IN_PROGRESS, _RESERVED = 0, 1, 3


class Parameters(group.Group):
    """Commands that set and get parameters."""

    def __init__(self, bmc: group.Bmc) -> None:
        super().__init__(bmc)
        self._owner: weakref.ref[channel.Session] | None = None

    def release(self) -> None:
        """Set it to "set complete"."""
        self._owner = None

    def set_progress(self, session: channel.Session, value: int) -> None:
        """Give it to one session, until that session ends.

        :param value: the parameter's data, a byte
        :raises: `completion.RequestError` if another session has it, or the
            value is reserved
        """
        value &= 3
        completion.refuse_if(value == _RESERVED,
                             constants.Completion.INVALID_FIELD)
        if value == _IN_PROGRESS:
            completion.refuse_if(self._holder() not in (None, session),
                                 constants.Completion.SET_IN_PROGRESS)
            self._owner = weakref.ref(session)
        elif value == _COMPLETE:
            self._owner = None

    def progress(self) -> bytes:
        """Return the parameter's data."""
        return bytes((_IN_PROGRESS if self._holder() is not None
                      else _COMPLETE,))

    def _holder(self) -> channel.Session | None:
        return None if self._owner is None else self._owner()
