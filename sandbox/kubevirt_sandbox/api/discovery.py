# SPDX-License-Identifier: Apache-2.0
"""API discovery: /api, /apis and /version."""
import dataclasses
import hashlib
import sys

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import history
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import negotiation
from kubevirt_sandbox.api import web

#: The Kubernetes whose ways are followed.
VERSION = ('1', '36', 'v1.36.0')

HEALTH = ('/healthz', '/readyz', '/livez')


def public(path):
    """Tell whether a path needs no token."""
    return path == '/version' or path.rstrip('/') in HEALTH or (
        path.startswith(tuple(h + '/' for h in HEALTH)))


def health(server, request):
    """Answer a public path."""
    if request.path != '/version':
        return web.Response(text='ok')
    major, minor, version = VERSION
    return _json({
        'major': major, 'minor': minor,
        'gitVersion': version + '+sushy-kubevirt-sandbox', 'gitCommit': '',
        'gitTreeState': 'clean', 'buildDate': '2026-01-01T00:00:00Z',
        'goVersion': '', 'compiler': 'python ' + sys.version.split()[0],
        'platform': 'linux/amd64'})


def _json(body):
    return web.Response(body=history.encode(body),
                        content_type='application/json')


def _kept(server, key, make):
    """Return what a function made since the kinds changed last.

    ``kubectl`` reads the same documents each time.
    """
    changes, found = server.discovered
    if changes != server.kinds.changes:
        found = {}
        server.discovered = server.kinds.changes, found
    if key not in found:
        found[key] = make()
    return found[key]


def _served(server):
    """Return ``{group: [versions]}``, including groups that only have verbs.
    """
    groups = server.kinds.groups()
    for group, version, _ in server.subresources:
        versions = groups.setdefault(group, [])
        if version not in versions:
            versions.append(version)
    return groups


def _group(name, versions):
    entries = [{'groupVersion': f'{name}/{v}', 'version': v}
               for v in versions]
    return {'name': name, 'versions': entries,
            'preferredVersion': entries[0]}


_VERBS = {'PUT': 'update', 'POST': 'create', 'PATCH': 'patch',
          'DELETE': 'delete', 'GET': 'get'}


@dataclasses.dataclass
class _Resource:
    """A resource in discovery, with its subresources."""

    plural: str
    namespaced: bool
    kind: kinds.Kind | None = None
    #: (name, (group, version, kind), verbs)
    below: list = dataclasses.field(default_factory=list)


def _resources(server, group, version):
    """List the :class:`_Resource` of a group and version."""
    found = {}
    for kind in server.kinds:
        if (kind.group, kind.version) == (group, version):
            entry = found[kind.plural] = _Resource(
                kind.plural, kind.namespaced, kind)
            if kind.status:
                entry.below.append(
                    ('status', (group, version, kind.kind),
                     ['get', 'patch', 'update']))
    for key, entries in server.subresources.items():
        if key[:2] == (group, version):
            for sub in entries.values():
                entry = found.setdefault(
                    sub.plural, _Resource(sub.plural, sub.namespaced))
                of = sub.kind_of or (group, version)
                entry.below.append((sub.name, (*of, sub.kind), sorted(
                    {_VERBS.get(m, 'get') for m in sub.methods})))
    return found.values()


def _described(kind):
    found = {'singularName': kind.singular, 'verbs': list(kind.verbs)}
    if kind.short_names:
        found['shortNames'] = list(kind.short_names)
    if kind.categories:
        found['categories'] = list(kind.categories)
    return found


def _list(server, group, version):
    """Return an APIResourceList."""
    resources = []
    for entry in _resources(server, group, version):
        if entry.kind:
            resources.append({
                'name': entry.plural, 'namespaced': entry.namespaced,
                'kind': entry.kind.kind, **_described(entry.kind)})
        for name, kind, verbs in entry.below:
            about = {'name': f'{entry.plural}/{name}', 'singularName': '',
                     'namespaced': entry.namespaced, 'kind': kind[2],
                     'verbs': verbs}
            if kind[:2] != (group, version):
                about.update(group=kind[0], version=kind[1])
            resources.append(about)
    return {'kind': 'APIResourceList', 'apiVersion': 'v1',
            'groupVersion': f'{group}/{version}' if group else version,
            'resources': resources}


