# SPDX-License-Identifier: Apache-2.0
"""Evaluate the admission policies for BMC accounts."""

import copy
import pathlib
import re
import types

import cel
from oslotest import base
import yaml

from kubevirt_sandbox.testing import admission
from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import options
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator.shared import shard_manifests
from tests.unit.operator import bodies

PATH = (pathlib.Path(__file__).parents[3]
        / 'etc/kubernetes/base/admission.yaml')

SLOT = media_annotation.slots('vm', model.CD.id)[0]
BMC_USER = 'system:serviceaccount:lab:' + rbac.account(bodies.bmc())[
    'metadata']['name']

OPERATOR = ('system:serviceaccount:sushy-kubevirt-system:'
            'sushy-kubevirt-operator')

HTTP = {'url': 'https://a.test/a.iso'}

# (source of a DataVolume, part of the denial or None)
SOURCES = (
    ({'http': HTTP}, None),
    ({'upload': {}}, None),
    ({'http': {**HTTP, 'secretRef': SLOT}}, None),
    ({'http': {**HTTP, 'secretRef': SLOT + '-1a2b'}}, None),
    ({'http': {**HTTP, 'secretRef': 'admins-token'}}, 'own Secret as'),
    *(({'http': {**HTTP, field: ['admins-token']}}, 'only url, secretRef')
      for field in ('secretExtraHeaders', 'extraHeaders', 'checksum')),
    ({'http': {**HTTP, 'insecureSkipVerify': True}}, None),
    ({'http': {**HTTP, 'certConfigMap': media_annotation.ca_config_map(
        'vm', model.CD.id)}}, None),
    *(({'http': {**HTTP, 'certConfigMap': name}}, 'as certConfigMap')
      for name in ('settings', 'vm-bmc-x-ca', 'vm-bmc-cd-ca-x')),
    ({'pvc': {'namespace': 'lab', 'name': 'other'}}, 'source http or upload'),
    ({'registry': {'url': 'docker://a.test/a', 'secretRef': 'b'}},
     'source http or upload'),
    (None, 'source http or upload'),
)

STORAGE = {'resources': {'requests': {'storage': '1Gi'}}}

# (other fields of a DataVolume, part of the denial or None)
VOLUMES = (
    ({'spec': {'storage': {**STORAGE, 'storageClassName': 'a',
                           'accessModes': ['ReadWriteOnce']}}}, None),
    ({'spec': {'storage': {**STORAGE, 'dataSource': {
        'kind': 'PersistentVolumeClaim', 'name': 'other'}}}},
     'volumeMode'),
    ({'spec': {'storage': {**STORAGE, 'dataSourceRef': {}}}}, 'volumeMode'),
    ({'spec': {'storage': {**STORAGE, 'volumeName': 'a'}}}, 'volumeMode'),
    *(({'spec': {field: value}}, 'source http or upload')
      for field, value in (
          ('pvc', {}), ('priorityClassName', 'system-node-critical'),
          ('preallocation', True), ('contentType', 'archive'),
          ('checkpoints', []),
          ('sourceRef', {'kind': 'DataSource', 'name': 'a'}))),
    ({'old': {}}, None),
    ({'old': {}, 'spec': {'source': {'http': {**HTTP, 'url': 'http://b'}}}},
     'may not change'),
)

OWN = 'sushy-kubevirt.openstack.org/'
FOREIGN = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'name': 'a', 'uid': 'b'}
VM_OWNER = {'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
            'name': 'vm', 'uid': 'b'}
VOLUME_OWNER = {'apiVersion': 'cdi.kubevirt.io/v1beta1',
                'kind': 'DataVolume', 'name': SLOT, 'uid': 'b'}

# (plural, metadata before or None, metadata after, part of the denial or None)
METADATA = (
    ('secrets', None, {'labels': {OWN + 'media': 'Cd'}, 'annotations': {
        OWN + 'media-attempt': '1'}, 'ownerReferences': [VOLUME_OWNER]},
     None),
    ('configmaps', None, {'ownerReferences': [VM_OWNER]}, None),
    ('configmaps', {'labels': {'a': 'b'}}, {'labels': {'a': 'b'}}, None),
    ('datavolumes', {'annotations': {'cdi.kubevirt.io/a': 'b'}},
     {'annotations': {'cdi.kubevirt.io/a': 'b', OWN + 'upload': '{}'}}, None),
    ('datavolumes', None, {'annotations': {
        'cdi.kubevirt.io/storage.deleteAfterCompletion': 'false'}}, None),
    ('secrets', {'labels': {'app.kubernetes.io/managed-by': 'a'}},
     {'labels': {'app.kubernetes.io/managed-by': 'a'},
      'ownerReferences': [VM_OWNER]}, None),
    # A Secret of a repository for Argo CD; a dashboard for Grafana.
    ('secrets', None, {'labels': {
        'argocd.argoproj.io/secret-type': 'cluster'}}, 'its own labels'),
    ('configmaps', None, {'labels': {'grafana_dashboard': '1'}},
     'its own labels'),
    ('configmaps', {'labels': {'a': 'b'}}, {}, 'its own labels'),
    ('configmaps', {'labels': {'a': 'b'}}, {'labels': {'a': 'c'}},
     'its own labels'),
    ('events', None, {'labels': {'a': 'b'}}, 'its own labels'),
    ('datavolumes', None, {'labels': {'a': 'b'}}, 'its own labels'),
    # A copy of the Secret in all namespaces.
    ('secrets', {}, {'annotations': {
        'reflector.v1.k8s.emberstack.com/reflection-auto-enabled': 'true'}},
     'its own annotations'),
    ('secrets', None, {'annotations': {
        'cdi.kubevirt.io/storage.deleteAfterCompletion': 'false'}},
     'its own annotations'),
    ('datavolumes', None, {'annotations': {
        'cdi.kubevirt.io/storage.import.secretExtraHeaders.0': 'a'}},
     'its own annotations'),
    ('datavolumes', None, {'annotations': {
        'cdi.kubevirt.io/storage.checkStaticVolume': 'a'}},
     'its own annotations'),
    ('datavolumes', {'annotations': {'cdi.kubevirt.io/a': 'b'}},
     {'annotations': {'cdi.kubevirt.io/a': 'c'}}, 'its own annotations'),
    ('datavolumes', {'annotations': {'cdi.kubevirt.io/a': 'b'}}, {},
     'its own annotations'),
    ('secrets', None, {'ownerReferences': [FOREIGN]}, 'no finalizers'),
    ('configmaps', None, {'ownerReferences': [VOLUME_OWNER]},
     'no finalizers'),
    ('secrets', {}, {'finalizers': ['a']}, 'no finalizers'),
    ('datavolumes', {'finalizers': ['a']}, {}, 'no finalizers'),
)

PEM = '-----BEGIN CERTIFICATE-----\na\n-----END CERTIFICATE-----\n'

# (name of a ConfigMap, other members, whether a BMC may write it)
CONFIG_MAPS = (
    ('vm-bmc-cd-ca', {'data': {'1.pem': PEM, 'operator.pem': PEM}}, True),
    ('vm-bmc-usb-ca', {}, True),
    ('vm-bmc-cd-ca', {'data': {'1.sh': PEM}}, False),
    ('vm-bmc-cd-ca', {'data': {'1.pem': '#!/bin/sh'}}, False),
    ('vm-bmc-cd-ca', {'binaryData': {'1.pem': 'AA=='}}, False),
    ('vm-virtbmc', {'data': {'1.pem': PEM}}, False),
    ('coredns', {}, False),
)

