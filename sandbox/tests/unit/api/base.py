# SPDX-License-Identifier: Apache-2.0
"""Test case with an API server in its own process and a custom kind."""

from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.testing import server

#: Media types of Accept and Content-Type headers.
TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io'
MERGE = 'application/merge-patch+json'
JSON_PATCH = 'application/json-patch+json'
APPLY = 'application/apply-patch+yaml'

SCHEMA = {'type': 'object', 'properties': {
    'spec': {'type': 'object', 'required': ['size'], 'properties': {
        'size': {'type': 'integer', 'minimum': 1, 'maximum': 100},
        'colour': {'type': 'string', 'enum': ['red', 'green'],
                   'default': 'red'},
        'ports': {'type': 'array', 'x-kubernetes-list-type': 'map',
                  'x-kubernetes-list-map-keys': ['name'], 'items': {
                      'type': 'object', 'required': ['name'], 'properties': {
                          'name': {'type': 'string'},
                          'number': {'type': 'integer'}}}},
        'tags': {'type': 'array', 'x-kubernetes-list-type': 'set',
                 'items': {'type': 'string'}},
        'order': {'type': 'array', 'items': {'type': 'string'}},
        'free': {'type': 'object',
                 'x-kubernetes-preserve-unknown-fields': True}}},
    'status': {'type': 'object', 'properties': {
        'phase': {'type': 'string'}}}}}


def thing(**more):
    """Return the custom kind Thing."""
    return kinds.Kind('example.test', 'v1', 'Thing', 'things', 'thing',
                      ('th',), schema=SCHEMA, status=True, crd=True,
                      columns=(kinds.Column('Size', 'integer',
                                            '.spec.size'),),
                      selectable_fields=('spec.colour',), **more)


def make(name='a', **spec):
    """Return a Thing."""
    return {'apiVersion': 'example.test/v1', 'kind': 'Thing',
            'metadata': {'name': name, 'namespace': 'default'},
            'spec': {'size': 1, **spec}}


def cluster(kind=None, **options):
    """Return a server, not started, with the core kinds and one more."""
    return server.cluster(kind or thing(), **options)


class ServerTestCase(server.ServerTestCase):
    """Test case that sends HTTP requests to a server with `kind`."""

    THINGS = '/apis/example.test/v1/namespaces/default/things'

    def cluster(self):
        self.kind = thing()
        return cluster(self.kind, **self.options)
