# SPDX-License-Identifier: Apache-2.0
import dataclasses
import datetime

from oslotest import base

from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import routes
from sushy_kubevirt.operator.shared import placement
from tests.unit.operator import bodies
from tests.unit.operator import cases

# Its VM's Service would begin with a digit.
SEVEN = bodies.body(virtualMachineRef={'name': '7up'})
del SEVEN['spec']['virtualMachine']

GOOD, FAR, state = cases.GOOD, cases.FAR, cases.state

NAMED = bodies.body(authSecret={'name': 'key'})
BALANCED = bodies.body(service={'type': 'LoadBalancer'})
SIGNED = bodies.body(redfish={'tls': {'secretName': 'cert'}})
PLAIN = bodies.body(redfish={'plainHTTP': True})

BY_REF = bodies.by_ref(authSecretRef={'name': 'key'})
NO_IPMI = bodies.body(authSecret={'name': 'key'}, ipmi={'enabled': False})

LONG, COLON = (('ipmi', 'password'),), (('redfish', 'username'),)

VM, SECRET, EMULATOR, ENDPOINT, SERVICE, READY = (
    'VirtualMachineAvailable', 'SecretAvailable', 'BMCEmulatorReady',
    'EndpointReady', 'ServiceReady', 'Ready')

HOST = {'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
        'name': 'n0', 'uid': 'u'}


def owned_by(*owners):
    """Return a Secret with owners."""
    made = bodies.secret()
    made['metadata']['ownerReferences'] = list(owners)
    return made


def shared(**changes):
    """Return a case of a BMC in a shared pod, by fields of its placement."""
    return state(deployment=None, placed=dataclasses.replace(
        placement.Placement(
            True, True, placement.Slot(0, 5), served=True,
            deployment=bodies.deployment()), **changes))


def issued(seconds):
    """Return a certificate whose validity begins in some seconds."""
    now = datetime.datetime.now(datetime.UTC)
    return pki.issue(pki.make('mine', now), ['node.test'],
                     now + datetime.timedelta(seconds=seconds))


def routed(termination=routes.PASSTHROUGH, **fields):
    return bodies.body(route={'termination': termination}, **fields)


def rejected(*ingress):
    return {'status': {'ingress': [{'conditions': [{
        'type': 'Admitted', 'status': 'False', 'reason': reason,
        'message': 'no'}]} for reason in ingress]}}


EXPIRED = -pki.CERTIFICATE_LIFE.total_seconds() - 3600