DISK = {'name': 'root', 'persistentVolumeClaim': {'claimName': 'root'}}
MEDIUM = {'name': 'bmc-cd', 'dataVolume': {'name': SLOT}}
DRIVE = {'name': 'bmc-cd', 'cdrom': {'bus': 'sata'}}
STOLEN = {'name': 'x', 'secret': {'secretName': 'admins-token'}}
KEYS = [{'sshPublicKey': {'source': {'secret': {'secretName': 'a'}}}}]
LONG = 'v' * 60


def spec(**fields):
    """Return the spec of a VM whose template has these fields."""
    return {'spec': {'template': {'spec': {'domain': {}, **fields}}}}


def devices(**fields):
    return spec(domain={'devices': fields})


def firmware(**fields):
    return spec(domain={'firmware': fields})


def metadata(**fields):
    return {'metadata': {'name': 'vm', **fields}, **spec()}


def template(**fields):
    return {'spec': {'template': {'metadata': fields, **spec()['spec'][
        'template']}}}


def templates(*sources):
    return {'spec': {**spec()['spec'], 'dataVolumeTemplates': [
        {'metadata': {'name': 'a'}, 'spec': {'storage': STORAGE, **source}}
        for source in sources]}}


def named(**fields):
    made = templates(CLONE)
    made['spec']['dataVolumeTemplates'][0]['metadata'] = fields
    return made


def kind(**fields):
    return {'spec': {**spec()['spec'], **fields}}


def disks(*items, volumes=()):
    return spec(domain={'devices': {'disks': list(items)}},
                volumes=list(volumes))


def media(name, *volumes, drive=DRIVE):
    """Return a VM of this name with media in its first drive."""
    return {'metadata': {'name': name}, **disks(
        *([drive] if volumes else []), volumes=volumes)}


def medium(volume, **fields):
    return {'name': 'bmc-cd', 'dataVolume': {'name': volume, **fields}}


def interface(**fields):
    return devices(interfaces=[{'name': 'b', 'bridge': {}, **fields}])


def pod_network(binding=None, networks=({'name': 'default', 'pod': {}},),
                autoattach=None, **fields):
    """Return a VM with an interface in the pod network.

    :param binding: that of the annotation; None without
    :param autoattach: ``autoattachPodInterface``; None without
    :param fields: of the interface
    """
    notes = {} if binding is None else {'annotations': {
        'sushy-kubevirt.openstack.org/pod-interface': binding}}
    more = {} if autoattach is None else {
        'autoattachPodInterface': autoattach}
    return {'metadata': {'name': 'vm', **notes}, **spec(
        domain={'devices': {'interfaces': [{'name': 'default', **fields}],
                            **more}}, networks=list(networks))}


HTTP_SOURCE = {'source': {'http': HTTP}}
CLONE = {'source': {'pvc': {'name': 'other', 'namespace': 'lab'}}}
BOOT_ONCE = 'sushy-kubevirt.openstack.org/boot-once'
SIDECAR = 'hooks.kubevirt.io/hookSidecars'
HARVESTER = 'harvesterhci.io/'
TIMESTAMP = 'kubemacpool.io/transaction-timestamp'
LONG_SLOT = media_annotation.slots(LONG, model.USB_STICK.id)[2]
FOREIGN_SLOT = media_annotation.slots(
    'v' * 59 + 'w', model.USB_STICK.id)[2]

