# SPDX-License-Identifier: Apache-2.0
"""The status of a BMC: its `verdict` in words, its addresses, boot override.

Each condition has a reason, one word for programs, and a message that says
what to do. ``Ready`` repeats the condition of `Verdict.obstacle`, and
``ServiceReady`` is ``Ready`` with the reasons of KubeVirtBMC.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import options
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import verdict

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import facts

Cause = verdict.Cause

VM, SECRET, EMULATOR, ENDPOINT, SERVICE, READY = (
    'VirtualMachineAvailable', 'SecretAvailable', 'BMCEmulatorReady',
    'EndpointReady', 'ServiceReady', 'Ready')

#: Those that repeat another one.
SUMMARIES = SERVICE, READY

#: Reasons of `SERVICE`; the first also that of `READY`
#: (``internal/controller/service/controller.go`` of KubeVirtBMC 0.10).
SERVICE_READY, SERVICE_NOT_READY = 'ServiceReady', 'ServiceNotReady'

#: Written by `metal3.host_controller`, and no part of ``Ready``.
HOST = 'HostReady'

NOT_PERMITTED = 'ReferenceNotPermitted'
OWNED_BY_HOST = 'SecretOwnedByHost'
NAME_TAKEN = 'NameTaken'
REFUSED = 'Refused'
UNUSABLE_FOR_IPMI = 'SecretUnusableForIPMI'
SECOND_NAME_TAKEN = 'SecondServiceNameTaken'
MARGIN_INVALID = 'SizeMarginInvalid'

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


class Words(typing.NamedTuple):
    """What a condition says.

    :param message: with the fields of `_fields` and of `verdict.Judgment`
    """

    reason: str
    message: str


_NOT_PERMITTED = Words(
    NOT_PERMITTED, '{subject} does not permit BMCs of namespace '
    '{bmc.namespace}. Ask its owner to annotate it with '
    f'{stored_names.ALLOW_FROM}={{bmc.namespace}}.')
_NAME_TAKEN = Words(
    NAME_TAKEN, '{subject} exists already and was not created for this BMC. '
    'The operator does not change it: delete it, or give the BMC another '
    'name.')
_REFUSED = Words(
    REFUSED, 'The API server refused the write of {subject}: {detail}')

#: By condition and cause; also those of true conditions.
WORDS: dict[str, dict[Cause, Words]] = {
    VM: {
        Cause.NOT_PERMITTED: _NOT_PERMITTED,
        Cause.VM_NOT_FOUND: Words(
            'VirtualMachineNotFound', 'VirtualMachine {bmc.vm} does not '
            'exist. The BMC works as soon as it is created.'),
        Cause.VM_TERMINATING: Words(
            'VirtualMachineTerminating',
            'VirtualMachine {bmc.vm} is being deleted.'),
        Cause.VM_FOUND: Words(
            'VirtualMachineFound', 'VirtualMachine {bmc.vm} exists.'),
    },
    SECRET: {
        Cause.NOT_PERMITTED: _NOT_PERMITTED,
        Cause.NAME_TAKEN: _NAME_TAKEN,
        Cause.REFUSED: _REFUSED,
        Cause.SECRET_PENDING: Words(
            'SecretPending', 'Secret {secret} is being created.'),
        Cause.SECRET_NOT_FOUND: Words(
            'SecretNotFound', 'Secret {secret} does not exist. Create it, '
            'with keys username and password.'),
        Cause.SECRET_INCOMPLETE: Words(
            'SecretIncomplete', 'In Secret {secret} the value under {missing} '
            'is missing or is not text. Set it.'),
        Cause.SECRET_UNUSABLE: Words(
            'SecretUnusable', 'Secret {secret} has an unusable value under '
            '{unusable}. {advice}'),
        Cause.SECRET_GENERATED: Words(
            'SecretGenerated',
            'User name and password are in Secret {secret}.'),
        Cause.SECRET_OWNED_BY_HOST: Words(
            OWNED_BY_HOST, 'Secret {secret} will be deleted with '
            'BareMetalHost {subject}, which baremetal-operator has made its '
            'owner. Give the host a Secret of its own, and remove the owner '
            'reference.'),
        Cause.SECRET_UNUSABLE_FOR_IPMI: Words(
            UNUSABLE_FOR_IPMI, 'The BMC serves Redfish only, as IPMI cannot '
            'use the value under {unusable} of Secret {secret}. '
            f'{_ACCEPTED[credentials.IPMI]} Change it, or set '
            'spec.ipmi.enabled to false if no client needs IPMI.'),
        Cause.SECRET_FOUND: Words('SecretFound', 'Secret {secret} exists.'),
    },
    EMULATOR: {
        Cause.WAITING_FOR_VM: Words('WaitingForVirtualMachine', '{awaited}'),
        Cause.WAITING_FOR_SECRET: Words('WaitingForSecret', '{awaited}'),
        Cause.WAITING_FOR_CERTIFICATE: Words(
            'WaitingForCertificate', '{awaited}'),
        Cause.NAME_TAKEN: _NAME_TAKEN,
        Cause.REFUSED: _REFUSED,
        Cause.IMAGE_NOT_ALLOWED: Words(
            'ImageNotAllowed', 'Image {bmc.image} is not allowed by the '
            'operator. Remove spec.image, or have its repository added to the '
            "operator's --allowed-images."),
        Cause.HOSTS_INVALID: Words(
            'AllowedHostsInvalid', 'spec.virtualMedia.allowedHosts: '
            '{verdict.wrong_hosts}. Entries are names, *.domain, addresses '
            'and networks.'),
        Cause.POD_CREATING: Words(
            'EmulatorStarting', 'Deployment {deployment} is being created.'),
        Cause.POD_STARTING: Words(
            'EmulatorStarting', 'The pod of Deployment {deployment} is '
            'starting. If that takes long, run kubectl describe pods {pods}.'),
        Cause.POD_NOT_READY: Words(
            'EmulatorNotReady', 'The pod of Deployment {deployment} is not '
            'ready.{detail} For details, run kubectl describe pods {pods} and '
            'kubectl logs {pods} --all-containers.'),
        Cause.POD_READY: Words('EmulatorReady', 'The pod is ready.'),
        Cause.POD_UPGRADE_WAITS: Words(
            'RolloutWaiting', 'The pod is ready. Its upgrade waits for the '
            'upgrades of other BMCs.'),
        Cause.SHARED_POD_SERVES_YET: Words(
            'PlacementWaiting', 'Shared Deployment {subject} serves the BMC '
            'until its own pod is ready.'),
        Cause.OWN_POD_SERVES_YET: Words(
            'PlacementWaiting', 'The pod of the BMC serves it until a shared '
            'pod does.{problem}'),
        Cause.SHARED_NAME_TAKEN: Words(
            NAME_TAKEN, '{placed.taken} exists already and was not created '
            'for shared BMCs. The operator does not change it: delete it, or '
            'set spec.placement of this BMC to PerVM.'),
        Cause.NO_SLOT: Words(
            'EmulatorStarting', 'The BMC gets a place in a shared pod. If '
            "that takes long, see the operator's log."),
        Cause.ENTRY_PROBLEM: Words(
            'EmulatorNotReady', 'The pod of Deployment {deployment} cannot '
            'serve the BMC:{problem}'),
        Cause.ENTRY_STARTING: Words(
            'EmulatorStarting', 'The pod of Deployment {deployment}, which is '
            'ready, starts the BMC. If that takes long, run kubectl logs '
            '{pods}.'),
        Cause.SHARED_POD_UPGRADE_WAITS: Words(
            'RolloutWaiting', 'The shared pod is ready. Its upgrade waits for '
            'other upgrades.'),
        Cause.SHARED_POD_READY: Words(
            'EmulatorReady',
            'The pod of Deployment {deployment} serves the BMC.'),
        Cause.SIZE_MARGIN_INVALID: Words(
            MARGIN_INVALID, 'The pod is ready. The BMC ignores the annotation '
            f'{stored_names.SIZE_MARGIN}={{margin}}. Set a whole number of '
            f'per cent from 0 to {options.SIZE_MARGINS[-1]}, or remove it.'),
    },
    ENDPOINT: {
        Cause.NAME_TAKEN: _NAME_TAKEN,
        Cause.REFUSED: _REFUSED,
        Cause.ADDRESS_ASSIGNED: Words(
            'EndpointAssigned', 'The address of the BMC is {subject}.'),
        Cause.SECOND_NAME_INVALID: Words(
            'SecondServiceNameInvalid', 'The address of the BMC is {subject}. '
            'Kubernetes before '
            f"{'.'.join(map(str, naming.DIGITS_SINCE))} can have no Service "
            '{second}, at which clients of KubeVirtBMC look for it, as the '
            'name begins with a digit. Have them use Service {name}.'),
        Cause.SECOND_NAME_TAKEN: Words(
            SECOND_NAME_TAKEN, 'The address of the BMC is {subject}. Service '
            '{second}, at which clients of KubeVirtBMC look for it, is not '
            "this BMC's: another object, or another BMC, has that name. Have "
            'them use Service {name}, or delete the other one.'),
        Cause.LOAD_BALANCER_PENDING: Words(
            'LoadBalancerPending', 'Service {name} has no load balancer '
            'address yet. Check that the cluster has a load balancer '
            'controller.'),
        Cause.SERVICE_PENDING: Words(
            'ServicePending', 'Service {name} has no address yet. If this '
            "lasts, see the operator's log."),
        Cause.NETWORKS_INVALID: Words(
            'AllowedCIDRsInvalid', 'spec.networkPolicy.allowedCIDRs: '
            'Kubernetes refuses {networks}. The NetworkPolicy does not have '
            'them, so clients there cannot connect. Write the first address '
            'of the network, such as 10.0.0.0/8 or 2001:db8::/32, without '
            'leading zeros, and IPv4 as such.'),
        Cause.CERTIFICATE_PENDING: Words(
            'CertificatePending', 'Secret {tls} with the certificate is being '
            "created. If this lasts, see the operator's log."),
        Cause.CERTIFICATE_MISSING: Words(
            'CertificateMissing', 'Secret {tls} does not exist, or has no '
            'certificate under tls.crt or no key under tls.key. Create it, or '
            'remove spec.redfish.tls.'),
        Cause.CERTIFICATE_UNUSABLE: Words(
            'CertificateUnusable', 'The certificate of Secret {tls} is '
            'unusable: {detail}. Replace tls.crt and tls.key, a key without a '
            'password, or remove spec.redfish.tls.'),
        Cause.CERTIFICATE_EXPIRED: Words(
            'CertificateExpired', 'The certificate in Secret {tls} expired at '
            '{verdict.validity[1]:%Y-%m-%dT%H:%M:%SZ}. The BMC still serves '
            'it, but clients that verify it refuse the BMC: renew it.'),
        Cause.CERTIFICATE_NOT_YET_VALID: Words(
            'CertificateNotYetValid', 'The certificate in Secret {tls} is not '
            'valid before {verdict.validity[0]:%Y-%m-%dT%H:%M:%SZ}. The BMC '
            'serves it already, but clients that verify it refuse the BMC: '
            'wait, or issue another one.'),
        Cause.ROUTE_API_MISSING: Words(
            'RouteAPIMissing', "This cluster does not serve the API of "
            "OpenShift's Routes (route.openshift.io), so the BMC has its "
            'Service only. Remove spec.route; from outside of the cluster, '
            'the BMC can be reached by spec.service.type or by an Ingress.'),
        Cause.ROUTE_API_FORBIDDEN: Words(
            'RouteAPIForbidden', 'The operator may not list Routes, so the '
            'BMC has its Service only. Install the operator with the overlay '
            'etc/kubernetes/overlays/openshift, or remove spec.route.'),
        Cause.ROUTE_AUTHORITY_UNUSABLE: Words(
            'RouteAuthorityUnusable', 'ca.crt of Secret {tls} cannot be read, '
            'or has more than 64 KiB, so the ingress controller cannot verify '
            'the BMC by it. Replace it with the certificate of the authority '
            'that issued tls.crt.'),
        Cause.ROUTE_CHANGED: Words(
            'RouteChanged', 'Another client changed Route {route} again after '
            'the operator had created it anew, so the operator leaves it as '
            'it is. Find the client (kubectl get route {route} --output yaml '
            '--show-managed-fields), have it leave this Route alone, and '
            'delete the Route.'),
        Cause.ROUTE_REJECTED: Words(
            'RouteRejected', 'The ingress controller does not serve Route '
            '{route}: {detail}'),
        Cause.ROUTE_PENDING: Words(
            'RoutePending', 'No ingress controller serves Route {route} yet. '
            'If this lasts, check that one selects it, by the labels of the '
            'Route (spec.route.labels) or of the namespace.'),
    },
}

_READY = Condition(READY, True, SERVICE_READY, 'The BMC is ready.')


def conditions(bmc: spec.Bmc, facts: facts.Facts,
               verdict: verdict.Verdict) -> tuple[Condition, ...]:
    """Word the verdict as conditions: each type once, `READY` the last."""
    fields = _fields(bmc, facts, verdict)
    for cause, type_, awaited in (
            (Cause.WAITING_FOR_VM, VM, verdict.vm),
            (Cause.WAITING_FOR_SECRET, SECRET, verdict.secret),
            (Cause.WAITING_FOR_CERTIFICATE, ENDPOINT,
             verdict.certificate_problem)):
        if verdict.emulator.cause is cause and awaited:
            fields['awaited'] = _word(type_, awaited, fields).message
    obstacle = verdict.obstacle
    judgments = {VM: verdict.vm, SECRET: verdict.secret,
                 EMULATOR: verdict.emulator, ENDPOINT: verdict.endpoint}
    worded = [_word(*item, fields) for item in judgments.items()]
    ready = next((
        dataclasses.replace(condition, type=READY)
        for condition, judgment in zip(worded, judgments.values())
        if judgment is obstacle), _READY)
    service = dataclasses.replace(
        ready, type=SERVICE,
        reason=SERVICE_READY if ready.status else SERVICE_NOT_READY)
    return *worded, service, ready


def _word(type_: str, judgment: verdict.Judgment,
          fields: dict[str, typing.Any]) -> Condition:
    reason, message = WORDS[type_][judgment.cause]
    return Condition(type_, judgment.holds, reason, message.format(
        subject=judgment.subject, detail=judgment.detail, **fields))


def _fields(bmc: spec.Bmc, facts: facts.Facts,
            verdict: verdict.Verdict) -> dict[str, typing.Any]:
    """Make the fields of all messages."""
    placed, secret = facts.placed, verdict.credentials
    slot = placed.slot if placed.wanted else None
    keys = dict.fromkeys(key for _, key in verdict.unusable_keys)
    return {
        'bmc': bmc, 'placed': placed, 'verdict': verdict,
        'name': naming.base(bmc.name), 'second': naming.vm_service(bmc),
        'route': naming.route(bmc),
        'secret': bmc.auth or naming.auth(bmc.name),
        'tls': f'{bmc.namespace}/{bmc.redfish.secret}'
        if bmc.redfish.secret else naming.tls(bmc.name),
        'missing': ' and '.join(secret.missing_keys if secret else ()),
        'unusable': ' and '.join(keys),
        'advice': ' '.join(_advice(bmc, verdict)),
        'networks': ', '.join(bmc.refused_networks),
        'margin': repr(bmc.media.margin[:20]),
        'deployment': slot.name if slot else naming.base(bmc.name),
        'pods': f'--namespace {bmc.namespace} --selector ' + (
            f'{stored_names.SHARD}={slot.shard}' if slot
            else f'{stored_names.BMC_NAME}={naming.label(bmc.name)}'),
        'problem': f' {placed.problem}' if placed.problem else ''}


def _advice(bmc: spec.Bmc, verdict: verdict.Verdict) -> list[str]:
    """Say what the protocols accept that refuse the Secret."""
    refusing = list(dict.fromkeys(
        protocol for protocol, _ in verdict.unusable_keys))
    advice = [_ACCEPTED[protocol] for protocol in refusing]
    if refusing and refusing != credentials.protocols(bmc):
        advice.append(f'Change it, or set {refusing[0]}.enabled to false.')
    elif refusing:
        advice.append('Change it.')
    return advice


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


def status(bmc: spec.Bmc, facts: facts.Facts, verdict: verdict.Verdict,
           old: objects.VirtualMachineBMCStatus, now: str
           ) -> objects.VirtualMachineBMCStatus:
    """Make the status of a BMC.

    :param old: the present status
    :param now: RFC 3339 text
    """
    new: objects.VirtualMachineBMCStatus = {
        'observedGeneration': bmc.generation,
        'virtualMachine': bmc.vm.name if bmc.vm.namespace == bmc.namespace
        else str(bmc.vm),
        'conditions': merge(old.get('conditions'), conditions(
            bmc, facts, verdict), bmc.generation, now)}
    new['conditions'][-1:-1] = [
        condition for condition in old.get('conditions') or ()
        if condition['type'] == HOST]
    if 'bareMetalHost' in old:
        new['bareMetalHost'] = old['bareMetalHost']
    if verdict.secret.holds:
        new['authSecret'] = deployments.auth_secret(bmc)
    if verdict.vm.holds and facts.boot_override:
        new['bootOverride'] = facts.boot_override
    new['placement'] = _placement(bmc, facts, verdict)
    new.update(endpoints.status(bmc, verdict.service, verdict.route))
    return new


def _placement(bmc: spec.Bmc, facts: facts.Facts,
               verdict: verdict.Verdict) -> objects.Json:
    if verdict.slot is not None:
        return {'type': placement.SHARED, 'deployment': verdict.slot.name,
                'slot': verdict.slot.number}
    if facts.placed.wanted and verdict.deployment is None:
        return {'type': placement.SHARED}
    return {'type': placement.PER_VM, 'deployment': naming.base(bmc.name)}


def ready_reason(status: objects.VirtualMachineBMCStatus) -> str:
    """Find the reason of the condition Ready.

    :returns: one word; '' if there is none yet
    """
    return next((condition.get('reason', '') for condition in status.get(
        'conditions') or () if condition.get('type') == READY), '')
