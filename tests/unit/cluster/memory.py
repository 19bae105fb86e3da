# SPDX-License-Identifier: Apache-2.0
"""An API server in memory, with the interface of `kube.client.Client`.

It implements names, uids, resource versions, label selectors, foreground
deletion without dependents, and watches; it validates nothing.
"""

import copy
import itertools
import queue
import threading

from sushy_kubevirt.kube import errors


class Killed(BaseException):
    """The process was killed at a write."""


class Memory:
    """The objects of a namespace.

    :attr objects: {(plural, name): object}
    :attr calls: list of (verb, plural, name) of all requests
    :attr controller: function of an object that was written, which may
        change it in place, as controllers would; or None
    :attr refuse: function of (verb, plural, name), which returns an
        exception to raise, or None
    :attr kill_after: number of writes until `Killed` is raised
    """

    def __init__(self):
        self.objects = {}
        self.calls = []
        self.controller = None
        self.refuse = lambda verb, plural, name: None
        self.kill_after = None
        self._lock = threading.RLock()
        self._numbers = itertools.count(2)
        self._watches = []
        self._deleted = []      # (plural, object), for watches opened later

    @property
    def writes(self):
        """The requests that were not reads."""
        return [one for one in self.calls
                if one[0] not in ('list', 'watch', 'get')]

    def names(self, plural):
        """Return the sorted names of the objects of a kind."""
        return sorted(name for kind, name in self.objects if kind == plural)

    def find(self, plural, name):
        return self.objects[plural, name]

    def change(self, plural, name, change):
        """Change an object as another client, by a function of it."""
        with self._lock:
            change(self.objects[plural, name])
            self._publish('MODIFIED', plural, name)

    # Interface of the client

    def pages(self, resource, namespace=None, label_selector='',
              field_selector='', metadata_only=False, page_size=None):
        self._call('list', resource, '')
        with self._lock:
            found = [_part(one, metadata_only)
                     for (plural, _), one in self.objects.items()
                     if plural == resource.plural
                     and _matches(one, label_selector)]
            version = str(next(self._numbers))
        yield found, version

    def watch(self, resource, namespace=None, version='', label_selector='',
              field_selector='', metadata_only=False):
        self._call('watch', resource, '')
        made = _Watch(resource.plural, label_selector, metadata_only)
        with self._lock:
            missed = [('ADDED', one)
                      for (plural, _), one in self.objects.items()
                      if plural == resource.plural]
            missed += [('DELETED', one) for plural, one in self._deleted
                       if plural == resource.plural]
            for event, one in sorted(missed, key=lambda one: _version(one[1])):
                if _version(one) > int(version):
                    made.event(event, resource.plural, one)
            self._watches.append(made)
        return made

    def get(self, resource, namespace, name, metadata_only=False):
        self._call('get', resource, name)
        return _part(self._find(resource, name), metadata_only)

    def create(self, resource, namespace, body, named=False):
        name = body['metadata']['name']
        with self._lock:
            self._call('create', resource, name)
            if (resource.plural, name) in self.objects:
                raise errors.Conflict(f'{name} exists')
            made = copy.deepcopy(body)
            made['metadata'].update(uid=f'uid-{next(self._numbers)}',
                                    generation=1)
            return self._put('ADDED', resource, made)

    def apply(self, resource, namespace, name, body):
        with self._lock:
            self._call('apply', resource, name)
            live = self._find(resource, name)
            for key in 'uid', 'resourceVersion':
                if live['metadata'][key] != body['metadata'].get(
                        key, live['metadata'][key]):
                    raise errors.Conflict(f'{key} of {name} differs')
            made = copy.deepcopy(body)
            made['metadata'].update(
                uid=live['metadata']['uid'],
                generation=live['metadata']['generation'] + 1)
            return self._put('MODIFIED', resource, made)

    def patch(self, resource, namespace, name, body, subresource=None):
        with self._lock:
            self._call('patch', resource, name)
            live = self._find(resource, name)
            annotations = live['metadata'].setdefault('annotations', {})
            for key, value in body['metadata']['annotations'].items():
                annotations[key] = value
                if value is None:
                    del annotations[key]
            self._publish('MODIFIED', resource.plural, name)
            return copy.deepcopy(live)

    def delete(self, resource, namespace, name, body=None):
        with self._lock:
            self._call('delete', resource, name)
            live = self._find(resource, name)
            for key, value in body['preconditions'].items():
                if live['metadata'][key] != value:
                    raise errors.Conflict(f'{key} of {name} differs')
            live['metadata']['deletionTimestamp'] = 'now'
            self._publish('MODIFIED', resource.plural, name)
            if not live['metadata'].get('finalizers'):
                self._publish('DELETED', resource.plural, name)
                self._deleted.append(
                    (resource.plural,
                     self.objects.pop((resource.plural, name))))

    def _call(self, verb, resource, name):
        with self._lock:
            if verb not in ('list', 'watch', 'get'):
                if self.kill_after is not None:
                    if len(self.writes) >= self.kill_after:
                        raise Killed()
            error = self.refuse(verb, resource.plural, name)
            self.calls.append((verb, resource.plural, name))
            if error is not None:
                raise error

    def _find(self, resource, name):
        try:
            return self.objects[resource.plural, name]
        except KeyError:
            raise errors.ObjectNotFound(f'no {name}') from None

    def _put(self, event, resource, made):
        if self.controller:
            self.controller(made)
        self.objects[resource.plural, made['metadata']['name']] = made
        self._publish(event, resource.plural, made['metadata']['name'])
        return made

    def _publish(self, event, plural, name):
        obj = self.objects[plural, name]
        obj['metadata']['resourceVersion'] = str(next(self._numbers))
        for one in self._watches:
            one.event(event, plural, obj)


class _Watch:

    def __init__(self, plural, selector, metadata_only):
        self._plural = plural
        self._selector = selector
        self._metadata_only = metadata_only
        self._events = queue.Queue()

    def event(self, kind, plural, obj):
        if plural == self._plural and _matches(obj, self._selector):
            self._events.put((kind, _part(obj, self._metadata_only)))

    def stop(self):
        self._events.put(None)

    def __iter__(self):
        return iter(self._events.get, None)


def _version(obj):
    return int(obj['metadata']['resourceVersion'])


def _matches(obj, selector):
    if not selector:
        return True
    labels = obj['metadata'].get('labels') or {}
    if ' in ' in selector:
        key, _, values = selector.partition(' in ')
        return labels.get(key) in values.strip('()').split(',')
    key, equal, value = selector.partition('=')
    return labels.get(key) == value if equal else key in labels


def _part(obj, metadata_only):
    return copy.deepcopy({'metadata': obj['metadata']} if metadata_only
                         else obj)
