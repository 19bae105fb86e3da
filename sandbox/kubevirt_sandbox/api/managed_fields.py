# SPDX-License-Identifier: Apache-2.0
"""Field ownership (metadata.managedFields) and server-side apply.

Follows ``apimachinery/pkg/util/managedfields/internal`` (1.36) and
``structured-merge-diff/v6/merge``.
"""
import json

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import fieldsets
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import merge_schema
from kubevirt_sandbox.api import merging
from kubevirt_sandbox.api import metadata

APPLY, UPDATE = 'Apply', 'Update'

#: More managers of updates than these are merged, oldest first.
MOST_UPDATERS = 10

LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'

#: Fields without owner: the server sets them, or they identify the object.
UNOWNED = {('f:apiVersion',), ('f:kind',), ('f:metadata',)} | {
    ('f:metadata', 'f:' + name) for name in (
        'name', 'namespace', 'creationTimestamp', 'selfLink', 'uid',
        'clusterName', 'generation', 'managedFields', 'resourceVersion',
        'deletionTimestamp', 'deletionGracePeriodSeconds')}


class Entry:
    """An entry of managedFields."""

    def __init__(self, manager, operation, version, subresource='',
                 time=None, fields=None):
        self.manager = manager
        self.operation = operation
        self.version = version
        self.subresource = subresource
        self.time = time
        self.fields = fields if fields is not None else {}

    @property
    def identity(self):
        """Return the key of the entry; an applier has one for all versions."""
        return (self.manager, self.operation,
                '' if self.operation == APPLY else self.version,
                self.subresource)

    def to_dict(self):
        """Return the entry as it is in ``metadata.managedFields``."""
        found = {'manager': self.manager, 'operation': self.operation,
                 'apiVersion': self.version}
        if self.time:
            found['time'] = self.time
        found.update(fieldsType='FieldsV1', fieldsV1=self.fields)
        if self.subresource:
            found['subresource'] = self.subresource
        return found

    def __str__(self):
        said = json.dumps(self.manager)
        if self.subresource:
            said += f' with subresource "{self.subresource}"'
        if self.operation == UPDATE:
            said += f' using {self.version}'
        return said


def _well_formed(entry):
    """Tell whether a client's entry of managedFields is valid."""
    try:
        fieldsets.decode(entry.get('fieldsV1', {}))
    except (ValueError, RecursionError):
        return False
    return all(isinstance(entry.get(name, ''), str) for name in (
        'manager', 'operation', 'apiVersion', 'time', 'subresource'))


def _read(entries, check=False):
    """Return ``{identity: Entry}`` of managedFields; None if invalid.

    :param check: validate them, since they come from a client.
    """
    found = {}
    for entry in entries or ():
        if check and not _well_formed(entry):
            return None
        fields = entry.get('fieldsV1', {})
        if entry.get('operation') not in (APPLY, UPDATE) or not entry.get(
                'apiVersion') or entry.get('fieldsType') != 'FieldsV1' or (
                    not isinstance(fields, dict)):
            return None
        read = Entry(entry.get('manager', ''), entry['operation'],
                     entry['apiVersion'], entry.get('subresource', ''),
                     entry.get('time'), fields)
        found[read.identity] = read
    return found


def _write(obj, managed):
    """Put entries into an object."""
    entries = sorted(
        (e for e in managed.values() if e.fields),
        key=lambda e: (e.operation, e.time or '', e.manager, e.version,
                       e.subresource))
    if entries:
        obj['metadata']['managedFields'] = [e.to_dict() for e in entries]
    else:
        obj['metadata'].pop('managedFields', None)


def _ignored(kind, subresource):
    """Return the fields that a write to the subresource cannot set."""
    if not kind.status:
        return ()
    return ('f:metadata', 'f:spec') if subresource == 'status' else (
        'f:status',)


def _ownable(paths, ignored):
    return [p for p in paths if p and p not in UNOWNED
            and p[0] not in ignored]


