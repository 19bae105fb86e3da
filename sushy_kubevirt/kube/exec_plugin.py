# SPDX-License-Identifier: Apache-2.0
"""Credentials from the exec plugin of a kubeconfig.

Source: plugin/pkg/client/auth/exec/exec.go and
pkg/apis/clientauthentication/v1/types.go of client-go v0.37.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import subprocess

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import kubeconfig_files
from sushy_kubevirt.kube import objects

#: Time that a plugin has, in seconds: it may wait for an identity provider.
SECONDS = 60

_GROUP = 'client.authentication.k8s.io'
_VERSIONS = f'{_GROUP}/v1', f'{_GROUP}/v1beta1'


def run(plugin: kubeconfig_files.Entry, cluster: kubeconfig_files.Entry
        ) -> objects.Json:
    """Run a plugin, without a terminal.

    :param plugin: section ``exec`` of a user
    :returns: authorization (header), cert, key (PEM texts), expiry (seconds
        since the epoch)
    :raises: `errors.ConfigError`
    """
    version = plugin.text('apiVersion')
    if version not in _VERSIONS:
        raise plugin.error(f"needs {' or '.join(_VERSIONS)} as apiVersion")
    if plugin.text('interactiveMode') == 'Always':
        raise plugin.error('asks for a terminal (interactiveMode Always); '
                           'name a user with other credentials')
    command = plugin.text('command')
    if not command:
        raise plugin.error('needs a command')
    if os.sep in command:
        command = plugin.file('command') or command
    spec: objects.Json = {'interactive': False}
    if plugin.flag('provideClusterInfo'):
        spec['cluster'] = _cluster_info(cluster)
    # A text in place of a date, for which JSON has no type.
    environment = {
        **os.environ, **_environment(plugin), 'KUBERNETES_EXEC_INFO':
        json.dumps({'kind': 'ExecCredential', 'apiVersion': version,
                    'spec': spec}, default=str)}
    try:
        done = subprocess.run(
            [command, *plugin.texts('args')], env=environment, timeout=SECONDS,
            stdin=subprocess.DEVNULL, capture_output=True)
    except subprocess.TimeoutExpired:
        raise plugin.error(
            f'names {command}, which took longer than {SECONDS} s; check '
            'whether it waits for input') from None
    except (OSError, ValueError) as e:
        hint = plugin.text('installHint') or ''
        raise plugin.error(
            f'names {command}, which cannot be run: '
            f"{getattr(e, 'strerror', e)}. {' '.join(hint.split())}") from None
    return _credentials(plugin, version, command, done)


def _environment(plugin: kubeconfig_files.Entry) -> dict[str, str]:
    return {entry.text('name') or '': entry.text('value') or ''
            for entry in plugin.entries('env', 'a variable in env')}


def _cluster_info(cluster: kubeconfig_files.Entry) -> objects.Json:
    """Return the cluster of ``KUBERNETES_EXEC_INFO``."""
    info = {key: value for key, value in cluster.fields.items() if key in (
        'server', 'tls-server-name', 'insecure-skip-tls-verify', 'proxy-url',
        'disable-compression')}
    authority = cluster.pem('certificate-authority')
    if authority:
        info['certificate-authority-data'] = base64.b64encode(
            authority.encode()).decode()
    for entry in cluster.entries('extensions', 'an extension'):
        if entry.text('name') == f'{_GROUP}/exec':
            info['config'] = entry.fields.get('extension')
    return info


def _credentials(plugin: kubeconfig_files.Entry, version: str, command: str,
                 done: subprocess.CompletedProcess[bytes]) -> objects.Json:
    """Return what a plugin has printed, see `run`."""
    def failed(reason: str) -> errors.ConfigError:
        said = done.stderr.decode(errors='replace').strip()[-500:]
        return plugin.error(f'names {command}, which {reason}'
                            + (f': {said}' if said else ''))

    if done.returncode:
        raise failed(f'failed with exit code {done.returncode}')
    try:
        answer = json.loads(done.stdout)
        if answer['apiVersion'] != version:
            raise failed(f'printed another apiVersion than {version}')
        status = kubeconfig_files.Entry(
            plugin.path, {}, f'status of {command}', answer['status'])
        expires = status.text('expirationTimestamp')
        expiry = expires and datetime.datetime.fromisoformat(
            expires).timestamp()
    except (LookupError, RecursionError, TypeError, ValueError):
        raise failed(f'printed no ExecCredential of {version}') from None
    token = status.line('token')
    cert, key = (status.text(f'client{name}Data') for name in (
        'Certificate', 'Key'))
    if not token and not cert or bool(cert) != bool(key):
        raise failed('printed neither a token nor a certificate with its key')
    return {'authorization': token and f'Bearer {token}', 'cert': cert,
            'key': key, 'expiry': expiry}
