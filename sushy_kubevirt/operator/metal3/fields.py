# SPDX-License-Identifier: Apache-2.0
"""The fields of a BareMetalHost, from its VM and the address of its BMC.

Fields and their values: ``apis/metal3.io/v1alpha1/baremetalhost_types.go`` of
baremetal-operator; forms of ``bmc.address``: ``pkg/hardwareutils/bmc``.
"""

from __future__ import annotations

import string
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import architecture
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import firmware
from sushy_kubevirt.machine import inventory
from sushy_kubevirt.machine import vm_state
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator.metal3 import resources
from sushy_kubevirt.operator import naming

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import command_line
    from sushy_kubevirt.operator import spec

#: Label of hosts by which Cluster API spreads machines, as in
#: ``pkg/hostclaim`` of baremetal-operator.
FAILURE_DOMAIN = 'infrastructure.cluster.x-k8s.io/failure-domain'

#: Bytes of a serial number (virtio 1.2, section 5.2.6.1).
_VIRTIO_SERIAL = 20


def secret_name(name: str) -> str:
    """Make the name of the Secret with a host's credentials.

    :param name: of the BMC
    """
    return naming.base(name) + '-host'


def address(bmc: spec.Bmc, status: objects.VirtualMachineBMCStatus,
            external: bool = False) -> str | None:
    """Make ``spec.bmc.address``.

    :param status: of the BMC
    :param external: see `command_line.Options.host_external`
    :returns: None while the BMC has no such address, or if it does not serve
        the protocol
    """
    served, own = status.get('endpoints') or {}, status.get('clusterIP')
    inner = f'{naming.base(bmc.name)}.{bmc.namespace}.svc'
    if bmc.host.ipmi:
        endpoint = served.get('ipmi')
        if endpoint is None or external and endpoint['host'] == own:
            return None
        # A Service that is created again keeps its name.
        host = (inner if endpoint['host'] == own
                else endpoints.bracketed(endpoint['host']))
        return f"ipmi://{host}:{endpoint['port']}"
    url = (served.get('redfish') or {}).get('url')
    if external and 'route' in served:
        url = served['route']['url']
    if url is None:
        return None
    scheme, _, rest = url.partition('://')
    host = endpoints.bracketed(own) if own else ''
    if host and rest.startswith((host + ':', host + '/')):
        if external:
            return None
        rest = inner + rest.removeprefix(host)
    return f'redfish-virtualmedia+{scheme}://{rest}'


def boot_mac(vm: objects.VirtualMachine) -> str | None:
    """Find the MAC address of the first network interface to boot from.

    :returns: None if none of the interfaces has one in the VM
    """
    addresses = {nic.name: nic.mac for nic in inventory.of(
        vm_state.VmState(vm)).nics}
    ordered = [device.name
               for device in boot_order.devices(vm['spec']['template'])
               if device.list == 'interfaces']
    return next((addresses[name] for name in (*ordered, *addresses)
                 if addresses.get(name)), None)


def boot_mode(vm: objects.VirtualMachine) -> str:
    """Find the value of ``spec.bootMode``."""
    if firmware.mode(vm) is firmware.Mode.LEGACY:
        return 'legacy'
    return 'UEFISecureBoot' if firmware.secure_boot(vm) else 'UEFI'


def root_device(vm: objects.VirtualMachine) -> dict[str, str] | None:
    """Make ``spec.rootDeviceHints`` for the VM's first disk.

    :returns: None for a VM without disks
    """
    first = next((
        device.name for device in boot_order.devices(vm['spec']['template'])
        if device.class_ is boot_order.Target.HDD), None)
    disks = {disk.name: disk
             for disk in inventory.of(vm_state.VmState(vm)).disks
             if disk.kind != 'cdrom'}
    if first is None or first not in disks:
        return None
    if disks[first].serial:
        # A guest reads no more of it from a virtio disk.
        return {'serialNumber': disks[first].serial[
            :_VIRTIO_SERIAL if disks[first].bus == 'virtio' else None]}
    prefix = _prefix(disks[first])
    same = [name for name, disk in disks.items() if _prefix(disk) == prefix]
    return {'deviceName': f'/dev/{prefix}{_letters(same.index(first))}'}


