# SPDX-License-Identifier: Apache-2.0
"""JSON patches that turn an object into its edited copy.

To Kubernetes' API server a test of null means that a member is absent, where
its parent exists (``Patch.test`` in gopkg.in/evanphx/json-patch.v4).

Steps edit a copy of the VM and send only the differences. A list is never
sent whole, because the copy may lack parts that the cache does not keep.

The jsonpatch package does not fit: it compares list items by position. To
remove the first of two disks it may rename that to the second and remove the
second, although the copy may lack parts of both.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.kube import objects

_ANNOTATIONS = '/metadata/annotations/'


class VmPatcher(typing.Protocol):
    """Patches a VM, as `machine.Machine` does."""

    def patch(self, operations: objects.JsonPatch) -> objects.VirtualMachine:
        """Send a patch, and return the patched VM."""


def diff(old: object, new: object, path: str = '') -> objects.JsonPatch:
    """Return the JSON patch from one value to another.

    :param old: a JSON value
    :param new: the same, edited
    """
    if isinstance(old, dict) and isinstance(new, dict):
        operations: objects.JsonPatch = []
        for key in sorted(old.keys() | new.keys()):
            where = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in new:
                operations.append({'op': 'remove', 'path': where})
            elif key not in old:
                operations.append(
                    {'op': 'add', 'path': where, 'value': new[key]})
            else:
                operations += diff(old[key], new[key], where)
        return operations
    if isinstance(old, list) and isinstance(new, list):
        return _lists(old, new, path)
    if old != new or type(old) is not type(new):
        return [{'op': 'replace', 'path': path, 'value': new}]
    return []


def _lists(old: list[typing.Any], new: list[typing.Any],
           path: str) -> objects.JsonPatch:
    """Return the patch of a list.

    Supports removed items, and items added at the end; callers make no other
    changes. An item is never changed into one of another name, as it may
    lack parts.
    """
    operations: objects.JsonPatch = []
    names = [_name(item) for item in new]
    kept = list(old)
    for index in reversed(range(len(old))):
        if _name(old[index]) not in names or index >= len(new) and (
                _name(old[index]) is None):
            operations.append(
                {'op': 'remove', 'path': f'{path}/{index}'})
            del kept[index]
    old = kept
    for index, item in enumerate(new):
        if index < len(old):
            operations += diff(old[index], item, f'{path}/{index}')
        else:
            operations.append(
                {'op': 'add', 'path': path + '/-', 'value': item})
    return operations


def _name(item: typing.Any) -> typing.Any:
    return item.get('name') if isinstance(item, dict) else item


def guarded_diff(vm: objects.VirtualMachine, edited: objects.VirtualMachine,
                 strict: bool = False) -> objects.JsonPatch:
    """Return a patch with tests that refuse it after a concurrent change.

    The API server refuses the patch (409 or 422, `errors.Conflict`) if the
    VM's spec, or an annotation that the patch changes or adds, has changed
    since. KubeVirt's writes to the status, which are frequent while a VM
    starts, do not matter.

    :param vm: the VM the copy was made from
    :param edited: the copy
    :param strict: True to refuse after any change, including the status
    :returns: [] if nothing differs
    """
    operations = diff(vm, edited)
    if not operations:
        return []
    metadata = vm['metadata']
    if strict:
        return [{'op': 'test', 'path': '/metadata/resourceVersion',
                 'value': metadata['resourceVersion']}] + operations
    tests: objects.JsonPatch = [{'op': 'test', 'path': '/metadata/generation',
                                 'value': metadata['generation']}]
    annotations = metadata.get('annotations') or {}
    for operation in operations:
        path = operation['path']
        if path.startswith(_ANNOTATIONS):
            name = path[len(_ANNOTATIONS):]
            tests.append({'op': 'test', 'path': path, 'value': annotations.get(
                name.replace('~1', '/').replace('~0', '~'))})
        elif path == _ANNOTATIONS[:-1]:
            tests.append({'op': 'test', 'path': path, 'value': None})
    return tests + operations


def send(machine: VmPatcher, vm: objects.VirtualMachine,
         edited: objects.VirtualMachine,
         strict: bool = False) -> objects.VirtualMachine:
    """Patch a VM with the changes of its edited copy, see `guarded_diff`.

    Sends at most one request without retries; call it in a step of
    `machine.Machine.write`.

    :returns: the patched VM; ``vm`` itself if nothing differs
    :raises: `errors.Conflict` after a concurrent change
    """
    operations = guarded_diff(vm, edited, strict)
    return machine.patch(operations) if operations else vm
