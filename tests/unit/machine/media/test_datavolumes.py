# SPDX-License-Identifier: Apache-2.0

import types

from oslotest import base

from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import options

W, I, R, F = (model.State.WAITING, model.State.IMPORTING, model.State.READY,
              model.State.FAILED)


def machine(vm=None, **media):
    return types.SimpleNamespace(
        name='node', namespace='default', uid='vm-uid',
        cluster=types.SimpleNamespace(vm=vm),
        options=options.Options(media=options.MediaOptions(**media)))


def entry(**fields):
    return media_annotation.Entry(**{'id': 'a1', 'url': 'https://h/x.iso',
                                     'volume': 'node-bmc-cd-0', **fields})


def body(size=100 << 20, authorities=None, options_=None, **fields):
    return datavolumes.body(machine(**(options_ or {})), model.CD,
                            entry(**fields), size, authorities)


def volume(phase, *conditions, **status):
    return {'metadata': {}, 'status': dict(status, phase=phase, conditions=[
        dict(zip(('type', 'status', 'reason', 'message'), each))
        for each in conditions])}


class BodyTestCase(base.BaseTestCase):

    def test_requested_size(self):
        for size, expected in ((1, '64Mi'), (64 << 20, '64Mi'),
                               ((64 << 20) + 1, '65Mi'),
                               (10 << 30, '10240Mi')):
            self.assertEqual(expected, body(size)['spec']['storage'][
                'resources']['requests']['storage'])
        self.assertEqual('1Mi', body(1, options_={'minimum_size': 1})[
            'spec']['storage']['resources']['requests']['storage'])

    def test_size_margin(self):
        for size, percent, expected in (
                (100 << 20, 0, '100Mi'), (100 << 20, 20, '120Mi'),
                ((100 << 20) + 1, 20, '121Mi'), (64 << 20, 1, '65Mi'),
                (10 << 20, 100, '64Mi'), (1 << 40, 1000, '11534336Mi')):
            self.assertEqual(
                expected, body(size, options_={'size_margin': percent})[
                    'spec']['storage']['resources']['requests']['storage'])

    def test_source_of_each_kind_of_entry(self):
        for fields, source in (
                ({}, {'http': {'url': 'https://h/x.iso'}}),
                ({'credentials': True}, {'http': {
                    'url': 'https://h/x.iso',
                    'secretRef': 'node-bmc-cd-0-a1'}}),
                ({'verify': False}, {'http': {
                    'url': 'https://h/x.iso', 'insecureSkipVerify': True}}),
                ({'authorities': 'ca'}, {'http': {
                    'url': 'https://h/x.iso', 'certConfigMap': 'ca'}}),
                ({'upload': True, 'credentials': True, 'verify': False},
                 {'upload': {}})):
            self.assertEqual(source, body(**fields)['spec']['source'])

    def test_single_vm_scope_uses_fixed_secret_name(self):
        made = datavolumes.body(machine(('default', 'node')), model.CD,
                                entry(credentials=True), 1)
        self.assertEqual('node-bmc-cd-0',
                         made['spec']['source']['http']['secretRef'])

    def test_ignores_verify_option(self):
        for url, verify, supported, expected in (
                ('https://h/x.iso', False, False, True),
                ('https://h/x.iso', False, True, False),
                ('https://h/x.iso', True, False, False),
                ('http://h/x.iso', False, False, False)):
            made = body(verify=verify)
            if not supported:
                made['spec']['source']['http'].pop('insecureSkipVerify', None)
            self.assertEqual(expected, datavolumes.ignores_verify_option(
                made, entry(url=url, verify=verify)), (url, verify, supported))
        self.assertFalse(datavolumes.ignores_verify_option(
            body(upload=True), entry(upload=True, verify=False)))

    def test_storage_class_and_access_mode(self):
        storage = body(options_={'storage_class': 'fast',
                                 'access_mode': 'ReadWriteMany'})[
            'spec']['storage']
        self.assertEqual(('fast', ['ReadWriteMany']), (
            storage['storageClassName'], storage['accessModes']))

    def test_access_mode(self):
        # Without an access mode, CDI refuses a storage class whose
        # StorageProfile has none.
        self.assertEqual(['ReadWriteOnce'],
                         body()['spec']['storage']['accessModes'])
        self.assertNotIn('accessModes', body(options_={
            'access_mode': 'auto'})['spec']['storage'])

    def test_volume_mode(self):
        self.assertNotIn('volumeMode', body()['spec']['storage'])
        self.assertEqual('Block', body(options_={'volume_mode': 'Block'})[
            'spec']['storage']['volumeMode'])

    def test_is_ours(self):
        made = body()
        self.assertTrue(datavolumes.is_ours(made, machine()))
        self.assertEqual('a1', datavolumes.attempt(made))
        made['metadata']['ownerReferences'][0]['uid'] = 'other'
        self.assertFalse(datavolumes.is_ours(made, machine()))
        self.assertFalse(datavolumes.is_ours(
            {'metadata': {'name': 'node-bmc-cd-0'}}, machine()))


