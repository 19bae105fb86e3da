# SPDX-License-Identifier: Apache-2.0
"""Processors: one a socket."""

from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import inventory as figures
from sushy_kubevirt.redfish.resources import system_parts


def collection(machine):
    """GET …/Processors"""
    return system_parts.collection(
        'Processor', 'Processors Collection',
        system_parts.system(machine, 'Processors'),
        figures.socket_names(machine.inventory().cpus))


def resource(machine, processor_id):
    """GET …/Processors/<processor_id>"""
    cpus = machine.inventory().cpus
    if processor_id not in figures.socket_names(cpus):
        raise errors.not_found('Processor', processor_id)
    body = {
        '@odata.id': system_parts.system(machine, 'Processors', processor_id),
        '@odata.type': '#Processor.v1_18_0.Processor',
        'Id': processor_id,
        'Name': 'Processor',
        'Socket': processor_id,
        'ProcessorType': 'CPU',
        'TotalCores': cpus.cores,
        'TotalEnabledCores': cpus.cores,
        'TotalThreads': cpus.cores * cpus.threads,
        'Status': system_parts.OK,
        'Links': {'Chassis': responses.link(system_parts.chassis(machine))},
    }
    if figures.model(cpus):
        body['Model'] = cpus.model
    if cpus.architecture in figures.ARCHITECTURES:
        (body['ProcessorArchitecture'],
         body['InstructionSet']) = figures.ARCHITECTURES[cpus.architecture]
    return responses.resource(body)


ROUTES = (
    routing.replace('processors_collection', collection),
    routing.replace('processor', resource),
)