def copied_labels(vm: objects.AnyObject, options: command_line.Options
                  ) -> dict[str, str]:
    """Make the labels of a host that do not depend on its BMC.

    :param vm: its metadata is enough
    """
    its = objects.labels_of(vm)
    copied = {name: value for name, value in its.items()
              if is_copied(name, options)}
    if options.host_failure_domain in its:
        copied[FAILURE_DOMAIN] = its[options.host_failure_domain]
    return {**copied, stored_names.VIRTUAL: 'true'}


def merged_labels(present: dict[str, str], bmc: spec.Bmc,
                  vm: objects.AnyObject, options: command_line.Options
                  ) -> dict[str, str]:
    """Make the labels of a host, with those of users.

    :param present: its labels; empty if it does not exist
    :param vm: its metadata is enough
    """
    return {**{name: value for name, value in present.items()
               if not is_copied(name, options)},
            **copied_labels(vm, options), **link(bmc)}


def is_copied(name: str, options: command_line.Options) -> bool:
    """Tell whether hosts get a label of their VM."""
    return name in options.host_labels or (
        f"{name.partition('/')[0]}/*" in options.host_labels)


def link(bmc: spec.Bmc) -> dict[str, str]:
    """Make the labels that link a host or its Secret to a BMC."""
    return {stored_names.BMC_NAME: naming.label(bmc.name),
            naming.MANAGED_BY: naming.OPERATOR, stored_names.BMC_UID: bmc.uid}


def is_ours(bmc: spec.Bmc, obj: objects.AnyObject) -> bool:
    """Tell whether a host or its Secret was created for a BMC."""
    its = objects.labels_of(obj)
    return (its.get(naming.MANAGED_BY) == naming.OPERATOR
            and its.get(stored_names.BMC_UID) == bmc.uid)


def secret(bmc: spec.Bmc, source: objects.Json) -> objects.Json:
    """Make the Secret with a host's credentials.

    baremetal-operator makes the host its owner, so that it is deleted with
    the host: the BMC needs one of its own.

    :param source: the Secret with the BMC's credentials
    """
    data = source.get('data') or {}
    return {'apiVersion': 'v1', 'kind': 'Secret', 'type': 'Opaque',
            'metadata': {
                'name': secret_name(bmc.name), 'namespace': bmc.namespace,
                'labels': link(bmc), 'annotations': {
                    stored_names.SECRET_VERSION: source['metadata'][
                        'resourceVersion']}},
            'data': {key: data.get(key, '') for key in (
                credentials.USERNAME, credentials.PASSWORD)}}


def host(bmc: spec.Bmc, vm: objects.VirtualMachine, address: str, mac: str,
         options: command_line.Options) -> objects.Json:
    """Make a host.

    After its creation the operator writes the address and the labels only.
    """
    host_spec: objects.Json = {
        'bmc': {'address': address, 'credentialsName': secret_name(bmc.name)},
        'bootMACAddress': mac, 'bootMode': boot_mode(vm),
        # Fast inspection is by Redfish, and refused for IPMI.
        'inspectionMode': 'disabled' if bmc.host.ipmi else 'fast',
        'architecture': architecture.cpu_arch(architecture.name(vm)),
        'online': False,
        'automatedCleaningMode': 'disabled'}
    if not options.host_verify:
        # baremetal-operator gives Ironic no later change of it.
        host_spec['bmc']['disableCertificateVerification'] = True
    hints = root_device(vm)
    if hints:
        host_spec['rootDeviceHints'] = hints
    return {'apiVersion': resources.HOST.api_version,
            'kind': resources.HOST.kind,
            'metadata': {'name': bmc.name, 'namespace': bmc.namespace,
                         'labels': merged_labels({}, bmc, vm, options)},
            'spec': host_spec}


def _prefix(disk: inventory.Disk) -> str:
    return 'vd' if disk.bus == 'virtio' else 'sd'


def _letters(index: int) -> str:
    """Make the letters of a guest's disk: a to z, aa to zz …"""
    more, last = divmod(index, len(string.ascii_lowercase))
    return (_letters(more - 1) if more else '') + string.ascii_lowercase[last]
