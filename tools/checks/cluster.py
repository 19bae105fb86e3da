# SPDX-License-Identifier: Apache-2.0
"""A given cluster for functional tests, ``tools/test --cluster``.

Tests use a token of an administrator's ServiceAccount, which is made for them
with the rights of the kubeconfig: those may be a certificate, or come from a
program.
"""

import contextlib
import http

import kubernetes

#: Name of the ServiceAccount and of its ClusterRoleBinding.
ACCOUNT = 'sushy-kubevirt-tests'

#: Container disk of the tests' VMs.
MEDIUM = 'quay.io/kubevirt/cirros-container-disk-demo'

_TOKEN_SECONDS = 24 * 3600


class Unusable(Exception):
    """The tests cannot use the cluster; the message says why."""


@contextlib.contextmanager
def environment(kubeconfig, namespace, image=None, medium=MEDIUM):
    """Prepare a cluster for tests; undo it afterwards.

    :param kubeconfig: path; its current context names the cluster and an
        administrator
    :param namespace: existing namespace for the tests' objects
    :param image: of this checkout, for pods of BMCs; without it, tests with
        such pods are skipped
    :param medium: container disk of the tests' VMs
    :returns: dict of environment variables, see the sandbox's
        ``testing.given_cluster`` and ``tests.fixtures.operator``
    :raises: `Unusable`
    """
    try:
        client = kubernetes.config.new_client_from_config(kubeconfig)
    except kubernetes.config.ConfigException as exc:
        raise Unusable(f'{kubeconfig}: {exc}') from None
    core = kubernetes.client.CoreV1Api(client)
    rbac = kubernetes.client.RbacAuthorizationV1Api(client)
    with contextlib.ExitStack() as stack:
        try:
            _check(client, core, namespace)
            core.create_namespaced_service_account(
                namespace, {'metadata': {'name': ACCOUNT}})
            stack.callback(core.delete_namespaced_service_account, ACCOUNT,
                           namespace)
            rbac.create_cluster_role_binding({
                'metadata': {'name': ACCOUNT}, 'roleRef': {
                    'apiGroup': 'rbac.authorization.k8s.io',
                    'kind': 'ClusterRole', 'name': 'cluster-admin'},
                'subjects': [{'kind': 'ServiceAccount', 'name': ACCOUNT,
                              'namespace': namespace}]})
            stack.callback(rbac.delete_cluster_role_binding, ACCOUNT)
            token = core.create_namespaced_service_account_token(
                ACCOUNT, namespace, {'spec': {
                    'expirationSeconds': _TOKEN_SECONDS}})
        except kubernetes.client.ApiException as exc:
            if exc.status == http.HTTPStatus.CONFLICT:
                raise Unusable(
                    'Another run uses the cluster, or a run that was killed '
                    'has left its objects. In the latter case delete them: '
                    f'kubectl --kubeconfig {kubeconfig} --namespace '
                    f'{namespace} delete --ignore-not-found serviceaccount/'
                    f'{ACCOUNT} clusterrolebinding/{ACCOUNT}') from None
            raise Unusable(f'{exc.reason}: {exc.body}') from None
        configuration = client.configuration
        yield {
            'KUBEVIRT_API': configuration.host,
            'KUBEVIRT_TOKEN': token.status.token,
            'KUBEVIRT_CA': (configuration.ssl_ca_cert or ''
                            if configuration.verify_ssl else ''),
            'KUBEVIRT_NAMESPACE': namespace,
            'KUBEVIRT_MEDIUM': medium,
            'KUBEVIRT_BMC_IMAGE': image or ''}


def _check(client, core, namespace):
    groups = kubernetes.client.ApisApi(client).get_api_versions().groups
    missing = {'kubevirt.io', 'cdi.kubevirt.io'} - {
        group.name for group in groups}
    if missing:
        raise Unusable('The cluster lacks the API groups '
                       + ', '.join(sorted(missing)))
    if namespace not in [one.metadata.name for one
                         in core.list_namespace().items]:
        raise Unusable(f'Namespace {namespace} does not exist; create it: '
                       f'kubectl create namespace {namespace}')
