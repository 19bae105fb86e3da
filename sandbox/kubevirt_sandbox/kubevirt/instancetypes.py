# SPDX-License-Identifier: Apache-2.0
"""Instance types: the sizes of VMs that name one.

Covers processors and memory, the topology that a preference prefers, the
machine type, and whether it excludes the pod interface. Revisions are not
kept: the instance type at the start of a machine counts.

Source: pkg/instancetype (KubeVirt 1.9).
"""

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.kubevirt.admission import causes
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt.schema import openapi

GROUP, VERSION = 'instancetype.kubevirt.io', 'v1beta1'

_FIELD = 'spec.template.spec'
_SIZES = openapi.record('CPUs, memory and other sizes.', {
    'cpu': openapi.record('Processors.', {
        'guest': openapi.unsigned('Number of CPUs.'), 'model': openapi.text(),
        'maxSockets': openapi.unsigned(),
        'dedicatedCPUPlacement': openapi.boolean(),
    }, required=('guest',)),
    'memory': openapi.record('Memory.', {
        'guest': openapi.quantity('Memory size.'),
        'maxGuest': openapi.quantity(),
        'hugepages': openapi.record('', {'pageSize': openapi.text()}),
        'overcommitPercent': openapi.integer(),
    }, required=('guest',)),
    'gpus': openapi.many(openapi.anything()),
    'hostDevices': openapi.many(openapi.anything()),
    'nodeSelector': openapi.labels(), 'annotations': openapi.labels(),
    'schedulerName': openapi.text(), 'ioThreadsPolicy': openapi.text(),
    'launchSecurity': openapi.anything(),
}, required=('cpu', 'memory'))


def _kind(kind, short_names, namespaced, spec):
    singular = kind.lower()
    return kinds.Kind(
        GROUP, VERSION, kind, f'{singular}s', singular, short_names,
        ('all',), namespaced=namespaced, crd=True, schema=openapi.record('', {
            'apiVersion': openapi.text(), 'kind': openapi.text(),
            'metadata': {'type': 'object'}, 'spec': spec},
            required=('spec',)))


INSTANCETYPE = _kind('VirtualMachineInstancetype', (
    'vminstancetype', 'vminstancetypes', 'vmf', 'vmfs'), True, _SIZES)
CLUSTER_INSTANCETYPE = _kind('VirtualMachineClusterInstancetype', (
    'vmclusterinstancetype', 'vmclusterinstancetypes', 'vmcf', 'vmcfs'),
    False, _SIZES)
PREFERENCE = _kind('VirtualMachinePreference', (
    'vmpref', 'vmprefs', 'vmp', 'vmps'), True,
    openapi.anything('Preferred settings.'))
CLUSTER_PREFERENCE = _kind(
    'VirtualMachineClusterPreference', ('vmcp', 'vmcps'), False,
    openapi.anything('Preferred settings.'))

KINDS = (INSTANCETYPE, CLUSTER_INSTANCETYPE, PREFERENCE, CLUSTER_PREFERENCE)
_MATCHERS = {'instancetype': (INSTANCETYPE, CLUSTER_INSTANCETYPE),
             'preference': (PREFERENCE, CLUSTER_PREFERENCE)}


def check_matchers(vm):
    """List causes to refuse a VM's references."""
    for field, allowed in _MATCHERS.items():
        matcher = vm['spec'].get(field)
        if isinstance(matcher, dict) and not (
                matcher.get('name') or matcher.get('inferFromVolume')):
            word = allowed[0].kind.removeprefix('VirtualMachine')
            yield causes.Cause(
                'Either Name or InferFromVolume should be provided within '
                f'the {word}Matcher', f'spec.{field}', causes.NOT_FOUND)


def find(store, vm, field):
    """Return the spec that a VM refers to; None without a reference.

    :param field: 'instancetype' or 'preference'.
    :raises: ApiError 404
    """
    matcher = vm['spec'].get(field)
    if not matcher:
        return None
    own, cluster = _MATCHERS[field]
    word = (matcher.get('kind') or cluster.singular).lower()
    name = matcher.get('name', '')
    if word in (own.singular, own.plural):
        return store.get(own, vm['metadata']['namespace'], name)['spec']
    if word in (cluster.singular, cluster.plural):
        return store.get(cluster, None, name)['spec']
    raise errors.bad_request(
        f'got unexpected kind in InstancetypeMatcher: {matcher["kind"]}')


def apply(spec, sizes, preference):
    """Put the sizes of an instance type into a VMI's spec.

    :param spec: the VMI's spec, changed in place.
    :param sizes: the instance type's spec, or None.
    :param preference: the preference's spec, or None.
    :returns: the paths of the fields that the VM must not set itself.
    """
    kind = paths.at(preference, 'machine', 'preferredMachineType')
    domain = spec['domain']
    if kind and not paths.at(domain, 'machine', 'type'):
        domain['machine'] = {'type': kind}
    attach = paths.at(preference, 'devices', 'preferredAutoattachPodInterface')
    devices = domain.setdefault('devices', {})
    if attach is not None and devices.get('autoattachPodInterface') is None:
        devices['autoattachPodInterface'] = attach
    if sizes is None:
        return []
    conflicts = _conflicts(domain)
    if conflicts:
        return [f'{_FIELD}.domain.{path}' for path in conflicts]
    given = sizes.get('cpu') or {}
    cpu = domain.setdefault('cpu', {})
    cpu.update(sockets=1, cores=1, threads=1)
    topology = (paths.at(preference, 'cpu', 'preferredCPUTopology')
                or 'sockets').lower().removeprefix('prefer')
    cpu[topology if topology in ('cores', 'threads') else 'sockets'] = (
        given.get('guest') or 1)
    for key, field in (('model', 'model'), ('maxSockets', 'maxSockets'),
                       ('dedicatedCPUPlacement', 'dedicatedCpuPlacement')):
        if given.get(key):
            cpu[field] = given[key]
    memory = domain.setdefault('memory', {})
    for key in ('guest', 'maxGuest', 'hugepages'):
        if paths.at(sizes, 'memory', key):
            memory[key] = json_copy.copy(sizes['memory'][key])
    return []


def _conflicts(domain):
    found = []
    for path in (('resources', 'requests', 'cpu'),
                 ('resources', 'limits', 'cpu'), ('cpu', 'sockets'),
                 ('cpu', 'cores'), ('cpu', 'threads'), ('memory', 'guest'),
                 ('resources', 'requests', 'memory'),
                 ('resources', 'limits', 'memory')):
        if paths.at(domain, *path):
            found.append('.'.join(path))
    return found


def expanded(store, vm):
    """Return a VM with the sizes of its instance type.

    :returns: the VM itself when it refers to none, else a copy.
    :raises: ApiError 404
    """
    sizes = find(store, vm, 'instancetype')
    preference = find(store, vm, 'preference')
    if sizes is None and preference is None:
        return vm
    vm = json_copy.copy(vm)
    apply(vm['spec']['template']['spec'], sizes, preference)
    return vm


def check(store, vm):
    """List conflicts of a VM with its instance type, as causes.

    A missing instance type is not a cause: the controller waits for it.

    :param vm: a copy of the VM; gets the sizes.
    """
    found = []
    for field in _MATCHERS:
        try:
            found.append(find(store, vm, field))
        except errors.ApiError:
            found.append(None)
    return [causes.Cause(f'VM field(s) {path} conflicts with selected '
                         'instance type', path)
            for path in apply(vm['spec']['template']['spec'], *found)]
