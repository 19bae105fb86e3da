# SPDX-License-Identifier: Apache-2.0
"""VMs for HostClaims, made from template VMs.

A template is a VM that was never started, with the annotation
`stored_names.CLAIM_TEMPLATE`.
Each of its VMs has disks, MAC addresses and a firmware UUID of its own, all
derived from the claim's uid: a second attempt makes the same VM.
"""

from __future__ import annotations

from collections import abc
import copy
import hashlib
import re
import typing
import uuid

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.metal3 import claims

_NAMESPACE = uuid.UUID('6dc8ed4a-2a0d-5c33-9a3f-5ad6b4d0b0a1')
_MAX_NAME = 63
#: Prefixes of annotations that describe the template itself.
_OWN = (naming.GROUP + '/', 'kubectl.kubernetes.io/', 'kubevirt.io/',
        stored_names.BMC_PREFIX, 'argocd.argoproj.io/')
#: Label by which Argo CD finds its objects, to delete those that its source
#: does not have.
_INSTANCE = 'app.kubernetes.io/instance'
#: Volumes that are made with each VM or cannot be written.
_SEPARATE = ('containerDisk', 'emptyDisk', 'ephemeral', 'cloudInitNoCloud',
             'cloudInitConfigDrive', 'sysprep', 'configMap', 'secret',
             'downwardAPI', 'downwardMetrics')
#: Prefix of annotations by which KubeVirt runs sidecars beside a VM.
_SIDECARS = 'hooks.kubevirt.io/'


class Unusable(Exception):
    """A template that no VM can be made from; the text says why."""


class ClaimRef(typing.NamedTuple):
    """Identifies the claim that a VM was made for."""

    key: objects.ObjectKey
    uid: str


def is_template(vm: objects.AnyObject) -> bool:
    """Tell whether a VM is marked as a template.

    :param vm: its metadata is enough
    """
    marked = objects.annotations_of(vm).get(stored_names.CLAIM_TEMPLATE)
    return marked == 'true'


def claim_of(vm: objects.AnyObject) -> ClaimRef | None:
    """Find the claim that a VM was made for.

    :param vm: its metadata is enough
    :returns: None if it was made for none
    """
    uid = objects.labels_of(vm).get(stored_names.CLAIM_UID)
    namespace, slash, name = objects.annotations_of(vm).get(
        stored_names.CLAIM, '').partition('/')
    return ClaimRef(objects.ObjectKey(namespace, name), uid) if (
        uid and slash and name) else None


def labels(vm: objects.AnyObject) -> dict[str, str]:
    """List the labels of a template that its VMs get."""
    return {key: value for key, value in objects.labels_of(vm).items()
            if key != _INSTANCE}


def template_name(vm: objects.AnyObject) -> str | None:
    """Find the name of the template of a VM."""
    return objects.annotations_of(vm).get(stored_names.CLAIM_SOURCE)


def limit(vm: objects.AnyObject) -> int | None:
    """Find the number of VMs that a template may have; None for any.

    :raises: `Unusable`
    """
    text = objects.annotations_of(vm).get(stored_names.CLAIM_LIMIT)
    if text is None:
        return None
    if re.fullmatch('[0-9]{1,6}', text):
        return int(text)
    raise Unusable(
        f'annotation {stored_names.CLAIM_LIMIT} is no number of VMs: {text!r}')


def check(vm: objects.VirtualMachine) -> None:
    """Check that VMs can be made from a template.

    :raises: `Unusable`
    """
    if 'deletionTimestamp' in vm['metadata']:
        raise Unusable('it is being deleted')
    if run_strategy.of(vm) != run_strategy.HALTED:
        raise Unusable('it may run; set spec.runStrategy: Halted')
    limit(vm)
    its = vm['spec']['template']['spec']
    data_volumes = {template['metadata']['name'] for template
                    in vm['spec'].get('dataVolumeTemplates') or ()}
    read_only = {disk['name'] for disk in its['domain'].get(
        'devices', {}).get('disks') or () if 'cdrom' in disk}
    # As the policy ``virtbmc-operator`` demands of VMs.
    for key in (vm['spec']['template'].get('metadata') or {}).get(
            'annotations') or ():
        if key.startswith(_SIDECARS):
            raise Unusable(f'annotation {key} of spec.template runs a sidecar')
    for volume in its.get('volumes') or ():
        if 'serviceAccount' in volume:
            raise Unusable(f"volume {volume['name']} has the token of a "
                           'ServiceAccount')
        name = _data_volume(volume)
        if name is not None and name in data_volumes or (
                volume['name'] in read_only):
            continue
        if not any(kind in volume for kind in _SEPARATE):
            raise Unusable(
                f"its VMs would share volume {volume['name']}; describe the "
                'disk in spec.dataVolumeTemplates')
    if not its['domain'].get('devices', {}).get('interfaces'):
        raise Unusable('it has no network interface, whose MAC address '
                       'BareMetalHosts need')


