# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-operator claim-kubeconfig``: an account for HostClaims.

Makes the Secret that ``identityRef`` of a Metal3Cluster names, for HostClaims
from another cluster. Its account has the access rights that the
design of HostClaims lists (metal3-docs, ``hostclaim-multitenancy.md``): to the
claims of one namespace, to the Secrets there into which user data is copied,
and to the HardwareData of hosts, by namespace.
"""

from __future__ import annotations

import argparse
import base64
from collections import abc
import ipaddress
import json
import os
import re
import sys
import typing
import urllib.parse

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator.metal3 import resources
from sushy_kubevirt.operator import naming

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects as kube_objects

_PROGRAM = f'{command_line.PROGRAM} {command_line.CLAIM_KUBECONFIG}'

#: Label of all objects that the command makes; others are not changed.
MANAGER = 'sushy-kubevirt-claim-kubeconfig'

#: Keys of the kubeconfig in the Secret: the contract of ``identityRef`` names
#: none; the second is that of Cluster API's own Secrets.
KEYS = 'kubeconfig', 'value'

#: Default name of all objects.
NAME = 'hostclaims'

#: Default lifetime of the token.
DURATION = '365d'

_SECONDS = {'m': 60, 'h': 3600, 'd': 86400}

#: Seconds: the shortest lifetime that Kubernetes allows.
_SHORTEST = 600

_WRITE = ('get', 'list', 'watch', 'create', 'update', 'patch', 'delete')
_READ = 'get', 'list', 'watch'


def main(arguments: abc.Sequence[str]) -> int:
    """Make the account, and print or write the Secret.

    :param arguments: words after the subcommand
    :returns: exit status, 0
    :raises: `errors.ConfigError` if that is not possible
    """
    _run(parser().parse_args(arguments))
    return 0


def parser() -> argparse.ArgumentParser:
    """Make the parser of the subcommand."""
    result = argparse.ArgumentParser(
        prog=_PROGRAM, description=(
            'Makes an account for the HostClaims of a namespace, and a Secret '
            "with its kubeconfig, which identityRef names in Metal3's design "
            'for several tenants, in another cluster. Prints the Secret, for '
            'kubectl apply, or writes it. The account may write '
            'HostClaims and Secrets of the namespace, and nothing else. '
            'Repeat the command before the token expires, or with other '
            'options.'))
    result.add_argument(
        'namespace', metavar='NAMESPACE', type=command_line.namespace,
        help='namespace of the HostClaims, in the cluster with the hosts')
    command_line.add_cluster(result)
    result.add_argument(
        '--name', metavar='NAME', type=command_line.namespace, default=NAME,
        help='name of account, Role, RoleBinding and Secret (default: '
        '%(default)s)')
    result.add_argument(
        '--hosts-namespace', metavar='NAME', type=command_line.namespace,
        action='append', default=[], dest='hosts_namespaces',
        help='also allow to read the HardwareData of this namespace, from '
        'which Cluster API has the labels of its nodes; may be repeated')
    result.add_argument(
        '--server', metavar='URL', type=_url, help='URL of the API server as '
        'the other cluster reaches it (default: that of the kubeconfig)')
    result.add_argument(
        '--certificate-authority', metavar='FILE', dest='authority',
        type=command_line.certificates, help='CA certificates of the API '
        'server, PEM (default: those of the kubeconfig)')
    result.add_argument(
        '--duration', metavar='TIME', type=_duration, default=DURATION,
        help='lifetime of the token, such as 30d, 24h or 90m; the API server '
        'may shorten it (default: %(default)s)')
    group = result.add_argument_group('Secret')
    group.add_argument(
        '--secret-namespace', metavar='NAME', type=command_line.namespace,
        help='namespace of the Secret, that of the Metal3Cluster (default: '
        'NAMESPACE)')
    group.add_argument(
        '--to-kubeconfig', metavar='PATH', help='kubeconfig of the cluster '
        'into which the Secret is written (default: print the Secret)')
    group.add_argument(
        '--to-context', metavar='NAME', help='context of that kubeconfig '
        '(default: its current one)')
    return result


def rules() -> list[kube_objects.Json]:
    """Make the rules of the Role in the namespace of the claims."""
    return [
        {'apiGroups': [resources.GROUP],
         'resources': [resources.CLAIM.plural], 'verbs': list(_WRITE)},
        {'apiGroups': [resources.GROUP],
         'resources': [resources.CLAIM.plural + '/status'], 'verbs': ['get']},
        # User data is copied under names that cannot be known.
        {'apiGroups': [''], 'resources': ['secrets'], 'verbs': list(_WRITE)}]


def objects(name: str, namespace: str, hosts_namespaces: abc.Iterable[str]
            ) -> list[kube_objects.Json]:
    """Make the account and its access rights.

    :param name: of all objects
    :param namespace: of the claims
    :param hosts_namespaces: those whose HardwareData is read
    """
    subject = {'kind': 'ServiceAccount', 'name': name, 'namespace': namespace}
    account = [_object(bmc_resources.ACCOUNT, name, namespace),
               *_access(name, namespace, rules(), subject)]
    for hosts_namespace in dict.fromkeys(hosts_namespaces):
        account += _access(f'{name}-of-{namespace}', hosts_namespace, [{
            'apiGroups': [resources.GROUP], 'resources': ['hardwaredata'],
            'verbs': list(_READ)}], subject)
    return account


def reachable(server: str, environ: abc.Mapping[str, str] = os.environ
              ) -> str:
    """Refuse addresses that no other cluster can reach.

    :param server: URL of the API server
    :param environ: ``KUBERNETES_SERVICE_HOST`` is its address in a pod
    :returns: the URL
    """
    host = urllib.parse.urlsplit(server).hostname or ''
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == 'localhost' or host.endswith(
            ('.svc', '.cluster.local'))
    if local or host == environ.get('KUBERNETES_SERVICE_HOST'):
        raise errors.ConfigError(
            f'{server} is not reachable from another cluster: give --server '
            'URL')
    return server


def kubeconfig(server: str, authority: str | None, token: str, namespace: str,
               tls_name: str | None = None) -> str:
    """Make a kubeconfig.

    :param server: URL
    :param authority: CA certificates, PEM; None for those of the system
    :param token: of the account
    :param namespace: of its context
    :param tls_name: name in the server's certificate; None for that of the
        URL
    :returns: JSON, which is YAML
    """
    cluster = {'server': server}
    if authority:
        cluster['certificate-authority-data'] = _encoded(authority)
    if tls_name:
        cluster['tls-server-name'] = tls_name
    return json.dumps({
        'apiVersion': 'v1', 'kind': 'Config', 'current-context': NAME,
        'clusters': [{'name': NAME, 'cluster': cluster}],
        'users': [{'name': NAME, 'user': {'token': token}}],
        'contexts': [{'name': NAME, 'context': {
            'cluster': NAME, 'user': NAME, 'namespace': namespace}}]})


def _run(given: argparse.Namespace) -> None:
    if given.to_context and not given.to_kubeconfig:
        raise errors.ConfigError('--to-context needs --to-kubeconfig')
    if not given.to_kubeconfig and sys.stdout.isatty():
        raise errors.ConfigError(
            'the Secret has a token and is not printed to a terminal: add '
            '"| kubectl apply -f -", or --to-kubeconfig PATH')
    source = connection.Connection.from_options(
        given.kubeconfig, given.context)
    access = source.access()
    server = given.server or reachable(access.server)
    authority = given.authority or access.ca
    if access.insecure and not given.authority:
        raise errors.ConfigError(
            'the kubeconfig disables the verification of the API server: '
            'give --certificate-authority FILE')
    target = given.to_kubeconfig and connection.Connection.from_options(
        given.to_kubeconfig, given.to_context)
    kube = client.Client(source, command_line.CLIENT_OPTIONS, MANAGER)
    for body in objects(given.name, given.namespace, given.hosts_namespaces):
        _write(kube, body)
    request: api_resources.Resource[kube_objects.Json] = (
        api_resources.Resource(
            '', 'v1', f'serviceaccounts/{given.name}/token', 'TokenRequest'))
    token = kube.create(request, given.namespace, {
        'apiVersion': 'authentication.k8s.io/v1', 'kind': 'TokenRequest',
        'spec': {'expirationSeconds': given.duration}})['status']
    namespace = given.secret_namespace or given.namespace
    secret = _object(bmc_resources.SECRET, given.name, namespace)
    secret['metadata']['annotations'] = {stored_names.EXPIRES: token[
        'expirationTimestamp']}
    text = kubeconfig(
        server, authority, token['token'], given.namespace,
        None if given.server else access.tls_server_name)
    secret.update(type='Opaque', data={key: _encoded(text) for key in KEYS})
    if target:
        _write(client.Client(target, command_line.CLIENT_OPTIONS, MANAGER),
               secret)
    else:
        print(json.dumps(secret, indent=2))
        sys.stdout.flush()
    print(f'{_PROGRAM}: Secret {namespace}/{given.name} is '
          f"{'written' if target else 'printed'}; its token expires at "
          f"{token['expirationTimestamp']}. To revoke it: kubectl delete "
          f'serviceaccount {given.name} --namespace {given.namespace}',
          file=sys.stderr)


def _write(kube: client.Client, body: kube_objects.Json) -> None:
    """Create or change an object that this command makes."""
    metadata, resource = body['metadata'], bmc_resources.of(body)
    namespace, name = metadata['namespace'], metadata['name']
    try:
        live = kube.get(
            resource, namespace, name, metadata_only=True)['metadata']
    except errors.ObjectNotFound:
        kube.create(resource, namespace, body)
        return
    if (live.get('labels') or {}).get(naming.MANAGED_BY) != MANAGER:
        raise errors.ConfigError(
            f"{body['kind']} {namespace}/{name} exists already and was not "
            'made by this command: choose another --name')
    kube.apply(resource, namespace, name, {
        **body, 'metadata': {**metadata, 'uid': live['uid']}})


def _object(resource: api_resources.AnyResource, name: str, namespace: str
            ) -> kube_objects.Json:
    return {'apiVersion': resource.api_version, 'kind': resource.kind,
            'metadata': {'name': name, 'namespace': namespace,
                         'labels': {naming.MANAGED_BY: MANAGER}}}


def _access(name: str, namespace: str, granted: list[kube_objects.Json],
            subject: kube_objects.Json) -> list[kube_objects.Json]:
    role = _object(bmc_resources.ROLE, name, namespace)
    role['rules'] = granted
    binding = _object(bmc_resources.BINDING, name, namespace)
    binding.update(
        roleRef={'apiGroup': bmc_resources.ROLE.group,
                 'kind': bmc_resources.ROLE.kind, 'name': name},
        subjects=[subject])
    return [role, binding]


def _url(text: str) -> str:
    if re.fullmatch(r'https://[^\s/?#@]+(/[^\s?#@]*)?', text):
        return text.rstrip('/')
    raise argparse.ArgumentTypeError(
        f'{text!r} is not a URL such as https://api.lab.example.com:6443')


def _duration(text: str) -> int:
    match = re.fullmatch('([1-9][0-9]{0,5})([mhd])', text)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if seconds >= _SHORTEST:
        return seconds
    raise argparse.ArgumentTypeError(
        f'{text!r} is not a time of 10m or more, such as 30d, 24h or 90m')


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