def _aggregated(server, groups):
    """Return an APIGroupDiscoveryList (apidiscovery.k8s.io/v2)."""
    items = []
    for group, versions in groups.items():
        item = {'metadata': {'name': group, 'creationTimestamp': None},
                'versions': []}
        for version in versions:
            resources = []
            for entry in _resources(server, group, version):
                about = {'resource': entry.plural, 'scope': 'Namespaced'
                         if entry.namespaced else 'Cluster',
                         'responseKind': {'group': group, 'version': version,
                                          'kind': ''},
                         'singularResource': '', 'verbs': []}
                if entry.kind:
                    described = _described(entry.kind)
                    about['singularResource'] = described.pop('singularName')
                    about.update(described)
                    about['responseKind']['kind'] = entry.kind.kind
                if entry.below:
                    about['subresources'] = [
                        {'subresource': name, 'verbs': verbs,
                         'responseKind': dict(zip(
                             ('group', 'version', 'kind'), kind,
                             strict=True))}
                        for name, kind, verbs in entry.below]
                resources.append(about)
            item['versions'].append({'version': version,
                                     'freshness': 'Current',
                                     'resources': resources})
        items.append(item)
    return {'kind': 'APIGroupDiscoveryList',
            'apiVersion': 'apidiscovery.k8s.io/v2', 'metadata': {},
            'items': items}


_AGGREGATED = frozenset((
    ('APIGroupDiscoveryList', 'apidiscovery.k8s.io', 'v2'),))


def _marked(document):
    """Return a document as JSON, and its ETag."""
    body = history.encode(document)
    return body, '"' + hashlib.sha256(body).hexdigest().upper() + '"'


def _root(server, request, groups):
    """Answer ``/api`` and ``/apis``, aggregated if the client accepts it."""
    core = request.path.rstrip('/') == '/api'
    form = negotiation.accepted(request.headers.get('Accept'), _AGGREGATED)
    if form.view:
        body, mark = _kept(server, ('aggregated', core), lambda: _marked(
            _aggregated(server, {g: v for g, v in groups.items()
                                 if bool(g) != core})))
        headers = {'ETag': mark, 'Vary': 'Accept', 'Content-Type':
                   'application/json;g=apidiscovery.k8s.io;v=v2;'
                   'as=APIGroupDiscoveryList'}
        if request.headers.get('If-None-Match') == mark:
            return web.Response(status=304, headers={'ETag': mark})
        return web.Response(body=body, headers=headers)
    if core:
        host, port = server.address
        return _json({'kind': 'APIVersions', 'versions': groups.get('', []),
                      'serverAddressByClientCIDRs': [{
                          'clientCIDR': '0.0.0.0/0',
                          'serverAddress': f'{host}:{port}'}]})
    return _json({'kind': 'APIGroupList', 'apiVersion': 'v1',
                  'groups': [_group(g, v) for g, v in groups.items() if g]})


def _openapi(server, request, parts):
    """Answer ``/openapi/...``."""
    from kubevirt_sandbox.api import openapi_protobuf
    if parts == ['openapi', 'v2']:
        # Some write @ for the first dot of the version.
        accept = request.headers.get('Accept', '').replace('@', '.')
        if openapi_protobuf.MEDIA not in accept:
            raise errors.not_acceptable([openapi_protobuf.MEDIA])
        return web.Response(body=server.documents.version_2(),
                            content_type='application/octet-stream')
    if parts == ['openapi', 'v3']:
        return _json(server.documents.index())
    found = None
    if parts[1] == 'v3' and len(parts) == 4 and parts[2] == 'api':
        found = server.documents.group('', parts[3])
    elif parts[1] == 'v3' and len(parts) == 5 and parts[2] == 'apis':
        found = server.documents.group(parts[3], parts[4])
    if found is None:
        raise errors.no_such_path()
    return web.Response(body=found, content_type='application/json')


async def answer(server, request):
    """Answer a path that is neither a resource nor public."""
    if request.method not in ('GET', 'HEAD'):
        raise errors.method_not_allowed()
    parts = [p for p in request.path.split('/') if p]
    groups = _kept(server, 'groups', lambda: _served(server))
    if not parts:
        paths = ['/api', '/api/v1', '/apis']
        for group, versions in groups.items():
            if group:
                paths.append(f'/apis/{group}')
                paths += [f'/apis/{group}/{v}' for v in versions]
        return _json({'paths': sorted(
            paths + [*HEALTH, '/openapi/v2', '/openapi/v3', '/version'])})
    if parts in (['api'], ['apis']):
        return _root(server, request, groups)
    if parts[0] == 'openapi' and len(parts) > 1:
        return _openapi(server, request, parts)
    if parts[0] == 'apis' and len(parts) == 2 and parts[1] in groups:
        return _json({'kind': 'APIGroup', 'apiVersion': 'v1',
                      **_group(parts[1], groups[parts[1]])})
    if parts[0] == 'api' and len(parts) == 2:
        group, version = '', parts[1]
    elif parts[0] == 'apis' and len(parts) == 3:
        group, version = parts[1:]
    else:
        raise errors.no_such_path()
    if version not in groups.get(group, ()):
        raise errors.no_such_path()
    return web.Response(
        body=_kept(server, (group, version), lambda: history.encode(
            _list(server, group, version))), content_type='application/json')
