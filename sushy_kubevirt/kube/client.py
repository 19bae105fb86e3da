# SPDX-License-Identifier: Apache-2.0
"""Client of the Kubernetes API.

Writes are sent once; `retry` repeats them. Uses urllib3 and JSON without the
kubernetes library: importing ``kubernetes.client`` (37.0) adds 17 MiB (PSS)
and 0.4 s to a process that has 18 MiB with this client and `machine.cluster`.
"""

from __future__ import annotations

import collections
from collections import abc
import copy
import json
import random
import threading
import typing
from urllib import parse

import urllib3

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import api_responses
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import connection_errors
from sushy_kubevirt.kube import connection_pools
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import retry
from sushy_kubevirt.kube import watch_stream

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import portforward
    from sushy_kubevirt.kube import websocket as websockets

JSON = 'application/json'
JSON_PATCH = 'application/json-patch+json'
MERGE_PATCH = 'application/merge-patch+json'
APPLY = 'application/apply-patch+yaml'

#: The Accept header of Kubernetes' own clients. KubeVirt's actions respond
#: without a body and declare no content type, so virt-api responds with 406
#: to clients that accept only JSON (go-restful's ``matchesAccept``).
ACCEPT = 'application/json, */*'

#: Accept headers that request only the metadata of one object and of a list.
_METADATA = (
    'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1',
    'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1')

#: User-Agent of the BMC processes, and their field manager in server-side
#: apply. For other writes the API server uses the User-Agent up to a slash as
#: the field manager.
FIELD_MANAGER = 'sushy-kubevirt'

#: Number of idle connections to the API server that are kept.
CONNECTIONS = 8

#: HTTP methods of the verbs; all else reads.
_METHODS = {'create': 'POST', 'update': 'PUT', 'patch': 'PATCH',
            'delete': 'DELETE'}

#: Have unknown fields refused, which would be dropped silently otherwise.
_STRICT = {'fieldValidation': 'Strict'}

#: A resourceVersion that no object has: that of an empty etcd.
_NO_OBJECT_VERSION = '1'

#: Duration of a streaming list in seconds; the API server then ends it.
STREAM_SECONDS = 300

#: Seconds beyond its duration after which a silent watch counts as dead.
WATCH_GRACE = 5

#: Seconds of silence after which a watch that had bookmarks counts as dead.
#: Bookmarks arrive "roughly every minute" (apiserver,
#: pkg/storage/cacher/cache_watcher.go), but not while a kind does not change
#: and etcd sends no progress notification, which it does every 5 s with
#: kubeadm's settings and every 10 min by default.
WATCH_SILENCE = 90


#: Items of a list, and the resourceVersion of the collection.
Page: typing.TypeAlias = tuple[abc.Sequence[objects.ObjectT], str]


class Options(typing.Protocol):
    """Options of a `Client` and its watches. Times are in seconds."""

    @property
    def connect_timeout(self) -> float:
        """Timeout of a connection."""

    @property
    def read_timeout(self) -> float:
        """Timeout of the response to one request."""

    @property
    def watch_seconds(self) -> float:
        """Duration of a watch."""

    @property
    def watch_backoff(self) -> float:
        """Longest pause before a watch is opened again."""

    @property
    def page_size(self) -> int:
        """Objects in one page of a list."""


class CallKey(typing.NamedTuple):
    """What requests are counted by.

    Verb and resource as in RBAC rules, such as ``update`` and
    ``virtualmachines/start.subresources.kubevirt.io``; ``code`` is the HTTP
    status, 0 without a response.
    """

    verb: str
    resource: str
    code: int


