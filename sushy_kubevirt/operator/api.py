# SPDX-License-Identifier: Apache-2.0
"""The operator's own requests to the API server, one try each.

Only BMCs are kopf's affair. Whoever wants a call to survive a bad moment
tries again; `watch` alone does so itself, and never ends.
"""

import asyncio
import json
import logging
import random
import time

import aiohttp

from sushy_kubevirt.kube import api_responses
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import naming

LOG = logging.getLogger(__name__)

#: Seconds to get a connection, and that a request may take in all.
CONNECT_SECONDS = 10
PATIENCE = 30

#: Seconds that a watch lasts before it is opened anew, with some jitter; and
#: that it may be silent: a bookmark comes each minute.
WATCH_SECONDS = 1800
SILENT_SECONDS = 70

#: Objects that are listed in one page, and how many pages are read at a
#: time: what is parsed at once stays with the process for good.
PAGE = 100
PAGES = 2

#: Seconds before a watch that failed is tried again, twice as long each time,
#: and at most.
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30

#: What happened at the end of a complete list; see `Api.watch`.
LISTED = 'LISTED'

_OPENED = 'OPENED'

_JSON = 'application/json'
_JSON_PATCH = 'application/json-patch+json'
_MERGE_PATCH = 'application/merge-patch+json'
_APPLY = 'application/apply-patch+yaml'

_META = ('application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1',
         'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1')

#: Bytes of one object in a watch at most: etcd takes 1.5 MiB.
_LONGEST_LINE = 8 * 2 ** 20


