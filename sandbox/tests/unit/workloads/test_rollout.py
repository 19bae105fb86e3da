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

    def test_shares_are_rounded_up_for_more_and_down_for_fewer(self):
        self.assertEqual((1, 0), rollout.limits(spec(1)))
        self.assertEqual((3, 2), rollout.limits(spec(10)))

    def test_one_of_them_is_not_nothing(self):
        self.assertEqual((0, 1), rollout.limits(spec(3, 0, 0)))
        self.assertEqual((0, 1), rollout.limits(spec(3, 0, '10%')))

    def test_no_more_are_missing_than_there_are(self):
        self.assertEqual((0, 2), rollout.limits(spec(2, 0, 5)))


class StepTestCase(base.BaseTestCase):

    def roll(self, wanted, old):
        """Roll out until nothing changes; pods are available at once.

        :returns: of each step (of the new one, of the old one).
        """
        new, steps = 0, []
        for _ in range(20):
            step = rollout.step(wanted, (new, new, new), [(old, old, old)])
            if step == (new, [old]):
                return steps
            new, (old,) = step
            steps.append((new, old))
        raise AssertionError(f'it has no end: {steps}')

    def test_all_new_ones_at_once_when_there_are_no_old_ones(self):
        self.assertEqual((3, []), rollout.step(spec(3), (0, 0, 0), []))

    def test_surge_first_then_old_ones_go(self):
        steps = self.roll(spec(3, 1, 0), 3)
        self.assertEqual((1, 3), steps[0])
        self.assertEqual((3, 0), steps[-1])
        for new, old in steps:
            self.assertLessEqual(new + old, 4)
            self.assertGreaterEqual(new + old, 3)

    def test_without_surge_old_ones_go_first(self):
        steps = self.roll(spec(3, 0, 1), 3)
        self.assertEqual((0, 2), steps[0])
        self.assertEqual((3, 0), steps[-1])
        for new, old in steps:
            self.assertLessEqual(new + old, 3)

    def test_old_ones_stay_while_new_ones_are_not_available(self):
        self.assertEqual((1, [3]), rollout.step(
            spec(3, 1, 0), (1, 1, 0), [(3, 3, 3)]))

    def test_old_ones_that_are_broken_go_at_once(self):
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

    def test_scaled_down(self):
        self.assertEqual((1, []), rollout.step(spec(1), (3, 3, 3), []))


class HashTestCase(base.BaseTestCase):

    def test_says_the_same_of_the_same(self):
        template = {'metadata': {'labels': {'app': 'a'}},
                    'spec': {'containers': [{'name': 'a'}]}}
        name = rollout.template_hash(template)
        self.assertEqual(name, rollout.template_hash({
            'metadata': {'labels': {'app': 'a', rollout.HASH: name}},
            'spec': {'containers': [{'name': 'a', 'resources': {}}]}}))
        template['spec']['containers'][0]['name'] = 'b'
        self.assertNotEqual(name, rollout.template_hash(template))
