# SPDX-License-Identifier: Apache-2.0
"""The sensors of a BMC: facts about the VM, and what entries of the log name.

All are discrete. KubeVirt's objects report states but no measurements, so no
sensor has a number or thresholds. Sensor types and offsets are those of table
42-3, generic offsets those of table 42-2, entity ids those of table 43-13.
"""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import power_state
from vbmc_kubevirt.commands import chassis

if typing.TYPE_CHECKING:
    from vbmc_kubevirt import bmc

#: Event/reading type codes (table 42-1): offsets of the sensor type itself,
#: and of severities.
SPECIFIC, SEVERITY = 0x6F, 0x07

#: Offsets of `SEVERITY`.
OK, NON_CRITICAL, CRITICAL, INFORMATIONAL = 0, 1, 2, 8

#: Largest length of a sensor's name (table 43-2), in characters.
NAME_MAX = 16

# Entity ids.
_DISK, _BAY, _BMC, _BOARD = 0x04, 0x05, 0x06, 0x07
_POWER_UNIT, _CHASSIS, _OPERATING_SYSTEM = 0x13, 0x17, 0x23

# Offsets, named as in table 42-3.
POWER_OFF, POWER_CONTROL_FAILURE = 0, 5
S0_WORKING, S5_SOFT_OFF, G1_SLEEPING, ACPI_UNKNOWN = 0, 5, 9, 14
FAULT, INSTALLED = 0, 2
DRIVE_FAULT = 1
ACCESS_DEGRADED = 1
PRESENT, ABSENT = 0, 1
INITIATED_BY_POWER_UP, REQUESTED_PXE_BOOT = 0, 3
OUT_OF_BAND_PASSWORD = 5

#: Sensor type Base OS Boot: offset for each device.
_BOOTED = {boot.Target.PXE: 2, boot.Target.HDD: 1,
           boot.Target.USB: 1, boot.Target.CD: 4, boot.Target.UEFI_HTTP: 4}


class Sensor(typing.NamedTuple):
    """A sensor.

    :param number: its number
    :param name: at most `NAME_MAX` characters
    :param type: sensor type
    :param entity: entity id
    :param offsets: offsets that may be set
    :param read: returns the offsets that are set now, without an API call;
        None for a sensor that only appears in entries of the log
    :param reading_type: event/reading type code
    """

    number: int
    name: str
    type: int
    entity: int
    offsets: tuple[int, ...]
    read: abc.Callable[[bmc.Bmc], abc.Iterable[int]] | None = None
    reading_type: int = SPECIFIC


def _power(bmc: bmc.Bmc) -> abc.Iterator[int]:
    machine = bmc.machine()
    if machine.power_state() not in chassis.POWERED:
        yield POWER_OFF
    if machine.problem() is not None:
        yield POWER_CONTROL_FAILURE


def _acpi(bmc: bmc.Bmc) -> abc.Iterator[int]:
    machine = bmc.machine()
    state = machine.power_state()
    if machine.node_lost():
        yield ACPI_UNKNOWN
    elif state is power_state.PowerState.PAUSED:
        yield G1_SLEEPING
    else:
        yield S0_WORKING if state in chassis.POWERED else S5_SOFT_OFF


def _os_boot(bmc: bmc.Bmc) -> abc.Iterator[int]:
    target = bmc.machine().booted_from()
    if target in _BOOTED:
        yield _BOOTED[target]


def _watchdog(bmc: bmc.Bmc) -> tuple[int, ...]:
    return bmc.watchdog_events()


def _medium(device: media.Device
            ) -> abc.Callable[[bmc.Bmc], abc.Iterator[int]]:
    def read(bmc: bmc.Bmc) -> abc.Iterator[int]:
        medium = bmc.machine().medium(device.id)
        if medium is not None:
            yield (FAULT if medium.state is media.State.FAILED
                   else INSTALLED)
    return read


def _node(bmc: bmc.Bmc) -> abc.Iterator[int]:
    if bmc.machine().node_lost():
        yield ACCESS_DEGRADED


def _disks(bmc: bmc.Bmc) -> abc.Iterator[int]:
    if chassis.drive_fault(bmc.machine()):
        yield DRIVE_FAULT


POWER = Sensor(1, 'Power', 0x09, _POWER_UNIT,
               (POWER_OFF, POWER_CONTROL_FAILURE), _power)
ACPI = Sensor(2, 'ACPI State', 0x22, _BOARD,
              (S0_WORKING, S5_SOFT_OFF, G1_SLEEPING, ACPI_UNKNOWN), _acpi)
