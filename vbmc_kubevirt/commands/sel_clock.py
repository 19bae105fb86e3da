# SPDX-License-Identifier: Apache-2.0
"""Time of the SEL and the SDR repository (sections 31.10, 31.11 and 33.17).

It is that of the node, in UTC, like the times of Kubernetes' Events. A BMC
cannot change it.
"""

import struct
import time

from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.ipmi import constants

#: Seconds by which a client's clock may differ for a set command to succeed.
TOLERANCE = 2

#: UTC offset "unspecified" (31.11a).
_UNSPECIFIED = 0x07FF


def get(session, data):
    """Get SEL Time, Get SDR Repository Time."""
    return struct.pack('<I', int(time.time()))


def set(session, data):
    """Set SEL Time, Set SDR Repository Time.

    Succeeds if it is that time, and is refused otherwise.
    """
    wanted, = struct.unpack_from('<I', data)
    if abs(wanted - time.time()) > TOLERANCE:
        raise completion.RequestError(constants.Completion.WRONG_STATE)


def get_utc_offset(session, data):
    """Get SEL Time UTC Offset (31.11a)."""
    return struct.pack('<h', 0)


def set_utc_offset(session, data):
    """Set SEL Time UTC Offset (31.11b)."""
    if struct.unpack_from('<h', data)[0] not in (0, _UNSPECIFIED):
        raise completion.RequestError(constants.Completion.WRONG_STATE)