# (VirtualMachineBMC, case, type of a condition, its status, its reason, part
# of its message)
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
    # What KubeVirtBMC accepts is not refused for IPMI, which it serves only on
    # demand; then, the Secret has to be right.
    (BY_REF, state(unusable_keys=LONG), SECRET, True, 'SecretUnusableForIPMI',
     'Redfish only, as IPMI cannot use the value under password of Secret '
     'lab/key. IPMI takes'),
    (BY_REF, state(unusable_keys=LONG), READY, True, 'ServiceReady', ''),
    (BY_REF, GOOD, SECRET, True, 'SecretFound', ''),
    *((bodies.by_ref(authSecretRef={'name': 'key'}, **fields),
       state(unusable_keys=LONG), SECRET, False, 'SecretUnusable', '')
      for fields in ({'ipmi': {'enabled': True}},
                     {'redfish': {'enabled': False}},
                     {'bareMetalHost': {'protocol': 'IPMI'}})),
    (bodies.by_ref(authSecretRef={'name': 'key'}, ipmi={'enabled': False}),
     state(unusable_keys=LONG), SECRET, True, 'SecretFound', ''),
    (BY_REF, state(unusable_keys=(*LONG, *COLON)), SECRET, False,
     'SecretUnusable', 'IPMI takes'),
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
    (bodies.body(image='evil'), GOOD, EMULATOR, False,
     'ImageNotAllowed', 'Image evil'),
    (bodies.body(virtualMedia={'allowedHosts': ['ok.test', '10.0.0.1/8']}),
     GOOD, EMULATOR, False, 'AllowedHostsInvalid', '10.0.0.1/8'),
    (bodies.body(virtualMedia={'allowedHosts': ['ok.test', '10.0.0.0/8']}),
     GOOD, EMULATOR, True, 'EmulatorReady', ''),
    *((bodies.with_margin('a lot'), given, EMULATOR, True,
       'SizeMarginInvalid', "datavolume-size-margin='a lot'")
      for given in (GOOD, shared())),
    (bodies.with_margin('a lot'), GOOD, READY, True, 'ServiceReady', ''),
    (bodies.body(), state(refused=('Role node-virtbmc', 'forbidden')),
     EMULATOR, False, 'Refused',
     'refused the write of Role node-virtbmc: forbidden'),
    (bodies.body(), state(secret=None, deployment=None, refused=(
        'Secret node-virtbmc-auth', 'quota')), SECRET, False, 'Refused',
     'quota'),
    (bodies.body(), state(secret=None, deployment=None, refused=(
        'Role node-virtbmc', 'forbidden')), EMULATOR, False, 'Refused',
     'forbidden'),
    (bodies.body(), state(refused=('Secret sushy-kubevirt-ca', 'broken')),
     ENDPOINT, False, 'Refused', 'broken'),
    (bodies.by_ref(), GOOD, ENDPOINT, True,
     'EndpointAssigned', ''),
    (bodies.by_ref(), state(reserved=True), ENDPOINT, True,
     'SecondServiceNameTaken',
     'Service vm-virtbmc, at which clients of KubeVirtBMC look'),
    (bodies.by_ref(), state(reserved=True), READY, True, 'ServiceReady', ''),
    (SEVEN, state(digits=False),
     ENDPOINT, True, 'SecondServiceNameInvalid',
     'Kubernetes before 1.36 can have no Service 7up-virtbmc'),
    *((bodies.body(networkPolicy={
        'enabled': True, 'allowedCIDRs': ['10.0.0.1/8', 'fd00::/8']}), GOOD,
       type_, False, 'AllowedCIDRsInvalid', 'Kubernetes refuses 10.0.0.1/8. ')
      for type_ in (ENDPOINT, READY)),
    (bodies.body(networkPolicy={'allowedCIDRs': ['10.0.0.1/8']}), GOOD, READY,
     True, 'ServiceReady', ''),
    (bodies.by_ref(), state(refused=('Service vm-virtbmc', 'quota')),
     ENDPOINT, False, 'Refused', 'Service vm-virtbmc: quota'),
    (bodies.body(), state(refused=('Service node-virtbmc', 'port')),
     EMULATOR, True, 'EmulatorReady', ''),
    (bodies.body(), state(refused=('Service node-virtbmc', 'port')),
     ENDPOINT, False, 'Refused', 'Service node-virtbmc: port'),
    # The refused write is the reason why there is no pod.
    (bodies.body(), state(deployment=None, refused=(
        'Service node-virtbmc', 'port')), READY, False, 'Refused',
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
    (bodies.body(), shared(), EMULATOR, True, 'EmulatorReady',
     'Deployment sushy-kubevirt-shared-0-virtbmc serves the BMC'),
    (bodies.body(), shared(waiting=True), EMULATOR, True, 'RolloutWaiting',
     'The shared pod is ready.'),
    (bodies.body(), shared(served=False), EMULATOR, False, 'EmulatorStarting',
     'run kubectl logs --namespace lab --selector bmc.kubevirt.io/shared=0.'),
    (bodies.body(), shared(served=False, problem='Why.'), EMULATOR, False,
     'EmulatorNotReady', 'cannot serve the BMC: Why.'),
    (bodies.body(), shared(deployment=None), EMULATOR, False,
     'EmulatorStarting', 'Deployment sushy-kubevirt-shared-0-virtbmc is'),
    (bodies.body(), shared(slot=None), EMULATOR, False, 'EmulatorStarting',
     'The BMC gets a place'),
    (bodies.body(), shared(slot=None, taken='Role x'), EMULATOR, False,
     'NameTaken', 'Role x exists already and was not created for shared'),
    (bodies.body(), shared(refused=('Role x', 'quota')), EMULATOR, False,
     'Refused', 'Role x: quota'),
    # While the placement changes, one of the pods serves.
    (bodies.body(), state(shared(served=False, problem='Why.'),
                          deployment=bodies.deployment()),
     EMULATOR, True, 'PlacementWaiting', 'until a shared pod does. Why.'),
    (bodies.body(), shared(wanted=False), EMULATOR, True, 'PlacementWaiting',
     'Shared Deployment sushy-kubevirt-shared-0-virtbmc serves'),
    (SIGNED, state(certificate=pki.Pair(issued(0).certificate, 'none')),
     ENDPOINT, False, 'CertificateUnusable', 'lab/cert is unusable: '),
    (SIGNED, state(certificate=issued(EXPIRED)), ENDPOINT, False,
     'CertificateExpired', 'lab/cert expired at 2'),
    (SIGNED, state(certificate=issued(3600)), ENDPOINT, False,
     'CertificateNotYetValid', 'lab/cert is not valid before 2'),
    (SIGNED, GOOD, ENDPOINT, True, 'EndpointAssigned', ''),
    (routed(), state(route_problem=routes.MISSING), ENDPOINT, False,
     'RouteAPIMissing', 'OpenShift'),
    (routed(), state(route_problem=routes.FORBIDDEN), ENDPOINT, False,
     'RouteAPIForbidden', 'overlay'),
    (routed(routes.REENCRYPT, redfish={'tls': {'secretName': 'cert'}}),
     state(authorities='password'), ENDPOINT, False, 'RouteAuthorityUnusable',
     'ca.crt of Secret lab/cert'),
    (routed(), state(foreign=('Route node-virtbmc',)), ENDPOINT, False,
     'NameTaken', 'Route node-virtbmc exists'),
    (routed(), state(route=rejected(), route_conflict=True), ENDPOINT, False,
     'RouteChanged', 'kubectl get route node-virtbmc'),
    (routed(), state(route=rejected('Why')), ENDPOINT, False, 'RouteRejected',
     'Route node-virtbmc: Why: no'),
    (routed(), state(route=rejected()), ENDPOINT, False, 'RoutePending',
     'Route node-virtbmc yet'),
)