def name(template: str, seed: str) -> str:
    """Make the name of the VM of a claim.

    :param template: name
    :param seed: what no other VM has, see `vm`
    """
    digest = hashlib.sha256(seed.encode()).hexdigest()[:10]
    return f"{template[:_MAX_NAME - 11].rstrip('-.')}-{digest}"


def mac(seed: str, index: int) -> str:
    """Make the MAC address of a network interface.

    :param seed: see `name`
    :param index: of the interface
    :returns: a unicast address with local administration (IEEE 802c)
    """
    digest = hashlib.sha256(f'{seed}/{index}'.encode()).digest()
    return ':'.join(f'{octet:02x}' for octet in (
        digest[0] & 0xf0 | 0x02, *digest[1:6]))


def vm(template: objects.VirtualMachine, claim: claims.Claim, attempt: int = 0
       ) -> objects.Json:
    """Make the VM of a claim.

    :param template: a VM for which `check` passes
    :param attempt: number of VMs of the claim that other claims have got
    """
    metadata = template['metadata']
    seed = f'{claim.uid}/{attempt}' if attempt else claim.uid
    vm_name = name(metadata['name'], seed)
    spec: objects.Json = copy.deepcopy(dict(template['spec']))
    spec.pop('running', None)
    spec['runStrategy'] = run_strategy.HALTED
    for kind in 'instancetype', 'preference':
        # It is deleted with the template; KubeVirt makes one for each VM.
        spec.get(kind, {}).pop('revisionName', None)
    renamed = {}
    for index, disk in enumerate(spec.get('dataVolumeTemplates') or ()):
        new = f'{vm_name}-{index}'
        renamed[disk['metadata']['name']] = new
        disk['metadata'] = {
            key: disk['metadata'][key] for key in ('labels', 'annotations')
            if key in disk['metadata']} | {'name': new}
        disk.pop('status', None)
    inner = spec['template']['spec']
    for volume in inner.get('volumes') or ():
        old = _data_volume(volume)
        if old in renamed:
            kind, field = next(
                (kind, field) for kind, field in _SOURCES if kind in volume)
            volume[kind][field] = renamed[old]
    devices = inner['domain'].setdefault('devices', {})
    for index, interface in enumerate(devices.get('interfaces') or ()):
        interface['macAddress'] = mac(seed, index)
    firmware = inner['domain'].setdefault('firmware', {})
    firmware['uuid'] = str(uuid.uuid5(_NAMESPACE, seed))
    firmware.pop('serial', None)
    inner['domain'].get('chassis', {}).pop('serial', None)
    return {
        'apiVersion': bmc_resources.VM.api_version,
        'kind': bmc_resources.VM.kind,
        'metadata': {
            'name': vm_name, 'namespace': metadata['namespace'],
            'labels': {**labels(template),
                       naming.MANAGED_BY: naming.OPERATOR,
                       stored_names.CLAIM_UID: claim.uid},
            'annotations': {
                **{key: value for key, value in objects.annotations_of(
                    template).items() if not key.startswith(_OWN)},
                stored_names.CLAIM: f'{claim.namespace}/{claim.name}',
                stored_names.CLAIM_SOURCE: metadata['name']}},
        'spec': spec}


def bmc(vm: objects.VirtualMachine, selected: abc.Container[str],
        external: bool = False) -> objects.Json:
    """Make the BMC of a claim's VM.

    :param selected: names of the labels that select BMCs with hosts
    :param external: see `command_line.Options.host_external`
    """
    metadata = vm['metadata']
    return {
        'apiVersion': naming.API_VERSION, 'kind': naming.KIND,
        'metadata': {
            'name': metadata['name'], 'namespace': metadata['namespace'],
            'labels': {
                **{key: value for key, value in metadata['labels'].items()
                   if key in selected},
                naming.MANAGED_BY: naming.OPERATOR,
                stored_names.CLAIM_UID: metadata['labels'][
                    stored_names.CLAIM_UID]},
            'ownerReferences': [{
                'apiVersion': bmc_resources.VM.api_version,
                'kind': bmc_resources.VM.kind,
                'name': metadata['name'], 'uid': metadata['uid']}]},
        'spec': {'virtualMachine': {'name': metadata['name']},
                 **({'service': {'type': network.LOAD_BALANCER}}
                    if external else {})}}


def is_bmc_of(vm: objects.AnyObject, bmc: objects.AnyObject) -> bool:
    """Tell whether a BMC was made here for a VM."""
    return stored_names.CLAIM_UID in objects.labels_of(bmc) and any(
        owner.get('uid') == vm['metadata']['uid']
        for owner in bmc['metadata'].get('ownerReferences') or ())


#: Volumes with a DataVolume, and their fields with its name.
_SOURCES = (('dataVolume', 'name'), ('persistentVolumeClaim', 'claimName'))


def _data_volume(volume: objects.AnyObject) -> str | None:
    """Find the name of the DataVolume, or of its claim, that a volume uses."""
    for kind, field in _SOURCES:
        if kind in volume:
            return volume[kind].get(field)
    return None
