# SPDX-License-Identifier: Apache-2.0
"""``tools/test --cluster`` prepares the cluster, or says what prevents it."""

from unittest import mock

import fixtures
import kubernetes
from oslotest import base

from tools.checks import cluster


class EnvironmentTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.apis = {}
        for name in ('config.new_client_from_config', 'client.CoreV1Api',
                     'client.RbacAuthorizationV1Api', 'client.ApisApi'):
            self.apis[name] = self.useFixture(fixtures.MockPatch(
                'kubernetes.' + name)).mock.return_value
        self.core = self.apis['client.CoreV1Api']
        self.rbac = self.apis['client.RbacAuthorizationV1Api']
        self.apis['client.ApisApi'].get_api_versions.return_value = mock.Mock(
            groups=[mock.Mock(), mock.Mock()])
        for group, name in zip(
                self.apis['client.ApisApi'].get_api_versions().groups,
                ('kubevirt.io', 'cdi.kubevirt.io'), strict=True):
            group.name = name
        kubernetes.config.new_client_from_config().call_api.return_value = (
            mock.Mock(status=404))
        namespace = mock.Mock()
        namespace.metadata.name = 'lab'
        self.core.list_namespace.return_value.items = [namespace]

    def prepare(self):
        with cluster.environment('config', 'lab') as env:
            return env

    def test_objects_are_deleted(self):
        self.assertEqual('lab', self.prepare()['KUBEVIRT_NAMESPACE'])
        self.core.delete_namespaced_service_account.assert_called_once_with(
            cluster.ACCOUNT, 'lab')
        self.rbac.delete_cluster_role_binding.assert_called_once_with(
            cluster.ACCOUNT)

    def test_objects_of_another_run(self):
        conflict = kubernetes.client.ApiException(409, 'Conflict')
        for create in (self.rbac.create_cluster_role_binding,
                       self.core.create_namespaced_service_account):
            create.side_effect = conflict
            error = self.assertRaises(cluster.Unusable, self.prepare)
            self.assertIn(
                'kubectl --kubeconfig config --namespace lab delete '
                '--ignore-not-found serviceaccount/sushy-kubevirt-tests '
                'clusterrolebinding/sushy-kubevirt-tests', str(error))
        # What another run uses stays.
        self.rbac.delete_cluster_role_binding.assert_not_called()
        self.core.delete_namespaced_service_account.assert_called_once()

    def test_other_errors(self):
        self.core.list_namespace.side_effect = kubernetes.client.ApiException(
            403, 'Forbidden')
        error = self.assertRaises(cluster.Unusable, self.prepare)
        self.assertIn('Forbidden', str(error))
        self.assertNotIn('delete', str(error))
