# SPDX-License-Identifier: Apache-2.0
"""Policies for what BMC accounts change of VMs."""

from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from tests.unit.operator import admission_case

SLOT = admission_case.SLOT
HTTP = admission_case.HTTP
STORAGE = admission_case.STORAGE
OWN = admission_case.OWN
DISK = admission_case.DISK
LONG = admission_case.LONG
spec = admission_case.spec
devices = admission_case.devices
metadata = admission_case.metadata
template = admission_case.template
pod_network = admission_case.pod_network
SIDECAR = admission_case.SIDECAR
HARVESTER = admission_case.HARVESTER

MEDIUM = {'name': 'bmc-cd', 'dataVolume': {'name': SLOT}}
DRIVE = {'name': 'bmc-cd', 'cdrom': {'bus': 'sata'}}
STOLEN = {'name': 'x', 'secret': {'secretName': 'admins-token'}}
KEYS = [{'sshPublicKey': {'source': {'secret': {'secretName': 'a'}}}}]


def firmware(**fields):
    return spec(domain={'firmware': fields})


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


HTTP_SOURCE = {'source': {'http': HTTP}}
CLONE = {'source': {'pvc': {'name': 'other', 'namespace': 'lab'}}}
BOOT_ONCE = 'sushy-kubevirt.openstack.org/boot-once'
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


class MachinesTestCase(admission_case.AdmissionTestCase):

    def test_changes_of_virtual_machines(self):
        for old, new, expected in MACHINES:
            old, new = ({'metadata': {'name': 'vm'}, **one}
                        for one in (old, new))
            with self.subTest(old=old, new=new):
                self.assert_denied(expected, self.denials(
                    'virtbmc-virtualmachines', new, old,
                    request={'namespace': 'lab'}, authorizer=lambda wanted: (
                        wanted.name != FOREIGN_SLOT, '')))

    def test_changes_of_virtual_machine_status(self):
        for old, new, allowed in STATUSES:
            old, new = ({} if one is None else {'status': one}
                        for one in (old, new))
            with self.subTest(old=old, new=new):
                self.assert_denied(
                    None if allowed else 'only remove stateChangeRequests',
                    self.denials('virtbmc-virtualmachines-status', new, old))

    def test_changes_of_virtual_machine_instances(self):
        self.assert_each(
            'virtbmc-virtualmachineinstances', 'only the annotation',
            ((new, vmi(), allowed) for new, allowed in INSTANCES))
