# SPDX-License-Identifier: Apache-2.0
"""What a node is in Ironic, and how an existing one differs from it.

A node is described by values at paths: ``('properties', 'cpus')`` is one, and
``('properties', 'capabilities', 'boot_mode')`` one in the text of
capabilities. Other paths are left as they are, since inspection and users
write there too. Which paths this package has set is recorded in the node's
``extra``, so that what leaves the file leaves the node.

Ironic masks passwords. The record therefore has the revision of the Secret
that the password came from, and nothing derived from the password itself.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import typing
import uuid

from sushy_kubevirt.cluster import fields
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.kube import quantity
from sushy_kubevirt.machine import architecture
from sushy_kubevirt.remote import endpoint

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import model
    from sushy_kubevirt.kube import objects

#: Key in ``extra`` of nodes, ports and port groups.
RECORD = 'sushy_kubevirt'

SYSTEM_ID = '/redfish/v1/Systems/1'

#: Fields to read of each node.
FIELDS = ('uuid', 'name', 'driver', 'driver_info', 'properties', 'extra',
          'resource_class', 'traits', 'conductor_group', 'shard', 'owner',
          'lessee', 'description', 'provision_state',
          'target_provision_state', 'power_state', 'last_error',
          'instance_uuid', 'maintenance', 'maintenance_reason', 'fault',
          'reservation', 'inspection_finished_at') + fields.INTERFACES

#: What Ironic answers, or has as ``last_error``, if its database is SQLite and
#: others write.
DATABASE_LOCKED = 'database is locked'

#: Provision states of nodes without an instance.
_FREE = {'enroll', 'verifying', 'manageable', 'inspecting', 'inspect wait',
         'inspect failed', 'cleaning', 'clean wait', 'clean failed',
         'clean hold', 'available', 'adopt failed'}

#: Values that may change under an instance; an image of the agent may not.
_HARMLESS = {'description', 'driver_info', 'extra'}
_DEPLOY_IMAGES = 'deploy_kernel', 'deploy_ramdisk'

_PASSWORDS = {'redfish_password', 'ipmi_password'}

#: Interfaces by driver, where Ironic's default may not fit: an outlet has no
#: boot device to set.
_INTERFACES = {'snmp': {'power_interface': 'snmp',
                        'management_interface': 'noop'}}

#: Where a value of a node is: one to three keys.
Path: typing.TypeAlias = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A node to enrol.

    :param node: one with ``ironic``
    :param vm: UID of its VirtualMachine
    """

    node: model.Node
    bmc: endpoint.Bmc
    vm: str

    @property
    def ironic(self) -> model.IronicConfig:
        """How the node is enrolled."""
        assert self.node.ironic is not None
        return self.node.ironic


@dataclasses.dataclass(frozen=True)
class Difference:
    """What to change in a node.

    :param patch: may contain a password
    :param traits: what to replace the traits with; None to leave them
    :param changed: sorted names of what these change, for users
    :param deferred: sorted names of what is not changed, as the node has an
        instance
    """

    patch: objects.JsonPatch = dataclasses.field(repr=False)
    traits: frozenset[str] | None
    changed: tuple[str, ...]
    deferred: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.patch) or self.traits is not None


def is_in_use(existing: objects.Json) -> bool:
    """Tell whether a node of Ironic has an instance or is about to."""
    return (existing['instance_uuid'] is not None
            or existing['provision_state'] not in _FREE)


def record_of(existing: objects.Json) -> objects.Json:
    """Return this package's record in a node; empty if it is not its own."""
    record = (existing['extra'] or {}).get(RECORD)
    return record if isinstance(record, dict) else {}


def find(nodes: abc.Sequence[objects.Json], owner: str,
         declared: abc.Iterable[Wanted]
         ) -> dict[str, objects.Json | problems.NodeFailed]:
    """Find the nodes of wanted ones: by name, else by the UID of the VM.

    :param nodes: all of Ironic
    :param owner: the cluster, an `identity.owner`
    :returns: by name, the node, or the problem that the name belongs to
        another's node; nodes to create are left out
    """
    by_name = {node['name']: node for node in nodes}
    by_vm = {record_of(node)['vm']: node for node in nodes
             if record_of(node).get('cluster') == owner
             and 'vm' in record_of(node)}
    existing: dict[str, objects.Json | problems.NodeFailed] = {}
    for wanted in declared:
        name = wanted.node.name
        if node := by_name.get(name):
            if record_of(node).get('cluster') == owner:
                existing[name] = node
            else:
                existing[name] = problems.NodeFailed(
                    _foreign(name, node, owner))
        elif node := by_vm.get(wanted.vm):
            existing[name] = node
    return existing


def owned(nodes: abc.Iterable[objects.Json],
          owner: str) -> list[objects.Json]:
    """Return a cluster's nodes of Ironic, in order of names."""
    return sorted((node for node in nodes
                   if record_of(node).get('cluster') == owner),
                  key=lambda node: node['name'] or node['uuid'])


