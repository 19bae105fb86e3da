# SPDX-License-Identifier: Apache-2.0
"""Requests to the Kubernetes API, and what its answers mean.

One try each: who wants a write to survive a bad moment wraps it in `retry`.
Speaks urllib3 and JSON alone, as the long-lived processes are to stay small.
"""

import collections
import json
import random
import re
import threading
from urllib import parse

import urllib3

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import api_responses
from sushy_kubevirt.kube import connection as connection_
from sushy_kubevirt.kube import errors

JSON = 'application/json'
JSON_PATCH = 'application/json-patch+json'
MERGE_PATCH = 'application/merge-patch+json'
APPLY = 'application/apply-patch+yaml'

#: As all of Kubernetes' own clients have it. KubeVirt's actions answer
#: without a body and say of none what it would be, so that its virt-api has
#: nothing for who accepts JSON alone: 406 (go-restful's ``matchesAccept``).
ACCEPT = 'application/json, */*'

#: Accept headers for one object and for a list of which only the metadata is
#: wanted.
_METADATA = (
    'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1',
    'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1')

#: User-Agent of the BMC processes, and the field manager of what they make by
#: server-side apply. The API server takes the User-Agent up to a slash for
#: the field manager of other writes.
FIELD_MANAGER = 'sushy-kubevirt'

#: Idle connections to the API server that are kept.
CONNECTIONS = 8

#: A resourceVersion that no object has: etcd's first, before it holds any.
_NO_OBJECT_VERSION = '1'

#: A watch that is silent for this much longer than it was to last is dead.
WATCH_GRACE = 5

#: And one that is silent for so long, where bookmarks come "roughly every
#: minute" (apiserver, pkg/storage/cacher/cache_watcher.go). They do not while
#: nothing happens to a kind and etcd does not tell how far it is: that is
#: every 5 s with kubeadm's settings, but every 10 min with etcd's own.
WATCH_SILENCE = 90


