# SPDX-License-Identifier: Apache-2.0
"""An in-memory cluster with the interface of `operator.api`.

It implements names, resource versions, uids, owner references and
finalizers, and validates nothing else. A test can end a process at any of
its writes.
"""

import asyncio
import itertools
import json

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import naming
from tests.unit.operator import bodies


class Killed(BaseException):
    """The process that asked is no more."""


class Cluster:
    """What there is.

    :attr writes: list of (verb, kind, name), all that were carried out
    :attr life: how many writes the process has before it is killed, and
        whether the last of them is carried out; None for ever
    """

    def __init__(self):
        self.objects = {}
        self.writes = []
        self.life = None
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

    def of(self, kind):
        """All objects of a kind."""
        return [obj for ref, obj in self.objects.items() if ref[0] == kind]

    def facts(self):
        """What there is, without what differs from one time to the other."""
        return {ref: _plain(obj) for ref, obj in self.objects.items()
                if ref[0] != 'Event'}

    # What the operator asks

    def may_write(self):
        """Allow every write: no other replica works."""

    async def get(self, resource, namespace, name, metadata_only=False):
        self._fail('get', resource, name)
        return _copy(self._find(resource, namespace, name))

    async def create(self, resource, namespace, body):
        name = body['metadata']['name']
        with self._write('create', resource, name):
            if (resource.kind, namespace, name) in self.objects:
                raise errors.Conflict(f'there is a {resource.kind} {name}')
            return _copy(self._put(_copy(body)))

    async def apply(self, resource, namespace, name, body):
        with self._write('apply', resource, name):
            obj = _copy(self._find(resource, namespace, name))
            self._check(obj, body)
            for part, value in body.items():
                if part != 'metadata':
                    obj[part] = _copy(value)
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
                    # Else nothing of the metadata is looked at.
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
                raise errors.Conflict('another one')
            self._remove((resource.kind, namespace, name))
            return {}

    async def watch(self, resource, namespace=None, label_selector='',
                    field_selector='', metadata_only=False):
        def selected(obj):
            metadata = obj['metadata']
            return (namespace in (None, metadata['namespace'])
                    and (not label_selector or naming.made_by_us(obj))
                    and field_selector in (
                        '', 'metadata.name=' + metadata['name']))
        events = asyncio.Queue()
        self._watchers.append((resource.kind, events))
        found = [_copy(obj) for obj in self.of(resource.kind)
                 if selected(obj)]
        for obj in found:
            yield 'ADDED', obj
        there = {(obj['metadata']['namespace'], obj['metadata']['name'])
                 for obj in found}
        yield api.LISTED, set(there)
        while True:
            event, obj = await events.get()
            at = obj['metadata']['namespace'], obj['metadata']['name']
            if selected(obj):
                there.add(at)
                yield event, obj
            elif at in there:
                # It lost its label.
                there.discard(at)
                yield 'DELETED', obj

    def _tell(self, event, obj):
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
        metadata.setdefault('uid', 'uid-%d' % next(self._count))
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
        metadata['resourceVersion'] = str(next(self._count))
        event = 'MODIFIED' if _ref(obj) in self.objects else 'ADDED'
        self.objects[_ref(obj)] = obj
        self._tell(event, obj)
        return obj

    def _remove(self, ref):
        obj = self.objects.pop(ref)
        if ref[0] == 'VirtualMachineBMC' and obj['metadata'].get(
                'finalizers'):
            obj['metadata']['deletionTimestamp'] = 'now'
            self._put(obj)
            return
        obj['metadata']['resourceVersion'] = str(next(self._count))
        self._tell('DELETED', obj)
        for other, owned in list(self.objects.items()):
            if any(one['uid'] == obj['metadata']['uid'] for one in owned[
                    'metadata'].get('ownerReferences', ())):
                if other in self.objects:
                    self._remove(other)

    def _check(self, obj, body):
        for part in ('uid', 'resourceVersion'):
            wanted = body.get('metadata', {}).get(part)
            if wanted and wanted != obj['metadata'][part]:
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
    """A write, which may be the last one."""

    def __init__(self, cluster, what):
        self._cluster, self._what = cluster, what

    def __enter__(self):
        life = self._cluster.life
        if life is not None and life[0] == 0 and not life[1]:
            raise Killed

    def __exit__(self, kind, error, trace):
        if kind is not None:
            return
        cluster = self._cluster
        cluster.writes.append(self._what)
        if cluster.life is not None:
            left, done = cluster.life
            if left == 0:
                raise Killed
            cluster.life = left - 1, done


def _copy(obj):
    # Many times faster than copy.deepcopy().
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
            raise errors.Conflict('it is another')
    else:
        obj[last] = _copy(one['value'])


def vm(namespace=bodies.NAMESPACE, name='vm', allowed=None):
    """A VM."""
    metadata = {'name': name, 'namespace': namespace}
    if allowed:
        metadata['annotations'] = {'bmc.kubevirt.io/allow-from': allowed}
    return {'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
            'metadata': metadata, 'spec': {
                'runStrategy': 'Halted', 'template': {'spec': {
                    'domain': {'devices': {}}}}}}