def track(kind, old, new, manager, subresource):
    """Record the changes of an Update in managedFields of ``new``.

    :param old: the object before, None for a new one.
    :param new: the object; its own managedFields are taken where it has
        some, those of ``old`` where not.
    """
    meta = new['metadata']
    given = meta.pop('managedFields', None)
    known = (old or {}).get('metadata', {}).get('managedFields')
    before = _read(known)
    if old is not None and (given == [] or given == [{}]) and (
            not subresource):
        managed = {}
    else:
        managed = None if subresource or given == known else _read(
            given, True)
        if not managed:
            managed = before or {}
    if old is not None and not managed:
        # An object whose tracking was switched off stays so.
        return
    shape = merge_schema.of_kind(kind)
    found = merging.compare(shape, _bare(old), new)
    ignored = _ignored(kind, subresource)
    changed = _ownable(found.modified | found.added, ignored)
    removed = _ownable(found.removed, ignored)
    if changed or removed:
        _take(managed, changed, removed, None)
    if changed:
        mine = Entry(manager, UPDATE, kind.api_version, subresource)
        entry = managed.setdefault(mine.identity, mine)
        entry.fields = json_copy.copy(entry.fields)
        for path in changed:
            fieldsets.add(entry.fields, path)
        entry.time = metadata.now()
        _cap(managed)
    _write(new, managed)


def _bare(old):
    """Return a copy without managedFields, to compare with."""
    if old is None:
        return {'metadata': {}}
    if 'managedFields' not in old['metadata']:
        return old
    return {**old, 'metadata': {k: v for k, v in old['metadata'].items()
                                if k != 'managedFields'}}


def _take(managed, changed, removed, own):
    """Take paths from all entries but one's own; drop the empty ones."""
    for identity, entry in list(managed.items()):
        if identity == own:
            continue
        gone = [p for p in changed if fieldsets.has(entry.fields, p)]
        gone += [p for p in removed if fieldsets.has(entry.fields, p)]
        if gone:
            entry.fields = json_copy.copy(entry.fields)
            for path in gone:
                fieldsets.remove(entry.fields, path)
        if not entry.fields:
            del managed[identity]


def _cap(managed):
    """Merge the oldest updaters when there are too many."""
    updaters = sorted(
        (e for e in managed.values() if e.operation == UPDATE),
        key=lambda e: (e.time or '', e.manager))
    first, surplus = {}, len(updaters) - MOST_UPDATERS
    for entry in updaters:
        if surplus <= 0:
            return
        other = first.get(entry.version)
        if other is None:
            first[entry.version] = entry
            continue
        bucket = Entry('ancient-changes', UPDATE, entry.version, '',
                       entry.time)
        paths = fieldsets.decode(entry.fields) | fieldsets.decode(
            other.fields)
        bucket.fields = fieldsets.encode(paths)
        del managed[entry.identity]
        managed.pop(other.identity, None)
        managed[bucket.identity] = first[entry.version] = bucket
        surplus -= 1


def same(new_meta, old_meta):
    """Tell whether managedFields are equal, apart from times."""
    new = new_meta.get('managedFields', [])
    old = old_meta.get('managedFields', [])
    if len(new) != len(old):
        return False

    def timeless(entries):
        return sorted(
            ({k: v for k, v in e.items() if k != 'time'} for e in entries),
            key=lambda e: (e['operation'], e['manager'], e['apiVersion'],
                           e.get('subresource', '')))
    return new == old or timeless(new) == timeless(old)


