# SPDX-License-Identifier: Apache-2.0
"""The fields of a BareMetalHost, from its VM and the address of its BMC.

Fields and their values: ``apis/metal3.io/v1alpha1/baremetalhost_types.go`` of
baremetal-operator; forms of ``bmc.address``: ``pkg/hardwareutils/bmc``.
"""

from __future__ import annotations

import string

from sushy_kubevirt.machine import architecture
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import firmware
from sushy_kubevirt.machine import inventory
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator.metal3 import resources
from sushy_kubevirt.operator import naming

#: Label of hosts that are VMs, with the value ``true``.
VIRTUAL = naming.GROUP + '/virtual'

#: Label of a host and of its Secret: uid of the BMC. They have no owner
#: reference, as ``clusterctl move`` leaves out what an object owns that is not
#: moved.
BMC_UID = naming.GROUP + '/bmc-uid'

#: Annotation of a host's Secret: version of the Secret that it was copied
#: from.
SOURCE = naming.GROUP + '/source-version'

#: Label of hosts by which Cluster API spreads machines, as in
#: ``pkg/hostclaim`` of baremetal-operator.
FAILURE_DOMAIN = 'infrastructure.cluster.x-k8s.io/failure-domain'


#: Annotation of a host for a claim: its VM had another one before, whose
#: history of provisioning is lost.
HAD_HOST = naming.GROUP + '/had-host'

#: Field of the status of a BMC.
STATUS = 'bareMetalHost'


#: Bytes of a serial number (virtio 1.2, section 5.2.6.1).
_VIRTIO_SERIAL = 20


def secret_name(name):
    """:returns: name of the Secret with a host's credentials

    :param name: of the BMC
    """
    return naming.base(name) + '-host'


def address(bmc, status, external: bool = False):
    """Make ``spec.bmc.address``.

    :param bmc: a `spec.Bmc`
    :param status: dict, the status of the BMC
    :param external: see `host_options.HostOptions`
    :returns: text; None while the BMC has no such address, or if it does not
        serve the protocol
    """
    at, own = status.get('endpoints') or {}, status.get('clusterIP')
    inner = f'{naming.base(bmc.name)}.{bmc.namespace}.svc'
    if bmc.host.ipmi:
        found = at.get('ipmi')
        if found is None or external and found['host'] == own:
            return None
        # A Service that is created again keeps its name.
        host = (inner if found['host'] == own
                else endpoints.bracketed(found['host']))
        return f"ipmi://{host}:{found['port']}"
    url = (at.get('redfish') or {}).get('url')
    if external and 'route' in at:
        url = at['route']['url']
    if url is None:
        return None
    scheme, _, rest = url.partition('://')
    host = own and endpoints.bracketed(own)
    if host and rest.startswith((host + ':', host + '/')):
        if external:
            return None
        rest = inner + rest.removeprefix(host)
    return f'redfish-virtualmedia+{scheme}://{rest}'


def boot_mac(vm):
    """Find the MAC address of the first network interface to boot from.

    :param vm: dict
    :returns: text; None if none of the interfaces has one in the VM
    """
    addresses = {one.name: one.mac for one in inventory.of(vm, None).nics}
    ordered = [one.name for one in boot_order.devices(vm['spec']['template'])
               if one.list == 'interfaces']
    return next((addresses[name] for name in (*ordered, *addresses)
                 if addresses.get(name)), None)


def boot_mode(vm):
    """:returns: value of ``spec.bootMode``

    :param vm: dict
    """
    if firmware.mode(vm) is firmware.Mode.LEGACY:
        return 'legacy'
    return 'UEFISecureBoot' if firmware.secure_boot(vm) else 'UEFI'


def root_device(vm):
    """Make ``spec.rootDeviceHints`` for the VM's first disk.

    :param vm: dict
    :returns: dict; None for a VM without disks
    """
    first = next((one.name for one in boot_order.devices(
        vm['spec']['template']) if one.class_ is boot_order.Class.HDD), None)
    disks = {one.name: one for one in inventory.of(vm, None).disks
             if one.kind != 'cdrom'}
    if first not in disks:
        return None
    if disks[first].serial:
        # A guest reads no more of it from a virtio disk.
        return {'serialNumber': disks[first].serial[
            :_VIRTIO_SERIAL if disks[first].bus == 'virtio' else None]}
    prefix = _prefix(disks[first])
    same = [name for name, one in disks.items() if _prefix(one) == prefix]
    return {'deviceName': f'/dev/{prefix}{_letters(same.index(first))}'}