class Api:
    """Speaks to one API server.

    Every method raises `errors.Unavailable` or one of its subclasses when
    the server is away or in trouble, `errors.AccessDenied`,
    `errors.ObjectNotFound` and `errors.Rejected`; a write also what
    ``may_write`` raises.

    :param transport: a `transport.Transport`
    :param may_write: function called before each write; raises unless this
        process is the one that works
    """

    def __init__(self, transport, may_write=lambda: None):
        self._transport = transport
        self._session = transport.session()
        # Of watches there are as many as namespaces and what else is
        # followed; nobody is to wait for a connection that one of them has.
        self._watching = transport.session(limited=False)
        self._paging = asyncio.Semaphore(PAGES)
        self.may_write = may_write

    async def close(self):
        """Let go of all connections."""
        await self._session.close()
        await self._watching.close()

    async def get(self, resource, namespace, name, metadata_only=False):
        """Read one object.

        :param resource: a `resources.Resource`
        :param metadata_only: read nothing but its metadata
        :returns: the object, a dict
        """
        call = api_responses.Call('get', resource, namespace, name)
        return await self._answer(
            'GET', resource.path(namespace, name), call,
            accept=_META[0] if metadata_only else _JSON)

    async def create(self, resource, namespace, body):
        """Create an object.

        :returns: it as it is now
        :raises: `errors.Conflict` if there is one of that name
        """
        call = api_responses.Call('create', resource, namespace,
                                  body['metadata'].get('name'))
        return await self._write('POST', resource.path(namespace), call,
                                 body=body)

    async def apply(self, resource, namespace, name, body):
        """Have an object's fields as body says (server-side apply).

        :param body: with apiVersion and kind; a ``metadata.uid`` in it must
            be the object's
        :returns: the object as it is now
        """
        call = api_responses.Call('patch', resource, namespace, name)
        return await self._write(
            'PATCH', resource.path(namespace, name), call,
            {'fieldManager': naming.OPERATOR, 'force': 'true'}, body, _APPLY)

    async def patch(self, resource, namespace, name, body, subresource=None):
        """Change an object: a JSON patch if body is a list, else a merge
        patch.

        :returns: the object as it is now
        :raises: `errors.Conflict` if a ``test`` of the patch failed, or its
            resourceVersion is not the object's
        """
        call = api_responses.Call(
            'patch', resource, namespace, name, subresource)
        return await self._write(
            'PATCH', resource.path(namespace, name, subresource), call, {},
            body, _JSON_PATCH if isinstance(body, list) else _MERGE_PATCH)

    async def replace(self, resource, namespace, name, body):
        """Put an object in the place of one that has the resourceVersion
        that body names.

        :returns: the object as it is now
        :raises: `errors.Conflict` if it has another one
        """
        call = api_responses.Call('update', resource, namespace, name)
        return await self._write('PUT', resource.path(namespace, name), call,
                                 body=body)

    async def delete(self, resource, namespace, name, uid=None):
        """Delete an object, and what it owns afterwards.

        :param uid: that of the one that is meant, or None for any
        :raises: `errors.Conflict` if it has another uid
        """
        call = api_responses.Call('delete', resource, namespace, name)
        body = {'propagationPolicy': 'Background'}
        if uid:
            body['preconditions'] = {'uid': uid}
        return await self._write('DELETE', resource.path(namespace, name),
                                 call, body=body)

    async def watch(self, resource, namespace=None, label_selector='',
                    field_selector='', metadata_only=False):
        """Follow a collection, for ever, whatever happens.

        :param namespace: None or '' for all namespaces
        :param metadata_only: of the objects, have nothing but the metadata
        :returns: asynchronous iterator of (type, object): 'ADDED',
            'MODIFIED' and 'DELETED' with a dict; and after each complete
            list `LISTED` with the set of (namespace, name) that are there,
            so that what vanished meanwhile can be found
        """
        where = api_responses.Call('watch', resource, namespace)
        query = api_responses.selectors(label_selector, field_selector)
        accept = _META if metadata_only else (_JSON, _JSON)
        tries, told, version = 0, None, ''
        while True:
            pause = 0
            try:
                if not version:
                    there, of_page = set(), ''
                    async for items, of_page in self._pages(
                            resource, namespace, query, accept[1]):
                        for item in items:
                            meta = item['metadata']
                            there.add((meta.get('namespace', ''),
                                       meta['name']))
                            yield 'ADDED', item
                    # Nothing of the last page is kept for as long as the
                    # watch lasts.
                    items = item = meta = None
                    yield LISTED, there
                    # Now that it is complete, and not before: half a list
                    # is begun again.
                    there, version = None, of_page
                began = time.monotonic()
                async for kind, item in self._changes(
                        resource, namespace, query, accept[0], version):
                    if kind == _OPENED:
                        if told:
                            LOG.info('%s works again', where)
                        told = None
                        continue
                    tries = 0
                    version = item['metadata']['resourceVersion']
                    if kind != 'BOOKMARK':
                        yield kind, item
                    item = None
                # It ended as it was to, unless it hardly began.
                if time.monotonic() > began + LONGEST_PAUSE:
                    tries = 0
                    continue
            except errors.WatchExpired as e:
                LOG.debug('%s: %s', where, e)
                version = ''
            except errors.Unavailable as e:
                pause = e.retry_after or 0
                if tries:
                    told = _tell(told, e)
                else:
                    # Connections do break.
                    LOG.debug('%s', e)
            except errors.MachineError as e:
                # A right that is missing; or a selector that the server
                # does not understand.
                told = _tell(told, e)
            wait = min(FIRST_PAUSE * 2 ** min(tries, 10), LONGEST_PAUSE)
            tries += 1
            await asyncio.sleep(max(wait * random.uniform(0.5, 1), pause))

    async def served(self, resource, namespace=None):
        """Read whether there are such objects, or could be.

        :raises: `errors.Unavailable` if the server does not know the kind
        """
        await self._answer(
            'GET', resource.path(namespace),
            api_responses.Call('list', resource, namespace), {'limit': 1},
            accept=_META[1])

    async def _pages(self, resource, namespace, query, accept):
        call = api_responses.Call('list', resource, namespace)
        fields = {'limit': PAGE, **query}
        while True:
            async with self._paging:
                page = await self._answer(
                    'GET', resource.path(namespace), call, fields,
                    accept=accept)
            meta = page.get('metadata') or {}
            yield page.get('items') or (), meta.get('resourceVersion', '')
            if not meta.get('continue'):
                return
            fields['continue'] = meta['continue']

    async def _changes(self, resource, namespace, query, accept, version):
        call = api_responses.Call('watch', resource, namespace)
        seconds = round(WATCH_SECONDS * random.uniform(0.8, 1))
        fields = {'watch': '1', 'allowWatchBookmarks': 'true',
                  'resourceVersion': version, 'timeoutSeconds': seconds,
                  **query}
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS,
            sock_read=SILENT_SECONDS)
        try:
            async with self._send(
                    'GET', resource.path(namespace), call, fields,
                    accept=accept, timeout=timeout,
                    watching=True) as response:
                yield _OPENED, None
                async for line in _lines(response.content):
                    event = api_responses.parsed(line)
                    if event['type'] == 'ERROR':
                        status = event.get('object') or {}
                        raise api_responses.error(
                            status.get('code') or 500,
                            status.get('message') or 'The watch failed',
                            None, call)
                    yield event['type'], event['object']
        except aiohttp.ServerTimeoutError as e:
            # Whatever stands in between holds a connection that is dead.
            LOG.debug('%s: %s', call, _reason(e))
        except (aiohttp.ClientError, OSError, ValueError, KeyError,
                TypeError) as e:
            raise errors.Unavailable(
                f'{call} broke: {_reason(e)}') from None

    async def _write(self, method, path, call, fields=None, body=None,
                     content=_JSON):
        self.may_write()
        return await self._answer(method, path, call, fields, body, content)

    async def _answer(self, method, path, call, fields=None, body=None,
                      content=_JSON, accept=_JSON):
        try:
            async with self._send(method, path, call, fields, body, content,
                                  accept) as response:
                data = await response.read()
            return api_responses.parsed(data) if data else {}
        except (aiohttp.ClientError, OSError, ValueError) as e:
            raise self._lost(call, e) from None

    def _send(self, method, path, call, fields=None, body=None,
              content=_JSON, accept=_JSON,
              timeout=aiohttp.ClientTimeout(
                  total=PATIENCE, sock_connect=CONNECT_SECONDS),
              watching=False):
        # Those that are closed: certificates were replaced.
        if self._session.closed:
            self._session = self._transport.session()
        if self._watching.closed:
            self._watching = self._transport.session(limited=False)
        session = self._watching if watching else self._session
        return _Sent(self, call, session.request(
            method, self._transport.server + path, params=fields,
            data=None if body is None else json.dumps(body).encode(),
            headers={'Accept': accept, 'Content-Type': content},
            allow_redirects=False, timeout=timeout))

    def _lost(self, call, error):
        """The error that a connection which failed means."""
        message = 'The API server %s does not answer (%s): %s' % (
            self._transport.server, call, _reason(error))
        if isinstance(error, aiohttp.ClientConnectorError):
            return errors.Unavailable(message)
        if isinstance(error, TimeoutError):
            return errors.Unavailable(message, maybe_done=True)
        return errors.ConnectionLost(message, maybe_done=True)