class Client:
    """Client of one API server. Thread-safe.

    Every method may raise `errors.Unavailable` or a subclass if the server
    is unreachable or fails, `errors.AccessDenied`, `errors.ObjectNotFound`
    and `errors.Rejected`.

    :param user_agent: sent with each request; also the field manager
    :param connections: number of idle connections that are kept
    :param before_write: called immediately before each request other than
        GET; an exception prevents the request
    :param watch_silence: seconds of silence after which a watch is opened
        again from the version it reached; for watches of a much longer
        duration. None: a watch that is silent beyond its duration, or for
        `WATCH_SILENCE` once it had bookmarks, counts as dead, and the
        collection is listed again.
    """

    def __init__(self, connection: connection.Connection, options: Options,
                 user_agent: str = FIELD_MANAGER,
                 connections: int = CONNECTIONS,
                 before_write: abc.Callable[[], object] = lambda: None,
                 watch_silence: float | None = None) -> None:
        self._connection = connection
        self._options = options
        self._user_agent = user_agent
        self._before_write = before_write
        self._watch_silence = watch_silence
        self._lock = threading.Lock()
        self._calls: collections.Counter[CallKey] = collections.Counter()
        self._pools = connection_pools.Pools(connections)
        # Collections whose watches have received bookmarks recently.
        self._bookmarked: set[watch_stream.Collection] = set()

    def with_options(self, options: Options) -> Client:
        """Return a client that shares all but the options with this one."""
        client = copy.copy(self)
        client._options = options
        return client

    def get(self, resource: api_resources.Resource[objects.ObjectT],
            namespace: str | None, name: str,
            metadata_only: bool = False) -> objects.ObjectT:
        """Read one object.

        :param namespace: None or '' for a kind outside of namespaces
        :param metadata_only: True to read only its metadata
        """
        return self._request(
            api_responses.ApiCall('get', resource, namespace, name),
            accept=_METADATA[0] if metadata_only else ACCEPT)

    def pages(self, resource: api_resources.Resource[objects.ObjectT],
              namespace: str | None = None, label_selector: str = '',
              field_selector: str = '', metadata_only: bool = False,
              page_size: int | None = None
              ) -> abc.Iterator[Page[objects.ObjectT]]:
        """Read a collection, a page at a time.

        :param namespace: None or '' for all namespaces
        :param metadata_only: True to read only the metadata
        :param page_size: objects in a page; None for Options.page_size
        :raises: `errors.WatchExpired` if the next page is no longer available
        """
        call = api_responses.ApiCall('list', resource, namespace)
        fields: dict[str, str | int] = {
            'limit': page_size or self._options.page_size,
            **_selectors(label_selector, field_selector)}
        while True:
            page = self._request(
                call, fields,
                accept=_METADATA[1] if metadata_only else ACCEPT)
            meta = page.get('metadata') or {}
            yield page.get('items') or (), meta.get('resourceVersion', '')
            if not meta.get('continue'):
                return
            fields['continue'] = meta['continue']

    def watch(self, resource: api_resources.Resource[objects.ObjectT],
              namespace: str | None = None, version: str | None = '',
              label_selector: str = '', field_selector: str = '',
              metadata_only: bool = False
              ) -> watch_stream.Watch[objects.ObjectT]:
        """Watch a collection from a resourceVersion on.

        :param namespace: None or '' for all namespaces
        :param version: the resourceVersion; None for a streaming list
            (KEP-3157): all objects, in events of type ``ADDED``, then a
            bookmark with the annotation `watch_stream.INITIAL_EVENTS_END`
        :param metadata_only: True to receive only the metadata
        :returns: an open watch
        :raises: `errors.WatchExpired` if the version is too old;
            `errors.Rejected` if the API server has no streaming lists
            (Kubernetes before 1.32 and 1.33)
        """
        call = api_responses.ApiCall('watch', resource, namespace)
        # Jitter, as all BMCs start their watches together after an outage.
        seconds = max(1, round(
            self._options.watch_seconds * random.uniform(0.8, 1.0)))
        fields: dict[str, str | int] = {
            'watch': '1', 'allowWatchBookmarks': 'true',
            'timeoutSeconds': seconds,
            **_selectors(label_selector, field_selector)}
        if version is not None:
            fields['resourceVersion'] = version
        else:       # from the most recent one on
            fields.update(sendInitialEvents='true',
                          resourceVersionMatch='NotOlderThan',
                          timeoutSeconds=STREAM_SECONDS)
        collection = watch_stream.Collection(
            resource, namespace, label_selector, field_selector)
        silence: float = seconds + WATCH_GRACE
        if version is None:
            silence = self._options.read_timeout
        elif self._watch_silence is not None:
            silence = min(silence, self._watch_silence)
        elif collection in self._bookmarked:
            silence = min(silence, WATCH_SILENCE)
        response = self._request(
            call, fields, accept=_METADATA[0] if metadata_only else ACCEPT,
            silence=silence)
        return watch_stream.Watch(
            response, call, self._bookmarked, collection,
            self._watch_silence is not None)

    def patch(self, resource: api_resources.Resource[objects.ObjectT],
              namespace: str | None, name: str,
              body: objects.JsonPatch | abc.Mapping[str, typing.Any],
              subresource: str | None = None) -> objects.ObjectT:
        """Patch an object.

        :param body: a mapping for a merge patch
        :param subresource: such as ``status``
        :returns: the patched object
        :raises: `errors.Conflict` if a ``test`` of the patch failed
        """
        return self._request(
            api_responses.ApiCall(
                'patch', resource, namespace, name, subresource),
            body=body,
            content=JSON_PATCH if isinstance(body, list) else MERGE_PATCH)

    def apply(self, resource: api_resources.Resource[objects.ObjectT],
              namespace: str | None, name: str,
              body: abc.Mapping[str, typing.Any]) -> objects.ObjectT:
        """Set an object's fields by server-side apply, with force.

        :param body: with apiVersion and kind; a ``metadata.uid`` in it
            must be that of the object
        :returns: the object after the change
        :raises: `errors.Conflict` if the object has another uid
        """
        return self._request(
            api_responses.ApiCall('patch', resource, namespace, name),
            {'fieldManager': self._user_agent, 'force': 'true', **_STRICT},
            body, APPLY)

    def replace(self, resource: api_resources.Resource[objects.ObjectT],
                namespace: str | None, name: str,
                body: abc.Mapping[str, typing.Any]) -> objects.ObjectT:
        """Replace an object.

        :param body: a ``metadata.resourceVersion`` in it must be that of the
            object
        :returns: the object after the change
        :raises: `errors.Conflict` if the object has another resourceVersion
        """
        return self._request(
            api_responses.ApiCall('update', resource, namespace, name),
            body=body)

    def action(self, resource: api_resources.AnyResource, namespace: str,
               name: str, action: str,
               body: abc.Mapping[str, typing.Any] | None = None
               ) -> objects.Json:
        """Call an action of KubeVirt's API on a VM or VMI.

        :param action: such as ``start``
        :returns: body of the response; {} if it is empty
        """
        return self._request(
            api_responses.ApiCall('update', resource, namespace, name, action,
                                  api_resources.SUBRESOURCES_GROUP),
            body={} if body is None else body)

    def expand_spec(self, namespace: str,
                    name: str) -> objects.VirtualMachine:
        """Read a VM with its instance type and preference filled in."""
        return self._request(api_responses.ApiCall(
            'get', api_resources.VM, namespace, name, 'expand-spec',
            api_resources.SUBRESOURCES_GROUP))

    async def websocket(self, resource: api_resources.AnyResource,
                        namespace: str, name: str, action: str,
                        protocol: str) -> websockets.WebSocket:
        """Open a WebSocket that KubeVirt's API serves, such as ``console``.

        :param action: name of the subresource
        :param protocol: name of the WebSocket subprotocol
        """
        from sushy_kubevirt.kube import websocket
        call = api_responses.ApiCall('get', resource, namespace, name, action,
                                     api_resources.SUBRESOURCES_GROUP)
        return await websocket.connect(
            self._connection, call, protocol, self._user_agent,
            self._options.read_timeout)

    def port_forward(self, namespace: str, pod: str,
                     port: int) -> portforward.Connection:
        """Connect to a TCP port of a pod, through the API server.

        Needs the rights to ``get`` (the method of WebSockets) and, from
        Kubernetes 1.35 on, to ``create`` ``pods/portforward`` (feature gate
        AuthorizePodWebsocketUpgradeCreatePermission).
        """
        from sushy_kubevirt.kube import portforward
        call = api_responses.ApiCall(
            'create', api_resources.POD, namespace, pod, 'portforward')
        call.path += f'?ports={port}'
        return portforward.connect(self._connection, call, self._user_agent,
                                   self._options.read_timeout)

    def create(self, resource: api_resources.Resource[objects.ObjectT],
               namespace: str | None, body: abc.Mapping[str, typing.Any],
               named: bool = False) -> objects.ObjectT:
        """Create an object.

        :param named: True to create by server-side apply. The API server
            then requires the rights to ``create`` and ``patch`` an object of
            this name (apiserver/pkg/endpoints/handlers/patch.go), otherwise
            the right to create any. The resourceVersion prevents the change
            of an existing object: the API server compares it with that of an
            existing object and ignores it if there is none
            (registry/generic/registry/store.go, Update).
        :returns: the created object
        :raises: `errors.Conflict` if the object exists
        """
        call = api_responses.ApiCall('create', resource, namespace)
        if named:
            metadata = dict(body['metadata'],
                            resourceVersion=_NO_OBJECT_VERSION)
            call.path = resource.path(namespace, metadata['name'])
            return self._request(
                call, {'fieldManager': self._user_agent, **_STRICT},
                dict(body, metadata=metadata), APPLY)
        return self._request(call, body=body)

    def delete(self, resource: api_resources.AnyResource,
               namespace: str | None, name: str,
               body: abc.Mapping[str, typing.Any] | None = None
               ) -> objects.Json:
        """Delete an object.

        :param body: DeleteOptions, such as preconditions
        :returns: a Status, or the object while it is being deleted
        """
        return self._request(
            api_responses.ApiCall('delete', resource, namespace, name),
            body=body)

    def serves_group(self, group: str) -> bool:
        """Return True if the API server serves an API group.

        All authenticated users have the right to this request (ClusterRole
        ``system:discovery``).

        :param group: such as ``cdi.kubevirt.io``
        """
        return self._discover(
            f'apis/{group}', api_resources.Resource(group, '', 'apis', '')
        ) is not None

    def serves(self, resource: api_resources.AnyResource) -> bool:
        """Return True if the API server serves a kind.

        :param resource: of an API group
        """
        served = self._discover(f'apis/{resource.api_version}', resource)
        return served is not None and any(
            entry['name'] == resource.plural for entry in served['resources'])

    def version(self) -> objects.Json:
        """Read the version of the API server.

        :returns: with ``gitVersion``, such as ``v1.34.4``
        """
        return self._request(_discovery(
            'version', api_resources.Resource('', '', 'version', '')))

    def _discover(self, path: str, resource: api_resources.AnyResource
                  ) -> objects.Json | None:
        """Read what the server has; None if it does not have that."""
        try:
            return self._request(_discovery(path, resource))
        except errors.ObjectNotFound:
            return None

    @property
    def calls(self) -> dict[CallKey, int]:
        """Number of requests so far."""
        with self._lock:
            return dict(self._calls)

    def close(self) -> None:
        """Close all connections."""
        self._pools.clear()

    def _request(self, call: api_responses.ApiCall,
                 fields: abc.Mapping[str, str | int] | None = None,
                 body: object = None, content: str = JSON,
                 accept: str = ACCEPT, silence: float | None = None
                 ) -> typing.Any:
        """Send a request; repeat it once with renewed credentials on 401, a
        GET also once if the server has closed its idle connection.

        :param silence: read timeout of a watch; None for other requests
        :returns: the parsed body; for a watch the response
        """
        blocking.check()
        headers = {'Accept': accept, 'User-Agent': self._user_agent}
        data = None
        if body is not None:
            headers['Content-Type'] = content
            data = json.dumps(body).encode()
        url = call.path
        if fields:
            url += '?' + parse.urlencode(fields)
        method = 'PATCH' if content == APPLY else _METHODS.get(
            call.verb, 'GET')
        timeout = urllib3.Timeout(
            connect=self._options.connect_timeout,
            read=min(silence or self._options.read_timeout,
                     retry.limit() / 2))
        access, renewed = self._connection.access(), False
        reconnects = method == 'GET' and silence is None
        while True:
            if method != 'GET':
                self._before_write()
            sent = [*headers.items(), *access.headers]
            try:
                pool, base = self._pools.get(access)
                response = pool.urlopen(
                    # Who acts as another one may repeat a header.
                    method, base + url, body=data, headers=urllib3.
                    HTTPHeaderDict(sent) if access.impersonation
                    else dict(sent), retries=False,
                    redirect=False, timeout=timeout, preload_content=False)
            except (urllib3.exceptions.HTTPError, OSError) as e:
                error = self._connection_failed(call, access, e)
                if not (reconnects and isinstance(
                        error, errors.ConnectionLost)):
                    raise error from None
                access, reconnects = self._connection.access(), False
                continue
            self._count(call, response.status)
            if response.status != 401 or renewed or access is (
                    fresh := self._connection.renew(access)):
                return self._result(response, call, silence is not None)
            response.drain_conn()
            access, renewed = fresh, True

    def _count(self, call: api_responses.ApiCall, code: int) -> None:
        with self._lock:
            self._calls[CallKey(call.verb, call.resource, code)] += 1

    def _connection_failed(self, call: api_responses.ApiCall,
                           access: connection.Access, error: Exception
                           ) -> errors.Unavailable:
        self._count(call, 0)
        if (isinstance(error, urllib3.exceptions.SSLError)
                and not isinstance(error.args[0], connection.CLOSED)):
            # A certificate may have been replaced: reload it for the next
            # attempt. Not after a mere loss of the connection, as a
            # kubeconfig takes as long as the attempt.
            self._connection.renew(access)
        return connection_errors.unavailable(call, access.server, error)

    def _result(self, response: urllib3.BaseHTTPResponse,
                call: api_responses.ApiCall, unread: bool) -> typing.Any:
        """Return the body, or with ``unread`` the response.

        :raises: the exception for an error response
        """
        if unread and response.status < 300:
            return response
        data = b''
        try:
            data = response.read()
            if response.status < 300:
                return api_responses.parse(data) if data else {}
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as e:
            if response.status < 300:
                raise connection_errors.unavailable(
                    call, self._connection.server, e) from None
        raise api_responses.error_from_response(
            response.status, data, response.headers, call)


def _discovery(path: str, resource: api_resources.AnyResource
               ) -> api_responses.ApiCall:
    """Make the call that reads what is no object.

    :param resource: for messages and metrics
    """
    call = api_responses.ApiCall('get', resource, '', path)
    call.path = f'/{path}'
    return call


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {name: value for name, value in (
        ('labelSelector', labels), ('fieldSelector', fields)) if value}