class Client:
    """Speaks to one API server. Safe to use from several threads.

    Every method raises `errors.Unavailable` or one of its subclasses when
    the server is away or in trouble, `errors.AccessDenied`,
    `errors.ObjectNotFound` and `errors.Rejected`.

    :param connection: a `connection.Connection`
    :param options: an `options.Options`
    :param user_agent: sent with each request; also the field manager
    :param connections: number of idle connections that are kept
    :param before_write: function without arguments, called immediately before
        each request that is not a GET is sent; raises to prevent it
    :param watch_silence: a watch that is silent for so many seconds is opened
        again from the version it had reached; for watches that last for much
        longer. None: a watch that is silent for longer than it was to last,
        or for `WATCH_SILENCE` once it had bookmarks, is dead, and everything
        is listed again.
    """

    def __init__(self, connection, options, user_agent=FIELD_MANAGER,
                 connections=CONNECTIONS, before_write=lambda: None,
                 watch_silence=None):
        self._connection = connection
        self._options = options
        self._user_agent = user_agent
        self._connections = connections
        self._before_write = before_write
        self._watch_silence = watch_silence
        self.after_fork()

    def after_fork(self):
        """Use no socket and no lock of the parent process."""
        self._connection.after_fork()
        self._lock = threading.Lock()
        self._calls = collections.Counter()
        self._manager = None
        self._transport = None
        # Collections whose watches have had a bookmark lately.
        self._bookmarked = set()

    def get(self, resource, namespace, name, metadata_only=False):
        """Read one object.

        :param resource: a `api_resources.Resource`
        :param metadata_only: whether to read nothing but its metadata
        :returns: the object, a dict
        """
        call = api_responses.ApiCall('get', resource, namespace, name)
        return self._request('GET', resource.path(namespace, name), call,
                             accept=_METADATA[0] if metadata_only else ACCEPT)

    def pages(self, resource, namespace=None, label_selector='',
              field_selector='', metadata_only=False):
        """Read a collection, a page at a time.

        :param namespace: None or '' for all namespaces
        :param metadata_only: whether to read nothing but the metadata
        :returns: iterator of (items, resourceVersion), the version that of
            the whole collection
        :raises: `errors.WatchExpired` if it changed too much in between
        """
        call = api_responses.ApiCall('list', resource, namespace)
        fields = {'limit': self._options.page_size}
        fields.update(
            api_responses.selector_parameters(
                label_selector,
                field_selector))
        while True:
            page = self._request(
                'GET', resource.path(namespace), call, fields,
                accept=_METADATA[1] if metadata_only else ACCEPT)
            meta = page.get('metadata') or {}
            yield page.get('items') or (), meta.get('resourceVersion', '')
            if not meta.get('continue'):
                return
            fields['continue'] = meta['continue']

    def watch(self, resource, namespace=None, version='', label_selector='',
              field_selector='', metadata_only=False):
        """Follow a collection from a version on.

        :param metadata_only: whether to receive nothing but the metadata
        :returns: a `Watch` that is open
        :raises: `errors.WatchExpired` if the version is too old
        """
        call = api_responses.ApiCall('watch', resource, namespace)
        # Jitter: after an outage, all BMCs begin at the same moment.
        seconds = max(1, round(
            self._options.watch_seconds * random.uniform(0.8, 1.0)))
        fields = {'watch': '1', 'allowWatchBookmarks': 'true',
                  'resourceVersion': version, 'timeoutSeconds': seconds}
        fields.update(
            api_responses.selector_parameters(
                label_selector,
                field_selector))
        collection = resource, namespace, label_selector, field_selector
        silence = seconds + WATCH_GRACE
        resumes = self._watch_silence is not None
        if resumes:
            silence = min(silence, self._watch_silence)
        elif collection in self._bookmarked:
            silence = min(silence, WATCH_SILENCE)
        response = self._send(
            'GET', resource.path(namespace), call, fields,
            accept=_METADATA[0] if metadata_only else ACCEPT,
            read_timeout=silence)
        return Watch(response, call, self._bookmarked, collection, resumes)

    def patch(self, resource, namespace, name, body, subresource=None):
        """Change an object: a JSON patch if body is a list, else a merge
        patch.

        :returns: the object as it is now
        :raises: `errors.Conflict` if a ``test`` of the patch failed
        """
        call = api_responses.ApiCall(
            'patch', resource, namespace, name, subresource)
        return self._request(
            'PATCH', resource.path(namespace, name, subresource), call,
            body=body,
            content=JSON_PATCH if isinstance(body, list) else MERGE_PATCH)

    def apply(self, resource, namespace, name, body):
        """Set an object's fields by server-side apply, with force.

        :param body: dict with apiVersion and kind; a ``metadata.uid`` in it
            must be that of the object
        :returns: the object as it is now
        :raises: `errors.Conflict` if it has another uid
        """
        call = api_responses.ApiCall('patch', resource, namespace, name)
        return self._request(
            'PATCH', resource.path(namespace, name), call,
            {'fieldManager': self._user_agent, 'force': 'true'}, body, APPLY)

    def replace(self, resource, namespace, name, body):
        """Replace an object.

        :param body: dict; a ``metadata.resourceVersion`` in it must be that
            of the object
        :returns: the object as it is now
        :raises: `errors.Conflict` if it has another resourceVersion
        """
        call = api_responses.ApiCall('update', resource, namespace, name)
        return self._request('PUT', resource.path(namespace, name), call,
                             body=body)

    def action(self, resource, namespace, name, action, body=None):
        """Call one of KubeVirt's actions on a VM or VMI.

        :param action: such as ``start``
        :returns: the answer, a dict; {} when there is none
        """
        group = api_resources.SUBRESOURCES_GROUP
        call = api_responses.ApiCall(
            'update', resource, namespace, name, action, group
        )
        return self._request(
            'PUT', resource.action_path(namespace, name, action), call,
            body={} if body is None else body)

    def expand_spec(self, namespace, name):
        """Read a VM with its instance type and preference filled in."""
        group = api_resources.SUBRESOURCES_GROUP
        call = api_responses.ApiCall('get', api_resources.VM, namespace, name,
                                     'expand-spec', group)
        return self._request('GET', api_resources.VM.action_path(
            namespace, name, 'expand-spec'), call)

    def create(self, resource, namespace, body, named=False):
        """Create an object.

        :param named: whether to do it by server-side apply. For that an API
            server asks whether one may ``create`` an object of this name
            (apiserver/pkg/endpoints/handlers/patch.go; and ``patch``), for
            all else whether one may create any. The resourceVersion keeps it
            from changing one that is there: it is looked at then, and
            forgotten where there is none (registry/generic/registry/store.go,
            Update).
        :returns: it as it is now
        :raises: `errors.Conflict` if there is one
        """
        call = api_responses.ApiCall('create', resource, namespace)
        if named:
            metadata = dict(
                body['metadata'],
                resourceVersion=_NO_OBJECT_VERSION)
            return self._request(
                'PATCH', resource.path(namespace, metadata['name']), call,
                {'fieldManager': self._user_agent},
                dict(body, metadata=metadata),
                APPLY)
        return self._request('POST', resource.path(namespace), call, body=body)

    def delete(self, resource, namespace, name, body=None):
        """Delete an object.

        :param body: DeleteOptions, such as preconditions
        """
        call = api_responses.ApiCall('delete', resource, namespace, name)
        return self._request('DELETE', resource.path(namespace, name), call,
                             body=body)

    def serves_group(self, group):
        """Whether the API server serves a group of kinds.

        Whoever is known may ask (ClusterRole ``system:discovery``).

        :param group: such as ``cdi.kubevirt.io``
        """
        call = api_responses.ApiCall(
            'get', api_resources.Resource(group, '', 'apis', ''), '', group)
        try:
            self._request('GET', '/apis/' + group, call)
        except errors.ObjectNotFound:
            return False
        return True

    @property
    def calls(self):
        """The requests so far.

        :returns: dict of (verb, resource, code) and their number; the verb
            and the resource as access rights have them, such as ``update``
            and ``virtualmachines/start.subresources.kubevirt.io``; the code
            is HTTP's, 0 where there was no answer
        """
        with self._lock:
            return dict(self._calls)

    def close(self):
        """Let go of all connections."""
        with self._lock:
            if self._manager is not None:
                self._manager.clear()
            self._manager = self._transport = None

    def _request(self, method, path, call, fields=None, body=None,
                 content=JSON, accept=ACCEPT):
        try:
            response = self._send(method, path, call, fields, body, content,
                                  accept)
        except errors.ConnectionLost:
            # A kept connection that the server has closed in the meantime.
            if method != 'GET':
                raise
            response = self._send(method, path, call, fields, accept=accept)
        try:
            data = response.read()
            return api_responses.parse(data) if data else {}
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as e:
            raise _connection_error(call, self._connection.server, e) from None

    def _send(self, method, path, call, fields=None, body=None, content=JSON,
              accept=ACCEPT, read_timeout=None):
        """Send a request, and once again if the credentials had expired."""
        access = self._connection.access()
        response = self._send_once(access, method, path, call, fields, body,
                                   content, accept, read_timeout)
        if response.status == 401:
            fresh = self._connection.renew(access)
            if fresh is not access:
                response.drain_conn()
                response = self._send_once(
                    fresh, method, path, call, fields, body, content, accept,
                    read_timeout)
        if response.status >= 300:
            raise self._error(response, call)
        return response

    def _send_once(self, access, method, path, call, fields, body, content,
                   accept, read_timeout):
        if method != 'GET':
            self._before_write()
        headers = {'Accept': accept, 'User-Agent': self._user_agent}
        if access.authorization:
            headers['Authorization'] = access.authorization
        if body is not None:
            headers['Content-Type'] = content
            body = json.dumps(body).encode()
        url = access.server + path
        if fields:
            url += '?' + parse.urlencode(fields)
        timeout = urllib3.Timeout(
            connect=self._options.connect_timeout,
            read=read_timeout or self._options.read_timeout)
        code = 0
        try:
            response = self._pool(access).urlopen(
                method, url, body=body, headers=headers, retries=False,
                redirect=False, timeout=timeout, preload_content=False)
            code = response.status
            return response
        except (urllib3.exceptions.HTTPError, OSError) as e:
            if isinstance(e, urllib3.exceptions.SSLError):
                # A certificate may have been replaced: the next try has it.
                self._connection.renew(access)
            raise _connection_error(call, access.server, e) from None
        finally:
            with self._lock:
                self._calls[call.verb, call.resource, code] += 1

    def _pool(self, access):
        with self._lock:
            if self._transport != access.transport:
                self._manager = _manager(access, self._connections)
                self._transport = access.transport
            return self._manager

    def _error(self, response, call):
        """The error that an answer means."""
        data = b''
        try:
            data = response.read()
        except (urllib3.exceptions.HTTPError, OSError):
            pass
        return api_responses.error_from_response(
            response.status, data, response.headers, call)


