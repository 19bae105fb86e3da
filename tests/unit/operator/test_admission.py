# SPDX-License-Identifier: Apache-2.0
"""Policies for what BMC accounts write besides VMs."""

import re
import types

import cel

from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import options
from sushy_kubevirt.operator import naming
from tests.unit.operator import admission_case

SLOT = admission_case.SLOT
BMC_USER = admission_case.BMC_USER
HTTP = admission_case.HTTP
STORAGE = admission_case.STORAGE
OWN = admission_case.OWN
FOREIGN = admission_case.FOREIGN
VM_OWNER = admission_case.VM_OWNER
LONG = admission_case.LONG
spec = admission_case.spec

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


class AdmissionTestCase(admission_case.AdmissionTestCase):

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
        ours = {'type': stored_names.IMAGE_SERVER}
        self.assert_each('virtbmc-secrets', 'only Secrets of type', (
            (ours, None, True), ({'type': 'Opaque'}, None, False),
            ({'type': 'kubernetes.io/service-account-token'}, None, False),
            ({**ours, 'data': {'secretKey': 'YQ=='}}, None, True),
            ({**ours, 'data': {'kubeconfig': 'YQ=='}}, None, False)))

    def test_metadata_of_objects(self):
        for plural, old, new, expected in METADATA:
            with self.subTest(plural=plural, old=old, new=new):
                self.assert_denied(expected, self.denials(
                    'virtbmc-metadata', {'metadata': new},
                    None if old is None else {'metadata': old},
                    request={'resource': {'resource': plural}}))

    def test_config_maps(self):
        self.assert_each(
            'virtbmc-configmaps', 'only ConfigMaps with certificates', (
                ({'metadata': {'name': name}, **fields}, None, allowed)
                for name, fields, allowed in CONFIG_MAPS))

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