def _foreign(name: str, node: objects.Json, owner: str) -> str:
    other = record_of(node).get('cluster') or ''
    whose = 'was not enrolled by this command'
    if other:
        cluster = other.rpartition('/')[0]
        whose = f'belongs to the cluster {cluster}'
        if cluster == owner.rpartition('/')[0]:
            whose += (' of another Kubernetes cluster, or of a namespace that '
                      'was deleted')
    return (f"Ironic has a node {name} ({node['uuid']}) that {whose}. Rename "
            'or delete it, or choose another node_name_prefix')


def values(wanted: Wanted, owner: str,
           images: abc.Mapping[str, str]) -> dict[Path, typing.Any]:
    """Say what a node shall be.

    :param owner: the cluster, an `identity.owner`
    :param images: what Ironic gets by what ``deploy_kernel`` and
        ``deploy_ramdisk`` name
    """
    node, ironic = wanted.node, wanted.ironic
    wants: dict[Path, typing.Any] = {
        ('name',): node.name, ('driver',): node.type.driver,
        ('resource_class',): ironic.resource_class}
    for key, value in {**_INTERFACES.get(node.type.driver, {}),
                       **ironic.interfaces, **ironic.attributes}.items():
        if key != 'extra':
            wants[key,] = value
    if 'conductor_group' in ironic.attributes:
        # Ironic compares and stores it in lower case.
        wants['conductor_group',] = ironic.attributes[
            'conductor_group'].lower()
    parts = {'driver_info': _driver_info(wanted, images),
             'properties': {**_sizes(wanted), **ironic.properties},
             'extra': ironic.attributes.get('extra', {})}
    for part, content in parts.items():
        wants.update({(part, key): value for key, value in content.items()})
    capabilities = {'boot_mode': node.type.boot_mode}
    if node.type.secure_boot:
        capabilities['secure_boot'] = 'true'
    for key, value in {**capabilities, **ironic.capabilities}.items():
        wants['properties', 'capabilities', key] = value
    return wants


def creation(wanted: Wanted, owner: str,
             images: abc.Mapping[str, str]) -> objects.Json:
    """Make the body of a request that creates a node.

    Traits follow in a request of their own, and the ``owner`` in a change:
    Ironic creates nodes of an administrator of a project for that project
    only, and lets the administrator give them away.
    """
    wants = values(wanted, owner, images)
    body: objects.Json = {'extra': {}, 'properties': {}, 'driver_info': {}}
    capabilities = {}
    for path, value in wants.items():
        if len(path) == 3:
            capabilities[path[2]] = value
        elif len(path) == 2:
            body[path[0]][path[1]] = value
        else:
            body[path[0]] = value
    body['properties']['capabilities'] = _joined(capabilities)
    body.pop('owner', None)
    body['extra'][RECORD] = _record(wanted, owner, wants,
                                    wanted.bmc.revision)
    return body


def difference(existing: objects.Json, wanted: Wanted, owner: str,
               images: abc.Mapping[str, str]) -> Difference:
    """Compare a node of Ironic with what it shall be."""
    wants = values(wanted, owner, images)
    record = record_of(existing)
    managed = {_path(pointer) for pointer in record.get('managed', ())}
    fresh = record.get('credentials') != wanted.bmc.revision
    changes = {path: value for path, value in wants.items()
               if _differs(existing, path, value, fresh)}
    changes.update({path: None for path in managed - wants.keys()
                    if _value(existing, path) is not None})
    traits: frozenset[str] | None = frozenset(wanted.ironic.traits)
    if traits == frozenset(existing['traits'] or ()):
        traits = None
    deferred: set[Path] = set()
    revision: str | None = wanted.bmc.revision
    if is_in_use(existing):
        deferred = {path for path in changes if not _is_harmless(path)}
        if ('driver',) in deferred:
            # The BMC's keys are those of the driver.
            deferred |= {path for path in changes if path[0] == 'driver_info'}
            revision = record.get('credentials')
        if traits is not None:
            deferred.add(('traits',))
            traits = None
    kept = wants.keys() - (deferred - managed) | (managed & deferred)
    changes = {path: value for path, value in changes.items()
               if path not in deferred}
    patch = _patch(existing, changes)
    new_record = _record(wanted, owner, kept, revision)
    if new_record != record:
        patch.append({'op': 'add', 'path': f'/extra/{RECORD}',
                      'value': new_record})
    changed = {_shown(path) for path in changes}
    if traits is not None:
        changed.add('traits')
    if patch and not changed:
        changed.add('extra')
    return Difference(patch, traits, tuple(sorted(changed)),
                      tuple(sorted(map(_shown, deferred))))


def _record(wanted: Wanted, owner: str, paths: abc.Iterable[Path],
            revision: str | None) -> objects.Json:
    return {'cluster': owner, 'vm': wanted.vm, 'credentials': revision,
            'managed': sorted(map(_pointer, paths))}


