# SPDX-License-Identifier: Apache-2.0
"""ResourceQuota: limits objects and storage of a namespace.

Counts objects, the storage that claims request and the resources that pods
request or are limited to. Quotas have no scopes.

Follows ``pkg/quota`` and ``plugin/pkg/admission/resourcequota`` of
Kubernetes 1.36.
"""
import fractions

from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import pod_resources
from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.api import tables
from kubevirt_sandbox.api import volumes

_STORAGE = 'requests.storage'
_OF_CLASS = '.storageclass.storage.k8s.io/'
# Each container must have these if a quota limits them.
_DEMANDED = ('cpu', 'memory', 'requests.cpu', 'requests.memory', 'limits.cpu',
             'limits.memory')
_COUNTED = ('configmaps', 'persistentvolumeclaims', 'pods', 'secrets',
            'services', 'resourcequotas')


def _summary(obj):
    used = (obj.get('status') or {}).get('used') or {}
    hard = (obj.get('spec') or {}).get('hard') or {}
    return ', '.join(f'{name}: {used.get(name, 0)}/{limit}'
                     for name, limit in sorted(hard.items()))


QUOTA = kinds.Kind(
    '', 'v1', 'ResourceQuota', 'resourcequotas', 'resourcequota',
    ('quota',), generation=False, unconditional_update=True, status=True,
    schema=core_schemas.about(core_schemas.thing(
        spec=core_schemas.thing(hard=core_schemas.QUANTITIES),
        status=core_schemas.thing(
            hard=core_schemas.QUANTITIES, used=core_schemas.QUANTITIES)),
        'ResourceQuota sets aggregate quota restrictions enforced per '
        'namespace'),
    columns=(kinds.Column('Request', value=_summary),
             kinds.Column('Age', 'date', '.metadata.creationTimestamp',
                          description=tables.AGE_TEXT)))


def _usage(name, kind, obj):
    """Return how much an object uses of a quota's resource.

    :param name: as in ``spec.hard``, e.g. ``requests.storage``.
    """
    claim = (kind.group, kind.plural) == ('', 'persistentvolumeclaims')
    if name.startswith('count/'):
        return int(name[len('count/'):] == kind.resource)
    if (kind.group, kind.plural) == ('', 'pods'):
        return _of_pod(name, obj)
    if name in _COUNTED:
        return int(kind.group == '' and kind.plural == name)
    of_class, _, what = name.rpartition(_OF_CLASS)
    if of_class and claim:
        if (obj.get('spec') or {}).get('storageClassName') != of_class:
            return 0
        return 1 if what == 'persistentvolumeclaims' else volumes.size(obj)
    return volumes.size(obj) if claim and name == _STORAGE else 0


def _of_pod(name, pod):
    """Return how much a pod uses; one that has ended uses nothing."""
    if (pod.get('status') or {}).get('phase') in ('Succeeded', 'Failed'):
        return 0
    if name == 'pods':
        return 1
    part, dot, resource = name.partition('.')
    if part not in ('requests', 'limits') or not dot:
        part, resource = 'requests', name
        if '/' in name:
            return 0  # only requests of extended resources are limited
    read = (pod_resources.limits if part == 'limits'
            else pod_resources.requests)
    amount = read(pod['spec']).get(resource, 0)
    return fractions.Fraction(amount, 1000) if resource == 'cpu' else amount


def _undemanded(names, pod):
    """Describe what the containers of a pod have to specify, or ''."""
    lacking = {}
    for one in (*(pod['spec'].get('containers') or ()),
                *(pod['spec'].get('initContainers') or ())):
        for name in names:
            if name in _DEMANDED and not _of_pod(name, {
                    'spec': {'containers': [one]}}):
                lacking.setdefault(name, []).append(one['name'])
    return '; '.join(f'{name} for: {",".join(sorted(lacking[name]))}'
                     for name in sorted(lacking))


def _text(name, amount):
    """Format an amount as Kubernetes does."""
    if name.endswith('cpu'):
        return quantity.canonical(f'{int(amount * 1000)}m')
    if not name.endswith((_STORAGE, 'memory')) and 'hugepages-' not in name:
        return str(amount)
    for power, suffix in ((40, 'Ti'), (30, 'Gi'), (20, 'Mi'), (10, 'Ki')):
        if amount and amount % (1 << power) == 0:
            return f'{amount >> power}{suffix}'
    return str(amount)


