# SPDX-License-Identifier: Apache-2.0
"""In-memory storage of the cluster's objects: reads and writes.

A write is checked against metadata rules, the kind's schema and its admission
hooks, then becomes visible to all readers at once. All methods are
synchronous and run in the server's only thread, so each is atomic. HTTP,
patches and the syntax of selectors are in ``resources``, garbage collection in
``garbage``.
"""
import collections
import logging
import re

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import go_types
from kubevirt_sandbox.api import history
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import managed_fields
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.api import schema_walks
from kubevirt_sandbox.api import schemas
from kubevirt_sandbox.api import selectors

LOG = logging.getLogger(__name__)

#: First resource version, so that low versions are expired ones.
FIRST_VERSION = 1000

#: Number of events kept for the watches of each resource.
HISTORY = 4096


class Write:
    """User and options of a write.

    :param manager: field manager for managedFields.
    :param user: name of the user, for admission.
    :param dry_run: check everything, change nothing.
    :param unknown: list to which the names of unknown fields are added, or
        None to ignore them.
    :param check: function called after unknown fields were collected; raises
        :class:`errors.ApiError` or returns warnings.
    :param managed: whether managedFields are already final, computed by
        server-side apply.
    :param identity: the :class:`auth.User` behind ``user``, or None.
    :param own: whether the store may keep and change the object that it is
        given, instead of a copy.
    """

    def __init__(self, manager='', user='', dry_run=False, unknown=None,
                 check=None, managed=False, identity=None, own=False):
        self.manager = manager or 'sandbox'
        self.user = user
        self.dry_run = dry_run
        self.unknown = unknown
        self.check = check
        self.managed = managed
        self.identity = identity
        self.own = own
        self.warnings = []


