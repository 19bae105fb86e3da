# SPDX-License-Identifier: Apache-2.0
"""MessageRegistryFile v1.1: registries of messages and BIOS attributes.

DMTF's registries are links to the copies that DMTF publishes. Registries of
this service are served here; a module declares them in ``REGISTRIES``, a tuple
of `routing.Registry`.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import resource_paths

ROOT = '/redfish/v1/Registries'

#: Where DMTF publishes its registries.
PUBLISHED = 'https://redfish.dmtf.org/registries/'

#: DMTF's registries in use. Prefix of MessageIds: release of the registry.
STANDARD = {
    messages.REGISTRY: messages.REGISTRY + '.1',
    'ResourceEvent.1.3': 'ResourceEvent.1.3.0',
    'TaskEvent.1.0': 'TaskEvent.1.0.3',
}


def _own_registries() -> dict[str, routing.Registry]:
    return {registry.identity: registry
            for module in routing.current().modules
            for registry in getattr(module, 'REGISTRIES', ())}


def collection() -> responses.Json:
    """GET /redfish/v1/Registries"""
    return responses.collection(
        'MessageRegistryFile', 'Registry File Collection', ROOT,
        (*STANDARD.values(), *_own_registries()))


def resource(registry: str) -> responses.Json:
    """GET /redfish/v1/Registries/<registry>: location of the registry"""
    here = f'{ROOT}/{registry}'
    for prefix, release in STANDARD.items():
        if release == registry:
            name = prefix.partition('.')[0] + ' Message Registry'
            location = {'PublicationUri': f'{PUBLISHED}{release}.json'}
            break
    else:
        own = resource_paths.member('MessageRegistryFile', registry,
                                    _own_registries())
        prefix, name = own.prefix, own.name
        location = {'Uri': here + '/Registry'}
    return {
        '@odata.id': here,
        '@odata.type': '#MessageRegistryFile.v1_1_5.MessageRegistryFile',
        'Id': registry,
        'Name': name + ' File',
        'Registry': prefix,
        'Languages': ['en'],
        'Location': [{'Language': 'en', **location}],
    }


def document(registry: str) -> responses.Json:
    """GET /redfish/v1/Registries/<registry>/Registry

    The text of a registry of this service; 404 for DMTF's.
    """
    own = _own_registries().get(registry)
    if own is None:
        raise error_responses.uri_not_found()
    return own.document()


def not_served() -> typing.NoReturn:
    """Answer 404 for sushy-emulator's registries, those of other machines."""
    raise error_responses.uri_not_found()


ROOT_LINKS = {'Registries': ROOT}

ROUTES = (
    routing.replace('registry_file_collection', collection),
    routing.add(ROOT + '/<registry>', resource),
    routing.add(ROOT + '/<registry>/Registry', document),
    *(routing.replace(endpoint, not_served) for endpoint in (
        'bios_attribute_registry_file', 'message_registry_file',
        'bios_registry', 'message_registry')),
)
