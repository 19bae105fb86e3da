# SPDX-License-Identifier: Apache-2.0
"""Rules for ``metadata``: fields set by the server, and validation.

Follows ``apiserver/pkg/registry/rest`` and
``apimachinery/pkg/api/validation/objectmeta.go`` (1.36).
"""
import functools
import random
import re
import time
import uuid

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import merge_schema

_LABEL = r'[a-z0-9]([-a-z0-9]*[a-z0-9])?'
_SUBDOMAIN = re.compile(rf'{_LABEL}(\.{_LABEL})*')
_QUALIFIED = re.compile(r'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
_RANDOM = 'bcdfghjklmnpqrstvwxz2456789'

SUBDOMAIN_RULE = (
    'a lowercase RFC 1123 subdomain must consist of lower case alphanumeric '
    'characters, \'-\' or \'.\', and must start and end with an alphanumeric '
    'character (e.g. \'example.com\', regex used for validation is '
    '\'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\')')
LABEL_RULE = (
    'a lowercase RFC 1123 label must consist of lower case alphanumeric '
    'characters or \'-\', and must start and end with an alphanumeric '
    'character (e.g. \'my-name\',  or \'123-abc\', regex used for validation '
    'is \'[a-z0-9]([-a-z0-9]*[a-z0-9])?\')')
QUALIFIED_RULE = (
    'name part must consist of alphanumeric characters, \'-\', \'_\' or '
    '\'.\', and must start and end with an alphanumeric character (e.g. '
    '\'MyName\',  or \'my.name\',  or \'123-abc\', regex used for validation '
    'is \'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\')')
VALUE_RULE = (
    'a valid label must be an empty string or consist of alphanumeric '
    'characters, \'-\', \'_\' or \'.\', and must start and end with an '
    'alphanumeric character (e.g. \'MyValue\',  or \'my_value\',  or '
    '\'12345\', regex used for validation is '
    '\'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\')')
#: Finalizers without a domain that Kubernetes' own kinds may have.
_FINALIZERS = 'foregroundDeletion', 'kubernetes', 'orphan'

#: Groups of Kubernetes' own kinds that may have any, as custom resources may:
#: apimachinery's ValidateObjectMeta validates them, not that of the core kinds
#: (validation.go in ``pkg/apis/coordination`` and
#: ``pkg/apis/admissionregistration``, 1.36).
_ANY_FINALIZER = ('admissionregistration.k8s.io', 'apiextensions.k8s.io',
                  'apiregistration.k8s.io', 'coordination.k8s.io')

ANNOTATIONS_LIMIT = 256 * 1024

#: Names of the fields that metadata has.
FIELDS = merge_schema.OBJECT_META['properties'].keys()


def now(later=0):
    """Return the current time as in objects: seconds, UTC.

    :param later: seconds from now.
    """
    return _text(int(time.time() + later))


@functools.lru_cache(16)
def _text(second):
    return time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(second))


def generate(prefix):
    """Generate a name from ``generateName``."""
    return prefix[:58] + ''.join(random.choices(_RANDOM, k=5))  # noqa: S311


def name_fault(name, label=False, path=False):
    """Describe why a name is not allowed, or return None.

    :param label: the name must be a DNS label.
    :param path: the name need only be a path segment, as names of roles.
    """
    if path:
        if name in ('.', '..'):
            return f"may not be '{name}'"
        return next((f"may not contain '{char}'" for char in '/%'
                     if char in name), None)
    if label:
        if len(name) > 63:
            return 'must be no more than 63 bytes'
        return None if re.fullmatch(_LABEL, name) else LABEL_RULE
    if len(name) > 253:
        return 'must be no more than 253 bytes'
    return None if _SUBDOMAIN.fullmatch(name) else SUBDOMAIN_RULE


def _bad(field, value, why):
    if isinstance(value, str):
        value = f'"{value}"'
    return errors.Cause('FieldValueInvalid', f'Invalid value: {value}: {why}',
                        field)


