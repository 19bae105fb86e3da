# SPDX-License-Identifier: Apache-2.0
"""What follows from the facts; its causes are in `test_conditions`."""

from oslotest import base

from sushy_kubevirt.operator import verdict
from tests.unit.operator import bodies
from tests.unit.operator import cases
from tests.unit.operator import test_conditions

state, shared = cases.state, test_conditions.shared


class VerdictTestCase(base.BaseTestCase):

    def test_is_starting(self):
        for case, starting in (
                (cases.GOOD, False), (state(deployment=None), True),
                (state(service=None), True),
                (state(secret=None, deployment=None), True),
                (shared(slot=None), True), (shared(served=False), True),
                (shared(served=False, problem='Why.'), False),
                # It waits for a user.
                (state(vm=None, deployment=None), False)):
            with self.subTest(case=case):
                self.assertEqual(starting, cases.judged(
                    bodies.body(), case)[2].starting)

    def test_waiting_upgrade_hides_no_problem(self):
        for case, cause in (
                (cases.GOOD, verdict.Cause.POD_UPGRADE_WAITS),
                (state(deployment=None), verdict.Cause.POD_CREATING)):
            self.assertIs(cause, cases.judged(bodies.body(), state(
                case, waiting=True))[2].emulator.cause)

    def test_pod_that_the_service_selects(self):
        ready = bodies.deployment()
        for case, slot, own_pod in (
                (cases.GOOD, None, True), (shared(), 5, False),
                # A pod that is ready serves until the other one does.
                (state(shared(served=False), deployment=ready), None, True),
                (state(shared(), deployment=ready), 5, False),
                (shared(wanted=False), 5, True),
                (state(shared(wanted=False), deployment=ready), None, True)):
            with self.subTest(case=case):
                judged = cases.judged(bodies.body(), case)[2]
                self.assertEqual(slot, judged.slot and judged.slot.number)
                self.assertEqual(own_pod, judged.own_pod)
                self.assertEqual(('node-virtbmc',) if own_pod else (),
                                 judged.accounts)