class Watch:
    """An open watch: iterate it for (type, object).

    Ends when the server ends it.
    """

    def __init__(self, response, call, bookmarked, collection, resumes=False):
        self._response = response
        self._call = call
        self._bookmarked = bookmarked
        self._collection = collection
        self._resumes = resumes

    def __iter__(self):
        try:
            for line in self._lines():
                event = api_responses.parse(line)
                if event['type'] == 'ERROR':
                    status = event.get('object') or {}
                    raise api_responses.error_from_status(
                        status.get('code') or 500,
                        status.get('message') or 'The watch failed',
                        None, self._call)
                if event['type'] == 'BOOKMARK':
                    self._bookmarked.add(self._collection)
                yield event['type'], event['object']
        except urllib3.exceptions.ReadTimeoutError:
            self._bookmarked.discard(self._collection)
            if self._resumes:
                return
            # It should have ended by itself. What it kept to itself, another
            # one from the same version on may as well.
            raise errors.WatchExpired(
                f'{self._call} was silent and did not end') from None
        except (urllib3.exceptions.HTTPError, OSError, ValueError,
                KeyError, TypeError) as e:
            raise errors.Unavailable(
                f'{self._call} broke: {_reason(e)}') from None
        finally:
            self._response.close()

    def _lines(self):
        rest = []
        while True:
            data = self._response.read1(65536)
            if not data:
                break
            first, *others = data.split(b'\n')
            rest.append(first)
            for following in others:
                line = b''.join(rest)
                rest = [following]
                if line.strip():
                    yield line
        if b''.join(rest).strip():
            yield b''.join(rest)

    def stop(self):
        """End it, from another thread."""
        try:
            self._response.shutdown()
        except (OSError, ValueError, RuntimeError):
            pass    # ended by itself


