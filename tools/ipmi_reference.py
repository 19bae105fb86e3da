# SPDX-License-Identifier: Apache-2.0
"""Generate the table of all IPMI commands and how a BMC answers each.

Prints doc/source/reference/ipmi_commands.rst::

    python -m tools.ipmi_reference > doc/source/reference/ipmi_commands.rst
"""

import dataclasses
import pathlib
import sys

from vbmc_kubevirt import bmc
from vbmc_kubevirt import command_table
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / 'doc/source/reference/ipmi_commands.rst'

#: Privilege levels of table G-1. NONE: no session needed; SYSTEM: only by the
#: system interface, which a BMC in a pod does not have.
NONE, SYSTEM = 'none', 'system interface'
CALLBACK, USER, OPERATOR, ADMINISTRATOR = (
    level.name for level in constants.Privilege)
_C, _U, _O, _A = CALLBACK, USER, OPERATOR, ADMINISTRATOR

SERVED = 'served'
UNSUPPORTED, DENIED = (f'{code:02X}h' for code in (
    constants.Completion.INVALID_COMMAND, constants.Completion.ACCESS_DENIED))


@dataclasses.dataclass(frozen=True)
class Group:
    """A group of commands.

    :param title: its name in table G-1
    :param netfn: network function of its requests
    :param commands: tuple of (number, name, privilege level)
    :param remark: why commands of it are not served, a sentence; '' if all are
    """

    title: str
    netfn: int
    commands: tuple
    remark: str = ''


_APP, _CHASSIS, _SENSOR, _STORAGE, _TRANSPORT, _BRIDGE, _GROUP = (
    0x06, 0x00, 0x04, 0x0A, 0x0C, 0x02, 0x2C)

