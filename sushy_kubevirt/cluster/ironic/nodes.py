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

import dataclasses
import ipaddress
import uuid

from sushy_kubevirt.cluster import problems
from sushy_kubevirt.kube import quantity
from sushy_kubevirt.machine import architecture

#: Key in ``extra`` of nodes, ports and port groups.
RECORD = 'sushy_kubevirt'

SYSTEM_ID = '/redfish/v1/Systems/1'

INTERFACES = tuple(kind + '_interface' for kind in (
    'bios', 'boot', 'console', 'deploy', 'firmware', 'inspect', 'management',
    'network', 'power', 'raid', 'rescue', 'storage', 'vendor'))

#: Fields to read of each node.
FIELDS = ('uuid', 'name', 'driver', 'driver_info', 'properties', 'extra',
          'resource_class', 'traits', 'conductor_group', 'shard', 'owner',
          'lessee', 'description', 'provision_state',
          'target_provision_state', 'power_state', 'last_error',
          'instance_uuid', 'maintenance', 'maintenance_reason', 'fault',
          'reservation', 'inspection_finished_at') + INTERFACES

#: Provision states of nodes without an instance.
_FREE = {'enroll', 'verifying', 'manageable', 'inspecting', 'inspect wait',
         'inspect failed', 'cleaning', 'clean wait', 'clean failed',
         'clean hold', 'available', 'adopt failed'}

#: Values that may change under an instance; an image of the agent may not.
_HARMLESS = {'description', 'driver_info', 'extra'}
_DEPLOY_IMAGES = {'deploy_kernel', 'deploy_ramdisk'}

_PASSWORDS = {'redfish_password', 'ipmi_password'}


@dataclasses.dataclass(frozen=True)
class Bmc:
    """How to reach the BMC of a node, from Ironic's conductors.

    :param address: IP address or name
    :param redfish_port: TCP port of Redfish (HTTPS); None if it has none
    :param ipmi_port: UDP port of IPMI; None if it has none
    :param username: of its account
    :param password: likewise
    :param ca: certificates (PEM) that verify its own; None if unknown
    :param revision: text that changes with the credentials, such as UID and
        resourceVersion of their Secret
    :param secret: name of that Secret
    :param authority: name of the ConfigMap with ``ca``
    """

    address: str
    redfish_port: int | None = 443
    ipmi_port: int | None = 623
    username: str = ''
    password: str = dataclasses.field(default='', repr=False)
    ca: str | None = dataclasses.field(default=None, repr=False)
    revision: str = ''
    secret: str = ''
    authority: str = ''


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A node to enrol.

    :param node: a `model.Node` with ``ironic``
    :param bmc: a `Bmc`
    :param vm: UID of its VirtualMachine
    """

    node: object
    bmc: Bmc
    vm: str


@dataclasses.dataclass(frozen=True)
class Difference:
    """What to change in a node.

    :param patch: list of operations (RFC 6902); may contain a password
    :param traits: set to replace the traits with; None to leave them
    :param changed: sorted names of what these change, for users
    :param deferred: sorted names of what is not changed, as the node has an
        instance
    """

    patch: list = dataclasses.field(repr=False)
    traits: frozenset | None
    changed: tuple
    deferred: tuple

    def __bool__(self) -> bool:
        return bool(self.patch) or self.traits is not None


def is_in_use(existing) -> bool:
    """Tell whether a node has an instance or is about to.

    :param existing: dict of the node
    """
    return (existing['instance_uuid'] is not None
            or existing['provision_state'] not in _FREE)


def record_of(existing):
    """:returns: dict, this package's record in a node; empty if it is not its
        own
    """
    record = (existing['extra'] or {}).get(RECORD)
    return record if isinstance(record, dict) else {}


def find(nodes, owner, wanted):
    """Find the node of a wanted one: by name, else by the UID of its VM.

    :param nodes: dicts of all nodes
    :param owner: the cluster, an `identity.owner`
    :param wanted: iterable of `Wanted`
    :returns: dict of name to dict of the node, or to a `problems.NodeFailed`
        if the name belongs to another's node; nodes to create are left out
    """
    by_name = {one['name']: one for one in nodes}
    by_vm = {record_of(one)['vm']: one for one in nodes
             if record_of(one).get('cluster') == owner
             and 'vm' in record_of(one)}
    found = {}
    for one in wanted:
        name = one.node.name
        if node := by_name.get(name):
            if record_of(node).get('cluster') == owner:
                found[name] = node
            else:
                found[name] = problems.NodeFailed(
                    _foreign(name, node, owner))
        elif node := by_vm.get(one.vm):
            found[name] = node
    return found


def owned(nodes, owner):
    """:returns: list of the dicts of a cluster's nodes, in order of names"""
    return sorted((one for one in nodes
                   if record_of(one).get('cluster') == owner),
                  key=lambda one: one['name'] or one['uuid'])


def _foreign(name, node, owner) -> str:
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


