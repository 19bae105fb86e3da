# SPDX-License-Identifier: Apache-2.0
"""Planning the next steps from the existing objects."""

import asyncio

from oslotest import base

from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import desired_state
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import verdict
from tests.unit.operator import bodies
from tests.unit.operator import harness

KEY = harness.KEY
DEPLOYMENT = 'Deployment', 'lab', 'node-virtbmc'


class PlanTestCase(base.BaseTestCase):

    def steps(self, kube, tried=None):
        """Return the plan of an operator process that has just started."""
        body = kube.objects['VirtualMachineBMC', *KEY]
        bmc, tried = spec.read(body), tried or plan.Tried()
        known = asyncio.run(harness.Operator(kube).reconciler._observe(
            bmc, body, tried))
        defaults = deployments.Defaults('sushy-kubevirt-emulator')
        judged = verdict.judge(bmc, known, defaults)
        return plan.steps(bmc, known, judged, desired_state.of(
            bmc, known, judged, defaults), tried)

    def test_no_steps_when_state_is_desired(self):
        for body in bodies.body(), bodies.cross_namespace():
            kube = harness.cluster_with(body)
            harness.Operator(kube).run()
            self.assertEqual([], self.steps(kube))

    def test_certificate_is_issued_with_the_service(self):
        kube = harness.cluster_with(bodies.body())
        names = [f'node-virtbmc{suffix}' for suffix in (
            '.lab.svc', '', '.lab', '.lab.svc.cluster.local')]
        steps = self.steps(kube)
        kinds = [type(step) for step in steps]
        self.assertLess(kinds.index(plan.Create), kinds.index(plan.Issue))
        issue = steps[kinds.index(plan.Issue)]
        self.assertTrue(issue.for_new_service)
        self.assertEqual(names, [*issue.names[:4]])
        # A foreign Service gives no address.
        kube.add({'apiVersion': 'v1', 'kind': 'Service', 'metadata': {
            'name': 'node-virtbmc', 'namespace': 'lab',
            'labels': {naming.MANAGED_BY: naming.OPERATOR}},
            'spec': {'clusterIP': '10.0.0.9'}})
        self.assertNotIn(plan.Issue, map(type, self.steps(kube)))

    def test_removes_rbac_of_other_namespace_before_finalizer(self):
        kube = harness.cluster_with(bodies.cross_namespace())
        # The finalizer is set before objects in the other namespace exist.
        self.assertEqual(plan.Finalizer(True), self.steps(kube)[0])
        harness.Operator(kube).run()
        kube.remove('VirtualMachineBMC', *KEY)
        for kinds in (['Role', 'RoleBinding'], ['Role']):
            steps = self.steps(kube)
            self.assertEqual(kinds, sorted(
                step.ref.kind for step in steps))
            self.assertEqual({'far'},
                             {step.ref.namespace for step in steps})
            kube.remove(kinds[-1], 'far', 'node-virtbmc-from-lab')
        self.assertEqual([plan.Finalizer(False)], self.steps(kube))

    def test_ineffective_steps_are_not_repeated(self):
        kube = harness.cluster_with(bodies.body())
        harness.Operator(kube).run()

        def change(number):
            kube.change(*DEPLOYMENT, lambda obj: obj['spec'].update(
                replicas=number))
        tried = plan.Tried()
        for number in 3, 4:
            change(number)
            for kind in plan.Apply, plan.Replace:
                step, = self.steps(kube, tried)
                self.assertIsInstance(step, kind)
                self.assertEqual(1, step.body['spec']['replicas'])
                tried.attempts[DEPLOYMENT] = plan.attempt(
                    kind, step.body, kube.objects[DEPLOYMENT])
            # Not again until the object or the desired state changes.
            self.assertEqual([], self.steps(kube, tried))
        kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
            nodeSelector={'a': 'b'}))
        step, = self.steps(kube, tried)
        self.assertIsInstance(step, plan.Apply)
