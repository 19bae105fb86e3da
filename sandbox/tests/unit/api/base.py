# SPDX-License-Identifier: Apache-2.0
"""A server of the API in the test's own process, with a kind for tests."""

from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.testing import server

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
    """The kind that the tests use."""
    return kinds.Kind('example.test', 'v1', 'Thing', 'things', 'thing',
                      ('th',), schema=SCHEMA, status=True, crd=True,
                      columns=(kinds.Column('Size', 'integer',
                                            '.spec.size'),),
                      selectable_fields=('spec.colour',), **more)


def make(name='a', **spec):
    """An object of it."""
    return {'apiVersion': 'example.test/v1', 'kind': 'Thing',
            'metadata': {'name': name, 'namespace': 'default'},
            'spec': {'size': 1, **spec}}


def cluster(kind=None, **options):
    """A server with the core kinds and one more; not started."""
    return server.cluster(kind or thing(), **options)


class ServerTestCase(server.ServerTestCase):
    """Tests that speak HTTP with a server that has `kind`."""

    THINGS = '/apis/example.test/v1/namespaces/default/things'

    def cluster(self):
        self.kind = thing()
        return cluster(self.kind, **self.options)
