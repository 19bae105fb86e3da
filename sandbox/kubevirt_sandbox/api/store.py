# SPDX-License-Identifier: Apache-2.0
"""The objects of the cluster: reading, and the way of every write.

A write passes metadata rules, the kind's schema and its admission hooks
before it is true for everybody at once.  All methods are synchronous and
run in the server's one thread, so each is atomic.  HTTP, patches and
selectors' grammar are left to ``resources``; garbage collection to
``garbage``.
"""
import collections
import logging

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import go_types
from kubevirt_sandbox.api import history
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import kinds as kinds_module
from kubevirt_sandbox.api import managed_fields
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.api import schemas
from kubevirt_sandbox.api import selectors

LOG = logging.getLogger(__name__)

#: Versions start here, so that a low version is one long gone.
FIRST_VERSION = 1000

#: How many events of a resource are remembered for watches.
HISTORY = 4096


class Write:
    """Who writes, and how.

    :param manager: name for managedFields.
    :param user: name of the user, for admission.
    :param dry_run: check everything, change nothing.
    :param unknown: a list that takes the names of unknown fields, or None
        when nobody wants to know.
    :param check: called once unknown fields are known; refuses, or gives
        warnings.
    :param managed: managedFields are already as they shall be (server-side
        apply computed them).
    :param identity: the :class:`auth.User` behind ``user``, or None.
    """

    def __init__(self, manager='', user='', dry_run=False, unknown=None,
                 check=None, managed=False, identity=None):
        self.manager = manager or 'sandbox'
        self.user = user
        self.dry_run = dry_run
        self.unknown = unknown
        self.check = check
        self.managed = managed
        self.identity = identity
        self.warnings = []