def values(wanted, owner, images):
    """Say what a node shall be.

    :param wanted: a `Wanted`
    :param owner: the cluster, an `identity.owner`
    :param images: dict of what ``deploy_kernel`` and ``deploy_ramdisk`` name
        to what Ironic gets
    :returns: dict of path, a tuple of text, to value
    """
    node, ironic = wanted.node, wanted.node.ironic
    found = {('name',): node.name, ('driver',): node.type.driver,
             ('resource_class',): ironic.resource_class}
    for key, value in {**ironic.interfaces, **ironic.attributes}.items():
        if key != 'extra':
            found[key,] = value
    if 'conductor_group' in ironic.attributes:
        # Ironic compares and stores it in lower case.
        found['conductor_group',] = ironic.attributes[
            'conductor_group'].lower()
    parts = {'driver_info': _driver_info(node, wanted.bmc, images),
             'properties': {**_sizes(node), **ironic.properties},
             'extra': ironic.attributes.get('extra', {})}
    for part, content in parts.items():
        found.update({(part, key): value for key, value in content.items()})
    capabilities = {'boot_mode': node.type.boot_mode}
    if node.type.secure_boot:
        capabilities['secure_boot'] = 'true'
    capabilities.update(
        _parsed(found.pop(('properties', 'capabilities'), '')))
    for key, value in {**capabilities, **ironic.capabilities}.items():
        found['properties', 'capabilities', key] = _text(value)
    return found


def creation(wanted, owner, images):
    """Make the body of a request that creates a node.

    Traits follow in a request of their own, and the ``owner`` in a change:
    Ironic creates nodes of an administrator of a project for that project
    only, and lets the administrator give them away.

    :returns: dict
    """
    wants = values(wanted, owner, images)
    body = {'extra': {}, 'properties': {}, 'driver_info': {}}
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


def difference(existing, wanted, owner, images):
    """Compare a node with what it shall be.

    :param existing: dict of the node
    :returns: a `Difference`
    """
    wants = values(wanted, owner, images)
    record = record_of(existing)
    managed = {_path(one) for one in record.get('managed', ())}
    fresh = record.get('credentials') != wanted.bmc.revision
    changes = {path: value for path, value in wants.items()
               if _differs(existing, path, value, fresh)}
    changes.update({path: None for path in managed - wants.keys()
                    if _value(existing, path) is not None})
    traits = frozenset(wanted.node.ironic.traits)
    if traits == frozenset(existing['traits'] or ()):
        traits = None
    deferred, revision = set(), wanted.bmc.revision
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


def _record(wanted, owner, paths, revision):
    return {'cluster': owner, 'vm': wanted.vm, 'credentials': revision,
            'managed': sorted(map(_pointer, paths))}


def _driver_info(node, bmc, images):
    ironic = node.ironic
    if node.type.driver == 'redfish':
        info = {'redfish_address': _https(bmc.address, bmc.redfish_port),
                'redfish_system_id': SYSTEM_ID,
                'redfish_username': bmc.username,
                'redfish_password': bmc.password,
                'redfish_verify_ca': bool(ironic.verify) and (
                    ironic.ca_file or True)}
    else:
        info = {'ipmi_address': bmc.address, 'ipmi_port': bmc.ipmi_port,
                'ipmi_username': bmc.username, 'ipmi_password': bmc.password}
    for key in _DEPLOY_IMAGES:
        if image := getattr(ironic, key):
            info[key] = images.get(image, image)
    return info


def _https(address, port):
    try:
        if ipaddress.ip_address(address).version == 6:
            address = f'[{address}]'
    except ValueError:
        pass
    return f'https://{address}' + (f':{port}' if port != 443 else '')


def _sizes(node):
    # Inspection finds these itself.
    if node.ironic.inspect:
        return {}
    sizes = {'cpu_arch': architecture.cpu_arch(node.type.architecture),
             'cpus': node.type.vcpus, 'memory_mb': node.type.memory_mb,
             'local_gb': disk_gb(node.type)}
    return {key: value for key, value in sizes.items() if value}


def disk_gb(node_type):
    """Return the size of the first volume, as Ironic and Nova count it.

    :param node_type: a `model.NodeType`
    :returns: whole GiB, at least 1; 0 without a volume of known size
    """
    if not node_type.volumes or not node_type.volumes[0].capacity:
        return 0
    return max(1, quantity.to_int(node_type.volumes[0].capacity) >> 30)


def image_names(wanted):
    """List the images that Glance must resolve.

    :param wanted: iterable of `Wanted`
    :returns: set of text that is neither a URL nor a UUID
    """
    names = {getattr(one.node.ironic, key)
             for one in wanted for key in _DEPLOY_IMAGES}
    return {name for name in names
            if name and '://' not in name and not _is_uuid(name)}


def _is_uuid(text):
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _is_harmless(path) -> bool:
    return path[0] in _HARMLESS and path[-1] not in _DEPLOY_IMAGES


def _differs(existing, path, value, fresh):
    current = _value(existing, path)
    if path[-1] in _PASSWORDS and path[0] == 'driver_info':
        return fresh or not current
    if path[0] == 'properties':
        # Inspection and users write numbers as text.
        return current is None or _text(current) != _text(value)
    return current != value


def _value(existing, path):
    value = existing.get(path[0])
    if len(path) > 1:
        value = (value or {}).get(path[1])
    if len(path) > 2:
        value = _parsed(value).get(path[2])
    return value


def _patch(existing, changes):
    patch, capabilities = [], None
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


def _parsed(capabilities):
    # Text "boot_mode:uefi,secure_boot:true", as Ironic keeps them.
    pairs = (one.partition(':') for one in (capabilities or '').split(',')
             if one.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _joined(capabilities):
    return ','.join(f'{key}:{value}'
                    for key, value in sorted(capabilities.items()))


def _text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pointer(path):
    # A JSON pointer (RFC 6901).
    return ''.join('/' + one.replace('~', '~0').replace('/', '~1')
                   for one in path)


def _path(pointer):
    return tuple(one.replace('~1', '/').replace('~0', '~')
                 for one in pointer.split('/')[1:])


def _shown(path):
    # A capability is not said to be in "properties", nor a BMC's key to be in
    # "driver_info": users know these keys.
    return path[-1] if len(path) > 1 else path[0]