# (VM before, VM after, part of the denial or None)
MACHINES = (
    (spec(), spec(), None),
    # Changes that a BMC makes.
    (kind(runStrategy='Halted'), kind(runStrategy='Always'), None),
    (kind(running=True), kind(runStrategy='Always'), None),
    (kind(runStrategy='Manual'), kind(running=True), None),
    (firmware(), firmware(bootloader={'efi': {'secureBoot': False}}), None),
    (firmware(bootloader={'bios': {}}), spec(), None),
    (spec(), spec(domain={'rebootPolicy': 'Terminate'}), None),
    (spec(domain={'rebootPolicy': 'Terminate'}), spec(), None),
    (spec(), spec(domain={'features': {'smm': {'enabled': True}}}), None),
    (
        devices(disks=[{'name': 'a'}], interfaces=[{'name': 'b'}]),
        devices(
            disks=[{'name': 'a', 'bootOrder': 2}],
            interfaces=[{'name': 'b', 'bootOrder': 1}],
        ),
        None,
    ),
    (metadata(), metadata(annotations={BOOT_ONCE: '1'}), None),
    (metadata(annotations={BOOT_ONCE: '1'}), metadata(), None),
    (
        metadata(),
        metadata(annotations={HARVESTER + 'vmRunStrategy': 'Manual'}),
        None,
    ),
    (template(), template(annotations={BOOT_ONCE: '1'}), None),
    (
        template(annotations={BOOT_ONCE: '1', 'a': 'b'}),
        template(annotations={'a': 'b'}),
        None,
    ),
    (spec(), template(annotations={BOOT_ONCE: '1'}), None),
    # A medium in a drive that is added, kept and removed.
    (
        disks({'name': 'root'}, volumes=[DISK]),
        disks({'name': 'root'}, DRIVE, volumes=[DISK, MEDIUM]),
        None,
    ),
    (
        disks({'name': 'root'}, DRIVE, volumes=[DISK, MEDIUM]),
        disks({'name': 'root'}, volumes=[DISK]),
        None,
    ),
    (media('vm', MEDIUM), disks(DRIVE), None),
    (media('vm', MEDIUM), media('vm', medium(SLOT, hotpluggable=True)), None),
    (
        media('vm', MEDIUM),
        media(
            'vm',
            MEDIUM,
            drive={
                'name': 'bmc-usb-2',
                'bootOrder': 3,
                'disk': {'bus': 'usb', 'readonly': True},
            },
        ),
        None,
    ),
    # A medium in a CD-ROM drive of the VM's owner.
    (
        disks({'name': 'x', 'cdrom': {}}),
        disks({'name': 'x', 'cdrom': {}}, volumes=[{**MEDIUM, 'name': 'x'}]),
        None,
    ),
    # A disk that KubeVirt would add gets a number, and loses it.
    (
        spec(volumes=[DISK]),
        disks({'name': 'root', 'bootOrder': 1}, volumes=[DISK]),
        None,
    ),
    (
        disks({'name': 'root', 'bootOrder': 1}, volumes=[DISK]),
        spec(volumes=[DISK]),
        None,
    ),
    (media(LONG), media(LONG, medium(LONG_SLOT)), None),
    # Names of VMs around the length from which names of volumes are
    # shortened.
    *(
        (media(name), media(name, medium(slot)), None)
        for name in ('v' * size for size in range(48, 54))
        for device in (model.CD, model.USB_STICK, model.HTTP_BOOT)
        for slot in media_annotation.slots(name, device.id)
    ),
    # Fields that users set are kept, and webhooks fill some in: KubeVirt's,
    # kubemacpool's.
    (
        spec(volumes=[STOLEN]),
        disks(DRIVE, volumes=[STOLEN, MEDIUM]),
        None,
    ),
    (spec(accessCredentials=KEYS), spec(accessCredentials=KEYS), None),
    (firmware(kernelBoot={'a': 'b'}), firmware(kernelBoot={'a': 'b'}), None),
    (kind(runStrategy='WaitAsReceiver'), kind(runStrategy='WaitAsReceiver'),
     None),
    (spec(), spec(architecture='amd64'), None),
    (spec(), spec(domain={'machine': {'type': 'q35'}}), None),
    (
        spec(),
        spec(domain={'features': {'acpi': {}, 'smm': {'enabled': True}}}),
        None,
    ),
    (templates(CLONE), templates(CLONE), None),
    (
        kind(**templates(CLONE)['spec'], preference={'name': 'a'}),
        kind(
            **templates(
                {**CLONE, 'storage': {**STORAGE, 'storageClassName': 'a'}}
            )['spec'],
            preference={'name': 'a'},
        ),
        None,
    ),
    (named(name='a', creationTimestamp=None), named(name='a'), None),
    (named(name='a'), named(name='a', creationTimestamp=None), None),
    (
        template(),
        template(creationTimestamp=None),
        None,
    ),
    (
        metadata(annotations={TIMESTAMP: '2026-11-28T10:00:00.1Z'}),
        metadata(annotations={TIMESTAMP: '2026-11-28T10:00:01.234567Z'}),
        None,
    ),
    # The interface that KubeVirt would add, for a boot order.
    *((before, after, None) for added in (
        pod_network('bridge', bridge={}, bootOrder=1),
        pod_network('masquerade', masquerade={}, macAddress='02:0:0:0:0:1'))
      for before, after in ((metadata(), added), (added, metadata()))),
    (pod_network('bridge', bridge={}), pod_network(bridge={}), None),
    # Changes that a BMC must not make.
    (kind(runStrategy='Halted'), kind(runStrategy='WaitAsReceiver'),
     'only runStrategy'),
    (spec(volumes=[DISK]), spec(volumes=[DISK, STOLEN]), 'only volumes'),
    (spec(volumes=[DISK]), spec(), 'only volumes'),
    (spec(volumes=[DISK, STOLEN]), spec(volumes=[STOLEN, DISK]),
     'only volumes'),
    (spec(), spec(volumes=[STOLEN]), 'only volumes'),
    (
        spec(volumes=[DISK]),
        spec(
            volumes=[{**DISK, 'persistentVolumeClaim': {'claimName': 'other'}}]
        ),
        'only volumes',
    ),
    (
        spec(volumes=[DISK]),
        spec(
            volumes=[
                DISK,
                {
                    'name': 'x',
                    'serviceAccount': {'serviceAccountName': 'admin'},
                },
            ]
        ),
        'only volumes',
    ),
    # Names that only look like those of the VM's media.
    *(
        (spec(), media('vm', medium(volume)), 'only volumes')
        for volume in (
            'other-bmc-cd-0',
            'vm-bmc-cd-3',
            'vm-bmc-cd-00',
            'vm-bmc-data',
            'vm-bmc-cd-0-x',
            'vm-bmc-http',
            media_annotation.slots(LONG, model.CD.id)[0],
        )
    ),
    (media(LONG), media(LONG, medium(FOREIGN_SLOT)), 'only volumes'),
    (spec(), media('vm', {**MEDIUM, 'serial': 'a'}), 'only volumes'),
    (
        spec(),
        media('vm', {'name': 'bmc-cd', 'persistentVolumeClaim': {
            'claimName': SLOT}}),
        'only volumes',
    ),
    # Neither in a disk of the VM's owner nor without a drive.
    (
        disks({'name': 'x', 'disk': {}}),
        disks({'name': 'x', 'disk': {}}, volumes=[{**MEDIUM, 'name': 'x'}]),
        'only volumes',
    ),
    (spec(), spec(volumes=[MEDIUM]), 'only volumes'),
    *(
        (spec(), spec(**{field: value}), 'only domain and volumes')
        for field, value in (
            ('accessCredentials', KEYS),
            ('networks', [{'multus': {'networkName': 'secret'}}]),
            ('nodeSelector', {'a': 'b'}),
            ('affinity', {}),
            ('tolerations', [{'operator': 'Exists'}]),
            ('utilityVolumes', [{'claimName': 'other'}]),
            ('topologySpreadConstraints', [{'maxSkew': 1}]),
            ('serviceAccountName', 'admin'),
            ('priorityClassName', 'system-node-critical'),
            ('schedulerName', 'a'),
            ('readinessProbe', {
                'httpGet': {'host': '169.254.169.254', 'port': 80}}),
            ('dnsConfig', {'nameservers': ['192.0.2.1']}),
            ('hostname', 'a'),
            ('subdomain', 'a'),
            ('evictionStrategy', 'LiveMigrate'),
            ('terminationGracePeriodSeconds', 0),
            ('resourceClaims', [{'name': 'a'}]),
        )
    ),
    (spec(accessCredentials=KEYS), spec(), 'only domain and volumes'),
    (
        spec(architecture='amd64'),
        spec(architecture='arm64'),
        'only domain and volumes',
    ),
    (spec(serviceAccountName='a'), spec(serviceAccountName='b'),
     'only domain and volumes'),
    (spec(serviceAccountName='a'), spec(serviceAccountName='a'), None),
    (
        spec(livenessProbe={'tcpSocket': {'port': 1}}),
        spec(livenessProbe={'exec': {'command': ['a']}}),
        'only domain and volumes',
    ),
    *(
        (spec(), spec(domain={field: value}), 'only bootloader')
        for field, value in (
            ('resources', {'requests': {'memory': '1Ti'}}),
            ('cpu', {'cores': 64}),
            ('memory', {'guest': '1Ti'}),
            ('clock', {'utc': {}}),
            ('ioThreadsPolicy', 'auto'),
            ('launchSecurity', {'sev': {}}),
            ('chassis', {'serial': 'a'}),
            ('features', {'hypervPassthrough': {}}),
            ('features', {'acpi': {'enabled': False}}),
            ('features', {'smm': {'enabled': False}}),
            ('firmware', {'uuid': 'a'}),
            ('firmware', {'serial': 'a'}),
            ('firmware', {'kernelBoot': {'container': {'image': 'a'}}}),
            ('firmware', {'acpi': {'slicNameRef': 'a'}}),
        )
    ),
    (
        spec(domain={'machine': {'type': 'q35'}}),
        spec(domain={'machine': {'type': 'pc'}}),
        'only bootloader',
    ),
    (
        spec(domain={'features': {'kvm': {'hidden': True}}}),
        spec(),
        'only bootloader',
    ),
    (firmware(uuid='a'), spec(), 'only bootloader'),
    (spec(domain={'cpu': {'cores': 1}}), spec(), 'only bootloader'),
    *(
        (devices(), devices(**{field: value}), 'only disks and interfaces')
        for field, value in (
            ('downwardMetrics', {}),
            ('autoattachVSOCK', True),
            ('autoattachSerialConsole', False),
            ('clientPassthrough', {}),
            ('hostDevices', [{'deviceName': 'a'}]),
            ('gpus', [{'deviceName': 'a'}]),
            ('filesystems', [{'name': 'a'}]),
            ('tpm', {}),
            ('rng', {}),
            ('watchdog', {'name': 'a'}),
        )
    ),
    (devices(autoattachPodInterface=False), devices(),
     'only disks and interfaces'),
    # The network of a guest.
    *(
        (interface(), interface(**fields), "bootOrder of a guest's interfaces")
        for fields in (
            {'macAddress': '02:00:00:00:00:01'},
            {'binding': {'name': 'b'}},
            {'model': 'e1000'},
            {'state': 'absent'},
            {'bridge': {}, 'ports': [{'port': 22}]},
            {'name': 'c'},
        )
    ),
    (
        interface(macAddress='02:00:00:00:00:01'),
        interface(macAddress='02:00:00:00:00:02'),
        "bootOrder of a guest's interfaces",
    ),
    (
        interface(),
        devices(interfaces=[{'name': 'b', 'masquerade': {}}]),
        "bootOrder of a guest's interfaces",
    ),
    (interface(), devices(), "bootOrder of a guest's interfaces"),
    # Disks.
    *(
        (
            disks({'name': 'root', 'disk': {'bus': 'sata'}}, volumes=[DISK]),
            disks(*changed, volumes=[DISK]),
            "bootOrder of a guest's disks",
        )
        for changed in (
            [{'name': 'root', 'disk': {'bus': 'virtio'}}],
            [{'name': 'root', 'lun': {}}],
            [{'name': 'root', 'disk': {'bus': 'sata'}, 'serial': 'a'}],
            [{'name': 'root', 'disk': {'bus': 'sata'}, 'shareable': True}],
            [],
            [
                {'name': 'root', 'disk': {'bus': 'sata'}},
                {'name': 'x', 'disk': {}},
            ],
            [
                {'name': 'root', 'disk': {'bus': 'sata'}},
                {'name': 'bmc-cd', 'lun': {'reservation': True}},
            ],
            [
                {'name': 'root', 'disk': {'bus': 'sata'}},
                {'name': 'bmc-usb', 'disk': {'bus': 'usb'}, 'cache': 'a'},
            ],
        )
    ),
    (
        disks({'name': 'a', 'disk': {}}, {'name': 'b', 'disk': {}}),
        disks({'name': 'b', 'disk': {}}, {'name': 'a', 'disk': {}}),
        "bootOrder of a guest's disks",
    ),
    *(
        (kind(), kind(**{field: value}), 'only runStrategy')
        for field, value in (
            ('instancetype', {'name': 'gpu'}),
            ('preference', {'name': 'a'}),
            ('updateVolumesStrategy', 'Migration'),
        )
    ),
    (
        kind(preference={'name': 'a'}),
        kind(preference={'name': 'b'}),
        'only runStrategy',
    ),
    *(
        (old, new, 'dataVolumeTemplates')
        for old, new in (
            (templates(), templates(CLONE)),
            (templates(CLONE), templates()),
            (templates(HTTP_SOURCE), templates(CLONE)),
            (
                templates(HTTP_SOURCE),
                templates(
                    {'source': {'http': {**HTTP, 'secretExtraHeaders': ['a']}}}
                ),
            ),
            (spec(), templates(CLONE)),
            (templates(CLONE), spec()),
            (templates(CLONE), templates(CLONE, CLONE)),
            (
                templates(CLONE),
                templates({**CLONE, 'storage': {
                    **STORAGE, 'storageClassName': 'a'}}),
            ),
            (named(name='a'), named(name='b')),
            (named(name='a'), named(name='a', annotations={'a': 'b'})),
            (
                named(name='a', annotations={'a': 'b'}),
                named(name='a', creationTimestamp=None),
            ),
        )
    ),
    *(
        (old, new, 'boot-once')
        for old, new in (
            (template(), template(annotations={SIDECAR: '[]'})),
            (
                template(annotations={SIDECAR: '[]'}),
                template(annotations={SIDECAR: '[{}]'}),
            ),
            (template(annotations={SIDECAR: '[]'}), template()),
            (template(), template(annotations={OWN + 'x': 'a'})),
            (spec(), {'spec': {'template': {
                **spec()['spec']['template'], 'x': {}}}}),
            (template(), template(labels={'app': 'database'})),
            (template(labels={'a': 'b'}), template()),
        )
    ),
    *(
        (
            metadata(annotations=old),
            metadata(annotations=new),
            'only its own annotations',
        )
        for old, new in (
            ({}, {'bmc.kubevirt.io/allow-from': 'x'}),
            (
                {'bmc.kubevirt.io/allow-from': 'x'},
                {'bmc.kubevirt.io/allow-from': 'x, y'},
            ),
            ({'bmc.kubevirt.io/allow-from': 'x'}, {}),
            ({'a': 'b'}, {'a': 'c'}),
            # Harvester creates these claims, and deletes those.
            ({}, {HARVESTER + 'volumeClaimTemplates': '[]'}),
            ({HARVESTER + 'volumeClaimTemplates': '[]'}, {}),
            ({}, {HARVESTER + 'removedPersistentVolumeClaims': 'root'}),
            ({}, {HARVESTER + 'reservedMemory': '1Gi'}),
            ({}, {HARVESTER + 'mac-address': '{}'}),
            ({}, {HARVESTER + 'vmRunStrategy': 'a'}),
            ({}, {'kubevirt.io/allow-pod-bridge-network-live-migration': ''}),
            ({}, {TIMESTAMP: 'a'}),
            ({}, {'cluster.sushy-kubevirt.openstack.org/hash': 'a'}),
        )
    ),
    *(
        (metadata(**old), metadata(**new), 'labels, finalizers and owner')
        for old, new in (
            ({}, {'ownerReferences': [{'uid': 'gone'}]}),
            ({'finalizers': ['a']}, {}),
            ({}, {'finalizers': ['a']}),
            ({}, {'labels': {'a': 'b'}}),
            ({'labels': {'a': 'b'}}, {'labels': {'a': 'c'}}),
            ({'labels': {'a': 'b'}}, {}),
        )
    ),
)


