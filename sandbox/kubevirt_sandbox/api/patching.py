# SPDX-License-Identifier: Apache-2.0
"""PATCH: from the body to a write of the store."""
from kubevirt_sandbox.api import bodies
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import json_patch
from kubevirt_sandbox.api import managed_fields
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.api import patches
from kubevirt_sandbox.api import query_parameters
from kubevirt_sandbox.api import schema_walks
from kubevirt_sandbox.api import schemas
from kubevirt_sandbox.api import strategic


async def patch(call, validation):
    """Carry out a PATCH.

    :returns: (object, whether it was made, warnings).
    """
    media = bodies.media_type(call.request)
    raw = await bodies.read(call.request)
    if media == patches.APPLY:
        return _apply(call, validation, raw)
    kind, target = call.kind, call.target
    allowed = [patches.JSON_PATCH, patches.MERGE, patches.APPLY]
    if not kind.crd:
        allowed.append(patches.STRATEGIC)
    if media not in allowed:
        raise errors.unsupported_media_type(allowed)
    body = bodies.parse_json(raw, validation.duplicates)
    old = _as_seen(kind, call.store.get(kind, target.namespace, target.name))
    if media == patches.JSON_PATCH:
        new = json_patch.apply(old, body)
    else:
        if not isinstance(body, dict):
            raise errors.bad_request('a merge patch must be an object')
        new = (patches.merge_patch(old, body) if media == patches.MERGE
               else strategic.patch(kind, old, body))
    if not isinstance(new, dict) or not isinstance(
            new.get('metadata'), dict):
        raise errors.bad_request('the patched object is not an object')
    bodies.checked(new, kind)
    _check_uid(kind, target, new, old)
    # What the other formats do not change is the stored object's own.
    write = validation.write(own=media == patches.JSON_PATCH)
    made = call.store.update(kind, new, write=write,
                             subresource=target.subresource)
    return made, False, write.warnings


def _as_seen(kind, obj):
    """Convert a stored object (or None) to the version that is patched."""
    if obj is None or kind.from_stored is None:
        return obj
    return kind.from_stored(obj)


def _apply(call, validation, raw):
    """Carry out a server-side apply."""
    kind, target, store = call.kind, call.target, call.store
    manager = call.query.get('fieldManager', '')
    if not manager:
        raise errors.ApiError(
            422, 'Invalid', 'PatchOptions.meta.k8s.io "" is invalid: '
            'fieldManager: Required value: is required for apply patch',
            {'group': 'meta.k8s.io', 'kind': 'PatchOptions', 'causes': [
                {'reason': 'FieldValueRequired', 'field': 'fieldManager',
                 'message': 'Required value: is required for apply patch'}]})
    config = bodies.parse_yaml(raw)
    if isinstance(config, dict) and not (
            config.get('kind') and config.get('apiVersion')):
        raise errors.bad_request('apiVersion and kind must be set')
    config = bodies.checked(config, kind)
    metadata.check_types(kind, config)
    meta = config['metadata']
    if meta.setdefault('name', target.name) != target.name:
        raise errors.bad_request(
            f'the name of the object ({meta["name"]}) does not match the '
            f'name on the URL ({target.name})')
    if kind.namespaced and meta.setdefault(
            'namespace', target.namespace) != target.namespace:
        raise errors.bad_request(
            'the namespace of the provided object does not match the '
            'namespace sent on the request')
    _check_declared(kind, config)
    live = _as_seen(kind, store.find(kind, target.namespace, target.name))
    if live is None and target.subresource:
        raise errors.not_found(kind, target.name)
    if live is None and meta.get('uid'):
        raise errors.conflict(
            kind, target.name, 'uid mismatch: the provided object specified '
            f'uid {meta["uid"]}, and no existing object was found')
    if live is None:
        call.authorize('create')
    new = managed_fields.apply(kind, live, config, manager,
                               query_parameters.flag(call.query, 'force'),
                               target.subresource)
    write = validation.write(managed=True, own=True)
    if live is None:
        new['metadata'].pop('resourceVersion', None)
        return store.create(kind, new, write=write), True, write.warnings
    _check_uid(kind, target, new, live)
    made = store.update(kind, new, subresource=target.subresource,
                        write=write)
    return made, False, write.warnings


def _check_declared(kind, config):
    """Refuse fields that a custom resource's schema does not have.

    An apply fails whatever ``fieldValidation`` says (managedfields.Apply in
    apimachinery 1.36, whose error has no reason).
    """
    if not kind.crd or kind.schema is None:
        return
    if not schema_walks.work(kind.schema, config) & schema_walks.UNKNOWN and (
            config['metadata'].keys() <= metadata.FIELDS):
        return
    known, unknown = json_copy.copy(config), []
    metadata.prune(known, unknown)
    schemas.prune(kind.schema, known, unknown)
    if not unknown:
        return
    # The search ends at the first such field of an object.
    first = {name.rpartition('.')[0]: name for name in reversed(unknown)}
    found = [f'.{name}: field not declared in schema'
             for name in reversed(first.values())]
    meta = config['metadata']
    raise errors.ApiError(
        500, '', 'failed to create typed patch object '
        f"({meta.get('namespace', '')}/{meta['name']}; {kind.api_version}, "
        f'Kind={kind.kind}): ' + (found[0] if len(found) == 1 else (
            'errors:' + ''.join('\n  ' + one for one in found))))


def _check_uid(kind, target, new, old):
    """Check a uid in the patched object that differs from the stored one.

    Unlike the uid of a PUT it is no precondition: validation refuses it
    (apimachinery, ValidateObjectMetaUpdate). A patch of a custom resource's
    status changes only the status, so the uid is ignored
    (apiextensions-apiserver, status_strategy.go).
    """
    mine, its = new['metadata'], old['metadata']
    if mine.get('uid', its['uid']) == its['uid']:
        return
    if kind.crd and target.subresource == 'status':
        mine['uid'] = its['uid']
    elif mine.get('resourceVersion', '') in ('', its['resourceVersion']):
        raise errors.invalid(kind, target.name, [errors.Cause(
            'FieldValueInvalid', f'Invalid value: "{mine["uid"]}": field is '
            'immutable', 'metadata.uid')])
