# SPDX-License-Identifier: Apache-2.0
"""The status of a BMC: conditions and addresses.

Each condition has a reason, one word for programs, and a message that says
what to do. ``Ready`` repeats a condition with reason `REFUSED` if there is
one, else the first false one that does not only wait for another condition.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import datetime

from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import routes
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator import spec

VM, SECRET, EMULATOR, ENDPOINT, READY = (
    'VirtualMachineAvailable', 'SecretAvailable', 'BMCEmulatorReady',
    'EndpointReady', 'Ready')

#: Written by `metal3.host_controller`, and no part of ``Ready``.
HOST = 'HostReady'

NOT_PERMITTED = 'ReferenceNotPermitted'
OWNED_BY_HOST = 'SecretOwnedByHost'
NAME_TAKEN = 'NameTaken'
REFUSED = 'Refused'
SECOND_NAME_TAKEN = 'SecondServiceNameTaken'
SECOND_NAME_INVALID = 'SecondServiceNameInvalid'

#: Reasons of `EMULATOR` that follow from another condition.
WAITING = ('WaitingForVirtualMachine', 'WaitingForSecret',
           'WaitingForCertificate')

#: User names and passwords that the protocols accept (see `credentials`).
_ROLES = (', and as role, if there is one, Administrator, Operator or '
          'ReadOnly')
_ACCEPTED = {
    credentials.IPMI: 'IPMI takes user names of up to 16 bytes and passwords '
    f'of up to 20, without control characters{_ROLES}.',
    credentials.REDFISH: 'Redfish takes user names of up to 128 bytes '
    'without colons and control characters, passwords of up to 1024 bytes'
    f'{_ROLES}.'}


@dataclasses.dataclass(frozen=True)
class Condition:
    """One condition.

    :param type: its name
    :param status: whether it holds
    :param reason: one word
    :param message: a sentence
    """

    type: str
    status: bool
    reason: str
    message: str


@dataclasses.dataclass(frozen=True)
class BmcState:
    """The objects on which the conditions of a BMC depend: None for those
    that do not exist.

    :param vm: the VM
    :param secret: the Secret with user name and password: the one that the
        BMC names, or the one made for it; its metadata is enough
    :param missing_keys: its missing keys: see `credentials.missing`
    :param unusable_keys: its values that a protocol cannot use: see
        `credentials.unusable_keys`
    :param copied: whether the copy exists, if the Secret is in another
        namespace
    :param account: the ServiceAccount of the pod
    :param deployment: of the pod
    :param service: of the pod
    :param vm_service: name of the Service of `naming.vm_service`; None if the
        BMC needs none, or the name is taken
    :param unnamable: whether this Kubernetes refuses that Service's name
    :param route: of the BMC
    :param route_problem: why it cannot have a Route: `routes.MISSING`,
        `routes.FORBIDDEN` or None
    :param route_conflict: see `plan.has_route_conflict`
    :param certificate: whether the certificate for Redfish exists
    :param certificate_fault: why the certificate in the Secret that the BMC
        names cannot be used: see `pki.fault`
    :param user_authority: CA certificates in that Secret: see
        `pki.authorities`
    :param validity: begin and end of the validity of that certificate
    :param foreign: foreign objects with names of the BMC's, as 'Kind name'
    :param image_allowed: whether the BMC may use the image in its spec
    :param pod_allowed: whether all images of the present pod are allowed
    :param refused: objects that the API server rejected, as pairs of
        'Kind name' and its message
    :param waiting: whether an upgrade waits for the upgrades of other BMCs
    """

    vm: objects.Object | None = None
    secret: objects.AnyObject | None = None
    missing_keys: tuple[str, ...] = ()
    unusable_keys: tuple[tuple[str, str], ...] = ()
    copied: bool = False
    account: objects.Json | None = None
    deployment: objects.Json | None = None
    service: objects.Json | None = None
    vm_service: str | None = None
    unnamable: bool = False
    route: objects.Json | None = None
    route_problem: str | None = None
    route_conflict: bool = False
    certificate: bool = False
    certificate_fault: str = ''
    user_authority: str | None = ''
    validity: tuple[datetime.datetime, datetime.datetime] | None = None
    now: datetime.datetime = datetime.datetime.fromtimestamp(0, datetime.UTC)
    foreign: tuple[str, ...] = ()
    image_allowed: bool = True
    pod_allowed: bool = False
    refused: tuple[tuple[str, str], ...] = ()
    waiting: bool = False
    placed: placement.Placement = placement.Placement()


def conditions(bmc: spec.Bmc, state: BmcState) -> tuple[Condition, ...]:
    """Compute the conditions: each type once, `READY` the last."""
    global _last
    last_bmc, last_state, computed = _last
    if last_bmc is not bmc or last_state is not state:
        computed = _conditions(bmc, state)
        _last = bmc, state, computed
    return computed


#: Arguments and result of the last call of `conditions`: the desired state and
#: the plan ask several times.
_last: tuple[spec.Bmc | None, BmcState | None, tuple[Condition, ...]] = (
    None, None, ())


def _conditions(bmc: spec.Bmc, state: BmcState) -> tuple[Condition, ...]:
    vm, secret = _vm(bmc, state), _secret(bmc, state)
    causes = (vm, secret, _emulator(bmc, state, vm, secret),
              _endpoint(bmc, state))
    # A refusal is the cause of other conditions, and the cause of a waiting
    # condition is in the one that it waits for.
    bad = sorted(
        (condition for condition in causes if not condition.status),
        key=lambda condition: (condition.reason != REFUSED,
                               condition.reason in WAITING))
    if bad:
        return *causes, dataclasses.replace(bad[0], type=READY)
    return *causes, Condition(READY, True, 'ServiceReady',
                              'The BMC is ready.')


def is_starting(bmc: spec.Bmc, state: BmcState) -> bool:
    """Tell whether a BMC is not ready because its pod is starting."""
    return conditions(bmc, state)[-1].reason in (
        'EmulatorStarting', 'SecretPending', 'ServicePending',
        'CertificatePending')


def merge(old: abc.Iterable[objects.Condition] | None,
          new: abc.Iterable[Condition], generation: int, now: str
          ) -> list[objects.Condition]:
    """Convert conditions for the status.

    :param old: the present conditions
    :param generation: of the resource
    :param now: RFC 3339 text
    :returns: the new ones; ``lastTransitionTime`` stays the same where the
        status does
    """
    times = {(condition['type'], condition['status']):
             condition['lastTransitionTime'] for condition in old or ()}
    merged: list[objects.Condition] = []
    for condition in new:
        status = 'True' if condition.status else 'False'
        merged.append({
            'type': condition.type, 'status': status,
            'reason': condition.reason, 'message': condition.message,
            'observedGeneration': generation,
            'lastTransitionTime': times.get((condition.type, status), now)})
    return merged


def _vm(bmc: spec.Bmc, state: BmcState) -> Condition:
    if bmc.vm.namespace != bmc.namespace and not (
            state.vm and permissions.reference_permitted(
                bmc.namespace, state.vm)):
        # The same for a VM that does not exist: a BMC must not reveal which
        # VMs there are in other namespaces.
        return _not_permitted(VM, bmc, 'VirtualMachine', bmc.vm)
    if state.vm is None:
        return Condition(
            VM, False, 'VirtualMachineNotFound',
            f'VirtualMachine {bmc.vm} does not exist. The BMC works as soon '
            'as it is created.')
    if 'deletionTimestamp' in state.vm['metadata']:
        return Condition(VM, False, 'VirtualMachineTerminating',
                         f'VirtualMachine {bmc.vm} is being deleted.')
    return Condition(VM, True, 'VirtualMachineFound',
                     f'VirtualMachine {bmc.vm} exists.')


def _secret(bmc: spec.Bmc, state: BmcState) -> Condition:
    for what, why in state.refused:
        if what == _secret_object(bmc):
            return _refused(SECRET, what, why)
    if bmc.auth is None:
        name = naming.auth(bmc.name)
        if _has_foreign(state, 'Secret', name):
            return _name_taken(SECRET, 'Secret ' + name)
        if state.secret is None:
            return Condition(SECRET, False, 'SecretPending',
                             f'Secret {name} is being created.')
    else:
        if bmc.auth.namespace != bmc.namespace and not (
                state.secret
                and permissions.reference_permitted(
                    bmc.namespace, state.secret)):
            return _not_permitted(SECRET, bmc, 'Secret', bmc.auth)
        name = str(bmc.auth)
        if state.secret is None:
            return Condition(
                SECRET, False, 'SecretNotFound',
                f'Secret {name} does not exist. Create it, with keys username '
                'and password.')
    if state.missing_keys:
        return Condition(
            SECRET, False, 'SecretIncomplete',
            f"In Secret {name} the value under "
            f"{' and '.join(state.missing_keys)} is missing or is not text. "
            'Set it.')
    keys, advice = _find_unusable_keys(bmc, state)
    if keys:
        return Condition(
            SECRET, False, 'SecretUnusable',
            f"Secret {name} has an unusable value under "
            f"{' and '.join(keys)}. {' '.join(advice)}")
    if bmc.auth is None:
        return Condition(
            SECRET, True, 'SecretGenerated',
            f'User name and password are in Secret {name}.')
    host = credentials.owning_host(state.secret)
    if host:
        return Condition(
            SECRET, True, OWNED_BY_HOST,
            f'Secret {name} will be deleted with BareMetalHost {host}, which '
            'baremetal-operator has made its owner. Give the host a Secret '
            'of its own, and remove the owner reference.')
    return Condition(SECRET, True, 'SecretFound',
                     f'Secret {name} exists.')


def _find_unusable_keys(bmc: spec.Bmc, state: BmcState
                        ) -> tuple[list[str], list[str]]:
    """Find the keys of a Secret that the BMC's protocols cannot use.

    :returns: keys, and sentences that say what is accepted
    """
    protocols = [protocol for protocol, enabled in (
        (credentials.IPMI, bmc.ipmi),
        (credentials.REDFISH, bmc.redfish.enabled)) if enabled]
    bad = [(protocol, key) for protocol, key in state.unusable_keys
           if protocol in protocols]
    keys = list(dict.fromkeys(key for _, key in bad))
    refusing = list(dict.fromkeys(protocol for protocol, _ in bad))
    advice = [_ACCEPTED[protocol] for protocol in refusing]
    if refusing and refusing != protocols:
        advice.append(f'Change it, or set {refusing[0]}.enabled to false.')
    elif refusing:
        advice.append('Change it.')
    return keys, advice


def _emulator(bmc: spec.Bmc, state: BmcState, vm: Condition,
              secret: Condition) -> Condition:
    if vm.reason == NOT_PERMITTED:
        return Condition(EMULATOR, False, 'WaitingForVirtualMachine',
                         vm.message)
    for what, why in state.refused:
        if what not in (*_endpoint_objects(bmc), _secret_object(bmc)):
            return _refused(EMULATOR, what, why)
    if not secret.status and not _is_served(state):
        return Condition(EMULATOR, False, 'WaitingForSecret', secret.message)
    if bmc.image and not state.image_allowed:
        return Condition(
            EMULATOR, False, 'ImageNotAllowed',
            f'Image {bmc.image} is not allowed by the operator. Remove '
            'spec.image, or have its repository added to the operator\'s '
            '--allowed-images.')
    wrong = spec.wrong_hosts(bmc)
    if wrong:
        return Condition(
            EMULATOR, False, 'AllowedHostsInvalid',
            f'spec.virtualMedia.allowedHosts: {wrong}. Entries are names, '
            '*.domain, addresses and networks.')
    foreign = pod_conflicts(bmc, state)
    if foreign:
        return _name_taken(EMULATOR, foreign[0])
    problem = _certificate_problem(bmc, state)
    if state.placed.wanted and state.placed.slot is None:
        # Without a Service there is no certificate.
        return _shared(bmc, state)
    if problem is not None and not _is_served(state):
        return Condition(EMULATOR, False, 'WaitingForCertificate',
                         problem.message)
    if state.placed.wanted:
        return _shared(bmc, state)
    slot = state.placed.serving(has_ready_pod(state))
    if slot and state.placed.served:
        return Condition(
            EMULATOR, True, 'PlacementWaiting', 'Shared Deployment '
            f'{slot.name} serves the BMC until its own pod is '
            'ready.')
    pods = (f'--namespace {bmc.namespace} '
            f'--selector {naming.LABEL}={naming.label(bmc.name)}')
    return _deployment(naming.base(bmc.name), state.deployment, pods) or (
        Condition(
            EMULATOR, True, 'RolloutWaiting', 'The pod is ready. Its upgrade '
            'waits for the upgrades of other BMCs.')
        if state.waiting else
        Condition(EMULATOR, True, 'EmulatorReady', 'The pod is ready.'))


def _shared(bmc: spec.Bmc, state: BmcState) -> Condition:
    """Check the shared pod."""
    placed = state.placed
    if has_ready_pod(state) and not placed.served:
        return Condition(
            EMULATOR, True, 'PlacementWaiting', 'The pod of the BMC serves it '
            'until a shared pod does.'
            + (f' {placed.problem}' if placed.problem else ''))
    if placed.taken:
        return Condition(
            EMULATOR, False, NAME_TAKEN,
            f'{placed.taken} exists already and was not created for shared '
            'BMCs. The operator does not change it: delete it, or set '
            'spec.placement of this BMC to PerVM.')
    if placed.refused:
        return _refused(EMULATOR, *placed.refused)
    if placed.slot is None:
        return Condition(EMULATOR, False, 'EmulatorStarting',
                         'The BMC gets a place in a shared pod. If that takes '
                         "long, see the operator's log.")
    name = placed.slot.name
    pods = (f'--namespace {bmc.namespace} '
            f'--selector {naming.SHARED}={placed.slot.shard}')
    problem = _deployment(name, placed.deployment, pods)
    if problem is not None:
        return problem
    if placed.problem:
        return Condition(
            EMULATOR, False, 'EmulatorNotReady', f'The pod of Deployment '
            f'{name} cannot serve the BMC: {placed.problem}')
    if not placed.served:
        return Condition(
            EMULATOR, False, 'EmulatorStarting',
            f'The pod of Deployment {name}, which is ready, starts the BMC. '
            f'If that takes long, run kubectl logs {pods}.')
    if placed.waiting:
        return Condition(
            EMULATOR, True, 'RolloutWaiting', 'The shared pod is ready. Its '
            'upgrade waits for other upgrades.')
    return Condition(EMULATOR, True, 'EmulatorReady',
                     f'The pod of Deployment {name} serves the BMC.')


def _deployment(name: str, deployment: objects.Json | None, pods: str
                ) -> Condition | None:
    """Check a Deployment.

    :param pods: options of kubectl that select its pods
    :returns: None if it is ready
    """
    if deployment is None:
        return Condition(EMULATOR, False, 'EmulatorStarting',
                         f'Deployment {name} is being created.')
    present = deployment.get('status') or {}
    if not deployments.is_ready(deployment):
        where = f'kubectl describe pods {pods}'
        # Until the present pod was ready once, it is starting.
        if deployments.is_progressing(deployment):
            return Condition(
                EMULATOR, False, 'EmulatorStarting',
                f'The pod of Deployment {name} is starting. If that takes '
                f'long, run {where}.')
        return Condition(
            EMULATOR, False, 'EmulatorNotReady',
            f'The pod of Deployment {name} is not ready.'
            f'{deployments.failure_message(present)} For details, run {where} '
            f'and kubectl logs {pods} --all-containers.')
    return None


def _endpoint(bmc: spec.Bmc, state: BmcState) -> Condition:
    name = naming.base(bmc.name)
    if _has_foreign(state, 'Service', name):
        return _name_taken(ENDPOINT, 'Service ' + name)
    for what, why in state.refused:
        if what in _endpoint_objects(bmc):
            return _refused(ENDPOINT, what, why)
    wrong = (_policy_problem(bmc) or _certificate_problem(bmc, state)
             or _validity_problem(bmc, state) or _route_problem(bmc, state))
    if wrong is not None:
        return wrong
    address = state.service and endpoints.host(bmc, state.service)
    second = naming.vm_service(bmc)
    if address and state.unnamable:
        return Condition(
            ENDPOINT, True, SECOND_NAME_INVALID,
            f'The address of the BMC is {address}. Kubernetes before '
            f"{'.'.join(map(str, naming.DIGITS_SINCE))} can have no Service "
            f'{second}, at which clients of KubeVirtBMC look for it, as the '
            f'name begins with a digit. Have them use Service {name}.')
    if address and second and not state.vm_service:
        return Condition(
            ENDPOINT, True, SECOND_NAME_TAKEN,
            f'The address of the BMC is {address}. Service {second}, at which '
            "clients of KubeVirtBMC look for it, is not this BMC's: another "
            'object, or another BMC, has that name. Have them use Service '
            f'{name}, or delete the other one.')
    if address:
        return Condition(ENDPOINT, True, 'EndpointAssigned',
                         f'The address of the BMC is {address}.')
    if state.service and bmc.service.type == network.LOAD_BALANCER:
        return Condition(
            ENDPOINT, False, 'LoadBalancerPending',
            f'Service {name} has no load balancer address yet. Check that '
            'the cluster has a load balancer controller.')
    return Condition(ENDPOINT, False, 'ServicePending',
                     f'Service {name} has no address yet. If this lasts, see '
                     "the operator's log.")


def _policy_problem(bmc: spec.Bmc) -> Condition | None:
    """Check the networks of the NetworkPolicy.

    :returns: None if Kubernetes accepts them
    """
    if not bmc.refused_networks:
        return None
    return Condition(
        ENDPOINT, False, 'AllowedCIDRsInvalid',
        'spec.networkPolicy.allowedCIDRs: Kubernetes refuses '
        f"{', '.join(bmc.refused_networks)}. The NetworkPolicy does not have "
        'them, so clients there cannot connect. Write the first address of '
        'the network, such as 10.0.0.0/8 or 2001:db8::/32, without leading '
        'zeros, and IPv4 as such.')


def _certificate_problem(bmc: spec.Bmc, state: BmcState) -> Condition | None:
    if (state.certificate or bmc.redfish.plain
            or not bmc.redfish.enabled):
        return None
    if bmc.redfish.secret and state.certificate_fault:
        return Condition(
            ENDPOINT, False, 'CertificateUnusable',
            f'The certificate of Secret {bmc.namespace}/{bmc.redfish.secret} '
            f'is unusable: {state.certificate_fault}. Replace tls.crt and '
            'tls.key, a key without a password, or remove spec.redfish.tls.')
    if bmc.redfish.secret:
        return Condition(
            ENDPOINT, False, 'CertificateMissing',
            f'Secret {bmc.namespace}/{bmc.redfish.secret} does not exist, or '
            'has no certificate under tls.crt or no key under tls.key. Create '
            'it, or remove spec.redfish.tls.')
    return Condition(
        ENDPOINT, False, 'CertificatePending',
        f'Secret {naming.tls(bmc.name)} with the certificate is being '
        "created. If this lasts, see the operator's log.")


def _validity_problem(bmc: spec.Bmc, state: BmcState) -> Condition | None:
    """Check whether a user's certificate is valid now.

    :returns: None if it is
    """
    if state.validity is None:
        return None
    begin, end = state.validity
    what = f'The certificate in Secret {bmc.namespace}/{bmc.redfish.secret}'
    if state.now >= end:
        return Condition(
            ENDPOINT, False, 'CertificateExpired',
            f'{what} expired at {_time(end)}. The BMC still serves it, but '
            'clients that verify it refuse the BMC: renew it.')
    if state.now < begin:
        return Condition(
            ENDPOINT, False, 'CertificateNotYetValid',
            f'{what} is not valid before {_time(begin)}. The BMC serves it '
            'already, but clients that verify it refuse the BMC: wait, or '
            'issue another one.')
    return None


def _route_problem(bmc: spec.Bmc, state: BmcState) -> Condition | None:
    """Check whether the BMC has the Route that its spec asks for.

    :returns: None if it has, or needs none
    """
    if bmc.route is None:
        return None
    name = naming.route(bmc)
    if state.route_problem == routes.MISSING:
        return Condition(
            ENDPOINT, False, 'RouteAPIMissing',
            'This cluster does not serve the API of OpenShift\'s Routes '
            '(route.openshift.io), so the BMC has its Service only. Remove '
            'spec.route; from outside of the cluster, the BMC can be reached '
            'by spec.service.type or by an Ingress.')
    if state.route_problem == routes.FORBIDDEN:
        return Condition(
            ENDPOINT, False, 'RouteAPIForbidden',
            'The operator may not list Routes, so the BMC has its Service '
            'only. Install the operator with the overlay '
            'etc/kubernetes/overlays/openshift, or remove spec.route.')
    if (bmc.route.termination == routes.REENCRYPT
            and state.user_authority is None):
        return Condition(
            ENDPOINT, False, 'RouteAuthorityUnusable',
            f'ca.crt of Secret {bmc.namespace}/{bmc.redfish.secret} cannot be '
            'read, or has more than 64 KiB, so the ingress controller cannot '
            'verify the BMC by it. Replace it with the certificate of the '
            'authority that issued tls.crt.')
    if _has_foreign(state, 'Route', name):
        return _name_taken(ENDPOINT, 'Route ' + name)
    if state.route_conflict:
        return Condition(
            ENDPOINT, False, 'RouteChanged',
            f'Another client changed Route {name} again after the operator '
            'had created it anew, so the operator leaves it as it is. Find '
            f'the client (kubectl get route {name} --output yaml '
            '--show-managed-fields), have it leave this Route alone, and '
            'delete the Route.')
    if routes.hosts(state.route):
        return None
    why = routes.rejection(state.route)
    if why:
        return Condition(
            ENDPOINT, False, 'RouteRejected',
            f'The ingress controller does not serve Route {name}: {why}')
    return Condition(
        ENDPOINT, False, 'RoutePending',
        f'No ingress controller serves Route {name} yet. If this lasts, check '
        'that one selects it, by the labels of the Route (spec.route.labels) '
        'or of the namespace.')


def _time(when: datetime.datetime) -> str:
    return when.strftime('%Y-%m-%dT%H:%M:%SZ')


def has_ready_pod(state: BmcState) -> bool:
    """Tell whether the BMC's own pod is ready."""
    present = (state.deployment or {}).get('status') or {}
    return present.get('readyReplicas', 0) > 0