OS_BOOT = Sensor(3, 'OS Boot', 0x1F, _OPERATING_SYSTEM, (1, 2, 4),
                 _os_boot)
WATCHDOG = Sensor(4, 'Watchdog', 0x23, _BMC, (0, 1, 2, 3, 8), _watchdog)
CD = Sensor(5, 'CD', 0x21, _BAY, (FAULT, INSTALLED), _medium(media.CD))
USB_STICK = Sensor(6, 'USB Stick', 0x21, _BAY, (FAULT, INSTALLED),
                   _medium(media.USB_STICK))
NODE = Sensor(7, 'Node', 0x28, _CHASSIS, (ACCESS_DEGRADED,), _node)

DISKS = Sensor(8, 'Disks', 0x0D, _DISK, (DRIVE_FAULT,), _disks)

#: Sensors with a state.
READABLE = (POWER, ACPI, OS_BOOT, WATCHDOG, CD, USB_STICK, NODE, DISKS)

VM = Sensor(0x21, 'VM', 0x25, _BOARD, (PRESENT, ABSENT))
LOGIN = Sensor(0x22, 'Redfish Login', 0x06, _BMC, (OUT_OF_BAND_PASSWORD,))
RESTART = Sensor(0x23, 'Boot', 0x1D, _BOARD,
                 (INITIATED_BY_POWER_UP, REQUESTED_PXE_BOOT))
HTTP_BOOT = Sensor(0x24, 'HTTP Boot', 0x21, _BAY, (FAULT, INSTALLED))


def _severity(number: int, name: str, type_: int = 0x12,
              entity: int = _BOARD) -> Sensor:
    return Sensor(number, name[:NAME_MAX], type_, entity,
                  (OK, NON_CRITICAL, CRITICAL, INFORMATIONAL),
                  reading_type=SEVERITY)


# FreeIPMI rates entries by tables that lack some combinations of sensor type
# and reading type, and that mostly ignore whether a state ended
# (libfreeipmi/interpret/ipmi-interpret-config-sel.c of 1.6.10). These have
# types with which it rates a severity as what it is.
BMC = _severity(0x20, 'BMC', 0x28, _BMC)
POWER_CHANGE = _severity(0x25, 'Power Change', 0x09, _POWER_UNIT)
BOOT_SET = _severity(0x26, 'Next Boot Set')
BOOT_USED = _severity(0x27, 'Next Boot Used')
BOOT_REMOVED = _severity(0x28, 'Next Boot Unset')
IMPORTED = _severity(0x29, 'Image Imported', 0x21, _BAY)
TASK = _severity(0x2A, 'Image Task', 0x12, _BAY)
EVENT = _severity(0x2B, 'Event')
KUBERNETES = _severity(0x2C, 'Kubernetes')

#: Reasons of Events of KubeVirt (staging/src/kubevirt.io/api/core/v1/types.go,
#: pkg/virt-controller/watch), CDI (pkg/controller) and the kubelet
#: (pkg/kubelet/events). Each is the name of a sensor, the only text that
#: clients show for an entry. New ones are added at the end, as numbers must
#: not change.
REASONS = {reason: _severity(0x40 + number, reason) for number, reason in
           enumerate((
               'SuccessfulCreate', 'SuccessfulDelete', 'FailedCreate',
               'FailedDelete', 'Created', 'Deleted', 'Started', 'Stopped',
               'ShuttingDown', 'Resumed', 'SyncFailed', 'PreparingTarget',
               'Migrating', 'Migrated', 'FailedScheduling',
               'FailedPvcNotFound', 'RestartRequired', 'NodeUnresponsive',
               'Pending', 'ImportScheduled', 'ImportInProgress',
               'ImportSucceeded', 'ImportFailed', 'UploadScheduled',
               'UploadReady', 'UploadSucceeded', 'UploadFailed', 'Error',
               'IOerror', 'Failed', 'BackOff', 'InspectFailed', 'FailedMount',
               'FailedAttachVolume', 'FailedCreatePodSandBox'))}

#: Sensors that only appear in entries of the log.
EVENT_ONLY = (BMC, VM, LOGIN, RESTART, HTTP_BOOT, POWER_CHANGE, BOOT_SET,
              BOOT_USED, BOOT_REMOVED, IMPORTED, TASK, EVENT, KUBERNETES,
              *REASONS.values())

#: Readable sensors by number.
BY_NUMBER = {sensor.number: sensor for sensor in READABLE}


def bits(offsets: abc.Iterable[int]) -> int:
    """Return a bit mask of offsets."""
    return sum(1 << offset for offset in set(offsets))
