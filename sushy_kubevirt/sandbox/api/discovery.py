# SPDX-License-Identifier: Apache-2.0
"""What the API serves, as clients ask for it: /api, /apis, /version."""
import platform

from aiohttp import web

from sushy_kubevirt.sandbox.api import errors
from sushy_kubevirt.sandbox.api import history
from sushy_kubevirt.sandbox.api import negotiation

#: The Kubernetes whose ways are followed.
VERSION = ('1', '36', 'v1.36.0')

HEALTH = ('/healthz', '/readyz', '/livez')


def public(path):
    """Whether a path needs no token."""
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
        'goVersion': '', 'compiler': 'python ' + platform.python_version(),
        'platform': 'linux/amd64'})


def _json(body):
    return web.Response(body=history.encode(body),
                        content_type='application/json')


def _served(server):
    """``{group: [versions]}``, also groups of nothing but verbs."""
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


def _resources(server, group, version):
    """The APIResourceList entries of a group and version."""
    found = []
    for kind in server.kinds:
        if (kind.group, kind.version) != (group, version):
            continue
        entry = {'name': kind.plural, 'singularName': kind.singular,
                 'namespaced': kind.namespaced, 'kind': kind.kind,
                 'verbs': list(kind.verbs)}
        if kind.short_names:
            entry['shortNames'] = list(kind.short_names)
        if kind.categories:
            entry['categories'] = list(kind.categories)
        found.append(entry)
        if kind.status:
            found.append({
                'name': kind.plural + '/status', 'singularName': '',
                'namespaced': kind.namespaced, 'kind': kind.kind,
                'verbs': ['get', 'patch', 'update']})
    for key, entries in server.subresources.items():
        if key[:2] != (group, version):
            continue
        for entry in entries.values():
            found.append({
                'name': f'{entry.plural}/{entry.name}', 'singularName': '',
                'namespaced': entry.namespaced, 'kind': entry.kind,
                'verbs': sorted({_VERBS.get(m, 'get')
                                 for m in entry.methods})})
    return found


async def answer(server, request):
    """Answer a path that is neither a resource nor public."""
    if request.method not in ('GET', 'HEAD'):
        raise errors.method_not_allowed()
    parts = [p for p in request.path.split('/') if p]
    groups = _served(server)
    if not parts:
        paths = ['/api', '/api/v1', '/apis']
        for group, versions in groups.items():
            if group:
                paths.append(f'/apis/{group}')
                paths += [f'/apis/{group}/{v}' for v in versions]
        return _json({'paths': sorted(
            paths + [*HEALTH, '/openapi/v2', '/openapi/v3', '/version'])})
    if parts == ['api']:
        return _json({'kind': 'APIVersions', 'versions': groups.get('', []),
                      'serverAddressByClientCIDRs': [{
                          'clientCIDR': '0.0.0.0/0',
                          'serverAddress': '%s:%s' % server.address}]})
    if parts == ['apis']:
        return _json({'kind': 'APIGroupList', 'apiVersion': 'v1',
                      'groups': [_group(g, v) for g, v in groups.items()
                                 if g]})
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
    return _json({
        'kind': 'APIResourceList', 'apiVersion': 'v1',
        'groupVersion': f'{group}/{version}' if group else version,
        'resources': _resources(server, group, version)})
