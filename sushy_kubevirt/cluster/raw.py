# SPDX-License-Identifier: Apache-2.0
"""Raw fields of a VirtualMachine or VirtualMachineBMC in a cluster file.

The API server and KubeVirt check nearly all of them. Here are those that this
package reads itself, or that would make the object another one.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.cluster import wording

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import checks
    from sushy_kubevirt.cluster import document
    from sushy_kubevirt.kube import objects

_SPEC = 'spec', 'template', 'spec'
_DEVICES = *_SPEC, 'domain', 'devices'
_ARCHITECTURE = *_SPEC, 'architecture'

#: Keys of these mappings that may be given; others belong to the cluster.
_KNOWN: dict[tuple[str, ...], tuple[str, str]] = {
    (): ('metadata', 'spec'), ('metadata',): ('annotations', 'labels')}

#: What has to be a mapping, and must not be removed.
_MAPPINGS = (
    ('metadata',), ('metadata', 'labels'), ('metadata', 'annotations'),
    *(_DEVICES[:length] for length in range(1, len(_DEVICES) + 1)),
    ('spec', 'template', 'metadata'),
    ('spec', 'template', 'metadata', 'labels'))

#: Lists of mappings, and where in the items their name is.
_LISTS: dict[tuple[str, ...], tuple[str, ...]] = {
    (*_DEVICES, 'disks'): ('name',), (*_SPEC, 'volumes'): ('name',),
    ('spec', 'dataVolumeTemplates'): ('metadata', 'name')}


def check(value: objects.Json, where: document.ValuePath,
          checker: checks.Checker) -> None:
    """Check the fields.

    :param value: fields of a VirtualMachine
    :param where: where in the file they are
    :param checker: to which problems are reported
    """
    for path, known in _KNOWN.items():
        mapping = _member(value, path)
        for key in mapping if isinstance(mapping, dict) else ():
            if key not in known:
                checker.problem((*where, *path, key), (
                    f'"{wording.short(key)}" cannot be set here; only '
                    f'{" and ".join(known)} can'))
    for path in _MAPPINGS:
        parent = _member(value, path[:-1])
        if (isinstance(parent, dict) and path[-1] in parent
                and not isinstance(parent[path[-1]], dict)):
            checker.problem((*where, *path), f'"{path[-1]}" has to be a '
                            'mapping')
    architecture = _member(value, _ARCHITECTURE)
    if architecture is not None and not isinstance(architecture, str):
        checker.problem((*where, *_ARCHITECTURE), '"architecture" has to be '
                        'text')
    for path, name in _LISTS.items():
        items = _member(value, path)
        if items is not None and not (isinstance(items, list) and all(
                isinstance(_member(item, name), str) for item in items)):
            checker.problem((*where, *path), f'"{path[-1]}" has to be a list '
                            f'of mappings with "{".".join(name)}"')


def check_bmc(value: objects.Json, where: document.ValuePath,
              checker: checks.Checker) -> None:
    """Check fields of a VirtualMachineBMC.

    :param value: fields of its ``spec``
    """
    if 'virtualMachine' in value:
        checker.problem((*where, 'virtualMachine'), '"virtualMachine" cannot '
                        'be set here: a BMC is that of the VM of its node')


def _member(value: typing.Any, path: tuple[str, ...]) -> typing.Any:
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
