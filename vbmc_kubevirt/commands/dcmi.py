# SPDX-License-Identifier: Apache-2.0
"""Commands of the Data Center Manageability Interface, DCMI 1.5.

KubeVirt reports neither power nor temperature, and the cluster configures the
network: what remains is identification. Section numbers are those of the DCMI
specification, v1.5 revision 1.0.
"""

from __future__ import annotations

import struct

from sushy_kubevirt.bmc import event_log
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.commands import parts
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

_LEVEL = constants.Privilege
_CODE = constants.Completion

#: Group extension of requests and responses (section 6).
GROUP = 0xDC

# The log drops its oldest entries by itself (parameter 2).
_ROLLS_OVER = 0x8000

# There is an asset tag (parameter 2).
_ASSET_TAG = 0x04

# Get DCMI Capabilities Info (table 6-3): version 1.5, revision of the
# parameters.
_VERSION, _REVISION = bytes((1, 5)), 2

#: Parameters of Get DCMI Capabilities Info (table 6-3).
CAPABILITIES = {
    # No power management; no channel but the mandatory LAN channel.
    1: bytes(3),
    # Number of entries of the log, which drops old ones; identification; no
    # temperatures.
    2: struct.pack('<HBBB', _ROLLS_OVER | event_log.MAX_ENTRIES, _ASSET_TAG,
                   0, 0),
    # Where power management would be.
    3: bytes(2),
    # Primary LAN channel; no secondary one and no serial one.
    4: bytes((channel.CHANNEL, 0xFF, 0xFF)),
    # No rolling averages of power.
    5: b'\0',
}

#: Bytes of an asset tag and of the identifier string, and of one part of them
#: (sections 6.4, 6.6). The identifier has a NUL at its end in addition.
TAG_MAX, IDENTIFIER_MAX, PART_MAX = 63, 63, 16

# Byte order mark: the asset tag is UTF-8 (section 6.4.2).
_BOM = b'\xef\xbb\xbf'


def _part(text: bytes, data: bytes) -> bytes:
    """Return the part of a text that a request asks for.

    :param data: offset and number of bytes
    :returns: total number of bytes, and the part
    """
    offset, count = data[:2]
    completion.refuse_if(count > PART_MAX or offset > len(text),
                         _CODE.OUT_OF_RANGE)
    return bytes((len(text),)) + text[offset:offset + count]


def _add(writer: parts.Writer, session: channel.Session, data: bytes,
         most: int) -> bytes:
    """Add the part of a request to a text (sections 6.4.2 and 6.6).

    :param data: offset, number of bytes, the part
    :param most: largest number of bytes of the whole text
    :returns: the text so far
    """
    offset, count, part = data[0], data[1], data[2:]
    completion.refuse_if(count > PART_MAX, _CODE.OUT_OF_RANGE)
    completion.refuse_if(len(part) < count, _CODE.LENGTH_INVALID)
    return writer.add(session, offset, part[:count], most)


class Dcmi(group.Group):
    """Commands of DCMI."""

    netfn = constants.GROUP_EXTENSION

    def __init__(self, bmc: group.Bmc) -> None:
        super().__init__(bmc)
        self._tag, self._identifier = parts.Writer(), parts.Writer()

    def _wrap(self, handle: completion.Handle,
              inline: bool) -> channel.Handler:
        """Check the group extension of requests and add it to responses."""
        wrapped = super()._wrap(handle, inline)

        def wrapper(session: channel.Session, data: bytes
                    ) -> channel.Response:
            if data[0] != GROUP:
                return _CODE.INVALID_COMMAND, bytes((data[0],))
            code, answer = wrapped(session, data[1:])
            return code, bytes((GROUP,)) + answer
        return wrapper

    @group.command(0x01, 'Get DCMI Capabilities Info', _LEVEL.USER, 2)
    def get_capabilities(self, session: channel.Session, data: bytes) -> bytes:
        """Get DCMI Capabilities Info (6.1)."""
        completion.refuse_if(data[0] not in CAPABILITIES, _CODE.INVALID_FIELD)
        return _VERSION + bytes((_REVISION,)) + CAPABILITIES[data[0]]

    @group.command(0x06, 'Get Asset Tag', _LEVEL.USER, 3)
    def get_asset_tag(self, session: channel.Session, data: bytes) -> bytes:
        """Get Asset Tag (6.4.1): Redfish's ``AssetTag``, up to 63 bytes."""
        tag = parts.printable(self._bmc.machine().asset_tag())
        mark = b'' if tag.isascii() else _BOM
        return _part(mark + parts.cut(tag, TAG_MAX - len(mark)), data)

    @group.command(0x08, 'Set Asset Tag', _LEVEL.OPERATOR, 3, modifies=True)
    def set_asset_tag(self, session: channel.Session, data: bytes) -> bytes:
        """Set Asset Tag (6.4.2). Each part is applied at once.

        NULs at the end are ignored: FreeIPMI writes 63 to remove the tag.
        """
        text = _add(self._tag, session, data, TAG_MAX)
        self._bmc.machine().set_asset_tag(
            parts.decode(text.removeprefix(_BOM).rstrip(b'\0'), final=False))
        return bytes((len(text),))

    @group.command(0x09, 'Get Management Controller Identifier String',
                   _LEVEL.USER, 3)
    def get_identifier(self, session: channel.Session, data: bytes) -> bytes:
        """Get Management Controller Identifier String (6.6).

        Until a client has set it, it is the VM's namespace and name.
        """
        machine = self._bmc.machine()
        name = machine.controller_name() or machine.qualified_name
        return _part(parts.cut(parts.printable(name), IDENTIFIER_MAX) + b'\0',
                     data)

    @group.command(0x0A, 'Set Management Controller Identifier String',
                   _LEVEL.ADMINISTRATOR, 3, modifies=True)
    def set_identifier(self, session: channel.Session, data: bytes) -> bytes:
        """Set Management Controller Identifier String (6.7).

        The NUL at the end completes it.
        """
        text = _add(self._identifier, session, data, IDENTIFIER_MAX + 1)
        name, end, _rest = text.partition(b'\0')
        if end:
            self._bmc.machine().set_controller_name(
                parts.decode(name, final=False))
        elif len(text) > IDENTIFIER_MAX:
            raise completion.RequestError(_CODE.OUT_OF_RANGE)
        return bytes((len(text),))
