# SPDX-License-Identifier: Apache-2.0
import dataclasses

from oslotest import base

from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies

# Its VM's Service would begin with a digit.
SEVEN = bodies.body(virtualMachineRef={'name': '7up'})
del SEVEN['spec']['virtualMachine']

GOOD = conditions.BmcState(
    vm=bodies.vm(), secret=bodies.secret(),
    account=bodies.account(), deployment=bodies.deployment(),
    service=bodies.service(),
    certificate=True)

ALLOWED = {permissions.ANNOTATION: 'lab'}
FAR = dataclasses.replace(
    GOOD, vm=bodies.vm('far', annotations=ALLOWED),
    secret=bodies.secret('far', annotations=ALLOWED))

NAMED = bodies.body(authSecret={'name': 'key'})
BALANCED = bodies.body(service={'type': 'LoadBalancer'})
SIGNED = bodies.body(redfish={'tls': {'secretName': 'cert'}})
PLAIN = bodies.body(redfish={'plainHTTP': True})

NO_IPMI = bodies.body(authSecret={'name': 'key'}, ipmi={'enabled': False})

LONG, COLON = (('ipmi', 'password'),), (('redfish', 'username'),)

VM, SECRET, EMULATOR, ENDPOINT, READY = (
    'VirtualMachineAvailable', 'SecretAvailable', 'BMCEmulatorReady',
    'EndpointReady', 'Ready')


def state(base=GOOD, **changes):
    """Return an observed state that differs from another in some fields."""
    return dataclasses.replace(base, **changes)


HOST = {'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
        'name': 'n0', 'uid': 'u'}


def owned_by(*owners):
    """Return a Secret with owners."""
    made = bodies.secret()
    made['metadata']['ownerReferences'] = list(owners)
    return made


