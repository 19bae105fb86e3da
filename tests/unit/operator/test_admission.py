# SPDX-License-Identifier: Apache-2.0
"""Evaluate the admission policies for BMC accounts."""

import pathlib
import types

import cel
from oslotest import base
import yaml

from kubevirt_sandbox.testing import admission
from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import image_credentials
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import options
from sushy_kubevirt.operator import rbac
from tests.unit.operator import bodies

PATH = (pathlib.Path(__file__).parents[3]
        / 'etc/kubernetes/base/admission.yaml')

SLOT = media_annotation.slots('vm', model.CD.id)[0]
BMC_USER = 'system:serviceaccount:lab:' + rbac.account(bodies.bmc())[
    'metadata']['name']

HTTP = {'url': 'https://a.test/a.iso'}

# (source of a DataVolume, part of the denial or None)
SOURCES = (
    ({'http': HTTP}, None),
    ({'upload': {}}, None),
    ({'http': {**HTTP, 'secretRef': SLOT}}, None),
    ({'http': {**HTTP, 'secretRef': SLOT + '-1a2b'}}, None),
    ({'http': {**HTTP, 'secretRef': 'admins-token'}}, 'own Secret as'),
    ({'http': {**HTTP, 'secretExtraHeaders': ['admins-token']}},
     'may not set secretExtraHeaders'),
    ({'http': {**HTTP, 'certConfigMap': media_annotation.ca_config_map(
        'vm', model.CD.id)}}, None),
    ({'http': {**HTTP, 'certConfigMap': 'settings'}}, 'as certConfigMap'),
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
    ({'spec': {'pvc': {}}}, 'volumeMode'),
    ({'spec': {'priorityClassName': 'system-node-critical'}}, 'volumeMode'),
    ({'spec': {'sourceRef': {'kind': 'DataSource', 'name': 'a'}}},
     'source http or upload'),
    ({'annotations': {
        'cdi.kubevirt.io/storage.import.secretExtraHeaders.0': 'a'}},
     'its own annotations'),
    ({'annotations': {'cdi.kubevirt.io/storage.checkStaticVolume': 'a'}},
     'its own annotations'),
    # CDI's annotations stay when a BMC records its progress.
    ({'annotations': {'cdi.kubevirt.io/a': 'b'}, 'old': {
        'cdi.kubevirt.io/a': 'b'}}, None),
    ({'annotations': {'cdi.kubevirt.io/a': 'c'}, 'old': {
        'cdi.kubevirt.io/a': 'b'}}, 'its own annotations'),
)

DISK = {'name': 'root', 'persistentVolumeClaim': {'claimName': 'root'}}
MEDIUM = {'name': 'cd', 'dataVolume': {'name': SLOT}}
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
        {'metadata': {'name': 'a'}, 'spec': {**STORAGE, **source}}
        for source in sources]}}


def named(**fields):
    made = templates(CLONE)
    made['spec']['dataVolumeTemplates'][0]['metadata'] = fields
    return made


def kind(**fields):
    return {'spec': {**spec()['spec'], **fields}}


HTTP_SOURCE = {'source': {'http': HTTP}}
CLONE = {'source': {'pvc': {'name': 'other', 'namespace': 'lab'}}}
BOOT_ONCE = 'sushy-kubevirt.openstack.org/boot-once'
SIDECAR = 'hooks.kubevirt.io/hookSidecars'