def _driver_info(wanted: Wanted,
                 images: abc.Mapping[str, str]) -> objects.Json:
    ironic, bmc = wanted.ironic, wanted.bmc
    info: objects.Json
    if wanted.node.type.driver == 'redfish':
        server = endpoint.host_and_port(bmc.address, bmc.redfish_port, 443)
        info = {'redfish_address': f'https://{server}',
                'redfish_system_id': SYSTEM_ID,
                'redfish_username': bmc.username,
                'redfish_password': bmc.password,
                'redfish_verify_ca': ironic.verify and (
                    ironic.ca_file or True)}
    elif outlet := wanted.node.outlet:
        info = {'snmp_driver': 'apc_rackpdu', 'snmp_address': outlet.address,
                'snmp_port': outlet.port, 'snmp_version': '2c',
                'snmp_community': outlet.community,
                'snmp_outlet': outlet.number}
    else:
        info = {'ipmi_address': bmc.address, 'ipmi_port': bmc.ipmi_port,
                'ipmi_username': bmc.username, 'ipmi_password': bmc.password}
    for key in _DEPLOY_IMAGES:
        if image := getattr(ironic, key):
            info[key] = images.get(image, image)
    return info


def _sizes(wanted: Wanted) -> objects.Json:
    # Inspection finds these itself.
    if wanted.ironic.inspect:
        return {}
    kind = wanted.node.type
    sizes = {'cpu_arch': architecture.cpu_arch(kind.architecture),
             'cpus': kind.vcpus, 'memory_mb': kind.memory_mb,
             'local_gb': disk_gb(kind)}
    return {key: value for key, value in sizes.items() if value}


def disk_gb(node_type: model.NodeType) -> int:
    """Return the size of the first volume, as Ironic and Nova count it.

    :returns: whole GiB, at least 1; 0 without a volume of known size
    """
    if not node_type.volumes or not node_type.volumes[0].capacity:
        return 0
    return max(1, (quantity.to_int(node_type.volumes[0].capacity) or 0) >> 30)


def image_names(declared: abc.Iterable[Wanted]) -> set[str]:
    """List the images that Glance must resolve.

    :returns: what is neither a URL nor a UUID
    """
    names = {getattr(wanted.ironic, key)
             for wanted in declared for key in _DEPLOY_IMAGES}
    return {name for name in names
            if name and '://' not in name and not _is_uuid(name)}


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _is_harmless(path: Path) -> bool:
    return path[0] in _HARMLESS and path[-1] not in _DEPLOY_IMAGES


def _differs(existing: objects.Json, path: Path, value: object,
             fresh: bool) -> bool:
    current = _value(existing, path)
    if path[-1] in _PASSWORDS and path[0] == 'driver_info':
        return fresh or not current
    if path[0] == 'properties':
        # Inspection and users write numbers as text.
        return current is None or _text(current) != _text(value)
    return current != value


def _value(existing: objects.Json, path: Path) -> typing.Any:
    value = existing.get(path[0])
    if len(path) > 1:
        value = (value or {}).get(path[1])
    if len(path) > 2:
        value = _parsed(value).get(path[2])
    return value


def _patch(existing: objects.Json,
           changes: abc.Mapping[Path, typing.Any]) -> objects.JsonPatch:
    patch: objects.JsonPatch = []
    capabilities = None
    for path, value in changes.items():
        if len(path) == 3:
            if capabilities is None:
                capabilities = _parsed(_value(existing, path[:2]))
            capabilities[path[2]] = value
        elif path == ('conductor_group',):
            # It is never null; removing it is an internal error of Ironic.
            patch.append({'op': 'add', 'path': _pointer(path),
                          'value': value or ''})
        elif value is None:
            patch.append({'op': 'remove', 'path': _pointer(path)})
        else:
            patch.append({'op': 'add', 'path': _pointer(path),
                          'value': value})
    if capabilities is not None:
        patch.append({
            'op': 'add', 'path': '/properties/capabilities',
            'value': _joined({key: value
                              for key, value in capabilities.items()
                              if value is not None})})
    return patch


def _parsed(capabilities: str | None) -> dict[str, str]:
    # Text "boot_mode:uefi,secure_boot:true", as Ironic keeps them.
    pairs = (pair.partition(':') for pair in (capabilities or '').split(',')
             if pair.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _joined(capabilities: abc.Mapping[str, object]) -> str:
    return ','.join(f'{key}:{value}'
                    for key, value in sorted(capabilities.items()))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pointer(path: Path) -> str:
    # A JSON pointer (RFC 6901).
    return ''.join('/' + key.replace('~', '~0').replace('/', '~1')
                   for key in path)


def _path(pointer: str) -> Path:
    return tuple(key.replace('~1', '/').replace('~0', '~')
                 for key in pointer.split('/')[1:])


def _shown(path: Path) -> str:
    # A capability is not said to be in "properties", nor a BMC's key to be in
    # "driver_info": users know these keys.
    return path[-1] if len(path) > 1 else path[0]
