# SPDX-License-Identifier: Apache-2.0
"""PATCH: from the body to a write of the store."""
from sushy_kubevirt.sandbox.api import bodies
from sushy_kubevirt.sandbox.api import errors
from sushy_kubevirt.sandbox.api import patches
from sushy_kubevirt.sandbox.api import resources


async def patch(call, validation):
    """Carry out a PATCH.

    :returns: (object, whether it was made, warnings).
    """
    media = bodies.media_type(call.request)
    raw = await bodies.read(call.request)
    if media == patches.APPLY:
        raise errors.unsupported_media_type([patches.JSON_PATCH])
    if media not in (patches.JSON_PATCH, patches.MERGE):
        raise errors.unsupported_media_type(
            [patches.JSON_PATCH, patches.MERGE, patches.APPLY])
    body = bodies.parse_json(raw, validation.duplicates)
    kind, target = call.kind, call.target
    old = call.store.get(kind, target.namespace, target.name)
    if media == patches.JSON_PATCH:
        new = patches.json_patch(kind, target.name, old, body)
    else:
        if not isinstance(body, dict):
            raise errors.bad_request('a merge patch must be an object')
        new = patches.merge_patch(old, body)
    if not isinstance(new, dict) or not isinstance(
            new.get('metadata'), dict):
        raise errors.bad_request('the patched object is no object')
    write = resources.writing(call, validation)
    made = call.store.update(kind, new, write=write,
                             subresource=target.subresource)
    return made, False, write.warnings
