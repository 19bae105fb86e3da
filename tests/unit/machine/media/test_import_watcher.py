# SPDX-License-Identifier: Apache-2.0
"""The import watcher handles DataVolume events in any order."""

from oslotest import base

from sushy_kubevirt.machine.media import import_watcher
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import options

S = model.State


def volume(version, phase='ImportInProgress', reason='', uid='u', **status):
    return {
        'metadata': {'name': 'v', 'namespace': 'default', 'uid': uid,
                     'resourceVersion': str(version),
                     'ownerReferences': [{'kind': 'VirtualMachine',
                                          'name': 'node', 'uid': 'vm'}]},
        'status': dict(status, phase=phase, conditions=[
            {'type': 'Running', 'status': 'False' if reason else 'True',
             'reason': reason, 'message': reason}])}


class ImportWatcherTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.changes = []
        self.watcher = import_watcher.ImportWatcher(
            None, options.Options(), ('default',), False,
            self.changes.append)

    def state(self, uid='u'):
        observed = self.watcher.get('default', 'v', uid)
        return observed and observed.status.state

    def test_older_version_is_ignored(self):
        self.watcher.put(volume(5, 'Succeeded'))
        self.watcher.put(volume(4))
        self.assertIs(S.READY, self.state())
        self.assertEqual(['vm'], self.changes)

    def test_unchanged_status_is_not_reported(self):
        for version in range(3):
            self.watcher.put(volume(version))
        self.assertEqual(1, len(self.changes))

    def test_failure_stays_until_retry_makes_progress(self):
        self.watcher.put(volume(1, reason='Error'))
        for version, progress in ((2, 'N/A'), (3, '0.0%')):
            self.watcher.put(volume(version, progress=progress))
            self.assertIs(S.FAILED, self.state())
        self.watcher.put(volume(4, progress='1.5%'))
        self.assertIs(S.IMPORTING, self.state())
        self.watcher.put(volume(5, reason='Error'))
        self.watcher.put(volume(6, 'Succeeded'))
        self.assertIs(S.READY, self.state())

    def test_claim_without_storage_is_failed(self):
        def pending(version):
            made = volume(version, 'Pending')
            made['status']['conditions'] = [
                {'type': 'Bound', 'status': 'False', 'reason': 'Pending',
                 'message': 'PVC v Pending'}]
            return made

        self.watcher.put(pending(1))
        self.assertIs(S.WAITING, self.state())
        self.watcher.fail('default', 'v', 'ProvisioningFailed', 'why')
        self.assertEqual(2, len(self.changes))
        self.watcher.put(pending(2))
        status = self.watcher.get('default', 'v', 'u').status
        self.assertEqual((S.FAILED, 'ProvisioningFailed', 'why'),
                         (status.state, status.reason, status.message))
        self.watcher.put(volume(3, progress='2.0%'))
        self.assertIs(S.IMPORTING, self.state())
        # It got storage in the meantime.
        self.watcher.fail('default', 'v', 'ProvisioningFailed', 'why')
        self.assertIs(S.IMPORTING, self.state())

    def test_deleted_datavolume_is_failed(self):
        self.assertIsNone(self.state())
        self.watcher.put(volume(1))
        self.watcher.event(None, 'DELETED', volume(2))
        self.assertIs(S.FAILED, self.state())
        # An event that arrives late does not restore it.
        self.watcher.put(volume(1))
        self.assertIs(S.FAILED, self.state())
        self.assertIsNone(self.state('other'))
        self.watcher.put(volume(3, uid='other'))
        self.assertIs(S.IMPORTING, self.state('other'))
        self.assertIs(S.FAILED, self.state())
