# SPDX-License-Identifier: Apache-2.0
"""Flavors that select a cluster's nodes by resource class and traits.

The description of a flavor of this package names its cluster. Other flavors
are neither changed nor deleted; one that is as declared is used.
"""

from __future__ import annotations

import dataclasses
import re

import keystoneauth1.exceptions
import openstack.exceptions

from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster import problems

#: Resources of flavors that bare metal does not have one by one.
_ZEROED = ('VCPU', 'MEMORY_MB', 'DISK_GB')


@dataclasses.dataclass(frozen=True)
class Change:
    """What is to be done with a flavor.

    :param name: of the flavor
    :param action: ``create``, ``change`` (extra specs), ``replace`` (size),
        ``delete`` or ``unchanged``
    :param body: dict of ``ram``, ``vcpus``, ``disk`` and ``description``; None
        to delete it
    :param specs: dict, its extra specs
    :param existing: the flavor of openstacksdk; None to create it
    """

    name: str
    action: str
    body: dict | None = None
    specs: dict = dataclasses.field(default_factory=dict)
    existing: object = dataclasses.field(default=None, compare=False)


def custom_name(resource_class):
    """Return the name in Placement of a node's resource class.

    Source: os_resource_classes.normalize_name, which Nova uses.

    :param resource_class: text of Ironic
    """
    return 'CUSTOM_' + re.sub('[^0-9A-Za-z]+', '_', resource_class).upper()


def description(owner) -> str:
    """:returns: text, the description of the flavors of a cluster"""
    return f'Nodes of the sushy-kubevirt cluster {owner}'


def extra_specs(flavor):
    """Say what extra specs a flavor has.

    :param flavor: a `model.Flavor`
    :returns: dict of text
    """
    return {f'resources:{custom_name(flavor.resource_class)}': '1',
            **{f'resources:{name}': '0' for name in _ZEROED},
            **{f'trait:{one}': 'required' for one in flavor.required_traits},
            **{f'trait:{one}': 'forbidden' for one in flavor.forbidden_traits},
            **{key: str(value) for key, value in flavor.custom_specs.items()}}


def size(flavor, sizes):
    """Say what size a flavor shows. Placement ignores it, but Nova compares
    it with what images require.

    :param flavor: a `model.Flavor`
    :param sizes: dict of name of an instance type to (vCPUs, MiB), for node
        types that have one
    :returns: dict of ``vcpus``, ``ram`` (MiB) and ``disk`` (GiB)
    """
    kind = flavor.type
    vcpus, memory = kind.vcpus, kind.memory_mb
    if kind.instancetype:
        given = sizes.get(kind.instancetype['name'], (None, None))
        vcpus, memory = vcpus or given[0], memory or given[1]
    return {'vcpus': vcpus or 1, 'ram': memory or 1,
            'disk': nodes.disk_gb(kind)}


def compare(connection, owner, flavors, sizes=None):
    """Compare flavors with those of Nova.

    :param connection: an `openstack.connection.Connection`
    :param owner: the cluster, an `identity.owner`
    :param flavors: iterable of `model.Flavor`; empty to delete them all
    :param sizes: see `size`
    :returns: list of `Change`
    :raises: `problems.ServiceError`, also if the name of a flavor is taken by
        a different one that is not of this cluster
    """
    with _errors('list flavors'):
        existing = {one.name: one for one in connection.compute.flavors(
            details=True, is_public='None')}
    found = [_change(flavor, owner, existing.get(flavor.name), sizes or {})
             for flavor in flavors]
    names = {one.name for one in found}
    return found + [
        Change(name, 'delete', existing=one)
        for name, one in sorted(existing.items())
        if name not in names and one.description == description(owner)]


def apply(connection, changes) -> None:
    """Make the changes.

    :param changes: list of `Change`
    :raises: `problems.ServiceError`
    """
    compute = connection.compute
    for change in changes:
        with _errors(f'{change.action} flavor {change.name}'):
            if change.action in ('replace', 'delete'):
                # Servers keep a copy of theirs.
                compute.delete_flavor(change.existing)
            if change.action in ('create', 'replace'):
                made = compute.create_flavor(name=change.name, **change.body)
                compute.create_flavor_extra_specs(made, change.specs)
            elif change.action == 'change':
                _change_specs(compute, change)


def _change(flavor, owner, existing, sizes):
    shown, specs = size(flavor, sizes), extra_specs(flavor)
    body = {**shown, 'description': description(owner)}
    if existing is None:
        return Change(flavor.name, 'create', body, specs)
    same_size = shown == {key: getattr(existing, key) for key in shown}
    same_specs = specs == (existing.extra_specs or {})
    if same_size and same_specs:
        action = 'unchanged'
    elif existing.description != description(owner):
        raise problems.ServiceError(
            f'Nova has another flavor {flavor.name}, which is not of this '
            'cluster. Choose another name in nova_flavors, or delete it')
    else:
        action = 'change' if same_size else 'replace'
    return Change(flavor.name, action, body, specs, existing)


def _change_specs(compute, change) -> None:
    current = change.existing.extra_specs or {}
    for key in sorted(current.keys() - change.specs.keys()):
        compute.delete_flavor_extra_specs_property(change.existing, key)
    changed = {key: value for key, value in change.specs.items()
               if current.get(key) != value}
    if changed:
        compute.create_flavor_extra_specs(change.existing, changed)


class _errors:
    # A context that names the request of which openstacksdk's error is.

    def __init__(self, what) -> None:
        self._what = what

    def __enter__(self):
        return self

    def __exit__(self, kind: object, error: BaseException | None,
                 trace: object) -> None:
        if isinstance(error, (openstack.exceptions.SDKException,
                              keystoneauth1.exceptions.ClientException)):
            raise problems.ServiceError(
                f'Nova does not {self._what}: {error}',
                getattr(error, 'status_code', None)) from error
