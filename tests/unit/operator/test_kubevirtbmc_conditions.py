# SPDX-License-Identifier: Apache-2.0
"""Conditions that KubeVirtBMC has, too, beside what it reports.

Its side was read in ``bmc_controller.go`` and ``service/controller.go`` below
``internal/controller`` of its main branch (autumn 2026). It sets
``ServiceReady`` when the Service changes, by the addresses in it alone, and
deletes Deployment and Service while VM or Secret are missing; the condition
then stays as it was.
"""

from oslotest import base

from sushy_kubevirt.operator import conditions
from tests.unit.operator import bodies
from tests.unit.operator import cases
from tests.unit.operator import test_conditions

state, shared = cases.state, test_conditions.shared

VM_FOUND = 'True', 'VirtualMachineFound'
NO_VM = 'False', 'VirtualMachineNotFound'
SECRET_FOUND = 'True', 'SecretFound'
NO_SECRET = 'False', 'SecretNotFound'
READY = 'True', 'ServiceReady'
NOT_READY = 'False', 'ServiceNotReady'

STARTING = bodies.deployment(observedGeneration=2, updatedReplicas=1)
FAILED = bodies.deployment(
    observedGeneration=2, updatedReplicas=1, conditions=[{
        'type': 'Progressing', 'status': 'False',
        'reason': 'ProgressDeadlineExceeded', 'message': 'deadline'}])


def balanced(*ingress):
    return state(service=bodies.service('LoadBalancer', ingress=ingress))


# (what happened, type of the Service, case; VirtualMachineAvailable and
# SecretAvailable of both; ServiceReady of KubeVirtBMC, None while it has none,
# and here; reason of Ready)
CASES = (
    ('ready', 'ClusterIP', cases.GOOD, VM_FOUND, SECRET_FOUND, READY, READY,
     'ServiceReady'),
    ('no VM yet', 'ClusterIP', state(vm=None), NO_VM, SECRET_FOUND, None,
     NOT_READY, 'VirtualMachineNotFound'),
    ('VM deleted', 'ClusterIP', state(vm=None), NO_VM, SECRET_FOUND, READY,
     NOT_READY, 'VirtualMachineNotFound'),
    ('no Secret yet', 'ClusterIP', state(secret=None, deployment=None),
     VM_FOUND, NO_SECRET, None, NOT_READY, 'SecretNotFound'),
    ('Secret deleted', 'ClusterIP', state(secret=None), VM_FOUND, NO_SECRET,
     READY, NOT_READY, 'SecretNotFound'),
    ('no Service yet', 'ClusterIP', state(service=None, deployment=None),
     VM_FOUND, SECRET_FOUND, None, NOT_READY, 'EmulatorStarting'),
    ('node port', 'NodePort', state(service=bodies.service('NodePort')),
     VM_FOUND, SECRET_FOUND, READY, READY, 'ServiceReady'),
    ('load balancer pending', 'LoadBalancer', balanced(), VM_FOUND,
     SECRET_FOUND, NOT_READY, NOT_READY, 'LoadBalancerPending'),
    ('load balancer', 'LoadBalancer', balanced({'ip': '192.0.2.1'}), VM_FOUND,
     SECRET_FOUND, READY, READY, 'ServiceReady'),
    ('load balancer with a name', 'LoadBalancer',
     balanced({'hostname': 'lb.test'}), VM_FOUND, SECRET_FOUND, NOT_READY,
     READY, 'ServiceReady'),
    ('image is pulled', 'ClusterIP', state(deployment=STARTING), VM_FOUND,
     SECRET_FOUND, READY, NOT_READY, 'EmulatorStarting'),
    ('image cannot be pulled', 'ClusterIP', state(deployment=FAILED), VM_FOUND,
     SECRET_FOUND, READY, NOT_READY, 'EmulatorNotReady'),
    # KubeVirtBMC has a pod for each.
    ('shared pod', 'ClusterIP', shared(), VM_FOUND, SECRET_FOUND, READY, READY,
     'ServiceReady'),
    ('shared pod starts the BMC', 'ClusterIP', shared(served=False), VM_FOUND,
     SECRET_FOUND, READY, NOT_READY, 'EmulatorStarting'),
    ('upgrade waits', 'ClusterIP', state(waiting=True), VM_FOUND, SECRET_FOUND,
     READY, READY, 'ServiceReady'),
    ('upgrade', 'ClusterIP', state(deployment=STARTING), VM_FOUND,
     SECRET_FOUND, READY, NOT_READY, 'EmulatorStarting'),
    ('upgrade of a shared pod', 'ClusterIP', shared(deployment=STARTING),
     VM_FOUND, SECRET_FOUND, READY, NOT_READY, 'EmulatorStarting'),
)

#: Where a client can connect that KubeVirtBMC has wait.
SOONER = {'load balancer with a name'}

#: Where no client can connect, or the VM cannot be used, although KubeVirtBMC
#: says that the Service is ready.
STRICTER = {'VM deleted', 'Secret deleted', 'image is pulled',
            'image cannot be pulled', 'shared pod starts the BMC', 'upgrade',
            'upgrade of a shared pod'}


class KubeVirtBMCTestCase(base.BaseTestCase):

    def conditions(self, type_, case):
        judged = cases.judged(bodies.by_ref(
            authSecretRef={'name': 'key'}, service={'type': type_}), case)
        return {condition['type']: (condition['status'], condition['reason'])
                for condition in conditions.merge(
                    None, conditions.conditions(*judged), 1, 'now')}

    def test_cases(self):
        for name, type_, case, vm, secret, _, service, reason in CASES:
            with self.subTest(name):
                found = self.conditions(type_, case)
                self.assertEqual((vm, secret, service), tuple(
                    found[condition] for condition in (
                        'VirtualMachineAvailable', 'SecretAvailable',
                        'ServiceReady')))
                self.assertEqual((service[0], reason), found['Ready'])

    def test_ready_services_can_be_connected_to(self):
        for name, type_, case, *_ in CASES:
            found = self.conditions(type_, case)
            if found['ServiceReady'] == READY:
                for condition in 'EndpointReady', 'BMCEmulatorReady', 'Ready':
                    self.assertEqual('True', found[condition][0], name)

    def test_differences_from_kubevirtbmc(self):
        self.assertEqual(SOONER, {
            name for name, *_, theirs, ours, _ in CASES
            if ours == READY and theirs != READY})
        self.assertEqual(STRICTER, {
            name for name, *_, theirs, ours, _ in CASES
            if ours != READY and theirs == READY})
