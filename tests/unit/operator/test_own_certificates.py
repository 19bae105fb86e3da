# SPDX-License-Identifier: Apache-2.0
"""Certificates that users supply: their status and when they are checked."""

import asyncio
import datetime

from oslotest import base

from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary
from tests.unit.operator import bodies
from tests.unit.operator import harness

AT = 'Secret', 'lab', 'cert'
LIFE = pki.CERTIFICATE_LIFE
HOUR = datetime.timedelta(hours=1)


def issued(begin):
    """Return a certificate.

    :param begin: timedelta from now to the start of its validity
    """
    now = datetime.datetime.now(datetime.UTC)
    return pki.issue(pki.make('mine', now), ['node.test'],
                     now + begin)


class OwnCertificateTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.kube = harness.cluster_with(bodies.body(
            redfish={'tls': {'secretName': 'cert'}}))
        self.operator = harness.Operator(self.kube)

    def store_and_reconcile(self, pair):
        """Store the Secret and reconcile.

        :returns: seconds until the next reconcile, or None
        """
        self.kube.add({
            'apiVersion': 'v1', 'kind': 'Secret', 'type': 'kubernetes.io/tls',
            'metadata': {'name': 'cert', 'namespace': 'lab'},
            'data': secret_summary.data(pair)})
        self.operator.run()
        return asyncio.run(self.operator.reconciler.reconcile(harness.KEY))

    def endpoint_condition(self):
        """Return reason and message of the endpoint's condition."""
        one = next(one for one in self.kube.objects[
            'VirtualMachineBMC', *harness.KEY]['status']['conditions']
            if one['type'] == 'EndpointReady')
        ready = harness.conditions(self.kube)['Ready']
        self.assertEqual(one['status'], ready[0])
        if one['status'] == 'False':
            self.assertEqual(one['reason'], ready[1])
        return one['reason'], one['message']

    def pods(self):
        return [(one['metadata']['uid'], one['metadata']['generation'])
                for one in self.kube.list('Deployment')]

    def test_expired_certificate_is_reported_until_renewed(self):
        seconds = self.store_and_reconcile(issued(HOUR - LIFE))
        self.assertAlmostEqual(3600, seconds, delta=60)
        self.assertEqual('EndpointAssigned', self.endpoint_condition()[0])
        before = self.pods()
        self.assertEqual(1, len(before))
        # It expired without renewal: no further check is scheduled.
        self.assertIsNone(self.store_and_reconcile(issued(-LIFE - HOUR)))
        reason, message = self.endpoint_condition()
        self.assertEqual('CertificateExpired', reason)
        self.assertIn('Secret lab/cert expired at 2', message)
        self.assertIn('renew it', message)
        self.assertEqual([('Warning', 'CertificateExpired')], [
            (one['type'], one['reason']) for one in self.kube.list('Event')
            if one['reason'].startswith('Certificate')
            and one['message'] == message])
        self.assertEqual(before, self.pods())
        self.assertAlmostEqual(
            LIFE.total_seconds(),
            self.store_and_reconcile(issued(HOUR * 0)), delta=60)
        self.assertEqual('EndpointAssigned', self.endpoint_condition()[0])
        self.assertEqual(before, self.pods())

    def test_pod_starts_with_expired_certificate(self):
        self.store_and_reconcile(issued(-LIFE - HOUR))
        self.assertEqual('CertificateExpired', self.endpoint_condition()[0])
        self.assertEqual(1, len(self.pods()))

    def test_certificate_that_is_not_yet_valid(self):
        seconds = self.store_and_reconcile(issued(HOUR))
        # At its start, not its end, with tolerance for differing clocks.
        self.assertAlmostEqual(3600, seconds, delta=900)
        reason, message = self.endpoint_condition()
        self.assertEqual('CertificateNotYetValid', reason)
        self.assertIn('wait, or issue another one', message)
        self.assertEqual(1, len(self.pods()))

    def test_certificate_and_key_that_do_not_match(self):
        one, other = issued(HOUR * 0), issued(HOUR * 0)
        for pair, text in (
                (pki.Pair(one.certificate, other.key),
                 'its key is that of another certificate'),
                (pki.Pair(one.certificate, 'none'), 'key cannot be'),
                (pki.Pair('none', one.key), 'certificate cannot be')):
            self.assertIsNone(self.store_and_reconcile(pair))
            reason, message = self.endpoint_condition()
            self.assertEqual('CertificateUnusable', reason)
            self.assertIn('Secret lab/cert', message)
            self.assertIn(text, message)
            self.assertEqual([], self.pods())
        for pair in pki.Pair('', one.key), pki.Pair('any', ''):
            self.store_and_reconcile(pair)
            self.assertEqual('CertificateMissing',
                             self.endpoint_condition()[0])
        self.store_and_reconcile(one)
        before = self.pods()
        self.assertEqual(1, len(before))
        # A running pod keeps its certificate.
        self.store_and_reconcile(pki.Pair(one.certificate, other.key))
        self.assertEqual('CertificateUnusable', self.endpoint_condition()[0])
        self.assertEqual(before, self.pods())

    def test_certificate_is_ignored_without_redfish(self):
        self.kube.change('VirtualMachineBMC', *harness.KEY, harness.set_spec(
            redfish={'enabled': False, 'tls': {'secretName': 'cert'}}))
        self.assertIsNone(self.store_and_reconcile(issued(-LIFE - HOUR)))
        self.assertEqual('EndpointAssigned', self.endpoint_condition()[0])
