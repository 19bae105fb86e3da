# SPDX-License-Identifier: Apache-2.0
"""The operator's Deployment, Lease and authority."""

import datetime

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import cluster_hosts
from sushy_kubevirt.operator.diagnose import operator_state
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary
from tests.unit.operator.diagnose import fakes

SYSTEM = 'system'
LABELS = {'app.kubernetes.io/name': naming.OPERATOR}


def deployment(ready=2, replicas=2, args=(), namespace=SYSTEM, **pod):
    return fakes.named(
        naming.OPERATOR, namespace, spec={
            'replicas': replicas, 'template': {'spec': {
                'containers': [{'args': list(args)}], **pod}}},
        status={'readyReplicas': ready, 'updatedReplicas': ready,
                'replicas': ready, 'conditions': [{
                    'type': 'ReplicaFailure', 'status': 'True',
                    'message': 'exceeded quota'}] if not ready else []},
        metadata={'labels': LABELS})


def lease(age=1, holder='operator-1', seconds=30):
    renewed = datetime.datetime.now(datetime.UTC) - datetime.timedelta(
        seconds=age)
    return fakes.named(naming.OPERATOR, SYSTEM, spec={
        'holderIdentity': holder, 'leaseDurationSeconds': seconds,
        'renewTime': renewed.isoformat().replace('+00:00', 'Z')})


class OperatorTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.client = fakes.Client()
        self.steps = []

    def check(self):
        return list(operator_state.operator(
            fakes.reading(self.client, progress=self.steps.append), SYSTEM))

    def test_ready(self):
        self.client.put(bmc_resources.DEPLOYMENT, deployment())
        self.client.put(bmc_resources.LEASE, lease())
        self.assertEqual([('ok', 'OperatorReady'), ('ok', 'LeaseHeld')],
                         fakes.brief(self.check()))
        self.assertEqual([], self.steps)

    def test_outside_of_the_cluster(self):
        self.client.put(bmc_resources.LEASE, lease())
        self.assertEqual([('ok', 'LeaseHeld')], fakes.brief(self.check()))
        self.client.put(bmc_resources.DEPLOYMENT, deployment(0, 0))
        self.assertEqual([('ok', 'LeaseHeld')], fakes.brief(self.check()))

    def test_missing(self):
        [found] = self.check()
        self.assertEqual([('problem', 'OperatorMissing')],
                         fakes.brief([found]))
        self.assertIn('kubectl apply -k', found.remedy)
        self.client.put(bmc_resources.DEPLOYMENT,
                        deployment(namespace='other'))
        [found] = self.check()
        self.assertIn('in namespace other: give --system-namespace',
                      found.remedy)

    def test_not_ready(self):
        self.client.put(bmc_resources.DEPLOYMENT, deployment(0))
        found = self.check()
        self.assertEqual(
            [('problem', 'OperatorNotReady'), ('problem', 'LeaseNotHeld')],
            fakes.brief(found))
        self.assertIn('exceeded quota', found[0].message)

    def test_scaled_to_none(self):
        self.client.put(bmc_resources.DEPLOYMENT, deployment(0, 0))
        [found] = self.check()
        self.assertIn('--replicas 2', found.remedy)

    def test_lease_that_is_not_renewed(self):
        self.client.put(bmc_resources.DEPLOYMENT, deployment())
        self.client.put(bmc_resources.LEASE, lease(age=100, seconds=1))
        self.assertEqual(('problem', 'LeaseNotHeld'),
                         fakes.brief(self.check())[1])
        self.assertIn('seems to be expired', self.steps[0])

    def test_lease_is_renewed_by_another_clock(self):
        self.client.put(bmc_resources.LEASE, lease(age=100))

        def renew(sentence):
            self.client.put(bmc_resources.LEASE, lease(age=90))
        self.assertEqual([('ok', 'LeaseHeld')], fakes.brief(
            operator_state.operator(fakes.reading(
                self.client, progress=renew), SYSTEM)))

    def test_settings(self):
        def read():
            return operator_state.settings(fakes.reading(self.client),
                                           SYSTEM)
        self.assertEqual(operator_state.Settings(SYSTEM), read())
        self.client.put(bmc_resources.DEPLOYMENT, deployment(
            args=('--image=$(EMULATOR_IMAGE)', '--namespace=a',
                  '--namespace', 'b', '--auto-create', 'bmc=auto',
                  '--upload-proxy-url', 'https://cdi',
                  '--upload-proxy-ca', '/not/here',
                  '--denied-hosts=10.96.0.0/12'),
            serviceAccountName='me'))
        self.assertEqual(
            operator_state.Settings(SYSTEM, 'me', ('a', 'b'), True, True,
                                    True),
            read())

    def test_settings_that_cannot_be_read(self):
        self.client.put(bmc_resources.DEPLOYMENT,
                        deployment(args=('--namespace',)))
        e = self.assertRaises(
            errors.ConfigError, operator_state.settings,
            fakes.reading(self.client), SYSTEM)
        self.assertIn('expected one argument', str(e))

    def test_networks_of_services(self):
        def check(**given):
            return list(operator_state.hosts(
                fakes.reading(self.client),
                operator_state.Settings(SYSTEM, **given)))
        self.assertEqual([('ok', 'ServicesDenied')], fakes.brief(check()))
        # Before Kubernetes 1.33.
        self.client.unserved = (cluster_hosts.SERVICE_CIDR,)
        [found] = check()
        self.assertEqual([('warning', 'ServicesNotDenied')],
                         fakes.brief([found]))
        self.assertIn('--denied-hosts', found.remedy)
        self.assertEqual([('ok', 'ServicesDenied')],
                         fakes.brief(check(denies_hosts=True)))

    # The authority

    def authority(self, **at):
        pair = pki.make('test', **at)
        self.client.put(fakes.SECRET, fakes.named(
            naming.AUTHORITY, SYSTEM, data=secret_summary.data(pair)))
        return pair

    def check_authority(self):
        return list(operator_state.authority(
            fakes.reading(self.client), SYSTEM))

    def test_authority(self):
        self.assertEqual([('ok', 'AuthorityMissing')],
                         fakes.brief(self.check_authority()))
        pair = self.authority()
        [found] = self.check_authority()
        self.assertEqual([('ok', 'AuthorityValid')], fakes.brief([found]))
        self.assertNotIn(pair.key, str(found))
        self.authority(now=datetime.datetime(2000, 1, 1,
                                             tzinfo=datetime.UTC))
        self.assertEqual([('problem', 'AuthorityExpired')],
                         fakes.brief(self.check_authority()))
        self.client.put(fakes.SECRET,
                        fakes.named(naming.AUTHORITY, SYSTEM, data={}))
        self.assertEqual([('problem', 'AuthorityUnusable')],
                         fakes.brief(self.check_authority()))
