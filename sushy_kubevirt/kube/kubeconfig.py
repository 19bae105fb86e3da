# SPDX-License-Identifier: Apache-2.0
"""Parser of kubeconfigs that runs in a short-lived child process.

The kubernetes library supports everything a kubeconfig may contain (exec
plugins, OIDC, certificates …), but importing it adds 17 MiB (PSS) to a process
that has 18 MiB without it. So only a child process imports it and returns the
connection's settings over a pipe. `main` is the child, `read` runs it.
"""

from __future__ import annotations

from collections import abc
import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import types
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects

#: Timeout of the child in seconds: an exec plugin may wait for an identity
#: provider.
CHILD_SECONDS = 60

# Children that `begin` has started.
_begun: list[subprocess.Popen[bytes]] = []


def begin() -> None:
    """Start the child that the next `read` needs, which takes as long as the
    other imports of a program. It reads no file before.
    """
    _begun.append(_start())


def read(paths: abc.Sequence[str],
         context: str | None = None) -> objects.Json:
    """Read kubeconfigs and get the credentials they describe.

    :param paths: files, merged as ``kubectl`` does: the first file
        that sets a value wins
    :param context: name of a context; None for the current one
    :returns: server, ca, cert, key (PEM texts), authorization (header),
        token_file, proxy, tls_server_name, insecure, expiry (seconds since
        the epoch), namespace, context
    :raises: `errors.ConfigError`
    """
    request = json.dumps({'paths': list(paths), 'context': context})
    try:
        with _begun.pop() if _begun else _start() as child:
            try:
                out, _ = child.communicate(request.encode(), CHILD_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                raise
        answer = json.loads(out)
    except subprocess.TimeoutExpired:
        raise errors.ConfigError(
            f'Reading kubeconfig {os.pathsep.join(paths)} took longer than '
            f'{CHILD_SECONDS} s; check whether its exec plugin waits for '
            'input') from None
    except (OSError, ValueError):
        raise errors.ConfigError(
            f'Kubeconfig {os.pathsep.join(paths)} could not be read by '
            f'{sys.executable}') from None
    if 'error' in answer:
        raise errors.ConfigError(answer['error'])
    return answer


def _start() -> subprocess.Popen[bytes]:
    # -P keeps modules of the working directory from being imported.
    return subprocess.Popen(
        [sys.executable, '-P', '-m', __name__], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def main() -> None:
    """Read kubeconfigs in the child: JSON on stdin, JSON result on stdout."""
    # Output of plugins and libraries goes to stderr, not into the result.
    out = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)
    with contextlib.suppress(Exception):
        _library()      # an error is reported with the request
    received = sys.stdin.read()
    if not received:
        return      # the parent ended, or needs no kubeconfig
    request = json.loads(received)
    # An exec plugin has nothing to read.
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    try:
        answer = _describe(request['paths'], request['context'])
    except errors.ConfigError as e:
        answer = {'error': str(e)}
    except Exception as e:
        text = str(e)
        if isinstance(e, (AttributeError, LookupError, TypeError)):
            # The library does not validate the structure.
            text = f'it does not look like one ({text})'
        paths = os.pathsep.join(request['paths'])
        answer = {'error': f'Kubeconfig {paths} cannot be used: {text}'}
    json.dump(answer, out)
    out.close()


@functools.cache
def _library() -> tuple[typing.Any, types.ModuleType]:
    """Import `kubernetes.config` without the API's models.

    Packages in place of ``kubernetes`` and ``kubernetes.client`` have what
    `kubernetes.config` imports of them: it takes half of the time, 0.19
    instead of 0.36 s of CPU. The whole library is imported by the first
    `ApiClient`, with which OIDC tokens are refreshed.

    :returns: the module in place of `kubernetes.client`, and
        `kubernetes.config.kube_config`
    """
    import importlib
    import importlib.util

    def stub(name: str, *below: str) -> typing.Any:
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = [os.path.join(path, *below) for path in folders]
        return module

    def api_client(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        for name in 'kubernetes', 'kubernetes.client':
            sys.modules.pop(name)
        return importlib.import_module('kubernetes.client').ApiClient(
            *args, **kwargs)

    spec = importlib.util.find_spec('kubernetes')
    folders = spec and spec.submodule_search_locations or []
    package, client = stub('kubernetes'), stub('kubernetes.client', 'client')
    package.client = client
    client.Configuration = importlib.import_module(
        'kubernetes.client.configuration').Configuration
    client.ApiClient = api_client
    return client, importlib.import_module('kubernetes.config.kube_config')


def _describe(paths: list[str], context: str | None) -> objects.Json:
    """Return the result of `read`. Runs in the child."""
    import logging

    client, kube_config = _library()

    # The library logs why an exec plugin failed, and continues without it.
    logged_errors = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged_errors.append(record.getMessage())

    logging.getLogger().addHandler(Recorder(logging.ERROR))

    merger = kube_config.KubeConfigMerger(os.pathsep.join(paths))
    if merger.config is None:
        raise errors.ConfigError(
            f'Kubeconfig {os.pathsep.join(paths)} is empty')
    name, namespace = _context(merger, paths, context)

    def persist() -> None:
        # Saves refreshed OIDC tokens. If the file cannot be written, the
        # next read refreshes them again.
        try:
            merger.save_changes()
        except OSError:
            pass

    loader = kube_config.KubeConfigLoader(
        config_dict=merger.config, active_context=name,
        config_base_path=None,  # paths are relative to the entry's file
        config_persister=persist)
    config = client.Configuration()
    loader.load_and_set(config)

    user = _named(merger, 'users', loader.current_context['context']
                  .get('user')).get('user') or {}
    authorization = config.api_key.get('BearerToken')
    if 'exec' in user and not authorization and not config.cert_file:
        raise errors.ConfigError(
            f"The exec plugin {user['exec'].get('command')} of kubeconfig "
            f"{os.pathsep.join(paths)} gave no credentials: "
            f"{'; '.join(logged_errors)[:500]}")
    expiry = getattr(loader, 'expiry', None)
    cluster = _named(merger, 'clusters', loader.current_context['context']
                     ['cluster'])
    if not re.match('https?://', cluster['cluster'].get('server') or ''):
        # The library would send the credentials to http://localhost.
        raise errors.ConfigError(
            f'Kubeconfig {os.pathsep.join(paths)}: cluster {cluster["name"]} '
            'needs a server, such as https://192.0.2.1:6443')
    token_file = user.get('tokenFile') if not user.get('token') else None
    if token_file:
        token_file = os.path.join(
            os.path.dirname(os.path.abspath(user['path'])), token_file)
    return {
        'server': config.host,
        'ca': _text(config.ssl_ca_cert),
        'cert': _text(config.cert_file),
        'key': _text(config.key_file),
        'authorization': None if token_file else authorization,
        'token_file': token_file,
        'proxy': _proxy(cluster['cluster'], config.host),
        'tls_server_name': config.tls_server_name,
        'insecure': not config.verify_ssl,
        'expiry': expiry.timestamp() if expiry else None,
        'namespace': namespace,
        'context': name,
    }


def _context(merger: typing.Any, paths: list[str],
             requested: str | None) -> tuple[str, str | None]:
    """Return the name and namespace of the context to use."""
    where = os.pathsep.join(paths)
    contexts: dict[str, objects.Json] = {}
    for path in merger.paths:
        for entry in merger.config_files[path].get('contexts') or ():
            contexts.setdefault(entry['name'], entry.get('context') or {})
    available = ', '.join(sorted(contexts)) or 'none'
    name = requested
    if not name:
        # In the library the last file wins, in kubectl the first.
        name = next((merger.config_files[path]['current-context']
                     for path in merger.paths
                     if merger.config_files[path].get('current-context')),
                    None)
        if not name:
            raise errors.ConfigError(
                f'Kubeconfig {where} has no current context; name one of: '
                f'{available}')
    if name not in contexts:
        raise errors.ConfigError(
            f'Kubeconfig {where} has no context {name}; there are: {available}'
        )
    return name, contexts[name].get('namespace')


def _named(merger: typing.Any, kind: str,
           name: str | None) -> objects.Json:
    """Return a cluster or user; a user with the ``path`` of its file."""
    for path in merger.paths:
        for entry in merger.config_files[path].get(kind) or ():
            if entry.get('name') == name:
                if isinstance(entry.get('user'), dict):
                    return dict(entry, user=dict(entry['user'], path=path))
                return dict(entry)
    return {}


def _proxy(cluster: objects.Json, server: str) -> str | None:
    """Return the cluster's own proxy, else that of the environment."""
    from urllib import parse
    from urllib import request

    if cluster.get('proxy-url'):
        return cluster['proxy-url']
    url = parse.urlsplit(server)
    proxies = request.getproxies_environment()
    if request.proxy_bypass_environment(  # type: ignore[attr-defined]
            url.netloc, proxies):       # typeshed lacks it
        return None
    return proxies.get(url.scheme)


def _text(path: str | None) -> str | None:
    if not path:
        return None
    with open(path) as f:
        return f.read()


if __name__ == '__main__':
    main()
