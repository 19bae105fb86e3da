# SPDX-License-Identifier: Apache-2.0
"""The Id that a system, its manager and its chassis have in URIs.

Usually the machine's UUID. A service for one VM, as the pod of a BMC, uses
``1``: gofish, bmclib and scripts for hardware know ``Systems/1``,
``Managers/1`` and ``Chassis/1`` by heart, and compare them with the members
of the collections. The UUID is then an alias.
"""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine as machine_

SYSTEMS = '/redfish/v1/Systems'

#: Id of the only machine.
ONLY = '1'


def of(machine: machine_.Machine) -> str:
    """Return the Id of a machine's system, manager and chassis."""
    return machine.uuid if machine.cluster.vm is None else ONLY


def system_path(machine: machine_.Machine) -> str:
    """Return the path of a machine's ComputerSystem."""
    return f'{SYSTEMS}/{of(machine)}'