class StatusTestCase(base.BaseTestCase):

    def test_status_by_phase_and_conditions(self):
        bound = ('Bound', 'True', 'Bound', 'PVC x Bound')
        for given, state, reason, progress in (
                (volume(''), W, '', None),
                (volume('Pending', ('Bound', 'False', 'Pending', 'PVC x '
                                    'Pending')), W, 'Pending', None),
                (volume('ImportScheduled', bound,
                        ('Running', 'False', 'ContainerCreating', '')),
                 W, 'Bound', None),
                (volume('ImportInProgress', bound,
                        ('Running', 'True', 'Pod is running', ''),
                        progress='45.30%'), I, '', 45.3),
                (volume('ImportInProgress',
                        ('Bound', 'False', 'Pending', 'target PVC x Pending '
                         'and [prime-1] : Successfully provisioned'),
                        ('Running', 'True', 'Pod is running', ''),
                        progress='2.00%'), I, '', 2.0),
                (volume('ImportInProgress', progress='N/A'), I, '', None),
                (volume('ImportInProgress', bound,
                        ('Running', 'False', 'Error', 'Unable to process '
                         'data: 404'), restartCount=1), F, 'Error', None),
                (volume('ImportInProgress', bound,
                        ('Running', 'False', 'CrashLoopBackOff', 'back-off')),
                 F, 'CrashLoopBackOff', None),
                (volume('ImportScheduled', bound,
                        ('Running', 'False', 'Pending and Error',
                         'no')), F, 'Pending and Error', None),
                # Temporary for each pod with scratch space.
                (volume('ImportScheduled', bound,
                        ('Running', 'False', 'Unschedulable',
                         'Importer pod cannot be scheduled')), W,
                 'Unschedulable', None),
                (volume('ImportScheduled', bound,
                        ('Running', 'False', 'ImagePullFailed',
                         'failed to pull image: x')), F,
                 'ImagePullFailed', None),
                (volume('ImportScheduled', bound,
                        ('Running', 'False', 'ErrExceededQuota',
                         'Error starting pod x')), F,
                 'ErrExceededQuota', None),
                (volume('Pending', ('Bound', 'False', 'ErrExceededQuota',
                                    'exceeded quota')), F,
                 'ErrExceededQuota', None),
                (volume('', ('Bound', 'False', 'ErrClaimNotValid', 'no class'
                             )), F, 'ErrClaimNotValid', None),
                (volume('Failed'), F, 'Failed', None),
                (volume('Failed', ('Bound', 'False', 'ClaimLost', 'Claim '
                                   'Lost')), F, 'ClaimLost', None),
                (volume('UploadScheduled'), W, '', None),
                (volume('UploadReady'), I, '', None),
                (volume('WaitForFirstConsumer'), W, '', None),
                (volume('Succeeded', ('Running', 'False', 'Completed',
                                      'Import Complete'),
                        progress='100.0%'), R, '', 100.0)):
            found = datavolumes.status(given)
            self.assertEqual((state, reason, progress),
                             (found.state, found.reason, found.progress),
                             given)
        deleted = volume('Succeeded')
        deleted['metadata']['deletionTimestamp'] = 'now'
        self.assertIs(F, datavolumes.status(deleted).state)