def _is_served(state: BmcState) -> bool:
    return has_ready_pod(state) or state.placed.served


def pod_conflicts(bmc: spec.Bmc, state: BmcState) -> list[str]:
    """List the foreign objects whose rights or credentials a pod would get.

    :returns: 'Kind name' of each
    """
    unneeded = [f'{kind} {naming.base(bmc.name)}' for kind in (
        'ConfigMap', 'Deployment', 'NetworkPolicy', 'Role', 'RoleBinding',
        'ServiceAccount') if state.placed.wanted]
    return [subject for subject in state.foreign if subject not in unneeded
            and not subject.startswith(('Service ', 'Route '))]


def _has_foreign(state: BmcState, kind: str, name: str) -> bool:
    return f'{kind} {name}' in state.foreign


def _name_taken(type_: str, what: str) -> Condition:
    return Condition(
        type_, False, NAME_TAKEN,
        f'{what} exists already and was not created for this BMC. The '
        'operator does not change it: delete it, or give the BMC another '
        'name.')


def _secret_object(bmc: spec.Bmc) -> str:
    """Name the object whose refusal belongs to condition `SECRET`."""
    return 'Secret ' + naming.auth(bmc.name)


def _endpoint_objects(bmc: spec.Bmc) -> tuple[str, ...]:
    """Name the objects whose refusal belongs to condition `ENDPOINT`."""
    return ('Service ' + naming.base(bmc.name),
            f'Service {naming.vm_service(bmc)}',
            'Secret ' + naming.tls(bmc.name),
            'Secret ' + naming.AUTHORITY,
            'ConfigMap ' + naming.authority(bmc.name),
            'Route ' + naming.route(bmc))