class Store:
    """All objects, in memory.

    The store never changes objects in place after returning them. Callers
    must not change them either; they change a copy (``json_copy.copy``).

    :param registry: the :class:`kinds.Registry` of the served kinds.
    :param length: number of events kept for each resource.
    """

    def __init__(self, registry, length=HISTORY):
        self.kinds = registry
        self.version = FIRST_VERSION
        self._length = length
        self._collections = {}
        self._deferred = {}
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

    def collection(self, kind):
        """Return the :class:`history.Collection` with a kind's objects."""
        kind = kind.stored_as or kind
        key = (kind.group, kind.plural)
        found = self._collections.get(key)
        if found is None:
            found = self._collections[key] = history.Collection(
                kind, FIRST_VERSION, self._length)
        if self._deferred and key in self._deferred:
            self._deferred.pop(key)()
        return found

    def defer(self, kind, fill):
        """Call a function before the next use of a kind's objects.

        :param fill: makes objects that take long to make.
        """
        self._deferred[kind.group, kind.plural] = fill

    def collections(self):
        """Return all collections."""
        return list(self._collections.values())

    def find(self, kind, namespace, name):
        """Return an object, or None when it does not exist."""
        record = self.collection(kind).records.get((namespace or '', name))
        return None if record is None else record.obj

    def record(self, kind, obj):
        """Return the present :class:`history.Record` of an object, or None."""
        meta = obj['metadata']
        return self.collection(kind).records.get(
            (meta.get('namespace', ''), meta['name']))

    def get(self, kind, namespace, name):
        """Return an object.

        :raises errors.ApiError: 404 when it does not exist.
        """
        found = self.find(kind, namespace, name)
        if found is None:
            raise errors.not_found(kind, name)
        return found

    def list(self, kind, namespace=None, label_selector=None,
             field_selector=None):
        """Return the objects of a kind, sorted by namespace and name.

        :param namespace: None for all namespaces.
        :param label_selector: text, or a dict of labels.
        :param field_selector: text, e.g. ``status.phase=Running``.
        """
        if isinstance(label_selector, dict):
            label_selector = ','.join(
                f'{k}={v}' for k, v in label_selector.items())
        selector = selectors.Selector(label_selector, field_selector, kind)
        return [r.obj for r in self.collection(kind).current(namespace)
                if not selector or selector.matches(r.obj)]

    # -- events -----------------------------------------------------------

    def listen(self, kind, callback):
        """Call a function with every later :class:`history.Event`.

        :param kind: a Kind, or None for all kinds.
        :returns: a function that removes the callback.
        """
        listeners = (self._all if kind is None
                     else self.collection(kind).listeners)
        listeners.append(callback)

        def end():
            if callback in listeners:
                listeners.remove(callback)
        return end

    def subscribe(self, kind, callback):
        """Call ``callback(event_type, obj, old)`` after each commit.

        The call is synchronous. Events of the callback's own writes are
        delivered to all subscribers after the current event. ``old`` is None
        for ``ADDED``.

        :returns: a function that removes the callback.
        """
        def deliver(event):
            previous = event.previous
            callback(event.type, event.record.obj,
                     previous and previous.obj)
        return self.listen(kind, deliver)

    def _commit(self, collection, type_, key, obj):
        self.version += 1
        obj['metadata']['resourceVersion'] = str(self.version)
        event = history.Event(
            type_, history.Record(key, obj, self.version),
            collection.records.get(key))
        collection.apply(event)
        self._undelivered.append((collection, event))
        if self._delivering:
            return obj
        self._delivering = True
        try:
            while self._undelivered:
                collection, event = self._undelivered.popleft()
                for callback in [*collection.listeners, *self._all]:
                    try:
                        callback(event)
                    except Exception:
                        LOG.exception('A listener failed at %s of %s %s',
                                      event.type, collection.kind.resource,
                                      event.record.key)
        finally:
            self._delivering = False
        return obj

    # -- writing ----------------------------------------------------------

    def create(self, kind, obj, *, manager='', user='', write=None):
        """Create an object.

        :param obj: the object; the store copies it.
        :param write: a :class:`Write` instead of manager and user.
        :returns: the object as stored.
        :raises errors.ApiError: 409 AlreadyExists, 422, 404 for a
            namespace that does not exist, or the error of an admission hook.
        """
        if kind.stored_as:
            obj = kind.to_stored(obj)
            return kind.from_stored(self.create(
                kind.stored_as, obj, manager=manager, user=user,
                write=write))
        write = write or Write(manager, user)
        if not write.own:
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
        collection = self.collection(kind)
        if key in collection.records:
            raise errors.already_exists(kind, key[1])
        settled = self._prune(kind, obj, None, write)
        if kind.default:
            kind.default(obj)
        if not write.managed:
            managed_fields.track(kind, None, obj, write.manager, '')
        admission = kinds.Admission(
            'CREATE', '', obj, None, self, write.user, write.warnings,
            write.identity)
        obj = self._admit(kind, admission, write, settled)
        if write.dry_run:
            return obj
        return self._commit(collection, history.ADDED, key, obj)

    def update(self, kind, obj, *, subresource='', manager='', user='',
               write=None):
        """Update an object, or with ``subresource='status'`` its status.

        An update without changes writes nothing.

        :param obj: the object; when its metadata.resourceVersion is set,
            it must be the current one.
        :returns: the object as stored.
        :raises errors.ApiError: 404, 409 Conflict, 422 or the error of an
            admission hook.
        """
        if kind.stored_as:
            obj = kind.to_stored(obj)
            return kind.from_stored(self.update(
                kind.stored_as, obj, subresource=subresource,
                manager=manager, user=user, write=write))
        write = write or Write(manager, user)
        return self._update(kind, obj if write.own else json_copy.copy(obj),
                            subresource, write)

    def _update(self, kind, obj, subresource, write):
        """Update from an object that the store may change in place."""
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
        settled = self._prune(kind, obj, old, write)
        if kind.default and not subresource:
            kind.default(obj)
        if not write.managed:
            managed_fields.track(kind, old, obj, write.manager, subresource)
        admission = kinds.Admission(
            'UPDATE', subresource, obj, old, self, write.user,
            write.warnings, write.identity)
        obj = self._admit(kind, admission, write, settled)
        metadata.count(kind, obj, old, subresource)
        meta = obj['metadata']
        if self._same(obj, old):
            return old
        if write.dry_run:
            meta['resourceVersion'] = old['metadata']['resourceVersion']
            return obj
        collection = self.collection(kind)
        if 'deletionTimestamp' in meta and not self._kept(
                kind, obj, meta.get('deletionGracePeriodSeconds')):
            return self._commit(collection, history.DELETED, key, obj)
        return self._commit(collection, history.MODIFIED, key, obj)

    def change(self, kind, namespace, name, fn, *, subresource='',
               manager='', user='', write=None):
        """Read, change and write an object in one atomic step.

        :param fn: function that changes the copy it is called with; without
            changes nothing is written. For ``subresource='status'`` only the
            status is a copy.
        :returns: the object as stored.
        """
        old = self.get(kind, namespace, name)
        if subresource == 'status':
            # Everything else is taken from the old object.
            obj = {**old, 'metadata': dict(old['metadata'])}
            if 'status' in old:
                obj['status'] = json_copy.copy(old['status'])
        else:
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
        """Delete an object, or set its deletionTimestamp.

        An object with finalizers stays until they are removed.

        :param grace: seconds, written to
            metadata.deletionGracePeriodSeconds of an object that stays.
        :param propagation: ``Background``, ``Foreground`` or ``Orphan``.
        :param uid: precondition: the object's uid.
        :param version: precondition: the object's resourceVersion.
        :returns: the object as stored, or its last state.
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
        admission = kinds.Admission(
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
        collection = self.collection(kind)
        if kind.grace:
            grace = kind.grace(old, grace)
        if not self._kept(kind, obj, grace):
            return self._commit(collection, history.DELETED, key, obj)
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
        return self._commit(collection, history.MODIFIED, key, obj)

    @staticmethod
    def _kept(kind, obj, grace):
        """Tell whether an object that is being deleted stays for now."""
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
        """Bring an object into the form of its schema.

        :returns: whether it fits the schema, and only a hook may change that.
        """
        metadata.prune(obj, write.unknown)
        left = _work(kind, obj, old)
        if left:
            same = _same_fields(obj, old)
            if left & schema_walks.INVALID:
                decode(kind, obj, same)
            if left & schema_walks.UNKNOWN:
                schemas.prune(kind.schema, obj, write.unknown, same)
            if left & schema_walks.UNSETTLED and not kind.crd:
                go_types.settle(kind, obj, same)
            if left & schema_walks.DEFAULTS or (
                    left & schema_walks.UNSETTLED and not kind.crd):
                schemas.fill_defaults(kind.schema, obj, same)
        if write.check:
            write.warnings += write.check()
        return not left and not kind.default

    def _admit(self, kind, admission, write, settled):
        for gate in self.gates:
            gate(kind, admission)
        if kind.mutate:
            kind.mutate(admission)
        obj, old = admission.new, admission.old
        found = metadata.causes(kind, obj, old)
        left = 0 if settled and not kind.mutate else _work(kind, obj, old)
        if left & schema_walks.DEFAULTS and kind.mutate:
            schemas.fill_defaults(kind.schema, obj, _same_fields(obj, old))
            left = _work(kind, obj, old)
        if left & (schema_walks.DEFAULTS | schema_walks.INVALID):
            found += schemas.causes(kind.schema, obj, _same_fields(obj, old))
        if found:
            raise errors.invalid(kind, obj['metadata'].get('name'), found)
        if kind.validate:
            kind.validate(admission)
        for check in self.checks:
            check(kind, admission, write.dry_run)
        return admission.new

    @staticmethod
    def _same(obj, old):
        """Tell whether two objects differ in managedFields' times at most."""
        if any(obj.get(n) != old.get(n) for n in obj.keys() | old.keys()
               if n != 'metadata'):
            return False
        new_meta, old_meta = obj['metadata'], old['metadata']
        return all(
            new_meta.get(n) == old_meta.get(n)
            for n in new_meta.keys() | old_meta.keys()
            if n not in ('resourceVersion', 'managedFields')
        ) and managed_fields.same(new_meta, old_meta)


