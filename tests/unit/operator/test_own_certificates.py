# SPDX-License-Identifier: Apache-2.0
"""Certificates that users supply: their status and when they are checked."""

import asyncio
import datetime

from oslotest import base

from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary
from tests.unit.operator import bodies
from tests.unit.operator import test_reconcile as story

AT = 'Secret', 'lab', 'cert'
LIFE = pki.CERTIFICATE_LIFE
HOUR = datetime.timedelta(hours=1)


def issued(begin):
    """One that is valid from so long after now, for a year."""
    now = datetime.datetime.now(datetime.UTC)
    return pki.issue(pki.make('mine', now), ['node.test'],
                     now + begin)


class OwnCertificateTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.there = story.begun(bodies.body(
            redfish={'tls': {'secretName': 'cert'}}))
        self.operator = story.Operator(self.there)

    def put(self, pair):
        """Make the Secret, or renew it, and look; when to look again."""
        self.there.add({
            'apiVersion': 'v1', 'kind': 'Secret', 'type': 'kubernetes.io/tls',
            'metadata': {'name': 'cert', 'namespace': 'lab'},
            'data': secret_summary.data(pair)})
        self.operator.run()
        return asyncio.run(self.operator.reconciler.reconcile(story.KEY))

    def told(self):
        """Return reason and message of the endpoint's condition."""
        one = next(one for one in self.there.objects[
            'VirtualMachineBMC', *story.KEY]['status']['conditions']
            if one['type'] == 'EndpointReady')
        ready = story.conditions(self.there)['Ready']
        self.assertEqual(one['status'], ready[0])
        if one['status'] == 'False':
            self.assertEqual(one['reason'], ready[1])
        return one['reason'], one['message']

    def pods(self):
        return [(one['metadata']['uid'], one['metadata']['generation'])
                for one in self.there.of('Deployment')]

    def test_one_that_expires_and_is_renewed(self):
        seconds = self.put(issued(HOUR - LIFE))
        self.assertAlmostEqual(3600, seconds, delta=60)
        self.assertEqual('EndpointAssigned', self.told()[0])
        before = self.pods()
        self.assertEqual(1, len(before))
        # It expired without renewal: no further check is scheduled.
        self.assertIsNone(self.put(issued(-LIFE - HOUR)))
        reason, message = self.told()
        self.assertEqual('CertificateExpired', reason)
        self.assertIn('Secret lab/cert expired at 2', message)
        self.assertIn('renew it', message)
        self.assertEqual([('Warning', 'CertificateExpired')], [
            (one['type'], one['reason']) for one in self.there.of('Event')
            if one['reason'].startswith('Certificate')
            and one['message'] == message])
        self.assertEqual(before, self.pods())
        self.assertAlmostEqual(
            LIFE.total_seconds(), self.put(issued(HOUR * 0)), delta=60)
        self.assertEqual('EndpointAssigned', self.told()[0])
        self.assertEqual(before, self.pods())

    def test_a_pod_is_made_with_an_expired_one(self):
        self.put(issued(-LIFE - HOUR))
        self.assertEqual('CertificateExpired', self.told()[0])
        self.assertEqual(1, len(self.pods()))

    def test_one_of_the_future(self):
        seconds = self.put(issued(HOUR))
        # When it begins, not when it ends; clocks are allowed to differ.
        self.assertAlmostEqual(3600, seconds, delta=900)
        reason, message = self.told()
        self.assertEqual('CertificateNotYetValid', reason)
        self.assertIn('wait, or issue another one', message)
        self.assertEqual(1, len(self.pods()))

    def test_one_that_does_not_fit_its_key(self):
        one, other = issued(HOUR * 0), issued(HOUR * 0)
        for pair, said in (
                (pki.Pair(one.certificate, other.key),
                 'its key is that of another certificate'),
                (pki.Pair(one.certificate, 'none'), 'key cannot be'),
                (pki.Pair('none', one.key), 'certificate cannot be')):
            self.assertIsNone(self.put(pair))
            reason, message = self.told()
            self.assertEqual('CertificateUnusable', reason)
            self.assertIn('Secret lab/cert', message)
            self.assertIn(said, message)
            self.assertEqual([], self.pods())
        for pair in pki.Pair('', one.key), pki.Pair('any', ''):
            self.put(pair)
            self.assertEqual('CertificateMissing', self.told()[0])
        self.put(one)
        before = self.pods()
        self.assertEqual(1, len(before))
        # A running pod keeps its certificate.
        self.put(pki.Pair(one.certificate, other.key))
        self.assertEqual('CertificateUnusable', self.told()[0])
        self.assertEqual(before, self.pods())

    def test_one_that_nobody_is_served_with(self):
        self.there.change('VirtualMachineBMC', *story.KEY, story.fields(
            redfish={'enabled': False, 'tls': {'secretName': 'cert'}}))
        self.assertIsNone(self.put(issued(-LIFE - HOUR)))
        self.assertEqual('EndpointAssigned', self.told()[0])