def key_fault(key):
    """Describe why the key of a label is not allowed, or return None."""
    prefix, slash, name = key.rpartition('/')
    if slash and (not prefix or name_fault(prefix)):
        return 'prefix part ' + (SUBDOMAIN_RULE if prefix
                                 else 'must be non-empty')
    if not name or len(name) > 63:
        return ('name part must be non-empty' if not name
                else 'name part must be no more than 63 bytes')
    return None if _QUALIFIED.fullmatch(name) else QUALIFIED_RULE


def value_fault(value):
    """Describe why the value of a label is not allowed, or return None."""
    if len(value) > 63:
        return 'must be no more than 63 bytes'
    return None if not value or _QUALIFIED.fullmatch(value) else VALUE_RULE


def check_types(kind, obj):
    """Refuse metadata that cannot be read at all (400)."""
    meta = obj.get('metadata')
    if meta is None:
        meta = obj['metadata'] = {}
    if not isinstance(meta, dict):
        raise errors.bad_request('metadata must be an object')
    for name in ('name', 'generateName', 'namespace', 'resourceVersion',
                 'uid', 'deletionTimestamp', 'creationTimestamp'):
        if meta.get(name) is None:
            meta.pop(name, None)
        elif not isinstance(meta[name], str):
            raise _unreadable(kind, name, 'string')
    for name in ('labels', 'annotations'):
        entries = meta.get(name)
        if entries is None or entries == {}:
            meta.pop(name, None)
        elif not isinstance(entries, dict) or not all(
                isinstance(v, str) for v in entries.values()):
            raise _unreadable(kind, name, 'map[string]string')
    for name in ('finalizers', 'ownerReferences', 'managedFields'):
        entries = meta.get(name)
        # An empty managedFields is not the same as none.
        if entries is None or (entries == [] and name != 'managedFields'):
            meta.pop(name, None)
            continue
        of = str if name == 'finalizers' else dict
        if not isinstance(entries, list) or not all(
                isinstance(v, of) for v in entries):
            raise _unreadable(kind, name, '[]')
    for reference in meta.get('ownerReferences', ()):
        for name, value in reference.items():
            wanted = bool if name in ('controller', 'blockOwnerDeletion') \
                else str
            if value is not None and not isinstance(value, wanted):
                raise _unreadable(kind, f'ownerReferences.{name}',
                                  wanted.__name__)


def prune(obj, unknown=None):
    """Remove what no metadata has, in place.

    :param unknown: a list that takes the paths.
    """
    meta = obj['metadata']
    for name in meta.keys() - FIELDS:
        del meta[name]
        if unknown is not None:
            unknown.append(f'metadata.{name}')


def _unreadable(kind, name, wanted):
    return errors.bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a '
        f'{kind.kind}: json: cannot unmarshal into Go struct field '
        f'ObjectMeta.metadata.{name} of type {wanted}')


def prepare_create(kind, obj):
    """Fill in what the server decides of a new object."""
    meta = obj['metadata']
    for name in ('deletionTimestamp', 'deletionGracePeriodSeconds',
                 'selfLink', 'uid', 'creationTimestamp', 'generation'):
        meta.pop(name, None)
    if meta.pop('resourceVersion', '') not in ('', '0'):
        raise errors.bad_request(
            'resourceVersion should not be set on objects to be created')
    if not meta.get('name') and meta.get('generateName'):
        meta['name'] = generate(meta['generateName'])
    if not kind.namespaced:
        meta.pop('namespace', None)
    meta['uid'] = str(uuid.uuid4())
    meta['creationTimestamp'] = now()
    if kind.generation:
        meta['generation'] = 1
    if kind.status:
        obj.pop('status', None)


def prepare_update(kind, obj, old, subresource):
    """Bring back what an update may not change."""
    meta, before = obj['metadata'], old['metadata']
    if subresource == 'status':
        for name in [n for n in obj if n != 'status']:
            if name not in old:
                del obj[name]
        for name, value in old.items():
            # Comparing is much cheaper than copying what is the same.
            if name not in ('status', 'metadata') and obj.get(name) != value:
                obj[name] = json_copy.copy(value)
        written = ('managedFields', 'resourceVersion')
        kept = json_copy.copy({name: value for name, value in before.items()
                               if name not in written})
        kept.update((name, meta[name]) for name in written if name in meta)
        meta = obj['metadata'] = kept
    elif kind.status and not subresource:
        if 'status' not in old:
            obj.pop('status', None)
        elif obj.get('status') != old['status']:
            obj['status'] = json_copy.copy(old['status'])
    for name in ('name', 'namespace', 'uid', 'creationTimestamp',
                 'generateName', 'deletionTimestamp', 'selfLink',
                 'deletionGracePeriodSeconds', 'generation'):
        if name in before:
            meta[name] = before[name]
        else:
            meta.pop(name, None)