# (VM before, VM after, part of the denial or None)
MACHINES = (
    (spec(), spec(), None),
    # Changes that a BMC makes.
    (kind(runStrategy='Halted'), kind(runStrategy='Always'), None),
    (kind(running=True), kind(runStrategy='Always'), None),
    (firmware(), firmware(bootloader={'efi': {'secureBoot': False}}), None),
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
    (template(), template(annotations={BOOT_ONCE: '1'}), None),
    (
        template(annotations={BOOT_ONCE: '1', 'a': 'b'}),
        template(annotations={'a': 'b'}),
        None,
    ),
    (spec(), template(annotations={BOOT_ONCE: '1'}), None),
    (spec(volumes=[DISK]), spec(volumes=[DISK, MEDIUM]), None),
    (spec(volumes=[DISK, MEDIUM]), spec(volumes=[DISK]), None),
    (spec(), spec(volumes=[MEDIUM]), None),
    (
        {'metadata': {'name': LONG}, **spec()},
        {
            'metadata': {'name': LONG},
            **(
                spec(
                    volumes=[
                        {
                            'name': 'cd',
                            'dataVolume': {
                                'name': media_annotation.slots(
                                    LONG, model.USB_STICK.id
                                )[2]
                            },
                        }
                    ]
                )
            ),
        },
        None,
    ),
    # Names of VMs around the length from which names of volumes are
    # shortened.
    *(
        (
            {'metadata': {'name': name}, **spec()},
            {
                'metadata': {'name': name},
                **spec(volumes=[{'name': 'cd', 'dataVolume': {'name': slot}}]),
            },
            None,
        )
        for name in ('v' * size for size in range(48, 54))
        for device in (model.CD, model.USB_STICK, model.HTTP_BOOT)
        for slot in media_annotation.slots(name, device.id)
    ),
    # Fields that users set and KubeVirt fills in are kept.
    (spec(volumes=[STOLEN]), spec(volumes=[STOLEN, MEDIUM]), None),
    (spec(accessCredentials=KEYS), spec(accessCredentials=KEYS), None),
    (firmware(kernelBoot={'a': 'b'}), firmware(kernelBoot={'a': 'b'}), None),
    (spec(), spec(architecture='amd64'), None),
    (templates(CLONE), templates(CLONE), None),
    (
        templates(CLONE),
        templates({**CLONE, 'storage': {'storageClassName': 'a'}}),
        None,
    ),
    (named(name='a', creationTimestamp=None), named(name='a'), None),
    (named(name='a'), named(name='a', creationTimestamp=None), None),
    (metadata(annotations={'a': 'b'}), metadata(annotations={'a': 'c'}), None),
    # Changes that a BMC must not make.
    (spec(volumes=[DISK]), spec(volumes=[DISK, STOLEN]), 'add only volumes'),
    (spec(), spec(volumes=[STOLEN]), 'add only volumes'),
    (
        spec(volumes=[DISK]),
        spec(
            volumes=[{**DISK, 'persistentVolumeClaim': {'claimName': 'other'}}]
        ),
        'add only volumes',
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
        'add only volumes',
    ),
    (
        spec(),
        spec(
            volumes=[{'name': 'a', 'dataVolume': {'name': 'other-bmc-cd-0'}}]
        ),
        'add only volumes',
    ),
    (
        spec(),
        spec(
            volumes=[
                {
                    'name': 'a',
                    'dataVolume': {
                        'name': media_annotation.slots(LONG, model.CD.id)[0]
                    },
                }
            ]
        ),
        'add only volumes',
    ),
    (spec(), spec(accessCredentials=KEYS), 'credentials'),
    (spec(accessCredentials=KEYS), spec(), 'credentials'),
    (
        spec(),
        spec(networks=[{'multus': {'networkName': 'secret'}}]),
        'networks',
    ),
    (spec(), spec(nodeSelector={'a': 'b'}), 'scheduling'),
    (spec(), spec(tolerations=[{'operator': 'Exists'}]), 'scheduling'),
    (spec(), spec(utilityVolumes=[{'claimName': 'other'}]), 'claims'),
    (spec(), spec(topologySpreadConstraints=[{'maxSkew': 1}]), 'scheduling'),
    (spec(), spec(serviceAccountName='admin'), 'account'),
    (spec(serviceAccountName='a'), spec(serviceAccountName='b'), 'account'),
    (spec(serviceAccountName='a'), spec(serviceAccountName='a'), None),
    (
        spec(),
        spec(
            readinessProbe={'httpGet': {'host': '169.254.169.254', 'port': 80}}
        ),
        'probes',
    ),
    (
        spec(livenessProbe={'tcpSocket': {'port': 1}}),
        spec(livenessProbe={'exec': {'command': ['a']}}),
        'probes',
    ),
    (spec(), spec(dnsConfig={'nameservers': ['192.0.2.1']}), 'networks'),
    (devices(), devices(downwardMetrics={}), 'host devices'),
    (devices(), devices(autoattachVSOCK=True), 'host devices'),
    (devices(), devices(clientPassthrough={}), 'host devices'),
    (devices(autoattachPodInterface=False), devices(), 'host devices'),
    (devices(), devices(hostDevices=[{'deviceName': 'a'}]), 'host devices'),
    (devices(), devices(gpus=[{'deviceName': 'a'}]), 'host devices'),
    (spec(), devices(filesystems=[{'name': 'a'}]), 'host devices'),
    (
        devices(interfaces=[{'name': 'a', 'bridge': {}}]),
        devices(interfaces=[{'name': 'a', 'binding': {'name': 'b'}}]),
        'host devices',
    ),
    (
        firmware(),
        firmware(kernelBoot={'container': {'image': 'a'}}),
        'kernelBoot',
    ),
    (spec(), firmware(acpi={'slicNameRef': 'a'}), 'kernelBoot'),
    (kind(), kind(instancetype={'name': 'gpu'}), 'instance type'),
    (
        kind(preference={'name': 'a'}),
        kind(preference={'name': 'b'}),
        'preference',
    ),
    (templates(), templates(CLONE), 'dataVolumeTemplates'),
    (templates(HTTP_SOURCE), templates(CLONE), 'dataVolumeTemplates'),
    (
        templates(HTTP_SOURCE),
        templates({'source': {'http': {**HTTP, 'secretExtraHeaders': ['a']}}}),
        'dataVolumeTemplates',
    ),
    (spec(), templates(CLONE), 'dataVolumeTemplates'),
    (named(name='a'), named(name='b'), 'dataVolumeTemplates'),
    (
        named(name='a'),
        named(name='a', annotations={'a': 'b'}),
        'dataVolumeTemplates',
    ),
    (
        named(name='a', annotations={'a': 'b'}),
        named(name='a', creationTimestamp=None),
        'dataVolumeTemplates',
    ),
    (template(), template(annotations={SIDECAR: '[]'}), 'nor annotations'),
    (
        template(annotations={SIDECAR: '[]'}),
        template(annotations={SIDECAR: '[{}]'}),
        'nor annotations',
    ),
    (template(), template(labels={'app': 'database'}), 'change labels'),
    (template(labels={'a': 'b'}), template(), 'change labels'),
    (
        metadata(),
        metadata(annotations={'bmc.kubevirt.io/allow-from': 'x'}),
        'of bmc.kubevirt.io',
    ),
    (
        metadata(annotations={'bmc.kubevirt.io/allow-from': 'x'}),
        metadata(annotations={'bmc.kubevirt.io/allow-from': 'x, y'}),
        'of bmc.kubevirt.io',
    ),
    (
        metadata(),
        metadata(ownerReferences=[{'uid': 'gone'}]),
        'ownerReferences or finalizers',
    ),
    (metadata(finalizers=['a']), metadata(), 'ownerReferences or finalizers'),
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

    def test_policies_match_bmc_accounts_only(self):
        for user, expected in (
                (BMC_USER, True),
                ('system:serviceaccount:lab:default', False),
                ('jane-virtbmc', False)):
            for name, policy in self.policies.items():
                if name == 'virtbmc-shared':
                    continue
                with self.subTest(user=user, policy=name):
                    self.assertEqual([expected], [
                        cel.evaluate(one['expression'], {'request': {
                            'userInfo': {'username': user}}})
                        for one in policy['matchConditions']])

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
                meta = {'name': SLOT, 'annotations': fields.get(
                    'annotations', {})}
                old = None
                if 'old' in fields:
                    old = {'metadata': {'annotations': fields['old']}}
                new = {'metadata': meta, 'spec': {
                    'source': {'http': HTTP}, **fields.get('spec', {})}}
                self.assert_denied(expected, self.denials(
                    'virtbmc-datavolumes', new, old))

    def test_types_of_secrets(self):
        for type_, allowed in (
                (image_credentials.TYPE, True), ('Opaque', False),
                ('kubernetes.io/service-account-token', False)):
            with self.subTest(type=type_):
                self.assert_denied(
                    None if allowed else 'only Secrets of type',
                    self.denials('virtbmc-secrets', {'type': type_}))

    def test_changes_of_virtual_machines(self):
        for old, new, expected in MACHINES:
            old, new = ({'metadata': {'name': 'vm'}, **one}
                        for one in (old, new))
            with self.subTest(old=old, new=new):
                self.assert_denied(expected, self.denials(
                    'virtbmc-virtualmachines', new, old))

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
                (name + '-config', own, 'UPDATE', False),
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
        self.assertFalse(cel.evaluate(matching['expression'], {
            'object': {'metadata': {'name': 'node-virtbmc'}}}))
        self.assertEqual([], self.denials(
            'virtbmc-shared', {'metadata': {'name': name}}, {},
            authorizer=lambda wanted: (True, ''), request={
                'namespace': 'lab', 'operation': 'CREATE',
                'userInfo': {'username': 'operator'}}))
