# SPDX-License-Identifier: Apache-2.0
"""Plan the next action from the objects that exist."""

import asyncio

from oslotest import base

from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies
from tests.unit.operator import test_reconcile as stories

KEY = stories.KEY
DEPLOYMENT = 'Deployment', 'lab', 'node-virtbmc'


class PlanTestCase(base.BaseTestCase):

    def steps(self, there, tried=None):
        """The plan of an operator that has just begun."""
        body = there.objects['VirtualMachineBMC', *KEY]
        bmc = spec.read(body)
        seen = asyncio.run(stories.Operator(there).reconciler._look(
            bmc, body))
        return plan.steps(bmc, seen, deployments.Defaults(
            'sushy-kubevirt-emulator'), tried)

    def test_all_is_well(self):
        for body in bodies.body(), bodies.elsewhere():
            there = stories.begun(body)
            stories.Operator(there).run()
            self.assertEqual([], self.steps(there))

    def test_rights_elsewhere_go_before_the_finalizer(self):
        there = stories.begun(bodies.elsewhere())
        # It is there before any of them.
        self.assertEqual(plan.Finalizer(True), self.steps(there)[0])
        stories.Operator(there).run()
        there.remove('VirtualMachineBMC', *KEY)
        for kinds in (['Role', 'RoleBinding'], ['Role']):
            steps = self.steps(there)
            self.assertEqual(kinds, sorted(
                step.resource.kind for step in steps))
            self.assertEqual({'far'}, {step.at.namespace for step in steps})
            there.remove(kinds[-1], 'far', 'node-virtbmc-from-lab')
        self.assertEqual([plan.Finalizer(False)], self.steps(there))

    def test_what_does_not_help_is_not_tried_for_ever(self):
        there = stories.begun(bodies.body())
        stories.Operator(there).run()

        def change(number):
            there.change(*DEPLOYMENT, lambda obj: obj['spec'].update(
                replicas=number))
        tried = {}
        for number in 3, 4:
            change(number)
            for kind in plan.Apply, plan.Replace:
                step, = self.steps(there, tried)
                self.assertIsInstance(step, kind)
                self.assertEqual(1, step.body['spec']['replicas'])
                tried[DEPLOYMENT] = kind, *plan.attempt(
                    step.body, there.objects[DEPLOYMENT])
            # Until somebody changes it once more, or something else is
            # asked for.
            self.assertEqual([], self.steps(there, tried))
        there.change('VirtualMachineBMC', *KEY, stories.fields(
            nodeSelector={'a': 'b'}))
        step, = self.steps(there, tried)
        self.assertIsInstance(step, plan.Apply)
