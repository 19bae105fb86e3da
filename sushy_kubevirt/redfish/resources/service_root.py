# SPDX-License-Identifier: Apache-2.0
"""ServiceRoot v1.17 and the OData service document.

The links come from ``ROOT_LINKS`` of the modules; those that the feature set
does not serve are left out. Both documents can be read without login and
contain nothing confidential.
"""

from __future__ import annotations

from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import query_parameters
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import product

ROOT = '/redfish/v1/'

#: Version of DSP0266 that this service implements.
REDFISH_VERSION = '1.20.0'


def versions() -> responses.Json:
    """GET /redfish: the protocol versions

    The body has no other members (DSP0266, "Protocol version").
    """
    return {'v1': ROOT}


def resource() -> responses.Json:
    """GET /redfish/v1/: the service root"""
    app = application.current()
    body: responses.Json = {
        '@odata.id': ROOT,
        '@odata.type': '#ServiceRoot.v1_17_0.ServiceRoot',
        'Id': 'RootService',
        'Name': 'Root Service',
        'Description': 'BMCs of KubeVirt virtual machines',
        'RedfishVersion': REDFISH_VERSION,
        'UUID': app.systems.uuid_of_service,
        'Vendor': product.NAME,
        'Product': f'{product.NAME} {product.version()}',
        'ProtocolFeaturesSupported': {
            **query_parameters.FEATURES,
            'DeepOperations': {'DeepPATCH': False, 'DeepPOST': False},
            'MultipleHTTPRequests': True,
        },
    }
    for name, path in routing.current().root_links().items():
        above, _slash, last = name.rpartition('/')
        parent = body.setdefault(above, {}) if above else body
        parent[last] = responses.link(path)
    return body


def odata() -> responses.Json:
    """GET /redfish/v1/odata: the OData service document"""
    links = routing.current().root_links()
    return {
        '@odata.context': ROOT + '$metadata',
        'value': [{'name': 'Service', 'kind': 'Singleton', 'url': ROOT}] + [
            {'name': name.rpartition('/')[2], 'kind': 'Singleton',
             'url': path} for name, path in links.items()],
    }


ROUTES = (
    routing.add('/redfish', versions, feature='minimum'),
    routing.replace('root_resource', resource, 'minimum', cached=True),
    routing.add(ROOT + 'odata', odata, feature='minimum'),
)
