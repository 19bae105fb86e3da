# SPDX-License-Identifier: Apache-2.0
"""Processor v1.18: one per socket of the VM.

At most `hardware.MAX_SOCKETS` are listed.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import hardware
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine


def collection(machine: machine.Machine) -> responses.Json:
    """GET …/Processors"""
    return responses.collection(
        'Processor', 'Processors Collection',
        resource_paths.system(machine, 'Processors'),
        hardware.socket_names(machine.inventory().cpus))


def resource(machine: machine.Machine, processor_id: str) -> responses.Json:
    """GET …/Processors/<processor_id>

    TotalCores and TotalThreads are those of one socket.
    """
    cpus = machine.inventory().cpus
    resource_paths.member('Processor', processor_id,
                          dict.fromkeys(hardware.socket_names(cpus)))
    body: responses.Json = {
        '@odata.id': resource_paths.system(
            machine, 'Processors', processor_id),
        '@odata.type': '#Processor.v1_18_0.Processor',
        'Id': processor_id,
        'Name': 'Processor',
        'Socket': processor_id,
        'ProcessorType': 'CPU',
        'TotalCores': cpus.cores,
        'TotalEnabledCores': cpus.cores,
        'TotalThreads': cpus.cores * cpus.threads,
        'Status': resource_paths.STATUS_OK,
        'Links': {'Chassis': responses.link(resource_paths.chassis(machine))},
    }
    if hardware.processor_model(cpus):
        body['Model'] = cpus.model
    if cpus.architecture in hardware.ARCHITECTURES:
        (body['ProcessorArchitecture'],
         body['InstructionSet']) = hardware.ARCHITECTURES[cpus.architecture]
    return body


ROUTES = (
    routing.replace('processors_collection', collection, cached=True),
    routing.replace('processor', resource, cached=True),
)