#: Table G-1, and the commands of DCMI 1.5 (table 6-1), which have the group
#: extension DCh.
GROUPS = (
    Group('IPM device "global" commands', _APP, (
        (0x01, 'Get Device ID', _U),
        (0x02, 'Cold Reset', _A),
        (0x03, 'Warm Reset', _A),
        (0x04, 'Get Self Test Results', _U),
        (0x05, 'Manufacturing Test On', _A),
        (0x06, 'Set ACPI Power State', _A),
        (0x07, 'Get ACPI Power State', _U),
        (0x08, 'Get Device GUID', _U),
        (0x09, 'Get NetFn Support', _U),
        (0x0A, 'Get Command Support', _U),
        (0x0B, 'Get Command Sub-function Support', _U),
        (0x0C, 'Get Configurable Commands', _U),
        (0x0D, 'Get Configurable Command Sub-functions', _U),
        (0x60, 'Set Command Enables', _A),
        (0x61, 'Get Command Enables', _U),
        (0x62, 'Set Command Sub-function Enables', _A),
        (0x63, 'Get Command Sub-function Enables', _U),
        (0x64, 'Get OEM NetFn IANA Support', _U),
    ), 'There is no firmware firewall (section 21) and no manufacturing '
       'test.'),
    Group('BMC watchdog timer commands', _APP, (
        (0x22, 'Reset Watchdog Timer', _O),
        (0x24, 'Set Watchdog Timer', _O),
        (0x25, 'Get Watchdog Timer', _U),
    )),
    Group('BMC device and messaging commands', _APP, (
        (0x2E, 'Set BMC Global Enables', SYSTEM),
        (0x2F, 'Get BMC Global Enables', _U),
        (0x30, 'Clear Message Flags', SYSTEM),
        (0x31, 'Get Message Flags', SYSTEM),
        (0x32, 'Enable Message Channel Receive', SYSTEM),
        (0x33, 'Get Message', SYSTEM),
        (0x34, 'Send Message', _U),
        (0x35, 'Read Event Message Buffer', SYSTEM),
        (0x36, 'Get BT Interface Capabilities', _U),
        (0x37, 'Get System GUID', NONE),
        (0x58, 'Set System Info Parameters', _A),
        (0x59, 'Get System Info Parameters', _U),
        (0x38, 'Get Channel Authentication Capabilities', NONE),
        (0x39, 'Get Session Challenge', NONE),
        (0x3A, 'Activate Session', NONE),
        (0x3B, 'Set Session Privilege Level', _U),
        (0x3C, 'Close Session', _C),
        (0x3D, 'Get Session Info', _U),
        (0x3F, 'Get AuthCode', _O),
        (0x40, 'Set Channel Access', _A),
        (0x41, 'Get Channel Access', _U),
        (0x42, 'Get Channel Info', _U),
        (0x43, 'Set User Access', _A),
        (0x44, 'Get User Access', _O),
        (0x45, 'Set User Name', _A),
        (0x46, 'Get User Name', _O),
        (0x47, 'Set User Password', _A),
        (0x48, 'Activate Payload', _U),
        (0x49, 'Deactivate Payload', _U),
        (0x4A, 'Get Payload Activation Status', _U),
        (0x4B, 'Get Payload Instance Info', _U),
        (0x4C, 'Set User Payload Access', _A),
        (0x4D, 'Get User Payload Access', _O),
        (0x4E, 'Get Channel Payload Support', _U),
        (0x4F, 'Get Channel Payload Version', _U),
        (0x50, 'Get Channel OEM Payload Info', _U),
        (0x52, 'Master Write-Read', _O),
        (0x54, 'Get Channel Cipher Suites', NONE),
        (0x55, 'Suspend/Resume Payload Encryption', _U),
        (0x56, 'Set Channel Security Keys', _A),
        (0x57, 'Get System Interface Capabilities', _U),
    ), 'There is no system interface, no bus behind the BMC and no other '
       'channel than the LAN. Get AuthCode would let clients test hashes of '
       'passwords.'),
    Group('Chassis device commands', _CHASSIS, (
        (0x00, 'Get Chassis Capabilities', _U),
        (0x01, 'Get Chassis Status', _U),
        (0x02, 'Chassis Control', _O),
        (0x03, 'Chassis Reset', _O),
        (0x04, 'Chassis Identify', _O),
        (0x05, 'Set Chassis Capabilities', _A),
        (0x06, 'Set Power Restore Policy', _O),
        (0x07, 'Get System Restart Cause', _U),
        (0x08, 'Set System Boot Options', _O),
        (0x09, 'Get System Boot Options', _O),
        (0x0A, 'Set Front Panel Button Enables', _A),
        (0x0B, 'Set Power Cycle Interval', _A),
        (0x0F, 'Get POH Counter', _U),
    ), 'Chassis Reset is superseded by Chassis Control.'),
    Group('Event commands', _SENSOR, (
        (0x00, 'Set Event Receiver', _A),
        (0x01, 'Get Event Receiver', _U),
        (0x02, 'Platform Event', _O),
    ), 'The BMC is itself the event receiver.'),
    Group('PEF and alerting commands', _SENSOR, (
        (0x10, 'Get PEF Capabilities', _U),
        (0x11, 'Arm PEF Postpone Timer', _A),
        (0x12, 'Set PEF Configuration Parameters', _A),
        (0x13, 'Get PEF Configuration Parameters', _O),
        (0x14, 'Set Last Processed Event ID', _A),
        (0x15, 'Get Last Processed Event ID', _A),
        (0x16, 'Alert Immediate', _A),
        (0x17, 'PET Acknowledge', NONE),
    ), 'There is no platform event filtering; Redfish has event '
       'subscriptions.'),
    Group('Sensor device commands', _SENSOR, (
        (0x20, 'Get Device SDR Info', _U),
        (0x21, 'Get Device SDR', _U),
        (0x22, 'Reserve Device SDR Repository', _U),
        (0x23, 'Get Sensor Reading Factors', _U),
        (0x24, 'Set Sensor Hysteresis', _O),
        (0x25, 'Get Sensor Hysteresis', _U),
        (0x26, 'Set Sensor Threshold', _O),
        (0x27, 'Get Sensor Threshold', _U),
        (0x28, 'Set Sensor Event Enable', _O),
        (0x29, 'Get Sensor Event Enable', _U),
        (0x2A, 'Re-arm Sensor Events', _O),
        (0x2B, 'Get Sensor Event Status', _U),
        (0x2D, 'Get Sensor Reading', _U),
        (0x2E, 'Set Sensor Type', _O),
        (0x2F, 'Get Sensor Type', _U),
        (0x30, 'Set Sensor Reading And Event Status', _O),
    ), 'Sensors show facts about the VM and cannot be configured.'),
    Group('FRU device commands', _STORAGE, (
        (0x10, 'Get FRU Inventory Area Info', _U),
        (0x11, 'Read FRU Data', _U),
        (0x12, 'Write FRU Data', _O),
    ), 'Of the inventory, the asset tag can be written.'),
    Group('SDR device commands', _STORAGE, (
        (0x20, 'Get SDR Repository Info', _U),
        (0x21, 'Get SDR Repository Allocation Info', _U),
        (0x22, 'Reserve SDR Repository', _U),
        (0x23, 'Get SDR', _U),
        (0x24, 'Add SDR', _O),
        (0x25, 'Partial Add SDR', _O),
        (0x26, 'Delete SDR', _O),
        (0x27, 'Clear SDR Repository', _O),
        (0x28, 'Get SDR Repository Time', _U),
        (0x29, 'Set SDR Repository Time', _O),
        (0x2A, 'Enter SDR Repository Update Mode', _O),
        (0x2B, 'Exit SDR Repository Update Mode', _O),
        (0x2C, 'Run Initialization Agent', _O),
    ), 'The repository is the same for all VMs and cannot be changed.'),
    Group('SEL device commands', _STORAGE, (
        (0x40, 'Get SEL Info', _U),
        (0x41, 'Get SEL Allocation Info', _U),
        (0x42, 'Reserve SEL', _U),
        (0x43, 'Get SEL Entry', _U),
        (0x44, 'Add SEL Entry', _O),
        (0x45, 'Partial Add SEL Entry', _O),
        (0x46, 'Delete SEL Entry', _O),
        (0x47, 'Clear SEL', _O),
        (0x48, 'Get SEL Time', _U),
        (0x49, 'Set SEL Time', _O),
        (0x5A, 'Get Auxiliary Log Status', _U),
        (0x5B, 'Set Auxiliary Log Status', _A),
        (0x5C, 'Get SEL Time UTC Offset', _U),
        (0x5D, 'Set SEL Time UTC Offset', _O),
    ), 'Entries are Events of the cluster, which keeps them whole; there is '
       'no auxiliary log.'),
    Group('LAN device commands', _TRANSPORT, (
        (0x01, 'Set LAN Configuration Parameters', _A),
        (0x02, 'Get LAN Configuration Parameters', _O),
        (0x03, 'Suspend BMC ARPs', _A),
        (0x04, 'Get IP/UDP/RMCP Statistics', _U),
    ), 'The kernel answers ARP requests and counts packets.'),
    Group('Serial/modem device commands', _TRANSPORT, (
        (0x10, 'Set Serial/Modem Configuration', _A),
        (0x11, 'Get Serial/Modem Configuration', _O),
        (0x12, 'Set Serial/Modem Mux', _O),
        (0x13, 'Get TAP Response Codes', _U),
        (0x14, 'Set PPP UDP Proxy Transmit Data', SYSTEM),
        (0x15, 'Get PPP UDP Proxy Transmit Data', SYSTEM),
        (0x16, 'Send PPP UDP Proxy Packet', SYSTEM),
        (0x17, 'Get PPP UDP Proxy Receive Data', SYSTEM),
        (0x18, 'Serial/Modem Connection Active', NONE),
        (0x19, 'Callback', _A),
        (0x1A, 'Set User Callback Options', _A),
        (0x1B, 'Get User Callback Options', _U),
        (0x1C, 'Set Serial Routing Mux', _A),
    ), 'There is no serial channel and no modem.'),
    Group('SOL commands', _TRANSPORT, (
        (0x20, 'SOL Activating', NONE),
        (0x21, 'Set SOL Configuration Parameters', _A),
        (0x22, 'Get SOL Configuration Parameters', _U),
    ), 'A BMC sends SOL Activating on a serial channel; it is not received.'),
    Group('Command forwarding commands', _TRANSPORT, (
        (0x30, 'Forwarded Command', NONE),
        (0x31, 'Set Forwarded Commands', _A),
        (0x32, 'Get Forwarded Commands', _U),
        (0x33, 'Enable Forwarded Commands', _A),
    ), 'There is nothing to forward commands to.'),
    Group('Bridge management, discovery and event commands (ICMB)', _BRIDGE, (
        (0x00, 'Get Bridge State', _U),
        (0x01, 'Set Bridge State', _O),
        (0x02, 'Get ICMB Address', _U),
        (0x03, 'Set ICMB Address', _O),
        (0x04, 'Set Bridge Proxy Address', _O),
        (0x05, 'Get Bridge Statistics', _U),
        (0x06, 'Get ICMB Capabilities', _U),
        (0x08, 'Clear Bridge Statistics', _O),
        (0x09, 'Get Bridge Proxy Address', _U),
        (0x0A, 'Get ICMB Connector Info', _U),
        (0x0B, 'Get ICMB Connection ID', _U),
        (0x0C, 'Send ICMB Connection ID', _U),
        (0x10, 'Prepare For Discovery', _O),
        (0x11, 'Get Addresses', _U),
        (0x12, 'Set Discovered', _O),
        (0x13, 'Get Chassis Device ID', _U),
        (0x14, 'Set Chassis Device ID', _O),
        (0x20, 'Bridge Request', _O),
        (0x21, 'Bridge Message', _O),
        (0x30, 'Get Event Count', _U),
        (0x31, 'Set Event Destination', _O),
        (0x32, 'Set Event Reception State', _O),
        (0x33, 'Send ICMB Event Message', _O),
        (0x34, 'Get Event Destination', _U),
        (0x35, 'Get Event Reception State', _U),
        (0xFF, 'Error Report', NONE),
    ), 'There is no bus between chassis.'),
    Group('DCMI commands', _GROUP, (
        (0x01, 'Get DCMI Capabilities Info', _U),
        (0x02, 'Get Power Reading', _U),
        (0x03, 'Get Power Limit', _U),
        (0x04, 'Set Power Limit', _O),
        (0x05, 'Activate/Deactivate Power Limit', _O),
        (0x06, 'Get Asset Tag', _U),
        (0x07, 'Get DCMI Sensor Info', _U),
        (0x08, 'Set Asset Tag', _O),
        (0x09, 'Get Management Controller Identifier String', _U),
        (0x0A, 'Set Management Controller Identifier String', _A),
        (0x0B, 'Set Thermal Limit', _O),
        (0x0C, 'Get Thermal Limit', _U),
        (0x10, 'Get Temperature Readings', _U),
        (0x12, 'Set DCMI Configuration Parameters', _A),
        (0x13, 'Get DCMI Configuration Parameters', _U),
    ), 'KubeVirt reports neither power nor temperature. The cluster '
       'configures the network.'),
)

