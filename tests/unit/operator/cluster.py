# SPDX-License-Identifier: Apache-2.0
"""An in-memory cluster with the interface of `operator.api`.

It implements names, resource versions, uids, owner references and
finalizers, and validates nothing else. A test can kill the operator at any
of its writes.
"""

import asyncio
import copy
import itertools
import json

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import naming
from tests.unit.operator import bodies


class Killed(BaseException):
    """The operator process was killed at a write."""


class Cluster:
    """The objects of a cluster.

    :attr objects: {(kind, namespace, name): object}
    :attr writes: list of (verb, kind, name) of the operator's writes that
        took effect
    :attr kubernetes: version of the API server
    :attr groups: set of optional API groups that are served
    :attr faults: functions of (verb, kind, name), called before each request
        of the operator; a returned exception is raised
    :attr kill_after: (number of writes until the operator is killed, whether
        the write at which it is killed takes effect); None for never
    """

    def __init__(self):
        self.objects = {}
        self.writes = []
        self.kill_after = None
        self.groups = set()
        self.kubernetes = 'v1.37.2'
        self.faults = []
        self._count = itertools.count(1)
        self._watchers = []

    def add(self, obj):
        """Create an object as another client."""
        return self._put(_copy(obj))

    def change(self, kind, namespace, name, change):
        """Change an object as another client, by a function of it."""
        obj = _copy(self.objects[kind, namespace, name])
        change(obj)
        return self._put(obj)

    def remove(self, kind, namespace, name):
        """Delete an object, and those it owns, as another client."""
        self._remove((kind, namespace, name))

    def list(self, kind):
        """Return all objects of a kind."""
        return [obj for ref, obj in self.objects.items() if ref[0] == kind]

    def copy(self):
        """Return another cluster with equal objects, without watches."""
        other = Cluster()
        other.objects = {ref: _copy(obj) for ref, obj in self.objects.items()}
        other.writes = list(self.writes)
        other.groups = set(self.groups)
        other._count = copy.copy(self._count)
        return other

    def snapshot(self):
        """Return {ref: object} without fields that differ in each run.

        Events are left out.
        """
        return {ref: _plain(obj) for ref, obj in self.objects.items()
                if ref[0] != 'Event'}

    # Requests of the operator, as `api.Api` has them

    async def serves_group(self, group):
        return group in self.groups

    async def version(self):
        return self.kubernetes

    async def serves(self, resource):
        return resource.group in self.groups

    async def check_readable(self, resource, namespace=None):
        self._fail('list', resource, '')

    async def get(self, resource, namespace, name, metadata_only=False):
        self._fail('get', resource, name)
        return _copy(self._find(resource, namespace, name))

    async def create(self, resource, namespace, body):
        name = body['metadata']['name']
        with self._write('create', resource, name):
            if (resource.kind, namespace, name) in self.objects:
                raise errors.Conflict(f'{resource.kind} {name} exists')
            return _copy(self._put(_copy(body)))

    async def apply(self, resource, namespace, name, body):
        with self._write('apply', resource, name):
            obj = _copy(self._find(resource, namespace, name))
            self._check(obj, body)
            for part, value in body.items():
                if part != 'metadata':
                    # Fields of other clients stay.
                    kept = obj[part] if (resource.kind, part) == (
                        'Route', 'spec') else None
                    obj[part] = _copy({**kept, **value} if kept else value)
            for part in ('labels', 'annotations'):
                obj['metadata'][part] = {
                    **obj['metadata'].get(part, {}),
                    **body['metadata'].get(part, {})}
            return _copy(self._put(obj))

    async def patch(self, resource, namespace, name, body, subresource=None):
        with self._write('patch', resource, name):
            obj = _copy(self._find(resource, namespace, name))
            if isinstance(body, dict):
                if subresource is None:
                    # A patch of the status ignores the metadata.
                    self._check(obj, body)
                _merge(obj, {key: value for key, value in body.items()})
            else:
                for one in body:
                    _step(obj, one)
            found = self._put(obj)
            metadata = found['metadata']
            if 'deletionTimestamp' in metadata and not metadata.get(
                    'finalizers'):
                self._remove((resource.kind, namespace, name))
            return _copy(found)

    async def delete(self, resource, namespace, name, uid=None):
        with self._write('delete', resource, name):
            obj = self._find(resource, namespace, name)
            if uid and obj['metadata']['uid'] != uid:
                raise errors.Conflict('another uid')
            self._remove((resource.kind, namespace, name))
            return {}

    async def read_all(self, resource, namespace, label_selector, page_size):
        for obj in self.list(resource.kind):
            if namespace in (None, obj['metadata']['namespace']) and (
                    naming.made_by_us(obj)):
                yield _copy(obj)

    async def watch(self, resource, namespace=None, label_selector='',
                    field_selector='', metadata_only=False, failed=None):
        def selected(obj):
            metadata = obj['metadata']
            return (namespace in (None, metadata['namespace'])
                    and (not label_selector or naming.made_by_us(obj))
                    and field_selector in (
                        '', 'metadata.name=' + metadata['name']))
        events = asyncio.Queue()
        self._watchers.append((resource.kind, events))
        found = [_copy(obj) for obj in self.list(resource.kind)
                 if selected(obj)]
        for obj in found:
            yield 'ADDED', obj
        names = {(obj['metadata']['namespace'], obj['metadata']['name'])
                 for obj in found}
        yield api.LISTED, set(names)
        while True:
            event, obj = await events.get()
            at = obj['metadata']['namespace'], obj['metadata']['name']
            if selected(obj):
                names.add(at)
                yield event, obj
            elif at in names:
                # It does not match the selector any more.
                names.discard(at)
                yield 'DELETED', obj

    def _publish(self, event, obj):
        for kind, events in self._watchers:
            if kind == obj['kind']:
                events.put_nowait((event, _copy(obj)))

    def _find(self, resource, namespace, name):
        try:
            return self.objects[resource.kind, namespace, name]
        except KeyError:
            raise errors.ObjectNotFound(f'no {resource.kind} {name}') from None

    def _put(self, obj):
        metadata = obj['metadata']
        metadata.setdefault('uid', f'uid-{next(self._count)}')
        if obj['kind'] == 'Service':
            obj['spec'].setdefault('clusterIP', '10.0.0.7')
        if obj['kind'] == 'Deployment':
            old = self.objects.get(_ref(obj), {})
            generation = old.get('metadata', {}).get('generation', 0)
            if old.get('spec') != obj['spec']:
                generation += 1
            metadata['generation'] = generation
            obj['status'] = {'observedGeneration': generation,
                             'updatedReplicas': 1, 'readyReplicas': 1}
        if obj['kind'] == 'Route':
            host = obj['spec'].setdefault('host', '{name}-{namespace}'
                                          '.apps.test'.format(**metadata))
            obj.setdefault('status', {'ingress': [{
                'host': host, 'routerName': 'default', 'conditions': [
                    {'type': 'Admitted', 'status': 'True'}]}]})
        metadata['resourceVersion'] = str(next(self._count))
        event = 'MODIFIED' if _ref(obj) in self.objects else 'ADDED'
        self.objects[_ref(obj)] = obj
        self._publish(event, obj)
        return obj

    def _remove(self, ref):
        obj = self.objects.pop(ref)
        if ref[0] == 'VirtualMachineBMC' and obj['metadata'].get(
                'finalizers'):
            obj['metadata']['deletionTimestamp'] = 'now'
            self._put(obj)
            return
        obj['metadata']['resourceVersion'] = str(next(self._count))
        self._publish('DELETED', obj)
        for other, owned in list(self.objects.items()):
            if any(one['uid'] == obj['metadata']['uid'] for one in owned[
                    'metadata'].get('ownerReferences', ())):
                if other in self.objects:
                    self._remove(other)

    def _check(self, obj, body):
        for part in ('uid', 'resourceVersion'):
            expected = body.get('metadata', {}).get(part)
            if expected and expected != obj['metadata'][part]:
                raise errors.Conflict(f'another {part}')

    def _fail(self, verb, resource, name):
        for fault in list(self.faults):
            error = fault(verb, resource.kind, name)
            if error is not None:
                raise error

    def _write(self, verb, resource, name):
        self._fail(verb, resource, name)
        return _Write(self, (verb, resource.kind, name))