def _list(names, amounts):
    return ','.join(f'{n}={amounts[n]}' for n in names)


class Quotas:
    """Enforces quotas and updates their status.

    :param server: a :class:`server.Server`.
    """

    def __init__(self, server):
        self._store = server.store
        self._soon = server.soon
        self._quotas = self._store.collection(QUOTA)
        self._others = []
        self._store.gates.append(self._check)
        self._store.listen(None, self._on_event)

    def add_pods(self, kind, pods):
        """Count pods that are not objects of the API.

        :param kind: the Kind of pods.
        :param pods: function of a namespace that returns their manifests.
        """
        self._others.append((kind, pods))

    def limits(self, namespace, name):
        """Tell whether a quota of a namespace limits a resource."""
        return any(name in ((record.obj.get('spec') or {}).get('hard') or {})
                   for record in self._quotas.current(namespace))

    def _check(self, kind, admission):
        if admission.operation == 'CREATE' and kind.namespaced:
            self.check(kind, admission.new)

    def check(self, kind, obj):
        """Refuse an object that would exceed a quota.

        :raises errors.ApiError: 403 with Kubernetes' message.
        """
        if not self._quotas.records:
            return
        if (kind.group, kind.plural) == ('', 'persistentvolumeclaims'):
            # Limits of a class hold for the default class, too.
            obj = {**obj, 'spec': dict(obj.get('spec') or {})}
            found = volumes.default_class(self._store)
            if obj['spec'].get('storageClassName') is None and found:
                obj['spec']['storageClassName'] = found['metadata']['name']
        namespace = obj['metadata'].get('namespace')
        for record in self._quotas.current(namespace):
            quota = record.obj
            hard = (quota.get('spec') or {}).get('hard') or {}
            if (kind.group, kind.plural) == ('', 'pods'):
                lacking = _undemanded(hard, obj)
                if lacking:
                    raise errors.forbidden(
                        kind, obj['metadata'].get('name', ''),
                        f'failed quota: {quota["metadata"]["name"]}: '
                        f'must specify {lacking}')
            wanted = {name: amount for name in sorted(hard)
                      if (amount := _usage(name, kind, obj))}
            if not wanted:
                continue
            used = self._used(namespace, wanted)
            over = [name for name in wanted if used[name] + wanted[name]
                    > quantity.value(hard[name])]
            if over:
                raise errors.forbidden(
                    kind, obj['metadata'].get('name', ''),
                    f'exceeded quota: {quota["metadata"]["name"]}, '
                    'requested: ' + _list(over, {
                        n: _text(n, wanted[n]) for n in over})
                    + ', used: ' + _list(over, {
                        n: _text(n, used[n]) for n in over})
                    + ', limited: ' + _list(over, {
                        n: quantity.canonical(hard[n]) for n in over}))

    def _used(self, namespace, names):
        used = dict.fromkeys(names, 0)
        for collection in self._store.collections():
            if not collection.kind.namespaced or not any(
                    _countable(name, collection.kind) for name in names):
                continue
            for record in collection.current(namespace):
                for name in names:
                    used[name] += _usage(name, collection.kind, record.obj)
        for kind, pods in self._others:
            for pod in pods(namespace):
                for name in names:
                    used[name] += _usage(name, kind, pod)
        return used

    def _on_event(self, event):
        if self._quotas.records and event.record.key[0]:
            for record in self._quotas.current(event.record.key[0]):
                self._soon(self._update_status, record.key)

    def _update_status(self, key):
        """Write into the status of a quota what is used."""
        quota = self._store.find(QUOTA, *key)
        if quota is None:
            return
        hard = (quota.get('spec') or {}).get('hard') or {}
        used = self._used(key[0], hard)

        def change(new):
            new['status'] = {'hard': dict(hard), 'used': {
                name: _text(name, amount) for name, amount in used.items()}}
        self._store.change(QUOTA, *key, change, subresource='status',
                           manager='kube-controller-manager')


def _countable(name, kind):
    """Tell whether objects of a kind count for a quota's resource."""
    if name == f'count/{kind.resource}':
        return True
    if kind.group:
        return False
    if kind.plural == 'persistentvolumeclaims' and (
            name.endswith(_STORAGE) or _OF_CLASS in name):
        return True
    return kind.plural in (name, 'pods')
