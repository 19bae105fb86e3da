# SPDX-License-Identifier: Apache-2.0
"""Tests leave a given cluster's own objects alone."""

import pathlib

import fixtures
from oslotest import base

from kubevirt_sandbox.testing import given_cluster

ROLE = '/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/a'

MANIFEST = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: a, namespace: default}
"""


class Response:

    def __init__(self, body):
        self.body, self.status_code = body, 200 if body else 404

    def json(self):
        return self.body

    def raise_for_status(self):
        pass


class Cluster(given_cluster.GivenCluster):
    """A given cluster with objects in memory."""

    def __init__(self):
        super().__init__()
        self.objects, self.asked = {}, []

    def _setUp(self):
        pass

    def request(self, method, where, body=None, **options):
        self.asked.append((method, where))
        if method == 'PATCH':
            manager = options['params']['fieldManager']
            # Who applies no field is no manager.
            applied = [{'manager': manager}] * (
                body['metadata'].keys() > {'name', 'namespace'})
            managers = self.objects.get(where, {'metadata': {
                'managedFields': []}})['metadata']['managedFields']
            self.objects[where] = {**body, 'metadata': {
                **body['metadata'],
                'managedFields': [*managers, *applied]}}
        found = Response(self.objects.get(where))
        if method == 'DELETE':
            self.objects.pop(where, None)
        return found


class GivenClusterTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'kubevirt_sandbox.testing.sandbox.NAMESPACE', 'default'))
        self.manifest = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'role.yaml'
        self.manifest.write_text(MANIFEST)

    def test_applied_objects_are_deleted(self):
        with Cluster() as cluster:
            # Twice in one test, and left by a test that was killed.
            cluster.apply(self.manifest)
            cluster.objects[ROLE]['metadata']['managedFields'].append(
                {'manager': 'kube-controller-manager',
                 'subresource': 'status'})
            cluster.apply(self.manifest)
            self.assertIn(ROLE, cluster.objects)
        self.assertEqual({}, cluster.objects)

    def test_objects_of_others_stay(self):
        for managers in ([{'manager': 'kubectl'}], [],
                         [{'manager': 'tests'}, {'manager': 'kubectl'}]):
            theirs = {'kind': 'Role', 'metadata': {
                'name': 'a', 'managedFields': managers}}
            with Cluster() as cluster:
                cluster.objects[ROLE] = theirs
                error = self.assertRaises(AssertionError, cluster.apply,
                                          self.manifest)
            self.assertIn(ROLE, str(error))
            self.assertIs(theirs, cluster.objects[ROLE])
            self.assertEqual({'GET'}, {method for method, _ in cluster.asked})