def apply(kind, live, config, manager, force, subresource=''):
    """Apply a configuration server-side.

    :param live: the object as it is; None when there is none.
    :param config: the manager's configuration, an object.
    :param force: take fields from other managers.
    :returns: the object as it shall be, with its managedFields.
    :raises errors.ApiError: 409 naming managers and fields, 400.
    """
    shape = merge_schema.of_kind(kind)
    if config['metadata'].get('managedFields') is not None:
        raise errors.bad_request('metadata.managedFields must be nil')
    managed = _read((live or {}).get('metadata', {}).get(
        'managedFields')) or {}
    live = _bare(live) if live is not None else {
        'apiVersion': kind.api_version, 'kind': kind.kind, 'metadata': {}}
    ignored = _ignored(kind, subresource)
    if not managed and 'uid' in live['metadata']:
        # What was there before anybody applied belongs to this manager.
        paths = _ownable(merging.paths(shape, live), ())
        first = Entry('before-first-apply', UPDATE, kind.api_version, '',
                      metadata.now(), fieldsets.encode(paths))
        managed[first.identity] = first
    mine = Entry(manager, APPLY, kind.api_version, subresource,
                 metadata.now())
    last = managed.get(mine.identity)
    try:
        merged = merging.merge(shape, live, config)
    except ValueError as exc:
        raise errors.ApiError(
            500, 'InternalError', 'failed to create typed patch object '
            f'({config["metadata"].get("namespace", "")}/'
            f'{config["metadata"].get("name", "")}; {kind.api_version}, '
            f'Kind={kind.kind}): {exc}') from None
    wanted = merging.paths(shape, config)
    mine.fields = fieldsets.encode(_ownable(wanted, ignored))
    managed[mine.identity] = mine
    if last is not None and last.fields:
        # Fields that cannot be owned, such as the name, are removed from the
        # managers' fields only after this (stripmeta.go).
        merged = _pruned(shape, merged, managed, fieldsets.decode(
            last.fields), {p for p in wanted if p and p[0] not in ignored})
        if last.fields == mine.fields:
            mine.time = last.time
    found = merging.compare(shape, live, merged)
    changed = _ownable(found.modified | found.added, ignored)
    removed = _ownable(found.removed, ignored)
    conflicts = [
        (entry, path) for identity, entry in managed.items()
        if identity != mine.identity
        for path in sorted(changed) if fieldsets.has(entry.fields, path)]
    if conflicts and not force:
        if manager == 'kubectl':
            allowed = _last_applied_paths(kind, shape, live)
            conflicts = [c for c in conflicts if c[1] not in allowed]
        if conflicts:
            raise _conflict(conflicts)
    _take(managed, changed, removed, mine.identity)
    if changed or removed:
        mine.time = metadata.now()
    merged = json_copy.copy(merged)
    _write(merged, managed)
    annotations = merged['metadata'].get('annotations', {})
    if manager == 'kubectl' and annotations.get(LAST_APPLIED):
        annotations[LAST_APPLIED] = _last_applied(config)
    return merged


def _last_applied_paths(kind, shape, live):
    """Return the paths that ``kubectl apply`` last set on the client side.

    Applying these fields causes no conflict unless another manager has
    changed them since.
    """
    try:
        last = json.loads(live['metadata'].get('annotations', {}).get(
            LAST_APPLIED, ''))
    except ValueError:
        return set()
    if not isinstance(last, dict) or last.get(
            'apiVersion') != kind.api_version:
        return set()
    found = merging.compare(shape, last, live)
    return merging.paths(shape, last) - (
        found.modified | found.added | found.removed)


def _last_applied(config):
    config = json_copy.copy(config)
    config['metadata'].get('annotations', {}).pop(LAST_APPLIED, None)
    return json.dumps(config, separators=(',', ':')) + '\n'


def _pruned(shape, merged, managed, last, wanted):
    """Remove fields that the manager applied before and no manager owns."""
    if last <= wanted:
        return merged
    last = merging.members(shape, last)
    pruned = merging.without(shape, merged, last)
    owned = set(wanted)
    for entry in managed.values():
        owned |= fieldsets.decode(entry.fields)
    owned = merging.members(shape, owned)
    all_paths = merging.members(shape, merging.paths(shape, merged))
    left = merging.members(shape, merging.paths(shape, pruned))
    pruned = merging.without(shape, merged, all_paths - (left | owned))
    left = merging.members(shape, merging.paths(shape, pruned))
    return merging.without(shape, merged, (all_paths - left) & last)


def _conflict(conflicts):
    causes = [{'reason': 'FieldManagerConflict',
               'message': f'conflict with {entry}',
               'field': fieldsets.text(path)} for entry, path in conflicts]
    if len(conflicts) == 1:
        entry, path = conflicts[0]
        text = (f'Apply failed with 1 conflict: conflict with {entry}: '
                f'{fieldsets.text(path)}')
    else:
        by_manager = {}
        for entry, path in conflicts:
            by_manager.setdefault(str(entry), []).append(path)
        lines = []
        for said, paths in sorted(by_manager.items()):
            lines.append(f'conflicts with {said}:')
            lines += [f'- {fieldsets.text(path)}' for path in paths]
        text = (f'Apply failed with {len(conflicts)} conflicts: '
                + '\n'.join(lines))
    return errors.ApiError(409, 'Conflict', text, {'causes': causes})