class _Sent:
    """An answer that is none when the server refuses."""

    def __init__(self, api, call, request):
        self._api, self._call, self._request = api, call, request

    async def __aenter__(self):
        try:
            response = await self._request.__aenter__()
            if response.status < 300:
                return response
            async with response:
                try:
                    data = await response.content.read(2 ** 20)
                except (aiohttp.ClientError, OSError):
                    data = b''
        except (aiohttp.ClientError, OSError) as e:
            raise self._api._lost(self._call, e) from None
        raise api_responses.refusal(response.status, data, response.headers,
                                    self._call)

    async def __aexit__(self, *args):
        await self._request.__aexit__(*args)


async def _lines(content):
    # Not the stream's own lines, which may have no more than 512 KiB.
    rest = bytearray()
    async for data in content.iter_any():
        begin = 0
        while (end := data.find(b'\n', begin)) >= 0:
            rest += data[begin:end]
            if rest.strip():
                yield bytes(rest)
            rest.clear()
            begin = end + 1
        rest += data[begin:]
        if len(rest) > _LONGEST_LINE:
            raise ValueError('an object without an end')
    if rest.strip():
        # No JSON if it was cut off.
        yield bytes(rest)


def _tell(told, error):
    """Log once what keeps a watch from working.

    :returns: what has been told
    """
    text = str(error)
    if text != told:
        LOG.warning('%s', text)
    return text


def _reason(error):
    return str(error) or type(error).__name__
