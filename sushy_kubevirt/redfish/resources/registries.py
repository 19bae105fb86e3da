# SPDX-License-Identifier: Apache-2.0
"""MessageRegistryFile v1.1: registries of messages and BIOS attributes.

DMTF's registries are links to the copies that DMTF publishes. Registries of
this service are served here; a module declares them in ``REGISTRIES``, a tuple
of `routing.Registry`.
"""

from __future__ import annotations

import typing

import flask

from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing

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
            for module in routing.modules(application.current())
            for registry in getattr(module, 'REGISTRIES', ())}


def collection() -> flask.Response:
    """GET /redfish/v1/Registries"""
    return responses.collection(
        'MessageRegistryFileCollection', 'Registry File Collection', ROOT,
        [f'{ROOT}/{registry}'
         for registry in (*STANDARD.values(), *_own_registries())])


def resource(registry: str) -> flask.Response:
    """GET /redfish/v1/Registries/<registry>: location of the registry"""
    here = f'{ROOT}/{registry}'
    for prefix, release in STANDARD.items():
        if release == registry:
            name = prefix.partition('.')[0] + ' Message Registry'
            location = {'PublicationUri': f'{PUBLISHED}{release}.json'}
            break
    else:
        own = _own_registries().get(registry)
        if own is None:
            raise error_responses.resource_not_found(
                'MessageRegistryFile', registry)
        prefix, name = own.prefix, own.name
        location = {'Uri': here + '/Registry'}
    return responses.resource({
        '@odata.id': here,
        '@odata.type': '#MessageRegistryFile.v1_1_5.MessageRegistryFile',
        'Id': registry,
        'Name': name + ' File',
        'Registry': prefix,
        'Languages': ['en'],
        'Location': [{'Language': 'en', **location}],
    })


def document(registry: str) -> flask.Response:
    """GET /redfish/v1/Registries/<registry>/Registry

    The text of a registry of this service; 404 for DMTF's.
    """
    own = _own_registries().get(registry)
    if own is None:
        raise error_responses.uri_not_found()
    return responses.resource(own.document())


def not_served() -> typing.NoReturn:
    """Answer 404 for sushy-emulator's registries, those of other machines."""
    raise error_responses.uri_not_found()


ROOT_LINKS = {'Registries': ROOT}

ROUTES = (
    routing.replace('registry_file_collection', collection),
    routing.add(ROOT + '/<registry>', resource),
    routing.add(ROOT + '/<registry>/Registry', document),
    routing.replace('bios_attribute_registry_file', not_served),
    routing.replace('message_registry_file', not_served),
    routing.replace('bios_registry', not_served),
    routing.replace('message_registry', not_served),
)
