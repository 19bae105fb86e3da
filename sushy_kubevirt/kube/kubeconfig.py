# SPDX-License-Identifier: Apache-2.0
"""Address and credentials that a kubeconfig describes.

Source: tools/clientcmd/client_config.go of client-go v0.37. Only an
``auth-provider`` needs the kubernetes library, which adds 17 MiB (PSS) to a
process and 19 packages to an installation.
"""

from __future__ import annotations

import base64
from collections import abc
import contextlib
import os
from urllib import parse

from sushy_kubevirt.kube import exec_plugin
from sushy_kubevirt.kube import kubeconfig_files
from sushy_kubevirt.kube import objects

# What RFC 9110 permits in the name of a header, beside letters and digits; "%"
# is for others.
_HEADER_CHARACTERS = "!#$&'*+-.^_`|~"


def read(paths: abc.Sequence[str],
         context: str | None = None) -> objects.Json:
    """Read kubeconfigs and get the credentials they describe.

    :param paths: files, merged as ``kubectl`` does: the first file
        that sets a value wins
    :param context: name of a context; None for the current one
    :returns: fields of `connection.Access`
    :raises: `errors.ConfigError`
    """
    config = kubeconfig_files.Merged(paths)
    name, selected = config.context(context)
    cluster = config.get('cluster', selected.text('cluster'))
    server = _server(cluster)
    fields: objects.Json = {
        'server': server,
        'ca': cluster.pem('certificate-authority'),
        'proxy': cluster.text('proxy-url') or _proxy(server),
        'tls_server_name': cluster.text('tls-server-name'),
        'insecure': cluster.flag('insecure-skip-tls-verify'),
        'namespace': selected.text('namespace'),
        'context': name,
    }
    if selected.text('user'):
        user = config.get('user', selected.text('user'))
        fields['impersonation'] = _impersonation(user)
        # kubectl, too, sends no credentials that others could read.
        if server.startswith('https:'):
            fields |= _credentials(user, cluster)
    return fields


def _server(cluster: kubeconfig_files.Entry) -> str:
    server = (cluster.text('server') or '').rstrip('/')
    try:
        url = parse.urlsplit(server)
        valid = url.scheme in ('http', 'https') and url.hostname and (
            url.port != 0)
    except ValueError:
        valid = False
    if not valid:
        raise cluster.error(
            'needs a server, such as https://192.0.2.1:6443')
    return server


def _proxy(server: str) -> str | None:
    """Return the proxy for a server that the environment names.

    Source: http/httpproxy of golang.org/x/net, as kubectl has it.
    """
    def variable(name: str) -> str:
        return os.environ.get(name.upper()) or os.environ.get(name) or ''

    url = parse.urlsplit(server)
    proxy = variable(f'{url.scheme}_proxy')
    if not proxy or _is_direct(
            url.hostname or '',
            url.port or (443 if url.scheme == 'https' else 80),
            variable('no_proxy')):
        return None
    return proxy if '://' in proxy else f'http://{proxy}'


def _is_direct(host: str, port: int, exceptions: str) -> bool:
    """Tell whether a host is reached without the environment's proxy.

    :param exceptions: ``NO_PROXY``: hosts, domains with a leading dot, IP
        addresses, each also with a port, and CIDRs
    """
    import ipaddress

    address = None
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
    if host == 'localhost' or address is not None and address.is_loopback:
        return True
    for entry in map(str.strip, exceptions.split(',')):
        if entry == '*':
            return True
        with contextlib.suppress(ValueError):
            if address is not None and address in ipaddress.ip_network(
                    entry, strict=False):
                return True
        with contextlib.suppress(ValueError):
            pattern = parse.urlsplit(f'//{entry}')
            name = (pattern.hostname or '').removeprefix('*')
            if name and pattern.port in (None, port) and (
                    host == name or host.endswith(
                        name if name.startswith('.') else f'.{name}')):
                return True
    return False


def _credentials(user: kubeconfig_files.Entry,
                 cluster: kubeconfig_files.Entry) -> objects.Json:
    """Return the fields of `connection.Access` about a user."""
    cert, key = user.pem('client-certificate'), user.pem('client-key')
    if cert and not key:
        raise user.error('needs client-key for its client-certificate')
    fields: objects.Json = {'cert': cert, 'key': key}
    plugin, provider = user.section('exec'), user.section('auth-provider')
    username, password = user.text('username'), user.text('password')
    token = user.line('token')
    if user.text('tokenFile'):
        fields['token_file'] = user.file('tokenFile')
    elif token:
        fields['authorization'] = f'Bearer {token}'
    elif username or password:
        text = f"{username or ''}:{password or ''}".encode()
        fields['authorization'] = f'Basic {base64.b64encode(text).decode()}'
    elif plugin and not cert:
        fields |= exec_plugin.run(plugin, cluster)
    elif provider:
        fields |= _from_provider(user, provider)
    return fields


def _impersonation(user: kubeconfig_files.Entry
                   ) -> tuple[tuple[str, str], ...]:
    """Return the headers by which a user acts as another one."""
    name, uid = user.line('as'), user.line('as-uid')
    headers = [('Uid', uid)] if uid else []
    headers += [('Group', group) for group in user.texts('as-groups')]
    extra = user.section('as-user-extra')
    if extra:
        headers += [(f'Extra-{parse.quote(key, safe=_HEADER_CHARACTERS)}',
                     value) for key in extra.fields
                    for value in extra.texts(key)]
    if not name:
        if headers:
            raise user.error('needs the name of a user as "as", beside its '
                             'groups and UID')
        return ()
    return tuple((f'Impersonate-{key}', value)
                 for key, value in [('User', name), *headers])


def _from_provider(user: kubeconfig_files.Entry,
                   provider: kubeconfig_files.Entry) -> objects.Json:
    """Return authorization and expiry of an ``auth-provider``.

    Refreshed tokens are written into the kubeconfig.
    """
    try:
        from kubernetes import client
        from kubernetes.config import kube_config
    except ImportError:
        raise user.error(
            'has an auth-provider, which needs the library kubernetes: pip '
            "install 'sushy-kubevirt[auth-provider]', or replace it by an "
            'exec plugin, such as kubelogin for OIDC') from None
    import yaml

    def persist() -> None:
        # If the file cannot be written, the next read refreshes them again.
        with contextlib.suppress(OSError), open(user.path, 'w') as f:
            yaml.safe_dump(user.document, f)

    config = client.Configuration()
    try:
        loader = kube_config.KubeConfigLoader(
            {'clusters': [{'name': 'x', 'cluster': {'server': ''}}],
             'users': [{'name': 'x', 'user': {
                 'auth-provider': provider.fields}}],
             'contexts': [{'name': 'x', 'context': {
                 'cluster': 'x', 'user': 'x'}}]},
            'x', config_persister=persist)
        loader.load_and_set(config)
        authorization = config.api_key['BearerToken']
    except Exception as e:
        # The library does not check what it reads, and skips what it does not
        # know.
        raise provider.error(
            f"{provider.text('name')} gave no token ({e!r}); an exec plugin "
            'may replace it') from None
    expiry = getattr(loader, 'expiry', None)
    return {'authorization': authorization,
            'expiry': expiry and expiry.timestamp()}