class Store:
    """All objects, in memory.

    Objects that are handed out are never changed in place by the store,
    and callers must not change them either: they copy first
    (``json_copy.copy``).

    :param kinds: the :class:`kinds.Registry`.
    :param length: events remembered of each resource.
    """

    def __init__(self, kinds=None, length=HISTORY):
        self.kinds = kinds if kinds is not None else kinds_module.Registry()
        self.version = FIRST_VERSION
        self._length = length
        self._shelves = {}
        self._undelivered = collections.deque()
        self._delivering = False
        self._all = []
        #: Called as ``gate(kind, admission)`` before the hooks of the kind;
        #: refuses by raising :class:`errors.ApiError`.
        self.gates = []
        #: Called as ``check(kind, admission, dry_run)`` after the hooks of
        #: the kind; refuses likewise.
        self.checks = []

    # -- reading ----------------------------------------------------------

    def shelf(self, kind):
        """The :class:`history.Shelf` where a kind's objects are."""
        kind = kind.stored_as or kind
        key = (kind.group, kind.plural)
        found = self._shelves.get(key)
        if found is None:
            found = self._shelves[key] = history.Shelf(
                kind, FIRST_VERSION, self._length)
        return found

    def shelves(self):
        """Every shelf there is."""
        return list(self._shelves.values())

    def find(self, kind, namespace, name):
        """An object, or None."""
        record = self.shelf(kind).records.get((namespace or '', name))
        return None if record is None else record.obj

    def get(self, kind, namespace, name):
        """An object.

        :raises errors.ApiError: 404 when there is none.
        """
        found = self.find(kind, namespace, name)
        if found is None:
            raise errors.not_found(kind, name)
        return found

    def list(self, kind, namespace=None, label_selector=None,
             field_selector=None):
        """The objects of a kind, sorted by namespace and name.

        :param namespace: None for all.
        :param label_selector: text, or a dict of labels.
        :param field_selector: text, e.g. ``status.phase=Running``.
        """
        if isinstance(label_selector, dict):
            label_selector = ','.join(
                f'{k}={v}' for k, v in label_selector.items())
        selector = selectors.Selector(label_selector, field_selector, kind)
        return [r.obj for r in self.shelf(kind).now(namespace)
                if not selector or selector.matches(r.obj)]

    # -- telling ----------------------------------------------------------

    def listen(self, kind, callback):
        """Have a callback called with every later :class:`history.Event`.

        :param kind: a Kind; None: of every kind.
        :returns: a function that ends it.
        """
        listeners = self._all if kind is None else self.shelf(kind).listeners
        listeners.append(callback)

        def end():
            if callback in listeners:
                listeners.remove(callback)
        return end

    def subscribe(self, kind, callback):
        """Have ``callback(event_type, obj, old)`` called after each commit.

        It is called synchronously; what it writes itself is told to
        everybody after the event that it was called for. ``old`` is None
        for ``ADDED``.

        :returns: a function that ends it.
        """
        def tell(event):
            previous = event.previous
            callback(event.type, event.record.obj,
                     previous and previous.obj)
        return self.listen(kind, tell)

    def _commit(self, shelf, type_, key, obj):
        self.version += 1
        obj['metadata']['resourceVersion'] = str(self.version)
        event = history.Event(
            type_, history.Record(key, obj, self.version),
            shelf.records.get(key))
        shelf.put(event)
        self._undelivered.append((shelf, event))
        if self._delivering:
            return obj
        self._delivering = True
        try:
            while self._undelivered:
                shelf, event = self._undelivered.popleft()
                for callback in [*shelf.listeners, *self._all]:
                    try:
                        callback(event)
                    except Exception:
                        LOG.exception('A listener failed at %s of %s %s',
                                      event.type, shelf.kind.resource,
                                      event.record.key)
        finally:
            self._delivering = False
        return obj

    # -- writing ----------------------------------------------------------

    def create(self, kind, obj, *, manager='', user='', write=None):
        """Make an object.

        :param obj: the object; it is copied.
        :param write: a :class:`Write` instead of manager and user.
        :returns: the object as it is now.
        :raises errors.ApiError: 409 AlreadyExists, 422, 404 for a
            namespace that does not exist, or what admission says.
        """
        if kind.stored_as:
            obj = kind.to_stored(obj)
            return kind.from_stored(self.create(
                kind.stored_as, obj, manager=manager, user=user,
                write=write))
        write = write or Write(manager, user)
        obj = json_copy.copy(obj)
        obj.update(apiVersion=kind.api_version, kind=kind.kind)
        if not kind.crd:
            json_copy.drop_nulls(obj)
        metadata.check_types(kind, obj)
        metadata.prepare_create(kind, obj)
        meta = obj['metadata']
        if kind.namespaced and not meta.get('namespace'):
            meta['namespace'] = 'default'
        key = (meta.get('namespace', ''), meta.get('name', ''))
        shelf = self.shelf(kind)
        if key in shelf.records:
            raise errors.already_exists(kind, key[1])
        self._prune(kind, obj, None, write)
        if kind.default:
            kind.default(obj)
        if not write.managed:
            managed_fields.track(kind, None, obj, write.manager, '')
        admission = kinds_module.Admission(
            'CREATE', '', obj, None, self, write.user, write.warnings,
            write.identity)
        obj = self._admit(kind, admission, write)
        if write.dry_run:
            return obj
        return self._commit(shelf, history.ADDED, key, obj)

    def update(self, kind, obj, *, subresource='', manager='', user='',
               write=None):
        """Write an object, or with ``subresource='status'`` its status.

        Nothing is written when nothing changes.

        :param obj: the object; when its metadata.resourceVersion is set,
            it must be the current one.
        :returns: the object as it is now.
        :raises errors.ApiError: 404, 409 Conflict, 422 and what admission
            says.
        """
        if kind.stored_as:
            obj = kind.to_stored(obj)
            return kind.from_stored(self.update(
                kind.stored_as, obj, subresource=subresource,
                manager=manager, user=user, write=write))
        return self._update(kind, json_copy.copy(obj), subresource,
                            write or Write(manager, user))

    def _update(self, kind, obj, subresource, write):
        """Write an object that nobody else has."""
        obj.update(apiVersion=kind.api_version, kind=kind.kind)
        if not kind.crd:
            json_copy.drop_nulls(obj)
        metadata.check_types(kind, obj)
        meta = obj['metadata']
        key = (meta.get('namespace', '') if kind.namespaced else '',
               meta.get('name', ''))
        old = self.get(kind, *key)
        self._check_identity(kind, key[1], meta, old)
        meta.pop('resourceVersion', None)
        metadata.prepare_update(kind, obj, old, subresource)
        meta = obj['metadata']
        self._prune(kind, obj, old, write)
        if kind.default and not subresource:
            kind.default(obj)
        if not write.managed:
            managed_fields.track(kind, old, obj, write.manager, subresource)
        admission = kinds_module.Admission(
            'UPDATE', subresource, obj, old, self, write.user,
            write.warnings, write.identity)
        obj = self._admit(kind, admission, write)
        metadata.count(kind, obj, old, subresource)
        meta = obj['metadata']
        if self._same(obj, old):
            return old
        if write.dry_run:
            meta['resourceVersion'] = old['metadata']['resourceVersion']
            return obj
        shelf = self.shelf(kind)
        if 'deletionTimestamp' in meta and not self._kept(
                kind, obj, meta.get('deletionGracePeriodSeconds')):
            return self._commit(shelf, history.DELETED, key, obj)
        return self._commit(shelf, history.MODIFIED, key, obj)

    def change(self, kind, namespace, name, fn, *, subresource='',
               manager='', user='', write=None):
        """Read, change and write an object in one step.

        :param fn: is given a copy to change; nothing is written when it
            changes nothing.
        :returns: the object as it is now.
        """
        old = self.get(kind, namespace, name)
        obj = json_copy.copy(old)
        if kind.stored_as:
            obj = kind.from_stored(obj)
            fn(obj)
            return self.update(kind, obj, subresource=subresource,
                               manager=manager, user=user, write=write)
        fn(obj)
        if obj == old and write is None:
            return old
        return self._update(kind, obj, subresource,
                            write or Write(manager, user))

    def delete(self, kind, namespace, name, *, grace=None, propagation=None,
               uid=None, version=None, write=None):
        """Delete an object, or mark it where finalizers keep it.

        :param grace: seconds, written to
            metadata.deletionGracePeriodSeconds of a kept object.
        :param propagation: ``Background``, ``Foreground`` or ``Orphan``.
        :param uid: precondition; so is ``version``.
        :returns: the object as it is now, or was at last.
        """
        if kind.stored_as:
            kind = kind.stored_as
        write = write or Write()
        old = self.get(kind, namespace, name)
        meta = old['metadata']
        for field, wanted, has in (('UID', uid, meta['uid']), (
                'ResourceVersion', version, meta['resourceVersion'])):
            if wanted and wanted != has:
                raise errors.conflict(
                    kind, name, f'Precondition failed: {field} in '
                    f'precondition: {wanted}, {field} in object meta: {has}')
        admission = kinds_module.Admission(
            'DELETE', '', None, old, self, write.user, write.warnings,
            write.identity)
        for hook in (kind.mutate, kind.validate):
            if hook:
                hook(admission)
        for check in self.checks:
            check(kind, admission, write.dry_run)
        if write.dry_run:
            return old
        obj = json_copy.copy(old)
        meta = obj['metadata']
        finalizers = meta.get('finalizers', [])
        for policy, finalizer in (('Foreground', 'foregroundDeletion'),
                                  ('Orphan', 'orphan')):
            if propagation == policy and finalizer not in finalizers:
                finalizers = [*finalizers, finalizer]
            elif propagation and propagation != policy:
                finalizers = [f for f in finalizers if f != finalizer]
        meta['finalizers'] = finalizers
        if not finalizers:
            del meta['finalizers']
        key = (namespace or '', name)
        shelf = self.shelf(kind)
        if kind.grace:
            grace = kind.grace(old, grace)
        if not self._kept(kind, obj, grace):
            return self._commit(shelf, history.DELETED, key, obj)
        if 'deletionTimestamp' not in meta:
            meta['deletionTimestamp'] = metadata.now(
                grace if kind.grace else 0)
            meta['deletionGracePeriodSeconds'] = grace or 0
            if kind.generation:
                meta['generation'] = meta.get('generation', 0) + 1
        elif grace is not None and grace < meta.get(
                'deletionGracePeriodSeconds', 0):
            meta['deletionGracePeriodSeconds'] = grace
        if kind.terminate:
            kind.terminate(obj)
        if obj == old:
            return old
        return self._commit(shelf, history.MODIFIED, key, obj)

    @staticmethod
    def _kept(kind, obj, grace):
        """Whether an object that is to be deleted stays for now."""
        return bool(obj['metadata'].get('finalizers')
                    or (kind.grace and grace)
                    or (kind.terminate
                        and obj.get('spec', {}).get('finalizers')))

    @staticmethod
    def _check_identity(kind, name, meta, old):
        version = meta.get('resourceVersion')
        if version and version != old['metadata']['resourceVersion']:
            raise errors.conflict(kind, name)
        uid = meta.get('uid')
        if uid and uid != old['metadata']['uid']:
            raise errors.conflict(
                kind, name, 'Precondition failed: UID in precondition: '
                f'{uid}, UID in object meta: {old["metadata"]["uid"]}')

    @staticmethod
    def _prune(kind, obj, old, write):
        metadata.prune(obj, write.unknown)
        if kind.schema is not None:
            same = _same_fields(obj, old)
            decode(kind, obj, same)
            schemas.prune(kind.schema, obj, write.unknown, same)
            if not kind.crd:
                go_types.settle(kind, obj, same)
            schemas.fill_defaults(kind.schema, obj, same)
        if write.check:
            write.warnings += write.check()

    def _admit(self, kind, admission, write):
        for gate in self.gates:
            gate(kind, admission)
        if kind.mutate:
            kind.mutate(admission)
        obj, old = admission.new, admission.old
        found = metadata.causes(kind, obj, old)
        if kind.schema is not None:
            same = _same_fields(obj, old)
            if kind.mutate:
                schemas.fill_defaults(kind.schema, obj, same)
            found += schemas.causes(kind.schema, obj, same)
        if found:
            raise errors.invalid(kind, obj['metadata'].get('name'), found)
        if kind.validate:
            kind.validate(admission)
        for check in self.checks:
            check(kind, admission, write.dry_run)
        return admission.new

    @staticmethod
    def _same(obj, old):
        """Whether a write would change anything but the times in
        managedFields."""
        if any(obj.get(n) != old.get(n) for n in obj.keys() | old.keys()
               if n != 'metadata'):
            return False
        new_meta, old_meta = obj['metadata'], old['metadata']
        return all(
            new_meta.get(n) == old_meta.get(n)
            for n in new_meta.keys() | old_meta.keys()
            if n not in ('resourceVersion', 'managedFields')
        ) and managed_fields.same(new_meta, old_meta)


def decode(kind, obj, same=()):
    """Refuse an object that has values of wrong types.

    A real API server reads the kinds of Kubernetes itself into Go types, so
    hooks of these kinds may rely on them; custom resources are checked
    against their schema later.

    :param same: fields at the root that need not be looked into.
    :raises errors.ApiError: 400.
    """
    if kind.crd or kind.schema is None:
        return
    for cause in schemas.causes(kind.schema, obj, same):
        if cause.reason == 'FieldValueTypeInvalid':
            raise errors.bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled '
                f'as a {kind.kind}: json: cannot unmarshal: {cause}')


def _same_fields(obj, old):
    """The fields at the root that an update leaves as they were.

    They passed the schema when they were written; as a real API server, the
    store does not hold against a write what it does not touch.
    """
    if old is None:
        return ()
    return {name for name, value in obj.items()
            if name in old and old[name] == value}
