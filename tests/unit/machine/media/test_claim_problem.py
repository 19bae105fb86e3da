# SPDX-License-Identifier: Apache-2.0
import types

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import claim_problem
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import options

NAMES = {'storage_class': 'THE_CLASS', 'access_mode': 'THE_MODE'}


class Client:
    """:param claim: dict; None if there is none

    :param events: list of (type, reason, message, time, uid or name of the
        claim)
    """

    def __init__(self, claim, events=()):
        self.claim, self.events = claim, events
        self.asked = []

    def get(self, _resource, _namespace, name):
        if self.claim is None:
            raise errors.ObjectNotFound(name)
        return self.claim

    def pages(self, _resource, _namespace, field_selector):
        self.asked.append(field_selector)
        for kind, reason, message, time, about in self.events:
            if about in field_selector:
                yield [{'type': kind, 'reason': reason, 'message': message,
                        'firstTimestamp': '2026-01-01T00:00:00Z',
                        'lastTimestamp': time, 'metadata': {}}], '1'


def claim(phase='Pending', **spec):
    return {'metadata': {'name': 'v', 'uid': 'claim-uid'}, 'spec': spec,
            'status': {'phase': phase}}


def find(found, events=(), names=NAMES):
    machine = types.SimpleNamespace(
        namespace='lab', cluster=types.SimpleNamespace(
            client=Client(found, events)),
        options=options.Options(media=options.MediaOptions(names=names)))
    return claim_problem.find(machine, 'v')


class FindTestCase(base.BaseTestCase):

    def test_nothing_wrong(self):
        for given in (None, claim('Bound'), claim('Bound',
                                                  storageClassName='a'),
                      claim(storageClassName='a')):
            self.assertIsNone(find(given))
        self.assertIsNone(find(claim(storageClassName='a'), [
            ('Normal', 'ExternalProvisioning', 'waiting', '1', 'claim-uid')]))

    def test_no_storage_class(self):
        reason, message = find(claim())
        self.assertEqual('StorageClassMissing', reason)
        for text in 'no default storage class', 'THE_CLASS', 'insert':
            self.assertIn(text, message)
        # Where the option cannot be set.
        self.assertNotIn('insert', find(claim(), names={})[1])

    def test_latest_warning(self):
        old, new = '2026-01-01T00:00:00Z', '2026-01-01T00:00:02Z'
        for events in (
                [('Warning', 'A', 'old', old, 'claim-uid'),
                 ('Warning', 'B', 'new', new, 'claim-uid')],
                [('Warning', 'B', 'new', new, 'claim-uid'),
                 ('Warning', 'A', 'old', old, 'claim-uid')],
                [('Warning', 'A', 'old', old, 'claim-uid'),
                 ('Warning', 'B', 'new', new, 'prime-claim-uid')],
                # Of an earlier claim of that name.
                [('Warning', 'C', 'other', '2026-02-01', 'other-uid'),
                 ('Warning', 'B', 'new', new, 'claim-uid')]):
            reason, message = find(claim(storageClassName='a'), events)
            self.assertEqual('B', reason)
            self.assertTrue(message.startswith('new. '), message)
            for text in 'THE_CLASS', 'THE_MODE', 'ReadWriteOnce', 'insert':
                self.assertIn(text, message)

    def test_failures_that_pass(self):
        for code, time, reported in (
                ('DeadlineExceeded', '00:01:59', False),
                ('DeadlineExceeded', '00:02:00', True),
                ('Aborted', '00:00:00', False),
                ('Unavailable', 'T', False),
                ('Internal', '00:00:00', True)):
            found = find(claim(storageClassName='a'), [(
                'Warning', 'ProvisioningFailed', 'rpc error: code = '
                f'{code} desc = x', f'2026-01-01T{time}Z', 'claim-uid')])
            self.assertEqual(reported, found is not None, (code, time))


class PendingTestCase(base.BaseTestCase):

    def test_pod_shows_that_storage_was_found(self):
        bound = {'type': 'Bound', 'status': 'False', 'reason': 'Pending'}
        for phase, pending in (
                ('Pending', True), ('', True), ('ImportScheduled', False),
                ('UploadScheduled', False), ('ImportInProgress', False)):
            self.assertEqual(pending, claim_problem.is_pending(
                datavolumes.status({'metadata': {}, 'status': {
                    'phase': phase, 'conditions': [bound]}})), phase)


class ExplainedTestCase(base.BaseTestCase):

    def test_advice_for_refused_claims_only(self):
        media = options.MediaOptions(names=NAMES)
        for reason, adds in (('ErrClaimNotValid', True), ('Error', False),
                             ('ErrExceededQuota', False)):
            status = datavolumes.Status(model.State.FAILED, None, reason,
                                        'why')
            found = claim_problem.explained(status, media)
            self.assertEqual(adds, 'THE_MODE' in found.message)
            self.assertTrue(found.message.startswith('why'))
            self.assertEqual(reason, found.reason)

    def test_volume_mode(self):
        names = {**NAMES, 'volume_mode': 'THE_VOLUME_MODE'}
        for volume_mode, expected in (
                (None, ''), ('Block', ', the volume mode (THE_VOLUME_MODE), '
                             'which is Block, and the access mode')):
            found = claim_problem.advice(
                'ErrClaimNotValid', 'why', options.MediaOptions(
                    names=names, volume_mode=volume_mode))
            self.assertIn(expected, found)
            self.assertEqual(bool(expected), 'THE_VOLUME' in found)

    def test_profile_without_access_modes(self):
        for adjective in '', 'matching ':
            message = claim_problem.explained(datavolumes.Status(
                model.State.FAILED, None, 'ErrClaimNotValid',
                f'no {adjective}accessMode specified in StorageProfile nfs'),
                options.MediaOptions(names=NAMES, access_mode='auto')).message
            self.assertIn('Set THE_MODE, which is auto, ', message)
            self.assertIn('of StorageProfile nfs, after', message)

    def test_too_small(self):
        for default, names, texts, not_texts in (
                (None, NAMES, ('. The file system of the storage class',
                               'filesystemOverhead'), ('THE_',)),
                (1, {'default_size': 'THE_SIZE'}, (
                    '. The image is larger than THE_SIZE says, or the',
                    '. Raise THE_SIZE, or raise filesystemOverhead'), ()),
                (None, {'size_margin': 'THE_MARGIN'},
                 ('of the CDI object, or set THE_MARGIN, and insert',), ())):
            for message in ('DataVolume too small to contain image',
                            'effective image size is larger than the '
                            'reported available storage: x'):
                found = claim_problem.advice(
                    'Error', message, options.MediaOptions(
                        names=names, default_size=default))
                for text in texts:
                    self.assertIn(text, found)
                for text in not_texts:
                    self.assertNotIn(text, found)

    def test_too_small_without_file_system(self):
        message = 'DataVolume too small to contain image'
        for default, expected in ((None, ''), (
                1, '. The image is larger than THE_SIZE says. Raise THE_SIZE, '
                'and insert the image again')):
            self.assertEqual(expected, claim_problem.advice(
                'Error', message, options.MediaOptions(
                    names={'default_size': 'THE_SIZE', 'volume_mode': 'MODE'},
                    volume_mode='Block', default_size=default)))

    def test_no_advice_while_nothing_failed(self):
        status = datavolumes.Status(
            model.State.WAITING, None, '', 'no space left on device')
        self.assertIs(status, claim_problem.explained(
            status, options.MediaOptions()))