def _manager(access, connections):
    common = {'num_pools': 2, 'maxsize': connections,
              'socket_options': connection_.SOCKET_OPTIONS}
    if access.server.startswith('https:'):
        common['ssl_context'] = access.ssl_context()
        if access.insecure:
            # Said once by whoever set it, not once a request.
            urllib3.disable_warnings(
                urllib3.exceptions.InsecureRequestWarning)
        if access.tls_server_name:
            common['server_hostname'] = access.tls_server_name
    if not access.proxy:
        return urllib3.PoolManager(**common)
    try:
        if access.proxy.startswith('socks'):
            from urllib3.contrib import socks
            return socks.SOCKSProxyManager(access.proxy, **common)
        auth = urllib3.util.parse_url(access.proxy).auth
        if auth:
            common['proxy_headers'] = urllib3.make_headers(
                proxy_basic_auth=parse.unquote(auth))
        return urllib3.ProxyManager(access.proxy, **common)
    except (ImportError, urllib3.exceptions.HTTPError) as e:
        raise errors.ConfigError(
            f'The proxy of {access.server} cannot be used: {e}') from None


def _connection_error(call, server, error):
    """The error that a connection which failed means."""
    e = urllib3.exceptions
    message = 'The API server %s does not answer (%s): %s' % (
        server, call, _reason(error))
    if isinstance(error, (e.NewConnectionError, e.ConnectTimeoutError,
                          e.ProxyError, e.LocationValueError)):
        return errors.Unavailable(message)
    if isinstance(error, e.TimeoutError):
        return errors.Unavailable(message, maybe_done=True)
    return errors.ConnectionLost(message, maybe_done=True)


def _reason(error):
    """The last of the reasons that are wrapped in each other."""
    for inner in (getattr(error, 'reason', None), error.__cause__,
                  *reversed(error.args)):
        if isinstance(inner, Exception):
            return _reason(inner)
    text = str(error)
    # urllib3 begins with the repr of its connection.
    return re.sub(r"^<?[\w.]+\([^)]*\)( at 0x\w+>)?: ", '', text) or repr(
        error)