START = [{'action': 'Start'}]
STOP = [{'action': 'Stop'}]

GENERATION = 'kubevirt.io/vm-generation'


def vmi(annotations=None, **more):
    return {'metadata': {'annotations': {
        GENERATION: '1', 'kept': 'x', **(annotations or {})},
        'labels': {'a': 'b'}},
        'spec': {'domain': {}}, 'status': {'phase': 'Running'}, **more}


# (VMI after a change of `vmi()`, whether a BMC may change it)
INSTANCES = (
    (vmi(), True),
    (vmi({GENERATION: '2'}), True),
    (vmi({'kept': 'y'}), False),
    (vmi({'hooks.kubevirt.io/hookSidecars': '[]'}), False),
    (vmi(metadata={'annotations': {GENERATION: '2'}, 'labels': {'a': 'b'}}),
     False),
    (vmi(metadata={'annotations': vmi()['metadata']['annotations']}), False),
    (vmi(spec={'domain': {'cpu': {}}}), False),
    (vmi(status={'phase': 'Succeeded'}), False),
)

# (VM status before, VM status after, whether a BMC may change it)
STATUSES = (
    ({'ready': False, 'stateChangeRequests': START}, {'ready': False}, True),
    ({'stateChangeRequests': START}, {'stateChangeRequests': START}, True),
    ({'stateChangeRequests': START}, None, True),
    ({}, {'stateChangeRequests': START}, False),
    ({'stateChangeRequests': START}, {'stateChangeRequests': STOP}, True),
    ({}, {'stateChangeRequests': STOP}, True),
    ({}, {'stateChangeRequests': STOP + START}, False),
    ({}, {'stateChangeRequests': [{**STOP[0], 'uid': 'u'}]}, False),
    ({}, {'stateChangeRequests': [{**STOP[0], 'data': {}}]}, False),
    ({'startFailure': {'consecutiveFailCount': 1}}, {}, True),
    ({'startFailure': {'consecutiveFailCount': 1}},
     {'startFailure': {'consecutiveFailCount': 0}}, False),
    ({}, {'volumeRequests': [{'addVolumeOptions': {}}]}, False),
    (None, {'memoryDumpRequest': {'claimName': 'other'}}, False),
    ({'ready': False}, {'ready': True}, False),
    ({'ready': False}, {}, False),
)