# Matches the messages about times that Go does not parse. Only times have a
# pattern in the schemas of Kubernetes' own kinds.
_UNREADABLE = re.compile(
    ' in body (must be of type date-time:|should match )')


def decode(kind, obj, same=()):
    """Refuse an object with values of wrong types.

    A real API server decodes Kubernetes' own kinds into Go types, so hooks of
    these kinds may rely on the types; custom resources are checked against
    their schema later.

    :param same: root fields to skip.
    :raises errors.ApiError: 400.
    """
    if kind.crd or kind.schema is None:
        return
    for cause in schemas.causes(kind.schema, obj, same):
        if (cause.reason == 'FieldValueTypeInvalid'
                or _UNREADABLE.search(cause.message)):
            raise errors.bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled '
                f'as a {kind.kind}: json: cannot unmarshal: {cause}')


def _work(kind, obj, old):
    """Return what the schema leaves to do; see :mod:`schema_walks`."""
    return 0 if kind.schema is None else schema_walks.work(
        kind.schema, obj, old)


def _same_fields(obj, old):
    """Return the root fields that an update leaves unchanged.

    They passed the schema when they were written. Like a real API server,
    the store does not refuse a write for fields that it does not change.
    """
    return () if old is None else schema_walks.same_fields(obj, old)