def labels(bmc, vm, options):
    """Make the labels of a host that the operator keeps.

    :param bmc: a `spec.Bmc`
    :param vm: dict, its metadata is enough
    :param options: a `host_options.HostOptions`
    """
    return {**copied_labels(vm, options), **link(bmc)}


def copied_labels(vm, options):
    """Make the labels of a host that do not depend on its BMC.

    :param vm: dict, its metadata is enough
    :param options: a `host_options.HostOptions`
    """
    its = vm['metadata'].get('labels') or {}
    made = {name: value for name, value in its.items()
            if _is_copied(name, options)}
    if options.failure_domain in its:
        made[FAILURE_DOMAIN] = its[options.failure_domain]
    return {**made, VIRTUAL: 'true'}


def merged_labels(present, bmc, vm, options):
    """Make the labels of a host that exists.

    :param present: dict, its labels
    :param bmc: a `spec.Bmc`
    :param vm: dict, its metadata is enough
    :param options: a `host_options.HostOptions`
    :returns: dict with the labels of users
    """
    return {**{name: value for name, value in present.items()
               if not _is_copied(name, options)},
            **labels(bmc, vm, options)}


def _is_copied(name, options) -> bool:
    return name in options.labels or (
        f"{name.partition('/')[0]}/*" in options.labels)


def link(bmc):
    """:returns: labels that link a host or its Secret to a BMC"""
    return {naming.LABEL: naming.label(bmc.name),
            naming.MANAGED_BY: naming.OPERATOR, BMC_UID: bmc.uid}


def is_ours(bmc, obj):
    """Tell whether a host or its Secret was created for a BMC.

    :param bmc: a `spec.Bmc`
    :param obj: dict
    """
    its = obj['metadata'].get('labels') or {}
    return (its.get(naming.MANAGED_BY) == naming.OPERATOR
            and its.get(BMC_UID) == bmc.uid)


def secret(bmc, source):
    """Make the Secret with a host's credentials.

    baremetal-operator makes the host its owner, so that it is deleted with
    the host: the BMC needs one of its own.

    :param bmc: a `spec.Bmc`
    :param source: dict, the Secret with the BMC's credentials
    """
    data = source.get('data') or {}
    return {'apiVersion': 'v1', 'kind': 'Secret', 'type': 'Opaque',
            'metadata': {
                'name': secret_name(bmc.name), 'namespace': bmc.namespace,
                'labels': link(bmc), 'annotations': {
                    SOURCE: source['metadata']['resourceVersion']}},
            'data': {key: data.get(key, '') for key in (
                credentials.USERNAME, credentials.PASSWORD)}}


def host(bmc, vm, at, mac, options):
    """Make a host.

    After its creation the operator writes the address and the labels only.

    :param bmc: a `spec.Bmc`
    :param vm: dict
    :param at: `address`
    :param mac: `boot_mac`
    :param options: a `host_options.HostOptions`
    """
    made = {
        'bmc': {'address': at, 'credentialsName': secret_name(bmc.name)},
        'bootMACAddress': mac, 'bootMode': boot_mode(vm),
        # Fast inspection is by Redfish, and refused for IPMI.
        'inspectionMode': 'disabled' if bmc.host.ipmi else 'fast',
        'architecture': architecture.cpu_arch(architecture.name(vm)),
        'online': False,
        'automatedCleaningMode': 'disabled'}
    if not options.verify:
        # baremetal-operator gives Ironic no later change of it.
        made['bmc']['disableCertificateVerification'] = True
    hints = root_device(vm)
    if hints:
        made['rootDeviceHints'] = hints
    return {'apiVersion': resources.HOST.api_version,
            'kind': resources.HOST.kind,
            'metadata': {'name': bmc.name, 'namespace': bmc.namespace,
                         'labels': labels(bmc, vm, options)},
            'spec': made}


def _prefix(disk):
    return 'vd' if disk.bus == 'virtio' else 'sd'


def _letters(index):
    """:returns: letters of a guest's disk: a to z, aa to zz …"""
    more, last = divmod(index, len(string.ascii_lowercase))
    return (_letters(more - 1) if more else '') + string.ascii_lowercase[last]