# Interfaces (VM before, VM after) that a BMC must not add or remove: not the
# one that KubeVirt would add, or the owner's.
FOREIGN_INTERFACES = (
    (metadata(), pod_network('bridge', masquerade={})),
    (metadata(), pod_network('bridge', bridge={}, model='e1000')),
    (metadata(), pod_network('bridge', bridge={}, networks=[
        {'name': 'default', 'multus': {'networkName': 'a'}}])),
    (metadata(), pod_network('bridge', bridge={}, networks=[
        {'name': 'default', 'pod': {'vmNetworkCIDR': 'a'}}])),
    (metadata(), pod_network('sriov', sriov={})),
    (metadata(), pod_network(bridge={})),
    ({'metadata': {'name': 'vm'},
      **devices(autoattachPodInterface=False)},
     pod_network('bridge', bridge={}, autoattach=False)),
    (pod_network(masquerade={}), metadata()),
    (pod_network('bridge', masquerade={}), metadata()),
    (pod_network('bridge', bridge={}, ports=[]), metadata()),
    (pod_network(bridge={}), pod_network('bridge', bridge={})),
    (metadata(), metadata(annotations={
        'sushy-kubevirt.openstack.org/pod-interface': 'bridge'})),
    (pod_network('masquerade', bridge={}),
     pod_network('bridge', bridge={})),
)


def of_harvester(domain=None, **fields):
    """Return a VM that Harvester knows, stopped.

    :param domain: dict, of its template
    :param fields: other fields of the template's spec
    """
    return {
        'metadata': {'name': 'vm', 'labels': {
            'harvesterhci.io/creator': 'harvester'}},
        'spec': {'runStrategy': 'Halted', 'template': {'spec': {
            'domain': domain or {}, **fields}}}}


# VMs that an older Harvester stored
HARVESTERS = (
    of_harvester(),
    of_harvester({'cpu': {'cores': 2}}),
    of_harvester({'cpu': {'cores': 2, 'sockets': 0, 'threads': 1,
                          'model': 'host-passthrough'}}),
    of_harvester(affinity={'podAffinity': {}},
                 terminationGracePeriodSeconds=5),
    of_harvester({'devices': {'interfaces': [
        {'name': 'default', 'masquerade': {}}, {'name': 'b', 'bridge': {}}]}}),
    {**of_harvester(), 'metadata': {'name': 'vm', 'annotations': {
        HARVESTER + 'mac-address': '{}'}}},
)

# (VM that Harvester knows, what else than completing it is denied)
BEYOND_HARVESTER = (
    (of_harvester(), of_harvester({'cpu': {'cores': 2}})),
    (of_harvester(), of_harvester({'cpu': {'cores': 1, 'model': 'a'}})),
    (of_harvester({'cpu': {'cores': 2}}), of_harvester({'cpu': {
        'cores': 1, 'sockets': 1, 'threads': 1}})),
    (of_harvester({'cpu': {'cores': 2}}), of_harvester({'cpu': {
        'sockets': 1, 'threads': 1}})),
    (of_harvester(), of_harvester(affinity={'nodeAffinity': {}})),
    (of_harvester(affinity={'a': {}}), of_harvester(affinity={})),
    (of_harvester(terminationGracePeriodSeconds=5),
     of_harvester(terminationGracePeriodSeconds=0)),
    (of_harvester(), of_harvester(hostname='a')),
    *((of_harvester({'devices': {'interfaces': [{'name': 'a', **old}]}}),
       of_harvester({'devices': {'interfaces': [{'name': 'a', **new}]}}))
      for old, new in (
          # One of a manufacturer.
          ({}, {'macAddress': '00:1b:21:00:00:01'}),
          ({}, {'macAddress': '02:00:00:00:00:01', 'model': 'e1000'}),
          ({'macAddress': '02:00:00:00:00:01'},
           {'macAddress': '02:00:00:00:00:02'}))),
)


class AdmissionTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        documents = list(yaml.safe_load_all(PATH.read_text()))
        self.policies = {one['metadata']['name']: one['spec']
                         for one in documents
                         if one['kind'] == 'ValidatingAdmissionPolicy'}
        self.bound = {
            one['spec']['policyName']: one['spec']['validationActions']
            for one in documents
            if one['kind'] == 'ValidatingAdmissionPolicyBinding'}

    def denials(self, policy, obj, old=None, **inputs):
        inputs['request'] = {'userInfo': {'username': BMC_USER},
                             **inputs.get('request', {})}
        return [message for message, _ in admission.failed_validations(
            {**self.policies[policy], 'matchConditions': []},
            {'object': obj, 'oldObject': old, **inputs})]

    def assert_denied(self, expected, found):
        if expected is None:
            self.assertEqual([], found)
        else:
            self.assertEqual(1, len(found))
            self.assertIn(expected, found[0])

    def test_each_policy_is_bound(self):
        self.assertEqual(dict.fromkeys(self.policies, ['Deny']), self.bound)

    def test_lists_are_of_one_type(self):
        """The API server refuses a list of texts and fields of an object.

        Its CEL is made with HomogeneousAggregateLiterals
        (``apiserver/pkg/cel/environment/base.go`` of Kubernetes 1.37); that
        of the sandbox has no types.
        """
        lists = re.findall(r"\[([^\[\]]*'[^\[\]]*)\]", '\n'.join(
            one['expression'] for spec in self.policies.values()
            for part in ('matchConditions', 'variables', 'validations')
            for one in spec.get(part, ())))
        self.assertIn("'accessKeyId', 'secretKey'", lists)
        for items in lists:
            for item in items.split(','):
                self.assertRegex(item.strip(), "^'[^']*'$")

    def test_policies_match_bmc_accounts_only(self):
        for user, expected in (
                (BMC_USER, True),
                ('system:serviceaccount:lab:default', False),
                ('jane-virtbmc', False)):
            for name, policy in self.policies.items():
                if name in ('virtbmc-shared', 'virtbmc-operator',
                            'virtbmc-operator-objects'):
                    continue
                with self.subTest(user=user, policy=name):
                    self.assertEqual([expected], [
                        cel.evaluate(one['expression'], {'request': {
                            'userInfo': {'username': user}}})
                        for one in policy['matchConditions'][:1]])

    def test_accounts_of_the_operator(self):
        # (account, whether the operator's policies match, and those that
        # apply to it and to BMCs)
        for user, own, shared in (
                ('sushy-kubevirt-system:sushy-kubevirt-operator', True, True),
                # kustomize's namePrefix and nameSuffix.
                ('a:x-sushy-kubevirt-operator', True, True),
                ('a:sushy-kubevirt-operator-2', True, True),
                ('sushy-kubevirt-operator:default', False, False),
                # A BMC with such a name.
                ('a:sushy-kubevirt-operator-2-virtbmc', False, True),
                ('a:sushy-kubevirt', False, False)):
            for name, expected in (
                    ('virtbmc-operator', own),
                    ('virtbmc-operator-objects', own),
                    ('virtbmc-datavolumes', shared),
                    ('virtbmc-virtualmachines', shared),
                    ('virtbmc-virtualmachines-status', shared),
                    ('virtbmc-virtualmachineinstances', shared)):
                with self.subTest(user=user, policy=name):
                    matching = self.policies[name]['matchConditions'][0]
                    self.assertIs(expected, cel.evaluate(
                        matching['expression'], {'request': {'userInfo': {
                            'username': 'system:serviceaccount:' + user}}}))

    def test_operator_may_change_metadata_of_any_object(self):
        _, condition = self.policies['virtbmc-operator']['matchConditions']
        theirs = {'metadata': {'name': 'a'}, 'roleRef': {'kind': 'Role'},
                  'subjects': [{'kind': 'User', 'name': 'jane'}]}
        for obj, old, matches in (
                (theirs, None, True), (theirs, theirs, False),
                ({**theirs, 'metadata': {'name': 'b'}}, theirs, False),
                ({**theirs, 'subjects': []}, theirs, True),
                ({'metadata': {}, 'roleRef': {'kind': 'Role'}}, theirs, True),
                ({**theirs, 'spec': {}}, theirs, True)):
            with self.subTest(obj=obj, old=old):
                self.assertIs(matches, cel.evaluate(condition['expression'], {
                    'object': obj, 'oldObject': old}))

    def test_sources_of_datavolumes(self):
        for source, expected in SOURCES:
            spec = {'storage': {}}
            if source is not None:
                spec['source'] = source
            with self.subTest(source=source):
                self.assert_denied(expected, self.denials(
                    'virtbmc-datavolumes',
                    {'metadata': {'name': SLOT}, 'spec': spec}))

    def test_datavolumes_of_bmc_are_admitted(self):
        machine = types.SimpleNamespace(
            namespace='lab', name='vm', uid='u', options=options.Options(),
            cluster=types.SimpleNamespace(vm=('lab', 'vm')))
        for entry in (
            media_annotation.Entry(
                '1', 'https://a.test', SLOT, credentials=True
            ),
            media_annotation.Entry('1', 'https://a.test', SLOT, upload=True),
            media_annotation.Entry('1', 'https://a.test', SLOT, verify=False),
        ):
            with self.subTest(entry=entry):
                self.assertEqual([], self.denials(
                    'virtbmc-datavolumes', datavolumes.body(
                        machine, model.CD, entry, 1 << 20,
                        media_annotation.ca_config_map('vm', model.CD.id))))

    def test_fields_of_datavolumes(self):
        for fields, expected in VOLUMES:
            with self.subTest(fields=fields):
                before = {'source': {'http': HTTP}}
                self.assert_denied(expected, self.denials(
                    'virtbmc-datavolumes', {
                        'metadata': {'name': SLOT},
                        'spec': {**before, **fields.get('spec', {})}},
                    {'spec': before} if 'old' in fields else None))

    def test_status_of_datavolumes(self):
        # Older versions of CDI have no subresource for it.
        def volume(**fields):
            return {'metadata': {'name': SLOT}, 'spec': {
                'source': {'upload': {}}, 'storage': STORAGE}, **fields}
        ready = volume(status={'phase': 'Succeeded'})
        for old, new, expected in (
                (ready, ready, None), (volume(), volume(), None),
                (volume(status={'phase': 'Pending'}), ready, 'may not change'),
                (volume(), ready, 'may not change'),
                (ready, volume(), 'may not change')):
            self.assert_denied(expected, self.denials(
                'virtbmc-datavolumes', new, old))

    def test_types_of_secrets(self):
        for type_, allowed in (
                (stored_names.IMAGE_SERVER, True), ('Opaque', False),
                ('kubernetes.io/service-account-token', False)):
            with self.subTest(type=type_):
                self.assert_denied(
                    None if allowed else 'only Secrets of type',
                    self.denials('virtbmc-secrets', {'type': type_}))
        for key, allowed in (('secretKey', True), ('kubeconfig', False)):
            self.assert_denied(
                None if allowed else 'only Secrets of type',
                self.denials('virtbmc-secrets', {
                    'type': stored_names.IMAGE_SERVER, 'data': {key: 'YQ=='}}))

    def test_changes_of_virtual_machines(self):
        for old, new, expected in MACHINES:
            old, new = ({'metadata': {'name': 'vm'}, **one}
                        for one in (old, new))
            with self.subTest(old=old, new=new):
                self.assert_denied(expected, self.denials(
                    'virtbmc-virtualmachines', new, old,
                    request={'namespace': 'lab'}, authorizer=lambda wanted: (
                        wanted.name != FOREIGN_SLOT, '')))

    def machine_denials(self, old, new):
        return self.denials('virtbmc-virtualmachines', new, old,
                            request={'namespace': 'lab'})

    def test_machines_that_harvester_completes(self):
        for old in HARVESTERS:
            with self.subTest(old=old):
                new = copy.deepcopy(old)
                new['spec']['runStrategy'] = 'Always'
                admission.complete_by_harvester(new, old)
                self.assertNotEqual(old['spec']['template'],
                                    new['spec']['template'])
                self.assertEqual([], self.machine_denials(old, new))
                # On another cluster, or if the BMC's own annotation says so.
                for one in (old, new):
                    one['metadata'] = {'name': 'vm', 'annotations': {
                        HARVESTER + 'vmRunStrategy': 'Always'}}
                self.assertTrue(self.machine_denials(old, new))

    def test_machines_of_harvester_are_only_completed(self):
        for old, new in BEYOND_HARVESTER:
            with self.subTest(old=old, new=new):
                self.assertEqual(1, len(self.machine_denials(old, new)))

    def test_foreign_interfaces(self):
        for old, new in FOREIGN_INTERFACES:
            with self.subTest(old=old, new=new):
                self.assertTrue(self.denials(
                    'virtbmc-virtualmachines', new, old,
                    request={'namespace': 'lab'}))

    def test_metadata_of_objects(self):
        for plural, old, new, expected in METADATA:
            with self.subTest(plural=plural, old=old, new=new):
                self.assert_denied(expected, self.denials(
                    'virtbmc-metadata', {'metadata': new},
                    None if old is None else {'metadata': old},
                    request={'resource': {'resource': plural}}))

    def test_objects_of_the_operator(self):
        bmc = bodies.bmc()
        deployment = deployments.deployment(bmc, deployments.Defaults('a'))
        shared = shard_manifests.deployment(
            'lab', 0, deployments.Defaults('a'), 1, 'uid')
        binding = rbac.binding(bmc)

        def pod(**fields):
            changed = copy.deepcopy(deployment)
            changed['spec']['template']['spec'].update(fields)
            return changed

        container = deployment['spec']['template']['spec']['containers'][0]
        own = deployment['spec']['template']['spec']['securityContext']

        def within(**fields):
            return pod(containers=[{**container, 'securityContext': {
                **container['securityContext'], **fields}}])

        for plural, obj, allowed in (
                ('deployments', deployment, True),
                ('deployments', shared, True),
                ('rolebindings', binding, True),
                ('secrets', rbac.state(bodies.vm()), True),
                ('secrets', {'type': 'kubernetes.io/tls'}, True),
                ('deployments', deployments.deployment(
                    bmc, deployments.Defaults('a', user=None)), True),
                # What the API server and webhooks add.
                ('deployments', pod(
                    restartPolicy='Always', dnsPolicy='ClusterFirst',
                    schedulerName='default-scheduler', affinity={},
                    serviceAccount='node-virtbmc'), True),
                ('deployments', within(privileged=False), True),
                *(('deployments', within(**fields), False) for fields in (
                    {'capabilities': {'drop': ['ALL'], 'add': ['MKNOD']}},
                    {'capabilities': {'add': ['SYS_ADMIN']}},
                    {'capabilities': {'drop': ['NET_RAW']}},
                    {'capabilities': {}},
                    {'runAsUser': 0},
                    {'runAsNonRoot': False},
                    {'allowPrivilegeEscalation': True},
                    {'privileged': True},
                    {'procMount': 'Unmasked'},
                    {'seccompProfile': {'type': 'Unconfined'}},
                    {'appArmorProfile': {'type': 'Unconfined'}},
                    {'seLinuxOptions': {'type': 'spc_t'}},
                    {'windowsOptions': {'hostProcess': True}})),
                *(('deployments', pod(securityContext=context), False)
                  for context in (
                    {}, {**own, 'runAsUser': 0}, {'runAsNonRoot': True},
                    {**own, 'runAsNonRoot': False},
                    {**own, 'sysctls': [{'name': 'a', 'value': 'b'}]},
                    {**own, 'seccompProfile': {'type': 'Unconfined'}})),
                *(('deployments', pod(containers=[{
                    **container, **fields}]), False) for fields in (
                    {'ports': [{'containerPort': 22, 'hostPort': 22}]},
                    # Requests of the node to any host.
                    {'livenessProbe': {'httpGet': {
                        'host': '169.254.169.254', 'port': 80}}},
                    {'startupProbe': {'tcpSocket': {
                        'host': '10.0.0.1', 'port': 22}}},
                    {'lifecycle': {'postStart': {'httpGet': {
                        'host': '10.0.0.1', 'port': 80}}}},
                    {'securityContext': {}},
                    {'securityContext': {'capabilities': {'drop': [
                        'ALL']}}})),
                # Another container than the first.
                ('deployments', pod(containers=[
                    container, {'name': 'a', 'image': 'a'}]), False),
                *(('deployments', pod(**{field: value}), False)
                  for field, value in (
                    ('hostIPC', True), ('shareProcessNamespace', True),
                    ('nodeName', 'a'), ('runtimeClassName', 'a'),
                    ('hostAliases', []), ('dnsConfig', {}),
                    ('ephemeralContainers', [container]))),
                ('deployments', pod(serviceAccountName='admin'), False),
                ('deployments', pod(hostNetwork=True), False),
                ('deployments', pod(hostPID=True), False),
                ('deployments', pod(initContainers=[container]), False),
                ('deployments', pod(volumes=[
                    {'name': 'a', 'hostPath': {'path': '/'}}]), False),
                ('deployments', pod(volumes=[
                    {'name': 'a', 'projected': {'sources': []}}]), False),
                ('deployments', pod(containers=[
                    {**container, 'securityContext': {
                        'privileged': True}}]), False),
                ('rolebindings', {**binding, 'roleRef': {
                    **binding['roleRef'], 'kind': 'ClusterRole'}}, False),
                ('rolebindings', {**binding, 'subjects': [{
                    'kind': 'User', 'name': 'jane'}]}, False),
                ('rolebindings', {**binding, 'subjects': [{
                    **binding['subjects'][0], 'name': 'default'}]}, False),
                *(('secrets', {'type': type_}, False) for type_ in (
                    'kubernetes.io/service-account-token',
                    'bootstrap.kubernetes.io/token',
                    'kubernetes.io/dockerconfigjson'))):
            with self.subTest(plural=plural, obj=obj):
                self.assert_denied(
                    None if allowed else 'the operator may', self.denials(
                        'virtbmc-operator', obj, None, request={
                            'resource': {'resource': plural}}))

    def test_objects_that_the_operator_did_not_create(self):
        owner = naming.owner('node', 'u')
        ours, theirs = ({'metadata': {'name': 'a', 'labels': {
            naming.MANAGED_BY: value}}} for value in (naming.OPERATOR, 'Helm'))
        bare = {'metadata': {'name': 'a'}}

        def owned(obj, *owners):
            return {'metadata': {**obj['metadata'],
                                 'ownerReferences': list(owners)}}
        # Users removed or replaced the label; KubeVirtBMC's have none.
        unlabelled = (owned(bare, owner), owned(theirs, owner),
                      owned(bare, VM_OWNER, owner))
        user = {key: value for key, value in owner.items()
                if key != 'controller'}
        strange = (owned(bare), owned(bare, user), *(
            owned(bare, {**owner, **other}) for other in (
                {'controller': False}, {'kind': 'VirtualMachine'},
                {'apiVersion': 'bmc.kubevirt.io.example.test/v1'})))
        for obj, old, allowed in (
                (ours, None, True), (ours, ours, True), (None, ours, True),
                (theirs, None, False), (bare, None, False),
                (theirs, ours, False), (bare, ours, False),
                # A ConfigMap with the users of a cluster.
                (ours, theirs, False), (ours, bare, False),
                (None, theirs, False), (None, bare, False),
                *((obj, old, True) for old in unlabelled
                  for obj in (None, old, owned(ours, owner))),
                *((obj, None, False) for obj in unlabelled),
                # The operator cannot make an object of others its own.
                *((obj, old, False) for old in (bare, theirs, *strange)
                  for obj in (None, old, owned(ours, owner),
                              owned(old, owner))),
                *((bare, old, False) for old in unlabelled)):
            with self.subTest(obj=obj, old=old):
                self.assert_denied(
                    None if allowed else 'only objects with its label',
                    self.denials('virtbmc-operator-objects', obj, old,
                                 request={'resource': {
                                     'resource': 'configmaps'}}))

    def test_clients_that_the_operator_can_lead_elsewhere(self):
        service = network.service(bodies.bmc())
        shared = shard_manifests.policy('lab', 0, {})
        external = {**service, 'spec': {
            **service['spec'], 'externalIPs': ['192.0.2.1']}}
        other = {**service, 'spec': {
            **service['spec'], 'selector': {'app': 'a'}}}

        def denials(plural, obj, old):
            return self.denials('virtbmc-operator-objects', obj, old,
                                request={'resource': {'resource': plural}})
        for obj, old, allowed in (
                (service, None, True), (external, external, True),
                (service, external, True), (None, service, True),
                (external, None, False), (external, service, False),
                ({**service, 'spec': {'selector': {'app': 'a'}}}, None,
                 False),
                ({**service, 'spec': {'type': 'ExternalName'}}, None, False),
                # The first write of a repair leaves the spec of others.
                (other, other, True), (service, other, True),
                (other, None, False), (other, service, False),
                ({**other, 'spec': {**other['spec'], 'type': 'NodePort'}},
                 other, False)):
            with self.subTest(obj=obj, old=old):
                self.assert_denied(
                    None if allowed else 'only Services of pods of BMCs',
                    denials('services', obj, old))
        closed, everything, theirs = ({**shared, 'spec': {
            'podSelector': selector}} for selector in (
                shared['spec']['podSelector'], {},
                {'matchLabels': {'app': 'a'}}))
        for obj, old, allowed in (
                (closed, None, True), (everything, None, False),
                (theirs, None, False), (everything, closed, False),
                (theirs, everything, False), (closed, everything, True),
                (everything, everything, True), (theirs, theirs, True)):
            with self.subTest(obj=obj, old=old):
                self.assert_denied(
                    None if allowed else 'only NetworkPolicies of pods of',
                    denials('networkpolicies', obj, old))

    def test_machines_that_the_operator_changes(self):
        def denials(old, new):
            return self.denials(
                'virtbmc-virtualmachines', {'spec': spec()['spec'], **new},
                {'spec': spec()['spec'], **old}, request={
                    'namespace': 'lab', 'userInfo': {'username': OPERATOR}})

        uid = naming.GROUP + '/claim-uid'

        def of(**fields):
            return {'metadata': {'name': 'vm', **fields}}
        for old, new, expected in (
                (of(), of(finalizers=[stored_names.HOST_FINALIZER]), None),
                (of(finalizers=['a', stored_names.HOST_FINALIZER, 'b']),
                 of(finalizers=['a', 'b']), None),
                (of(labels={'a': 'b', uid: '1'}),
                 of(labels={'a': 'b', uid: '2'}), None),
                (of(), of(annotations={
                    naming.GROUP + '/claim': 'a/b'}), None),
                (of(finalizers=['a']), of(), 'label and finalizer'),
                (of(), of(finalizers=['a']), 'label and finalizer'),
                (of(labels={'a': 'b'}), of(), 'label and finalizer'),
                (of(), of(labels={'a': 'b'}), 'label and finalizer'),
                (of(), of(annotations={HARVESTER + 'mac-address': ''}),
                 'own annotations'),
                (of(), of(ownerReferences=[FOREIGN]), 'ownerReferences'),
                # The token of another account, for a guest.
                (of(), {**of(), **spec(volumes=[{
                    'name': 'a', 'serviceAccount': {
                        'serviceAccountName': 'admin'}}])}, 'only volumes')):
            with self.subTest(old=old, new=new):
                self.assert_denied(expected, denials(old, new))

    def test_machines_that_the_operator_creates(self):
        for new, allowed in (
                (spec(), True), (template(), True),
                (spec(volumes=[DISK]), True),
                (template(annotations={'a': 'b'}), True),
                (spec(volumes=[DISK, {'name': 'a', 'serviceAccount': {
                    'serviceAccountName': 'admin'}}]), False),
                (template(annotations={SIDECAR: '[]'}), False)):
            with self.subTest(new=new):
                self.assert_denied(
                    None if allowed else 'VMs without accounts',
                    self.denials('virtbmc-operator', new, request={
                        'resource': {'resource': 'virtualmachines'}}))

    def test_config_maps(self):
        for name, fields, allowed in CONFIG_MAPS:
            with self.subTest(name=name, fields=fields):
                self.assert_denied(
                    None if allowed else 'only ConfigMaps with certificates',
                    self.denials('virtbmc-configmaps', {
                        'metadata': {'name': name}, **fields}))

    def test_changes_of_virtual_machine_status(self):
        for old, new, allowed in STATUSES:
            old, new = ({} if one is None else {'status': one}
                        for one in (old, new))
            with self.subTest(old=old, new=new):
                self.assert_denied(
                    None if allowed else 'only remove stateChangeRequests',
                    self.denials('virtbmc-virtualmachines-status', new, old))

    def test_changes_of_virtual_machine_instances(self):
        for new, allowed in INSTANCES:
            with self.subTest(new=new):
                self.assert_denied(
                    None if allowed else 'only the annotation',
                    self.denials('virtbmc-virtualmachineinstances', new,
                                 vmi()))

    def test_events_of_own_vm_only(self):
        about = {'kind': 'VirtualMachine', 'name': 'vm', 'namespace': 'lab'}
        ours = {'reportingComponent': event_log.COMPONENT,
                'involvedObject': about}
        asked = []

        def decide(wanted):
            asked.append(wanted)
            return wanted.name == 'vm', ''

        for event, allowed in (
            (ours, True),
            ({**ours, 'reportingComponent': 'kubelet'}, False),
            ({**ours, 'source': {}}, True),
            ({**ours, 'source': {'component': event_log.COMPONENT}}, True),
            # `kubectl describe` shows this one.
            ({**ours, 'source': {'component': 'kubelet'}}, False),
            *(({**ours, 'involvedObject': {**about, **other}}, False)
              for other in ({'kind': 'Pod'}, {'name': 'other'}, {'name': ''},
                            {'namespace': 'default'})),
            ({**ours, 'involvedObject': {'kind': 'VirtualMachine'}}, False),
            ({'reportingComponent': event_log.COMPONENT}, False),
            ({}, False),
        ):
            with self.subTest(event=event):
                self.assert_denied(
                    None if allowed else 'log of its own VM',
                    self.denials('virtbmc-events', event, None, authorizer=(
                        decide), request={'namespace': 'lab'}))
        self.assertEqual(
            ('patch', 'kubevirt.io', 'virtualmachines', '', 'lab', 'vm', ''),
            tuple(asked[0]))

    def test_config_maps_of_shared_pods(self):
        name = 'sushy-kubevirt-shared-12-virtbmc'
        own = f'system:serviceaccount:lab:{name}'
        asked = []

        def decide(wanted):
            asked.append(wanted)
            return False, ''

        [matching] = self.policies['virtbmc-shared']['matchConditions']
        for at, user, operation, allowed in (
                (name, 'jane', 'UPDATE', False),
                (name, own, 'UPDATE', False),
                ('node-virtbmc', 'jane', 'CREATE', False),
                ('node-virtbmc', own, 'UPDATE', False),
                (name + '-config', own, 'UPDATE', False),
                # The CA that clients are told to trust.
                (naming.authority('node'), 'jane', 'CREATE', False),
                (naming.authority('node'), 'jane', 'UPDATE', False),
                (naming.authority('node'), own, 'UPDATE', False),
                *((media_annotation.ca_config_map('vm', device.id), user,
                   'UPDATE', user != 'jane')
                  for device in (model.CD, model.USB_STICK, model.HTTP_BOOT)
                  for user in ('jane', own)),
                (media_annotation.ca_config_map(LONG, model.CD.id), 'jane',
                 'CREATE', False),
                (name + '-served', own, 'UPDATE', True),
                (name + '-served', own, 'CREATE', False),
                (name + '-served', own.replace('lab', 'far'), 'UPDATE', False),
                (name + '-served', own.replace('12', '1'), 'UPDATE', False)):
            made = {'metadata': {'name': at}}
            with self.subTest(at=at, user=user, operation=operation):
                self.assertTrue(cel.evaluate(
                    matching['expression'], {'object': made}))
                self.assert_denied(
                    None if allowed else 'only who may write the status',
                    self.denials('virtbmc-shared', made, {}, authorizer=(
                        decide), request={
                            'namespace': 'lab', 'operation': operation,
                            'userInfo': {'username': user}}))
        self.assertEqual(
            ('patch', 'bmc.kubevirt.io', 'virtualmachinebmcs', 'status',
             'lab'), tuple(asked[0])[:5])
        for other in 'node-virtbmc-mine', 'node-ca', 'vm-bmc-x-ca':
            self.assertFalse(cel.evaluate(matching['expression'], {
                'object': {'metadata': {'name': other}}}))
        # An emulator with the account of a user who may change VMs.
        self.assertEqual([], self.denials(
            'virtbmc-shared', {'metadata': {'name': 'vm-bmc-cd-ca'}}, {},
            authorizer=lambda wanted: (
                tuple(wanted)[:5] == ('patch', 'kubevirt.io',
                                      'virtualmachines', '', 'lab'), ''),
            request={'namespace': 'lab', 'operation': 'CREATE',
                     'userInfo': {'username': 'jane'}}))
        self.assertEqual([], self.denials(
            'virtbmc-shared', {'metadata': {'name': name}}, {},
            authorizer=lambda wanted: (True, ''), request={
                'namespace': 'lab', 'operation': 'CREATE',
                'userInfo': {'username': 'operator'}}))
