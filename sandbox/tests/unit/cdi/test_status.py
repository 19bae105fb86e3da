# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import store
from kubevirt_sandbox.cdi import claim_annotations
from kubevirt_sandbox.cdi import status


def _volume(uid='new', **more):
    return {'metadata': {'name': 'disk', 'namespace': 'default',
                         'uid': uid}, 'spec': {}, 'status': dict(more)}


def _claim(phase='Bound', **annotations):
    return {'metadata': {'name': 'disk', 'namespace': 'default',
                         'annotations': {
                             getattr(claim_annotations, name): value
                             for name, value in annotations.items()}},
            'spec': {}, 'status': {'phase': phase}}


class StatusTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.store = store.Store(kinds.Registry())

    def update(self, volume, claim):
        return status.update(volume, claim, self.store)

    def test_phases_and_events_of_import(self):
        volume, pod = _volume(), {'IMPORT_POD': 'importer-disk'}
        for claim, phase, event in (
                (None, 'Pending', None),
                (_claim('Pending'), 'Pending', None),
                (_claim(), 'PVCBound', None),
                (_claim(**pod), 'ImportScheduled', None),
                (_claim(POD_PHASE='Pending', **pod), 'ImportScheduled',
                 None),
                (_claim(POD_PHASE='Running', **pod), 'ImportInProgress',
                 ('Normal', 'ImportInProgress',
                  'Import into disk in progress')),
                (_claim(POD_PHASE='Failed', **pod), 'ImportInProgress',
                 None),
                (_claim(POD_PHASE='Succeeded', **pod), 'Succeeded',
                 ('Normal', 'ImportSucceeded',
                  'Successfully imported into PVC disk'))):
            self.assertEqual(event, self.update(volume, claim), phase)
            self.assertEqual(phase, volume['status']['phase'])

    def test_claim_filled_for_another_volume(self):
        # A flaw of CDI: for a moment the new volume has succeeded.
        volume = _volume()
        self.update(volume, _claim(POD_PHASE='Succeeded',
                                   IMPORT_POD='importer-disk'))
        self.assertEqual('Succeeded', volume['status']['phase'])

    def test_claim_that_is_being_deleted(self):
        volume, claim = _volume(), _claim(POD_PHASE='Succeeded')
        claim['metadata']['deletionTimestamp'] = 'now'
        self.update(volume, claim)
        self.assertNotIn('phase', volume['status'])
        self.assertEqual('True', status.find(volume, 'Bound')['status'])
        self.assertEqual('False', status.find(volume, 'Ready')['status'])

    def test_timestamps_of_conditions(self):
        volume = _volume()
        self.update(volume, _claim('Pending'))
        ready = status.find(volume, 'Bound')
        ready.update(lastTransitionTime='then', lastHeartbeatTime='then')
        self.update(volume, _claim('Pending'))
        self.assertEqual('then', status.find(volume, 'Bound')[
            'lastTransitionTime'])
        self.update(volume, _claim('Lost'))
        bound = status.find(volume, 'Bound')
        self.assertEqual('then', bound['lastTransitionTime'])
        self.assertNotEqual('then', bound['lastHeartbeatTime'])
        self.assertEqual('Failed', volume['status']['phase'])
