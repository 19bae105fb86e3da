# SPDX-License-Identifier: Apache-2.0
"""Schemas of pods and Services have the fields of Kubernetes' client."""

import re

from kubernetes.client import models
from oslotest import base

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import pod_schemas
from kubevirt_sandbox.api import services
from kubevirt_sandbox.workloads import workload_kinds

#: Ends of the paths of fields that are new in Kubernetes 1.37.
NEW_IN_1_37 = (
    'spec.evictionResponders', 'spec.schedulingGroup', '.bindMountOptions',
    'grpc.mode', 'httpGet.protocol', 'items[].user', '.defaultUser',
    'emptyDir.mode', 'serviceAccountToken.user')


def differences(schema, model, path=''):
    """List fields that only the schema or only the model has, and wrong types.

    :param model: name of a class of the client.
    """
    found = []
    types = getattr(models, model).openapi_types
    names = getattr(models, model).attribute_map
    theirs = {names[key]: kind for key, kind in types.items()}
    ours = schema.get('properties', {})
    for name in ours.keys() ^ theirs.keys():
        if not f'{path}.{name}'.endswith(NEW_IN_1_37):
            found.append((path, name))
    for name in ours.keys() & theirs.keys():
        found += _differences(ours[name], theirs[name], f'{path}.{name}')
    return found


def _differences(schema, kind, path):
    if schema.get('x-kubernetes-preserve-unknown-fields'):
        return []
    many = re.fullmatch(r'List\[(.*)\]', kind)
    if many:
        if schema.get('type') != 'array':
            return [(path, 'no list')]
        return _differences(schema['items'], many[1], path + '[]')
    if kind.startswith('Dict['):
        return [] if 'additionalProperties' in schema else [(path, 'no map')]
    simple = {'str': 'string', 'int': 'integer', 'bool': 'boolean',
              'datetime': 'string'}
    if kind in simple:
        if schema.get('format') == 'quantity':
            return []
        return [] if schema.get('type') == simple[kind] else [
            (path, kind, schema.get('type'))]
    if kind == 'object':
        return []
    return differences(schema, kind, path)


class PodSchemasTestCase(base.BaseTestCase):

    def test_pods_have_the_fields_of_kubernetes(self):
        self.assertEqual([], differences(pod_schemas.SPEC, 'V1PodSpec',
                                         'spec'))

    def test_services_have_the_fields_of_kubernetes(self):
        spec = services.SCHEMA['properties']['spec']
        self.assertEqual([], differences(spec, 'V1ServiceSpec'))

    def test_workloads_have_the_fields_of_kubernetes(self):
        for kind, model in ((workload_kinds.DEPLOYMENT, 'V1DeploymentSpec'),
                            (workload_kinds.REPLICA_SET, 'V1ReplicaSetSpec')):
            spec = dict(kind.schema['properties']['spec'])
            spec['properties'] = {
                **spec['properties'], 'template': {
                    'x-kubernetes-preserve-unknown-fields': True}}
            with self.subTest(kind.kind):
                self.assertEqual([], differences(spec, model))

    def test_default_image_pull_policy(self):
        for image, wanted in (
                ('a', 'Always'), ('a:latest', 'Always'),
                ('r.test:5000/a', 'Always'), ('a:1', 'IfNotPresent'),
                ('r.test:5000/a:1', 'IfNotPresent'),
                ('a@sha256:00', 'IfNotPresent')):
            with self.subTest(image):
                spec = {'containers': [{'image': image}]}
                core.complete_containers(spec)
                self.assertEqual(
                    wanted, spec['containers'][0]['imagePullPolicy'])
