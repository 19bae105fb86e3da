# SPDX-License-Identifier: Apache-2.0
"""Flavors that select a cluster's nodes by resource class and traits.

The description of a flavor of this package names its cluster. Other flavors
are neither changed nor deleted; one that is as declared is used.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import re
import typing

from sushy_kubevirt.cluster import cloud
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster import problems

if typing.TYPE_CHECKING:
    from openstack.compute.v2 import _proxy
    from openstack.compute.v2 import flavor
    import openstack.connection

    from sushy_kubevirt.cluster import model
    from sushy_kubevirt.kube import objects

#: Resources of flavors that bare metal does not have one by one.
_ZEROED = ('VCPU', 'MEMORY_MB', 'DISK_GB')


@dataclasses.dataclass(frozen=True)
class Change:
    """What is to be done with a flavor.

    :param name: of the flavor
    :param action: ``create``, ``change`` (extra specs), ``replace`` (size),
        ``delete`` or ``unchanged``
    :param body: ``ram``, ``vcpus``, ``disk`` and ``description``; empty to
        delete it
    :param specs: its extra specs
    :param existing: Nova's flavor; None to create it
    """

    name: str
    action: str
    body: objects.Json = dataclasses.field(default_factory=dict)
    specs: dict[str, str] = dataclasses.field(default_factory=dict)
    existing: flavor.Flavor | None = dataclasses.field(
        default=None, compare=False)

    @property
    def live(self) -> flavor.Flavor:
        """Nova's flavor, which exists."""
        assert self.existing is not None
        return self.existing


class InstanceSize(typing.NamedTuple):
    """What an instance type gives to a VM; memory in MiB."""

    vcpus: int | None
    memory_mb: int | None


def custom_name(resource_class: str) -> str:
    """Return the name in Placement of a node's resource class.

    Source: os_resource_classes.normalize_name, which Nova uses.
    """
    return 'CUSTOM_' + re.sub('[^0-9A-Za-z]+', '_', resource_class).upper()


def description(owner: str) -> str:
    """Return the description of the flavors of a cluster."""
    return f'Nodes of the sushy-kubevirt cluster {owner}'


def extra_specs(declared: model.Flavor) -> dict[str, str]:
    """Say what extra specs a flavor has."""
    return {
        f'resources:{custom_name(declared.resource_class)}': '1',
        **{f'resources:{name}': '0' for name in _ZEROED},
        **{f'trait:{trait}': 'required' for trait in declared.required_traits},
        **{f'trait:{trait}': 'forbidden'
           for trait in declared.forbidden_traits},
        **{key: str(value) for key, value in declared.custom_specs.items()}}


def size(declared: model.Flavor,
         sizes: abc.Mapping[str, InstanceSize]) -> dict[str, int]:
    """Say what size a flavor shows. Placement ignores it, but Nova compares
    it with what images require.

    :param sizes: by name of the instance type, for node types that have one
    :returns: ``vcpus``, ``ram`` (MiB) and ``disk`` (GiB)
    """
    kind = declared.type
    vcpus, memory = kind.vcpus, kind.memory_mb
    if kind.instancetype:
        given = sizes.get(kind.instancetype['name'], InstanceSize(None, None))
        vcpus, memory = vcpus or given.vcpus, memory or given.memory_mb
    return {'vcpus': vcpus or 1, 'ram': memory or 1,
            'disk': nodes.disk_gb(kind)}


def compare(connection: openstack.connection.Connection, owner: str,
            flavors: abc.Iterable[model.Flavor],
            sizes: abc.Mapping[str, InstanceSize] | None = None
            ) -> list[Change]:
    """Compare flavors with those of Nova.

    :param owner: the cluster, an `identity.owner`
    :param flavors: none to delete them all
    :param sizes: see `size`
    :raises: `problems.ServiceError`, also if the name of a flavor is taken by
        a different one that is not of this cluster
    """
    with cloud.errors('Nova does not list flavors: '):
        existing = {live.name: live for live in connection.compute.flavors(
            details=True, is_public='None')}
    changes = [
        _change(declared, owner, existing.get(declared.name), sizes or {})
        for declared in flavors]
    names = {change.name for change in changes}
    return changes + [
        Change(name, 'delete', existing=live)
        for name, live in sorted(existing.items())
        if name not in names and live.description == description(owner)]


def apply(connection: openstack.connection.Connection,
          changes: abc.Iterable[Change]) -> None:
    """Make the changes.

    :raises: `problems.ServiceError`
    """
    for change in changes:
        with cloud.errors(f'Nova does not {change.action} flavor '
                          f'{change.name}: '):
            compute = connection.compute
            if change.action in ('replace', 'delete'):
                # Servers keep a copy of theirs.
                compute.delete_flavor(change.live)
            if change.action in ('create', 'replace'):
                created = compute.create_flavor(
                    name=change.name, **change.body)
                compute.create_flavor_extra_specs(created, change.specs)
            elif change.action == 'change':
                _change_specs(compute, change.live, change.specs)


def _change(declared: model.Flavor, owner: str,
            existing: flavor.Flavor | None,
            sizes: abc.Mapping[str, InstanceSize]) -> Change:
    shown, specs = size(declared, sizes), extra_specs(declared)
    body = {**shown, 'description': description(owner)}
    if existing is None:
        return Change(declared.name, 'create', body, specs)
    same_size = shown == {key: getattr(existing, key) for key in shown}
    same_specs = specs == (existing.extra_specs or {})
    if same_size and same_specs:
        action = 'unchanged'
    elif existing.description != description(owner):
        raise problems.ServiceError(
            f'Nova has another flavor {declared.name}, which is not of this '
            'cluster. Choose another name in nova_flavors, or delete it')
    else:
        action = 'change' if same_size else 'replace'
    return Change(declared.name, action, body, specs, existing)


def _change_specs(compute: _proxy.Proxy, existing: flavor.Flavor,
                  specs: dict[str, str]) -> None:
    current = existing.extra_specs or {}
    for key in sorted(current.keys() - specs.keys()):
        compute.delete_flavor_extra_specs_property(existing, key)
    changed = {key: value for key, value in specs.items()
               if current.get(key) != value}
    if changed:
        compute.create_flavor_extra_specs(existing, changed)