# (VirtualMachineBMC, observed state, type of a condition, its status, its
# reason, part of its message)
CASES = (
    (bodies.body(), GOOD, VM, True, 'VirtualMachineFound', 'lab/vm'),
    (bodies.body(), state(vm=None), VM, False, 'VirtualMachineNotFound',
     'VirtualMachine lab/vm does not exist'),
    (bodies.body(), state(vm=bodies.vm(deletionTimestamp='now')), VM, False,
     'VirtualMachineTerminating', ''),
    (bodies.cross_namespace(), FAR, VM, True, 'VirtualMachineFound', 'far/vm'),
    (bodies.cross_namespace(), state(FAR, vm=bodies.vm('far')), VM, False,
     'ReferenceNotPermitted', 'bmc.kubevirt.io/allow-from=lab'),
    (bodies.body(), GOOD, SECRET, True, 'SecretGenerated',
     'node-virtbmc-auth'),
    (bodies.body(), state(secret=None), SECRET, False, 'SecretPending', ''),
    (bodies.body(), state(foreign=('Secret node-virtbmc-auth',)), SECRET,
     False, 'NameTaken', 'give the BMC another name'),
    (NAMED, GOOD, SECRET, True, 'SecretFound', 'lab/key'),
    (NAMED, state(secret=owned_by(HOST)), SECRET, True, 'SecretOwnedByHost',
     'BareMetalHost n0'),
    (NAMED, state(secret=owned_by(HOST, {**HOST, 'kind': 'Other'})), SECRET,
     True, 'SecretFound', ''),
    (NAMED, state(secret=None), SECRET, False, 'SecretNotFound',
     'with keys username and password'),
    (NAMED, state(missing_keys=('password',)), SECRET, False,
     'SecretIncomplete', 'under password'),
    (NAMED, state(unusable_keys=LONG), SECRET, False, 'SecretUnusable',
     'under password. IPMI takes'),
    (NAMED, state(unusable_keys=LONG), SECRET, False, 'SecretUnusable',
     'Change it, or set ipmi.enabled to false.'),
    (NO_IPMI, state(unusable_keys=LONG), SECRET, True, 'SecretFound', ''),
    (NAMED, state(unusable_keys=COLON), SECRET, False, 'SecretUnusable',
     'under username. Redfish takes'),
    (NAMED, state(unusable_keys=COLON), SECRET, False, 'SecretUnusable',
     'Change it, or set redfish.enabled to false.'),
    (bodies.body(authSecret={'name': 'key'}, redfish={'enabled': False}),
     state(unusable_keys=COLON), SECRET, True, 'SecretFound', ''),
    # With IPMI disabled, only the Secret can be changed.
    (NO_IPMI, state(unusable_keys=COLON), SECRET, False, 'SecretUnusable',
     'ReadOnly. Change it.'),
    (NAMED, state(unusable_keys=(*LONG, *COLON)), SECRET, False,
     'SecretUnusable', 'under password and username. IPMI takes'),
    (NAMED, state(unusable_keys=(*LONG, *COLON)), SECRET, False,
     'SecretUnusable', 'ReadOnly. Change it.'),
    # A pod without a usable account is not started.
    (NAMED, state(unusable_keys=COLON, deployment=None), EMULATOR, False,
     'WaitingForSecret', 'without colons'),
    (bodies.cross_namespace(), FAR, SECRET, True, 'SecretFound', 'far/key'),
    (bodies.cross_namespace(), state(FAR, secret=bodies.secret('far')), SECRET,
     False, 'ReferenceNotPermitted', 'Secret far/key does not permit'),
    (bodies.body(), GOOD, EMULATOR, True, 'EmulatorReady', ''),
    (bodies.body(), state(deployment=None), EMULATOR, False,
     'EmulatorStarting', ''),
    (bodies.body(), state(deployment=bodies.deployment(
        observedGeneration=1, updatedReplicas=1, readyReplicas=1)),
     EMULATOR, False, 'EmulatorStarting', ''),
    (bodies.body(), state(deployment=bodies.deployment(
        observedGeneration=2, updatedReplicas=1)), EMULATOR, False,
     'EmulatorStarting', 'kubectl describe pods --namespace lab'),
    (bodies.body(), state(deployment=bodies.deployment(
        observedGeneration=2, updatedReplicas=1, conditions=[{
            'type': 'Progressing', 'status': 'True',
            'reason': 'NewReplicaSetAvailable'}])), EMULATOR, False,
     'EmulatorNotReady', 'kubectl describe pods --namespace lab'),
    (bodies.body(), state(deployment=bodies.deployment(
        observedGeneration=2, updatedReplicas=1, conditions=[{
            'type': 'Progressing', 'status': 'False',
            'message': 'exceeded its deadline'}])), EMULATOR, False,
     'EmulatorNotReady', 'exceeded its deadline'),
    (bodies.body(), state(deployment=bodies.deployment(
        observedGeneration=2, conditions=[{
            'type': 'ReplicaFailure', 'status': 'True',
            'message': 'exceeded quota'}])), EMULATOR, False,
     'EmulatorNotReady', 'exceeded quota'),
    (bodies.body(), state(deployment=bodies.deployment(
        observedGeneration=2, conditions=[{
            'type': 'ReplicaFailure', 'status': 'True',
            'message': 'unable to validate against any security context '
                       'constraint: []'}])), EMULATOR, False,
     'EmulatorNotReady', 'constraint: [] On OpenShift, install'),
    (bodies.body(), state(foreign=('Deployment node-virtbmc',)), EMULATOR,
     False, 'NameTaken', 'Deployment node-virtbmc'),
    (bodies.body(image='evil'), state(image_allowed=False), EMULATOR, False,
     'ImageNotAllowed', 'Image evil'),
    (bodies.body(virtualMedia={'allowedHosts': ['ok.test', '10.0.0.1/8']}),
     GOOD, EMULATOR, False, 'AllowedHostsInvalid', '10.0.0.1/8'),
    (bodies.body(virtualMedia={'allowedHosts': ['ok.test', '10.0.0.0/8']}),
     GOOD, EMULATOR, True, 'EmulatorReady', ''),
    (bodies.body(), state(refused=(('Role node-virtbmc', 'forbidden'),)),
     EMULATOR, False, 'Refused',
     'refused the write of Role node-virtbmc: forbidden'),
    (bodies.body(), state(secret=None, deployment=None, refused=((
        'Secret node-virtbmc-auth', 'quota'),)), SECRET, False, 'Refused',
     'quota'),
    (bodies.body(), state(secret=None, deployment=None, refused=((
        'Role node-virtbmc', 'forbidden'),)), EMULATOR, False, 'Refused',
     'forbidden'),
    (bodies.body(), state(refused=(('Secret sushy-kubevirt-ca', 'broken'),)),
     ENDPOINT, False, 'Refused', 'broken'),
    (bodies.by_ref(), state(vm_service='vm-virtbmc'), ENDPOINT, True,
     'EndpointAssigned', ''),
    (bodies.by_ref(), GOOD, ENDPOINT, True, 'SecondServiceNameTaken',
     'Service vm-virtbmc, at which clients of KubeVirtBMC look'),
    (bodies.by_ref(), GOOD, READY, True, 'ServiceReady', ''),
    (SEVEN, state(unnamable=True),
     ENDPOINT, True, 'SecondServiceNameInvalid',
     'Kubernetes before 1.36 can have no Service 7up-virtbmc'),
    *((bodies.body(networkPolicy={
        'enabled': True, 'allowedCIDRs': ['10.0.0.1/8', 'fd00::/8']}), GOOD,
       type_, False, 'AllowedCIDRsInvalid', 'Kubernetes refuses 10.0.0.1/8. ')
      for type_ in (ENDPOINT, READY)),
    (bodies.body(networkPolicy={'allowedCIDRs': ['10.0.0.1/8']}), GOOD, READY,
     True, 'ServiceReady', ''),
    (bodies.by_ref(), state(refused=(('Service vm-virtbmc', 'quota'),)),
     ENDPOINT, False, 'Refused', 'Service vm-virtbmc: quota'),
    (bodies.body(), state(refused=(('Service node-virtbmc', 'port'),)),
     EMULATOR, True, 'EmulatorReady', ''),
    (bodies.body(), state(refused=(('Service node-virtbmc', 'port'),)),
     ENDPOINT, False, 'Refused', 'Service node-virtbmc: port'),
    # The refused write is the reason why there is no pod.
    (bodies.body(), state(deployment=None, refused=((
        'Service node-virtbmc', 'port'),)), READY, False, 'Refused',
     'Service node-virtbmc: port'),
    (bodies.body(redfish={'tls': {'secretName': 'mine'}}), state(
        deployment=None, certificate=False), EMULATOR, False,
     'WaitingForCertificate', 'lab/mine'),
    (bodies.body(redfish={'tls': {'secretName': 'mine'}}), state(
        deployment=None, certificate=False), READY, False,
     'CertificateMissing', 'lab/mine'),
    # The certificate needs the address of the Service.
    (bodies.body(), state(deployment=None, certificate=False, foreign=(
        'Service node-virtbmc',)), READY, False, 'NameTaken',
     'Service node-virtbmc'),
    # The pod runs, with the previous template.
    (bodies.body(), state(waiting=True), EMULATOR, True, 'RolloutWaiting',
     'waits'),
    (bodies.body(image='mine'), GOOD, EMULATOR, True, 'EmulatorReady', ''),
    (NAMED, state(secret=None, deployment=None), EMULATOR, False,
     'WaitingForSecret', 'lab/key'),
    # A running pod keeps its credentials.
    (NAMED, state(secret=None), EMULATOR, True, 'EmulatorReady', ''),
    (bodies.cross_namespace(), state(FAR, vm=bodies.vm('far')), EMULATOR,
     False, 'WaitingForVirtualMachine', ''),
    # The BMC of a deleted VM runs and reports that the VM is missing.
    (bodies.body(), state(vm=None), EMULATOR, True, 'EmulatorReady', ''),
    (bodies.body(), GOOD, ENDPOINT, True, 'EndpointAssigned', '10.0.0.7'),
    (bodies.body(), state(service=None), ENDPOINT, False, 'ServicePending',
     ''),
    (BALANCED, GOOD, ENDPOINT, False, 'LoadBalancerPending',
     'load balancer controller'),
    (bodies.body(), state(certificate=False), ENDPOINT, False,
     'CertificatePending', ''),
    (SIGNED, state(certificate=False), ENDPOINT, False, 'CertificateMissing',
     'lab/cert'),
    (PLAIN, state(certificate=False), ENDPOINT, True, 'EndpointAssigned', ''),
    (bodies.body(), state(foreign=('Service node-virtbmc',)), ENDPOINT, False,
     'NameTaken', ''),
    (bodies.body(), GOOD, READY, True, 'ServiceReady', ''),
    (bodies.body(), state(vm=None, service=None), READY, False,
     'VirtualMachineNotFound', 'lab/vm'),
    (bodies.body(), state(service=None), READY, False, 'ServicePending', ''),
    (bodies.cross_namespace(), state(FAR, vm=bodies.vm('far')), READY, False,
     'ReferenceNotPermitted', 'allow-from'),
)