def _refused(type_: str, what: str, why: str) -> Condition:
    return Condition(
        type_, False, REFUSED,
        f'The API server refused the write of {what}: {why}')


def _not_permitted(type_: str, bmc: spec.Bmc, kind: str,
                   reference: spec.Reference) -> Condition:
    return Condition(
        type_, False, NOT_PERMITTED,
        f'{kind} {reference} does not permit BMCs of namespace '
        f'{bmc.namespace}. Ask its owner to annotate it with '
        f'{permissions.ANNOTATION}={bmc.namespace}.')


def status(bmc: spec.Bmc, state: BmcState,
           old: objects.VirtualMachineBMCStatus, now: str
           ) -> objects.VirtualMachineBMCStatus:
    """Make the status of a BMC.

    :param old: the present status
    :param now: RFC 3339 text
    """
    computed = conditions(bmc, state)
    new: objects.VirtualMachineBMCStatus = {
        'observedGeneration': bmc.generation,
        'virtualMachine': bmc.vm.name if bmc.vm.namespace == bmc.namespace
        else str(bmc.vm),
        'conditions': merge(old.get('conditions'), computed, bmc.generation,
                            now)}
    new['conditions'][-1:-1] = [
        condition for condition in old.get('conditions') or ()
        if condition['type'] == HOST]
    if 'bareMetalHost' in old:
        new['bareMetalHost'] = old['bareMetalHost']
    if any(condition.type == SECRET and condition.status
           for condition in computed):
        new['authSecret'] = deployments.auth_secret(bmc)
    new['placement'] = _placement(bmc, state)
    new.update(endpoints.status(bmc, state.service, state.route))
    return new


def _placement(bmc: spec.Bmc, state: BmcState) -> objects.Json:
    slot = state.placed.serving(has_ready_pod(state))
    if slot is not None:
        return {'type': placement.SHARED, 'deployment': slot.name,
                'slot': slot.number}
    if state.placed.wanted and state.deployment is None:
        return {'type': placement.SHARED}
    return {'type': placement.PER_VM, 'deployment': naming.base(bmc.name)}


def ready_reason(status: objects.VirtualMachineBMCStatus) -> str:
    """Find the reason of the condition Ready.

    :returns: one word; '' if there is none yet
    """
    return next((condition.get('reason', '') for condition in status.get(
        'conditions') or () if condition.get('type') == READY), '')
