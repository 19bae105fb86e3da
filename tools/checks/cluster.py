# SPDX-License-Identifier: Apache-2.0
"""A given cluster for functional tests, ``tools/test --cluster``.

Tests use a token of an administrator's ServiceAccount, which is made for them
with the rights of the kubeconfig: those may be a certificate, or come from a
program.
"""

import contextlib
import http
import json
import re

import kubernetes

#: Name of the ServiceAccount and of its ClusterRoleBinding.
ACCOUNT = 'sushy-kubevirt-tests'

#: Container disk of the tests' VMs.
MEDIUM = 'quay.io/kubevirt/cirros-container-disk-demo'

#: Seconds in which a run that gets a signal deletes what it has created.
CLEAN_UP_SECONDS = 60

_TOKEN_SECONDS = 24 * 3600

# Collections of cluster-wide objects that tests create.
_RBAC, _ADMISSION = (f'/apis/{group}.k8s.io/v1/' for group in (
    'rbac.authorization', 'admissionregistration'))
_COLLECTIONS = (
    _ADMISSION + 'validatingadmissionpolicybindings',
    _ADMISSION + 'validatingadmissionpolicies',
    _RBAC + 'clusterrolebindings', _RBAC + 'clusterroles',
    '/apis/apiextensions.k8s.io/v1/customresourcedefinitions',
    '/api/v1/namespaces')

# Matches the names of those objects: namespaces of tests of the operator, and
# what the manifests contain.
_NAMES = re.compile(r'n-[0-9a-f]{8}|(sushy-kubevirt|virtbmc)-.*|bmc-user|'
                    r'virtualmachinebmcs\.bmc\.kubevirt\.io')
_BMCS = '/apis/bmc.kubevirt.io/v1beta1/virtualmachinebmcs'


class Unusable(Exception):
    """The tests cannot use the cluster; the message says why."""


@contextlib.contextmanager
def environment(kubeconfig, namespace, image=None, medium=MEDIUM,
                end_tests=lambda: None):
    """Prepare a cluster for tests; undo it afterwards.

    :param kubeconfig: path; its current context names the cluster and an
        administrator
    :param namespace: existing namespace for the tests' objects
    :param image: of this checkout, for pods of BMCs; without it, tests with
        such pods are skipped
    :param medium: container disk of the tests' VMs
    :param end_tests: function that ends the tests' processes, after a signal
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
        stack.enter_context(_cleaned(client, end_tests))
        configuration = client.configuration
        yield {
            'KUBEVIRT_API': configuration.host,
            'KUBEVIRT_TOKEN': token.status.token,
            'KUBEVIRT_CA': (configuration.ssl_ca_cert or ''
                            if configuration.verify_ssl else ''),
            'KUBEVIRT_NAMESPACE': namespace,
            'KUBEVIRT_MEDIUM': medium,
            'KUBEVIRT_BMC_IMAGE': image or ''}


@contextlib.contextmanager
def _cleaned(client, end_tests):
    """Delete what tests leave cluster-wide that are ended by a signal.

    Tests delete what they create, and fail where others have such objects.
    """
    before = {uid for uid, *_ in _objects(client)}
    try:
        yield
    except SystemExit:
        # Their processes would create more.
        end_tests()
        created = [one for one in _objects(client) if one[0] not in before]
        _release(client, {name for _, _, name in created})
        for _, collection, name in created:
            _call(client, 'DELETE', f'{collection}/{name}')
        raise


def _objects(client):
    """:returns: list of (uid, collection, name)"""
    return [(one['metadata']['uid'], collection, one['metadata']['name'])
            for collection in _COLLECTIONS
            for one in _call(client, 'GET', collection).get('items', ())
            if _NAMES.fullmatch(one['metadata']['name'])]


def _release(client, namespaces):
    """Remove the finalizers of BMCs, whose operator has ended."""
    for one in _call(client, 'GET', _BMCS).get('items', ()):
        metadata = one['metadata']
        if metadata['namespace'] in namespaces and metadata.get('finalizers'):
            _call(client, 'PATCH', _BMCS.replace(
                'v1beta1/', f"v1beta1/namespaces/{metadata['namespace']}/")
                + '/' + metadata['name'], {'metadata': {'finalizers': None}})


def _call(client, method, path, body=None):
    """:returns: dict; {} for what does not exist"""
    headers = {'Accept': 'application/json',
               'Content-Type': 'application/merge-patch+json'}
    client.update_params_for_auth(headers, [], ['BearerToken'], path, method,
                                  body)
    answer = client.call_api(method, client.configuration.host + path,
                             headers, body)
    text = answer.read()
    if answer.status == http.HTTPStatus.NOT_FOUND:
        return {}
    if answer.status >= http.HTTPStatus.BAD_REQUEST:
        raise kubernetes.client.ApiException(http_resp=answer)
    return json.loads(text)


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
