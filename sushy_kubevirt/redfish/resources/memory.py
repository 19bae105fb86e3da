# SPDX-License-Identifier: Apache-2.0
"""Memory v1.19: the guest's memory as one module.

KubeVirt reports only the total size. The memory modules in the guest's SMBIOS
depend on the QEMU release.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine

ID = 'RAM'

_MIB = 2 ** 20


def collection(machine: machine.Machine) -> responses.Json:
    """GET …/Memory"""
    # The size may be unknown while a VM with an instance type is off.
    ids = [ID] if machine.inventory().memory_bytes else []
    return responses.collection(
        'Memory', 'Memory Collection',
        resource_paths.system(machine, 'Memory'), ids)


def resource(machine: machine.Machine, memory_id: str) -> responses.Json:
    """GET …/Memory/<memory_id>

    :param memory_id: `ID`; 404 for others and if the size is unknown
    """
    size = machine.inventory().memory_bytes
    if memory_id != ID or not size:
        raise error_responses.resource_not_found('Memory', memory_id)
    return {
        '@odata.id': resource_paths.system(machine, 'Memory', ID),
        '@odata.type': '#Memory.v1_19_0.Memory',
        'Id': ID,
        'Name': 'Memory of the guest',
        'CapacityMiB': size // _MIB,
        'Status': resource_paths.STATUS_OK,
        'Links': {'Chassis': responses.link(resource_paths.chassis(machine))},
    }


_ROOT = resource_paths.SYSTEMS + '/<identity>/Memory'

ROUTES = (
    routing.add(_ROOT, collection, cached=True),
    routing.add(_ROOT + '/<memory_id>', resource, cached=True),
)