class ConditionsTestCase(base.BaseTestCase):

    def test_condition_by_observed_state(self):
        for body, state, type_, status, reason, text in CASES:
            with self.subTest(spec=body['spec'], type=type_, reason=reason):
                found = {one.type: one for one in conditions.conditions(
                    spec.read(body), state)}
                self.assertEqual([VM, SECRET, EMULATOR, ENDPOINT, READY],
                                 list(found))
                one = found[type_]
                self.assertEqual((status, reason), (one.status, one.reason))
                self.assertIn(text, one.message)

    def test_ready_requires_all_conditions(self):
        for body, state, *_ in CASES:
            *parts, ready = conditions.conditions(spec.read(body), state)
            self.assertEqual(all(one.status for one in parts), ready.status)

    def test_existence_in_other_namespace_is_not_revealed(self):
        bmc = spec.read(bodies.cross_namespace())
        self.assertEqual(
            conditions.conditions(bmc, state(FAR, vm=None, secret=None)),
            conditions.conditions(bmc, state(
                FAR, vm=bodies.vm('far'), secret=bodies.secret('far'))))

    def test_messages_contain_no_password(self):
        for body, state, *_ in CASES:
            self.assertNotIn('a secret', repr(conditions.conditions(
                spec.read(body), state)))

    def test_merge_keeps_transition_time(self):
        def merged(old, status, now):
            return conditions.merge(old, (conditions.Condition(
                'Ready', status, 'R', 'm'),), 3, now)[0]
        first = merged(None, False, 'monday')
        self.assertEqual(
            {'type': 'Ready', 'status': 'False', 'reason': 'R',
             'message': 'm', 'observedGeneration': 3,
             'lastTransitionTime': 'monday'}, first)
        self.assertEqual('monday', merged([first], False, 'tuesday')[
            'lastTransitionTime'])
        self.assertEqual('tuesday', merged([first], True, 'tuesday')[
            'lastTransitionTime'])
