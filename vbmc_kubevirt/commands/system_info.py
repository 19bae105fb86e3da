# SPDX-License-Identifier: Apache-2.0
"""System info parameters (sections 22.14a and 22.14b): firmware and name.

They are for the system's software, which has no interface to this BMC, so
they cannot be written.
"""

from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import set_in_progress
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server

_LEVEL = constants.Privilege
_CODE = constants.Completion

#: Strings of table 22-16c that are served, of a `machine.Machine`, and the
#: revision of the parameters.
STRINGS = {
    1: lambda machine: machine.inventory().firmware_version,
    2: lambda machine: machine.qualified_name,
}
REVISION = 0x11

# Strings (table 22-16c): encoding, bytes in a block, largest number of bytes.
_UTF_8, _BLOCK, _MAX = 1, 16, 255


def commands(bmc):
    """Return the commands of this module.

    :param bmc: a `bmc.Bmc`
    """
    info = _SystemInfo(bmc)
    bmc.on_reset.append(info.set_in_progress.release)
    return {
        (constants.APPLICATION, 0x58): server.Command(
            'Set System Info Parameters',
            completion.without_machine(info.set_parameter),
            _LEVEL.ADMINISTRATOR, min_length=1, inline=True),
        (constants.APPLICATION, 0x59): server.Command(
            'Get System Info Parameters',
            bmc.map_errors(info.get_parameter), _LEVEL.USER, min_length=4),
    }


def blocks(text):
    """Divide a string into blocks (table 22-16c).

    :param text: str
    :returns: list of bytes, `_BLOCK` each; the first begins with encoding and
        length
    """
    data = text.encode()[:_MAX].decode(errors='ignore').encode()
    data = bytes((_UTF_8, len(data))) + data
    return [data[start:start + _BLOCK].ljust(_BLOCK, b'\0')
            for start in range(0, len(data), _BLOCK)]


class _SystemInfo:

    def __init__(self, bmc):
        self._bmc = bmc
        self.set_in_progress = set_in_progress.SetInProgress()

    def set_parameter(self, session, data):
        """Set System Info Parameters (22.14a)."""
        self._check(data[0])
        if data[0] != set_in_progress.PARAMETER:
            raise completion.RequestError(_CODE.READ_ONLY)
        if len(data) < 2:
            raise completion.RequestError(_CODE.LENGTH_INVALID)
        self.set_in_progress.set(session, data[1])

    def get_parameter(self, session, data):
        """Get System Info Parameters (22.14b)."""
        self._check(data[1])
        if data[0] & 0x80:
            # The revision alone.
            return bytes((REVISION,))
        if data[1] == set_in_progress.PARAMETER:
            return bytes((REVISION,)) + self.set_in_progress.data()
        found = blocks(STRINGS[data[1]](self._bmc.machine()))
        if data[2] >= len(found):
            raise completion.RequestError(_CODE.OUT_OF_RANGE)
        return bytes((REVISION, data[2])) + found[data[2]]

    def _check(self, parameter):
        if parameter not in (set_in_progress.PARAMETER, *STRINGS):
            raise completion.RequestError(_CODE.PARAMETER_NOT_SUPPORTED)