def count(kind, obj, old, subresource):
    """Count the generation of an object that is as it will be stored.

    Not before: what a client spells otherwise or leaves to the defaults is
    no change.
    """
    if not kind.generation or subresource == 'status':
        return
    ignored = ('metadata', 'status') if kind.status else ('metadata',)
    if any(obj.get(n) != old.get(n) for n in obj.keys() | old.keys()
           if n not in ignored):
        obj['metadata']['generation'] = old['metadata'].get(
            'generation', 0) + 1


def causes(kind, obj, old=None):
    """List what is wrong with metadata, as :class:`errors.Cause`."""
    meta, found = obj['metadata'], []
    name = meta.get('name', '')
    if not name:
        found.append(errors.Cause(
            'FieldValueRequired', 'Required value: name or generateName is '
            'required', 'metadata.name'))
    elif old is None:
        label = (kind.group, kind.plural) == ('', 'namespaces')
        why = name_fault(name, label, kind.path_names)
        if why:
            found.append(_bad('metadata.name', name, why))
    for key, value in meta.get('labels', {}).items():
        why = key_fault(key)
        if why:
            found.append(_bad('metadata.labels', key, why))
        why = value_fault(value)
        if why:
            found.append(_bad('metadata.labels', value, why))
    size = 0
    for key, value in meta.get('annotations', {}).items():
        why = key_fault(key.lower())
        if why:
            found.append(_bad('metadata.annotations', key, why))
        size += len(key.encode()) + len(value.encode())
    if size > ANNOTATIONS_LIMIT:
        found.append(errors.Cause(
            'FieldValueTooLong', 'Too long: may not be more than '
            f'{ANNOTATIONS_LIMIT} bytes', 'metadata.annotations'))
    for at, reference in enumerate(meta.get('ownerReferences', [])):
        for field in ('apiVersion', 'kind', 'name', 'uid'):
            if not reference.get(field):
                found.append(_bad(
                    f'metadata.ownerReferences[{at}].{field}', '',
                    f'{field if field != "apiVersion" else "version"} must '
                    'not be empty'))
        version = reference.get('apiVersion') or ''
        if version.count('/') > 1:
            found.append(_bad(
                f'metadata.ownerReferences[{at}].apiVersion', version,
                'must be <group>/<version> or <version>'))
        if (version, reference.get('kind')) == ('v1', 'Event'):
            found.append(_bad(
                f'metadata.ownerReferences[{at}]', reference.get('name'),
                '/v1, Kind=Event is disallowed from being an owner'))
    if sum(bool(reference.get('controller')) for reference in meta.get(
            'ownerReferences', [])) > 1:
        found.append(_bad(
            'metadata.ownerReferences', [], 'Only one reference can have '
            'Controller set to true'))
    for finalizer in meta.get('finalizers', []):
        why = key_fault(finalizer) or (
            '/' not in finalizer and finalizer not in _FINALIZERS
            and ('.' not in kind.group or kind.group.endswith('.k8s.io'))
            and not kind.crd and kind.group not in _ANY_FINALIZER
            and 'name is neither a standard finalizer name nor is it fully '
            'qualified')
        if why:
            found.append(_bad('metadata.finalizers', finalizer, why))
    if old is not None and 'deletionTimestamp' in old['metadata']:
        known = old['metadata'].get('finalizers', [])
        fresh = [f for f in meta.get('finalizers', []) if f not in known]
        if fresh:
            text = ', '.join(f'"{f}"' for f in fresh)
            found.append(errors.Cause(
                'FieldValueForbidden', 'Forbidden: no new finalizers can be '
                'added if the object is being deleted, found new finalizers '
                f'[]string{{{text}}}', 'metadata.finalizers'))
    return found
