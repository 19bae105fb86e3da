# SPDX-License-Identifier: Apache-2.0
"""System info parameters (sections 22.14a and 22.14b): names and versions.

On a server, the system's firmware and software write them. Here the BMC knows
most of them from KubeVirt, and clients can write names and URLs.
"""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.machine import machine
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.commands import parts
from vbmc_kubevirt.commands import set_in_progress
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

_LEVEL = constants.Privilege
_CODE = constants.Completion

#: Revision of the parameters.
REVISION = 0x11

#: Encodings of strings (table 22-16c): ASCII and Latin-1, UTF-8, Unicode.
ENCODINGS = ('latin-1', 'utf-8', 'utf-16-le')
_LATIN_1, _UTF_8 = 0, 1

#: Largest length of a string, and length of a block, in bytes (table 22-16c).
#: The first block begins with encoding and length.
LENGTH_MAX, _BLOCK, _HEAD = 255, 16, 2

#: Number of blocks of a string. All can be read, whatever the length of the
#: string: table 22-16c asks for four at least, and ipmitool 1.8.19 reads four
#: of a string in UTF-8.
BLOCKS = -(-(_HEAD + LENGTH_MAX) // _BLOCK)


class String(typing.NamedTuple):
    """A string parameter.

    :param known: returns the value while no client has written one
    :param name: its name in `attributes.system_info`; '' if it is not kept
    :param volatile: what a client has written is valid for one run of the VM
    """

    known: abc.Callable[[machine.Machine], str]
    name: str = ''
    volatile: bool = False


#: String parameters of table 22-16c. Those that are neither named nor volatile
#: are read-only.
STRINGS = {
    1: String(lambda machine: machine.inventory().firmware_version),
    2: String(lambda machine: machine.qualified_name, 'systemName'),
    3: String(lambda machine: machine.inventory().os_name, 'primaryOsName'),
    4: String(lambda machine: machine.inventory().os_name, volatile=True),
    5: String(lambda machine: machine.inventory().os_version, volatile=True),
    6: String(lambda machine: '', 'bmcUrl'),
    7: String(lambda machine: '', 'hypervisorUrl'),
}


def encode(text: str) -> bytes:
    """Encode a string with its head, encoding and length (table 22-16c)."""
    text = parts.printable(text)
    data = parts.cut(text, LENGTH_MAX)
    return bytes((_LATIN_1 if text.isascii() else _UTF_8, len(data))) + data


def decode(data: bytes) -> str | None:
    """Decode a string with its head (table 22-16c).

    :returns: None while the string is incomplete
    :raises: `completion.RequestError` for another encoding, and characters
        that are not printable
    """
    encoding, length = data[0] & 0x0f, data[1]
    completion.refuse_if(encoding >= len(ENCODINGS), _CODE.INVALID_FIELD)
    if len(data) < _HEAD + length:
        return None
    return parts.decode(data[_HEAD:_HEAD + length], ENCODINGS[encoding])


class SystemInfo(set_in_progress.Parameters):
    """Commands about system info parameters."""

    netfn = constants.APPLICATION

    def __init__(self, bmc: group.Bmc) -> None:
        super().__init__(bmc)
        self._writers = {number: parts.Writer() for number in STRINGS}
        # Volatile strings: the run of the VM in which they were written, and
        # the text.
        self._volatile: dict[int, tuple[str, str]] = {}

    @group.command(0x58, 'Set System Info Parameters', _LEVEL.ADMINISTRATOR, 1,
                   modifies=True)
    def set_parameter(self, session: channel.Session, data: bytes) -> None:
        """Set System Info Parameters (22.14a).

        A string takes effect when its last block has been written.
        """
        number = data[0]
        self._check(number)
        completion.refuse_if(len(data) < 2, _CODE.LENGTH_INVALID)
        if number == set_in_progress.PARAMETER:
            self.set_progress(session, data[1])
            return
        string = STRINGS[number]
        completion.refuse_if(not (string.name or string.volatile),
                             _CODE.READ_ONLY)
        selector, block = data[1], data[2:2 + _BLOCK]
        completion.refuse_if(not selector and len(block) < _HEAD or not block,
                             _CODE.LENGTH_INVALID)
        completion.refuse_if(selector >= BLOCKS, _CODE.OUT_OF_RANGE)
        text = decode(self._writers[number].add(
            session, selector * _BLOCK, block, BLOCKS * _BLOCK))
        if text is None:
            return
        machine = self._bmc.machine()
        if string.volatile:
            self._volatile[number] = _run(machine), text
        else:
            machine.set_system_info(string.name, text)

    @group.command(0x59, 'Get System Info Parameters', _LEVEL.USER, 4)
    def get_parameter(self, session: channel.Session, data: bytes) -> bytes:
        """Get System Info Parameters (22.14b)."""
        self._check(data[1])
        if data[0] & 0x80:
            # The revision alone.
            return bytes((REVISION,))
        if data[1] == set_in_progress.PARAMETER:
            return bytes((REVISION,)) + self.progress()
        completion.refuse_if(data[2] >= BLOCKS, _CODE.OUT_OF_RANGE)
        text = encode(self._text(data[1])).ljust(BLOCKS * _BLOCK, b'\0')
        start = data[2] * _BLOCK
        return bytes((REVISION, data[2])) + text[start:start + _BLOCK]

    def _text(self, number: int) -> str:
        machine, string = self._bmc.machine(), STRINGS[number]
        if string.volatile:
            run, text = self._volatile.get(number, ('', ''))
            written = text if run == _run(machine) else ''
        else:
            written = (machine.system_info(string.name) if string.name
                       else '')
        return written or string.known(machine)

    def _check(self, parameter: int) -> None:
        completion.refuse_if(
            parameter not in (set_in_progress.PARAMETER, *STRINGS),
            _CODE.PARAMETER_NOT_SUPPORTED)


def _run(machine: machine.Machine) -> str:
    """Return the uid of a machine's VMI, '' while it has none."""
    vmi = machine.state().vmi
    return vmi['metadata']['uid'] if vmi else ''