def worded(body, case):
    """:returns: conditions"""
    return conditions.conditions(*cases.judged(body, case))


class ConditionsTestCase(base.BaseTestCase):

    def test_condition_by_facts(self):
        for body, state, type_, status, reason, text in CASES:
            with self.subTest(spec=body['spec'], type=type_, reason=reason):
                by_type = {condition.type: condition
                           for condition in worded(body, state)}
                self.assertEqual(
                    [VM, SECRET, EMULATOR, ENDPOINT, SERVICE, READY],
                    list(by_type))
                condition = by_type[type_]
                self.assertEqual((status, reason),
                                 (condition.status, condition.reason))
                self.assertIn(text, condition.message)

    def test_cases_have_all_causes(self):
        causes = {type_: set() for type_ in conditions.WORDS}
        for body, state, *_ in CASES:
            verdict = cases.judged(body, state)[2]
            for type_, judgment in zip(causes, (
                    verdict.vm, verdict.secret, verdict.emulator,
                    verdict.endpoint)):
                causes[type_].add(judgment.cause)
        self.assertEqual(
            {type_: set(words) for type_, words in conditions.WORDS.items()},
            causes)

    def test_ready_requires_all_conditions(self):
        for body, state, *_ in CASES:
            *parts, service, ready = worded(body, state)
            self.assertEqual(all(part.status for part in parts), ready.status)
            self.assertEqual(
                (ready.status, ready.message,
                 'ServiceReady' if ready.status else 'ServiceNotReady'),
                (service.status, service.message, service.reason))

    def test_existence_in_other_namespace_is_not_revealed(self):
        body = bodies.cross_namespace()
        self.assertEqual(
            worded(body, state(FAR, vm=None, secret=None)),
            worded(body, state(FAR, vm=bodies.vm('far'),
                               secret=bodies.secret('far'))))

    def test_messages_contain_no_password(self):
        for body, state, *_ in CASES:
            self.assertNotIn('a secret', repr(worded(body, state)))

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
