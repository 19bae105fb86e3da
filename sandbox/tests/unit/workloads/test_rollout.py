# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from kubevirt_sandbox.workloads import rollout


def spec(replicas, surge='25%', gone='25%', kind='RollingUpdate'):
    made = {'replicas': replicas, 'strategy': {'type': kind}}
    if kind == 'RollingUpdate':
        made['strategy']['rollingUpdate'] = {
            'maxSurge': surge, 'maxUnavailable': gone}
    return made


class LimitsTestCase(base.BaseTestCase):

    def test_rounds_surge_up_and_unavailable_down(self):
        self.assertEqual((1, 0), rollout.limits(spec(1)))
        self.assertEqual((3, 2), rollout.limits(spec(10)))

    def test_surge_and_unavailable_are_not_both_zero(self):
        self.assertEqual((0, 1), rollout.limits(spec(3, 0, 0)))
        self.assertEqual((0, 1), rollout.limits(spec(3, 0, '10%')))

    def test_unavailable_is_limited_to_replicas(self):
        self.assertEqual((0, 2), rollout.limits(spec(2, 0, 5)))


class StepTestCase(base.BaseTestCase):

    def roll(self, wanted, old):
        """Roll out until nothing changes; pods are available at once.

        :returns: for each step (number of new pods, number of old pods)
        """
        new, steps = 0, []
        for _ in range(20):
            step = rollout.step(wanted, (new, new, new), [(old, old, old)])
            if step == (new, [old]):
                return steps
            new, (old,) = step
            steps.append((new, old))
        raise AssertionError(f'rollout does not end: {steps}')

    def test_creates_all_pods_without_old_ones(self):
        self.assertEqual((3, []), rollout.step(spec(3), (0, 0, 0), []))

    def test_with_surge_new_pods_start_first(self):
        steps = self.roll(spec(3, 1, 0), 3)
        self.assertEqual((1, 3), steps[0])
        self.assertEqual((3, 0), steps[-1])
        for new, old in steps:
            self.assertLessEqual(new + old, 4)
            self.assertGreaterEqual(new + old, 3)

    def test_without_surge_old_pods_end_first(self):
        steps = self.roll(spec(3, 0, 1), 3)
        self.assertEqual((0, 2), steps[0])
        self.assertEqual((3, 0), steps[-1])
        for new, old in steps:
            self.assertLessEqual(new + old, 3)

    def test_keeps_old_pods_until_new_ones_are_available(self):
        self.assertEqual((1, [3]), rollout.step(
            spec(3, 1, 0), (1, 1, 0), [(3, 3, 3)]))

    def test_removes_unavailable_old_pods_at_once(self):
        self.assertEqual((1, [0, 2]), rollout.step(
            spec(3, 1, 0), (1, 1, 1), [(2, 2, 0), (2, 2, 2)]))

    def test_recreate_waits_for_the_last_old_pod(self):
        recreate = spec(2, kind='Recreate')
        self.assertEqual((0, [0]), rollout.step(
            recreate, (0, 0, 0), [(2, 2, 2)]))
        self.assertEqual((0, [0]), rollout.step(
            recreate, (0, 0, 0), [(0, 1, 0)]))
        self.assertEqual((2, [0]), rollout.step(
            recreate, (0, 0, 0), [(0, 0, 0)]))

    def test_scales_down(self):
        self.assertEqual((1, []), rollout.step(spec(1), (3, 3, 3), []))


class HashTestCase(base.BaseTestCase):

    def test_hash_of_equal_templates_is_equal(self):
        template = {'metadata': {'labels': {'app': 'a'}},
                    'spec': {'containers': [{'name': 'a'}]}}
        name = rollout.template_hash(template)
        self.assertEqual(name, rollout.template_hash({
            'metadata': {'labels': {'app': 'a', rollout.HASH: name}},
            'spec': {'containers': [{'name': 'a', 'resources': {}}]}}))
        template['spec']['containers'][0]['name'] = 'b'
        self.assertNotEqual(name, rollout.template_hash(template))