_HEAD = '''\
.. Generated by tools/ipmi_reference.py from the code; do not edit.

=================
All IPMI commands
=================

The commands of appendix G (table G-1) and of DCMI 1.5, the privilege level
that each needs, and how a BMC answers: *served*, or with a completion code.
C1h says that the command is not supported, D4h that it may only come from the
system interface, which a BMC without a host bus does not have. Without a
session, other commands than those of level *none* are not answered at all.
:doc:`ipmi` describes the answers of the commands that are served.
'''


def answers():
    """List how a BMC answers commands that it does not treat as unknown.

    :returns: dict of (network function, command) to `SERVED` or `DENIED`
    """
    answers = dict.fromkeys(channel.NAMES, SERVED)
    commands = bmc.Bmc(command_table.commands, None, 'vm', 'lab/vm', None,
                       None, None).commands
    for code, command in commands.items():
        answers[code] = (DENIED if command.privilege == constants.NEVER
                         else SERVED)
    return answers


def page():
    """Generate the page.

    :returns: text, in reStructuredText
    """
    known = answers()
    lines = [_HEAD]
    widths = (48, 7, 16, 6)
    rule = ' '.join('=' * width for width in widths)
    for group in GROUPS:
        lines += [group.title, '=' * len(group.title), '']
        rows = [('Command', 'NetFn', 'Level', 'Answer')] + [
            (name, f'{group.netfn:02X} {number:02X}', level,
             known.get((group.netfn, number), UNSUPPORTED))
            for number, name, level in group.commands]
        rows = [' '.join(cell.ljust(width) for cell, width
                         in zip(row, widths)).rstrip() for row in rows]
        lines += [rule, rows[0], rule, *rows[1:], rule, '']
        if group.remark and any(SERVED not in row for row in rows[1:]):
            lines += _wrap(group.remark)
    return '\n'.join(lines).rstrip('\n') + '\n'


def _wrap(text):
    lines = ['']
    for word in text.split():
        if len(lines[-1]) + len(word) >= 79:
            lines.append('')
        lines[-1] += ' ' * bool(lines[-1]) + word
    return [*lines, '']


if __name__ == '__main__':
    sys.stdout.write(page())