class _Write:
    """Context of one write, which may raise `Killed`."""

    def __init__(self, cluster, write):
        self._cluster, self._write = cluster, write

    def __enter__(self):
        kill_after = self._cluster.kill_after
        if kill_after is not None and kill_after == (0, False):
            raise Killed

    def __exit__(self, kind, error, trace):
        if kind is not None:
            return
        cluster = self._cluster
        cluster.writes.append(self._write)
        if cluster.kill_after is not None:
            left, takes_effect = cluster.kill_after
            if left == 0:
                raise Killed
            cluster.kill_after = left - 1, takes_effect


def _copy(obj):
    # Much faster than copy.deepcopy().
    return json.loads(json.dumps(obj))


def _ref(obj):
    metadata = obj['metadata']
    return obj['kind'], metadata.get('namespace', ''), metadata['name']


def _plain(obj):
    obj = _copy(obj)
    metadata = obj['metadata']
    for part in ('uid', 'resourceVersion', 'generation'):
        metadata.pop(part, None)
    for one in metadata.get('ownerReferences', ()):
        one.pop('uid')
    if obj['kind'] == 'Secret':
        obj['data'] = sorted(obj.get('data') or ())
    if obj['kind'] == 'Deployment':
        del obj['spec']['template']['metadata']['annotations'][
            'bmc.kubevirt.io/account']
        del metadata['annotations']['bmc.kubevirt.io/applied']
    if obj['kind'] == 'ConfigMap':
        obj['data'] = sorted(obj['data'])
        metadata.get('annotations', {}).pop('bmc.kubevirt.io/applied', None)
    obj.pop('status', None)
    return obj


def _merge(obj, patch):
    for key, value in patch.items():
        if value is None:
            obj.pop(key, None)
        elif isinstance(value, dict):
            _merge(obj.setdefault(key, {}), value)
        elif key not in ('uid', 'resourceVersion'):
            obj[key] = value


def _step(obj, one):
    *path, last = one['path'].split('/')[1:]
    for part in path:
        obj = obj[part]
    if one['op'] == 'test':
        if obj.get(last) != one['value']:
            raise errors.Conflict('test failed: ' + one['path'])
    else:
        obj[last] = _copy(one['value'])


def vm(namespace=bodies.NAMESPACE, name='vm', allowed=None):
    """Return a VM.

    :param allowed: value of its annotation ``allow-from``, or None
    """
    metadata = {'name': name, 'namespace': namespace}
    if allowed:
        metadata['annotations'] = {'bmc.kubevirt.io/allow-from': allowed}
    return {'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
            'metadata': metadata, 'spec': {
                'runStrategy': 'Halted', 'template': {'spec': {
                    'domain': {'devices': {}}}}}}
