# SPDX-License-Identifier: Apache-2.0
"""Small functions of several modules."""
import datetime

from oslotest import base

from kubevirt_sandbox.api import labels
from kubevirt_sandbox.workloads import addresses
from kubevirt_sandbox.workloads import containers
from kubevirt_sandbox.workloads import disruption_budgets
from kubevirt_sandbox.workloads import endpoints
from kubevirt_sandbox.workloads import node
from kubevirt_sandbox.workloads import podstate
from kubevirt_sandbox.workloads import probes
from kubevirt_sandbox.workloads import services


class BackOffTestCase(base.BaseTestCase):

    def test_delay_doubles_up_to_limit(self):
        self.assertEqual([0, 10, 20, 40, 80, 160, 300, 300], [
            containers.delay(10, n) for n in range(1, 9)])

    def test_restart_policy(self):
        self.assertEqual([True, True, False, True, False, False], [
            containers.is_restarted(policy, code)
            for policy in ('Always', 'OnFailure', 'Never')
            for code in (0, 1)])


class VerdictTestCase(base.BaseTestCase):

    def test_verdict_thresholds(self):
        verdict = probes.Verdict(probes.Plan(0, 1, 1, 2, 3), False)
        self.assertEqual([False, True], [verdict.add(True)
                                         for _ in range(2)])
        self.assertEqual([False, False, False, False, False, True], [
            verdict.add(result) for result in (
                False, False, True, False, False, False)])

    def test_default_plan(self):
        self.assertEqual(probes.Plan(0, 10, 1, 1, 3), probes.Plan.read({}))


class PodTestCase(base.BaseTestCase):

    def test_pod_is_available_after_min_ready_seconds(self):
        now = datetime.datetime(2026, 1, 1, 0, 0, 10, tzinfo=datetime.UTC)
        pod = {'status': {'conditions': [{
            'type': 'Ready', 'status': 'True',
            'lastTransitionTime': '2026-01-01T00:00:00Z'}]}}
        self.assertEqual(5, podstate.available(pod, 15, now))
        self.assertEqual(0, podstate.available(pod, 10, now))
        self.assertIsNone(podstate.available({}, 0, now))


class FaultsTestCase(base.BaseTestCase):

    def fields(self, **spec):
        return [one.field for one in node.faults({'spec': spec})]

    def test_rejects_names_unfit_for_folders(self):
        good = {'name': 'a'}
        self.assertEqual([], self.fields(containers=[good]))
        for name in ('../a', 'a/b', '', '..', 'A'):
            bad = {'name': name}
            self.assertEqual(['spec.containers[0].name'],
                             self.fields(containers=[bad]))
            self.assertEqual(['spec.volumes[0].name'], self.fields(
                containers=[good], volumes=[bad]))

    def test_rejects_mounts_of_missing_volumes(self):
        self.assertEqual(
            ['spec.containers[0].volumeMounts[0].name'],
            self.fields(containers=[{'name': 'a', 'volumeMounts': [
                {'name': '../b', 'mountPath': '/b'}]}]))

    def test_rejects_missing_and_duplicate_containers(self):
        self.assertEqual(['spec.containers'], self.fields())
        self.assertEqual(['spec.containers[1].name'], self.fields(
            containers=[{'name': 'a'}, {'name': 'a'}]))


class EndpointsTestCase(base.BaseTestCase):

    def test_target_port_by_name(self):
        pod = {'spec': {'containers': [
            {'ports': [{'name': 'web', 'containerPort': 8080}]}]}}
        self.assertEqual(8080, endpoints.target(
            {'port': 80, 'targetPort': 'web'}, pod))
        self.assertEqual(81, endpoints.target(
            {'port': 80, 'targetPort': 81}, pod))
        self.assertIsNone(endpoints.target(
            {'port': 80, 'targetPort': 'no'}, pod))

    def test_only_ready_endpoints_are_targets(self):
        self.assertEqual({'a': [('1', 5), ('3', 5)]}, services.targets(
            [{'ports': [{'name': 'a', 'port': 5}], 'endpoints': [
                {'addresses': ['1'], 'conditions': {'ready': True}},
                {'addresses': ['2'], 'conditions': {'ready': False}},
                {'addresses': ['3']}]}]))


class LabelsTestCase(base.BaseTestCase):

    def test_match_expressions(self):
        for operator, values, expected in (
                ('In', ['1'], True), ('In', ['2'], False),
                ('NotIn', ['2'], True), ('Exists', None, True),
                ('DoesNotExist', None, False), ('Other', None, False)):
            self.assertEqual(expected, labels.matches({'matchExpressions': [
                {'key': 'a', 'operator': operator, 'values': values}]},
                {'a': '1'}), operator)


class PoolTestCase(base.BaseTestCase):

    def test_addresses_are_unique(self):
        pools = [addresses.Pool('127.59') for _ in range(2)]
        for pool in pools:
            self.addCleanup(pool.close)
        taken = [pool.take() for pool in pools for _ in range(300)]
        self.assertEqual(600, len(set(taken)))
        for address in taken:
            self.assertTrue(pools[0].belongs(address))

    def test_released_address_is_reused_last(self):
        pool = addresses.Pool('127.59')
        self.addCleanup(pool.close)
        first = pool.take()
        pool.release(first)
        again = [pool.take() for _ in range(254)]
        self.assertEqual(first, again[-1])


class DisruptionsTestCase(base.BaseTestCase):

    READY = {'metadata': {}, 'status': {'conditions': [
        {'type': 'Ready', 'status': 'True'}]}}
    NOT_READY = {'metadata': {}}

    def test_numbers_of_disruption_budget(self):
        for spec, ready, unready, expected, numbers in (
                ({'minAvailable': 1}, 2, 0, 9, (2, 2, 1, 1)),
                ({'minAvailable': 1}, 1, 1, 9, (2, 1, 1, 0)),
                ({'minAvailable': '50%'}, 3, 0, 3, (3, 3, 2, 1)),
                ({'maxUnavailable': 1}, 2, 0, 2, (2, 2, 1, 1)),
                ({'maxUnavailable': 1}, 1, 1, 2, (2, 1, 1, 0)),
                ({'maxUnavailable': '50%'}, 3, 0, 3, (3, 3, 1, 2)),
                ({'maxUnavailable': 0}, 3, 0, 3, (3, 3, 3, 0)),
                ({'maxUnavailable': 1}, 0, 0, 0, (0, 0, 0, 0))):
            with self.subTest(spec=spec, ready=ready):
                found = disruption_budgets.numbers(
                    spec, [self.READY] * ready + [self.NOT_READY] * unready,
                    expected)
                self.assertEqual(numbers, tuple(found[name] for name in (
                    'expectedPods', 'currentHealthy', 'desiredHealthy',
                    'disruptionsAllowed')))
