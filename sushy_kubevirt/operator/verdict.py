# SPDX-License-Identifier: Apache-2.0
"""Verdict: what follows from the spec and the `facts` of one BMC.

`judge` computes it once in a round. `desired_state`, `plan` and `conditions`
read it, so that the objects of a BMC and its status agree.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import datetime
import enum
import typing

from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator import facts
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import routes
from sushy_kubevirt.operator import secret_summary
from sushy_kubevirt.operator.shared import entry
from sushy_kubevirt.operator import spec

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.shared import placement


class Cause(enum.Enum):
    """Why a condition holds, or does not: `conditions.WORDS` explains it."""

    NOT_PERMITTED = enum.auto()
    NAME_TAKEN = enum.auto()
    REFUSED = enum.auto()

    VM_FOUND = enum.auto()
    VM_NOT_FOUND = enum.auto()
    VM_TERMINATING = enum.auto()

    SECRET_GENERATED = enum.auto()
    SECRET_FOUND = enum.auto()
    SECRET_OWNED_BY_HOST = enum.auto()
    SECRET_UNUSABLE_FOR_IPMI = enum.auto()
    SECRET_PENDING = enum.auto()
    SECRET_NOT_FOUND = enum.auto()
    SECRET_INCOMPLETE = enum.auto()
    SECRET_UNUSABLE = enum.auto()

    WAITING_FOR_VM = enum.auto()
    WAITING_FOR_SECRET = enum.auto()
    WAITING_FOR_CERTIFICATE = enum.auto()
    IMAGE_NOT_ALLOWED = enum.auto()
    HOSTS_INVALID = enum.auto()
    POD_READY = enum.auto()
    POD_CREATING = enum.auto()
    POD_STARTING = enum.auto()
    POD_NOT_READY = enum.auto()
    POD_UPGRADE_WAITS = enum.auto()
    SHARED_POD_SERVES_YET = enum.auto()
    SHARED_POD_READY = enum.auto()
    SHARED_POD_UPGRADE_WAITS = enum.auto()
    SHARED_NAME_TAKEN = enum.auto()
    NO_SLOT = enum.auto()
    ENTRY_STARTING = enum.auto()
    ENTRY_PROBLEM = enum.auto()
    OWN_POD_SERVES_YET = enum.auto()
    SIZE_MARGIN_INVALID = enum.auto()

    ADDRESS_ASSIGNED = enum.auto()
    SECOND_NAME_INVALID = enum.auto()
    SECOND_NAME_TAKEN = enum.auto()
    LOAD_BALANCER_PENDING = enum.auto()
    SERVICE_PENDING = enum.auto()
    NETWORKS_INVALID = enum.auto()
    CERTIFICATE_PENDING = enum.auto()
    CERTIFICATE_MISSING = enum.auto()
    CERTIFICATE_UNUSABLE = enum.auto()
    CERTIFICATE_EXPIRED = enum.auto()
    CERTIFICATE_NOT_YET_VALID = enum.auto()
    ROUTE_API_MISSING = enum.auto()
    ROUTE_API_FORBIDDEN = enum.auto()
    ROUTE_AUTHORITY_UNUSABLE = enum.auto()
    ROUTE_CHANGED = enum.auto()
    ROUTE_REJECTED = enum.auto()
    ROUTE_PENDING = enum.auto()


_HOLDING = frozenset((
    Cause.VM_FOUND, Cause.SECRET_GENERATED, Cause.SECRET_FOUND,
    Cause.SECRET_OWNED_BY_HOST, Cause.SECRET_UNUSABLE_FOR_IPMI,
    Cause.POD_READY, Cause.POD_UPGRADE_WAITS,
    Cause.SHARED_POD_SERVES_YET, Cause.SHARED_POD_READY,
    Cause.SHARED_POD_UPGRADE_WAITS, Cause.OWN_POD_SERVES_YET,
    Cause.SIZE_MARGIN_INVALID,
    Cause.ADDRESS_ASSIGNED, Cause.SECOND_NAME_INVALID,
    Cause.SECOND_NAME_TAKEN))

#: Causes that follow from another condition.
_WAITING = frozenset((Cause.WAITING_FOR_VM, Cause.WAITING_FOR_SECRET,
                      Cause.WAITING_FOR_CERTIFICATE))

_STARTING = frozenset((
    Cause.NO_SLOT, Cause.POD_CREATING, Cause.POD_STARTING,
    Cause.ENTRY_STARTING, Cause.SECRET_PENDING, Cause.SERVICE_PENDING,
    Cause.CERTIFICATE_PENDING))


class Judgment(typing.NamedTuple):
    """Whether a condition holds, and why.

    :param subject: what it is about, such as an object, as 'Kind name'
    :param detail: what the API server, or a library, says of it
    """

    cause: Cause
    subject: str = ''
    detail: str = ''

    @property
    def holds(self) -> bool:
        """Whether the condition is true."""
        return self.cause in _HOLDING


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What follows for one BMC. Objects are its own, as the API has them.

    :param vm_service: name of the Service of `naming.vm_service`; None if the
        BMC needs none, or cannot have it
    :param foreign: foreign objects with names of the BMC's, as 'Kind name'
    :param conflicts: those whose rights or credentials a pod would get
    :param state_taken: whether the Secret with the BMC's state is foreign
    :param credentials: the Secret with user name and password: the one that
        the BMC names, or the one made for it
    :param unusable_keys: its values that the BMC's protocols cannot use, also
        IPMI that is optional: see `credentials.unusable_keys`
    :param certificate: the Secret with the certificate to serve, if usable
    :param certificate_problem: why there is none; None if none is needed
    :param validity: begin and end of the validity of a user's certificate
    :param wrong_hosts: see `spec.wrong_hosts`
    :param image_allowed: whether the BMC may use the image in its spec
    :param withdrawn: whether the BMC names an object that it may not use
    :param slot: that of the shared pod which the Service selects; None for the
        pod of the BMC's own
    :param own_pod: whether the BMC is to have a pod of its own, or still has
        it
    :param accounts: that may act on the VM by the Role of the BMC
    :param keeps_pod: whether the Deployment and its ConfigMap must be neither
        changed nor deleted now
    :param keeps_entry: whether what the pod reads must not be changed now
    :param vm: whether the VM is available; the others are the other conditions
    """

    account: objects.Json | None
    deployment: objects.Json | None
    service: objects.Json | None
    route: objects.Json | None
    vm_service: str | None
    foreign: tuple[str, ...]
    conflicts: tuple[str, ...]
    state_taken: bool
    credentials: secret_summary.Summary | None
    unusable_keys: tuple[tuple[str, str], ...]
    certificate: secret_summary.Summary | None
    certificate_problem: Judgment | None
    validity: tuple[datetime.datetime, datetime.datetime] | None
    wrong_hosts: str
    image_allowed: bool
    withdrawn: bool
    slot: placement.Slot | None
    own_pod: bool
    accounts: tuple[str, ...]
    keeps_pod: bool
    keeps_entry: bool
    vm: Judgment
    secret: Judgment
    emulator: Judgment
    endpoint: Judgment

    @property
    def obstacle(self) -> Judgment | None:
        """Why the BMC is not ready; None if it is.

        A refusal is the cause of other conditions, and the cause of a waiting
        condition is in the one that it waits for.
        """
        return min(
            (judgment for judgment in (self.vm, self.secret, self.emulator,
                                       self.endpoint) if not judgment.holds),
            key=lambda judgment: (judgment.cause is not Cause.REFUSED,
                                  judgment.cause in _WAITING), default=None)

    @property
    def starting(self) -> bool:
        """Whether the BMC is not ready because its pod is starting."""
        return self.obstacle is not None and self.obstacle.cause in _STARTING

    def while_upgrade_waits(self) -> Verdict:
        """Return the same, while the upgrade of the pod waits for others."""
        return self if self.emulator.cause is not Cause.POD_READY else (
            dataclasses.replace(self, emulator=Judgment(
                Cause.POD_UPGRADE_WAITS)))


def served(bmc: spec.Bmc, facts: facts.Facts) -> spec.Bmc:
    """Leave optional IPMI out of a BMC whose Secret it alone cannot use."""
    secret = facts.source if bmc.auth else facts.auth
    return dataclasses.replace(bmc, ipmi=False) if (
        bmc.ipmi_is_optional and secret
        and {*dict(secret.unusable_keys)} == {credentials.IPMI}) else bmc


def judge(bmc: spec.Bmc, facts: facts.Facts,
          defaults: deployments.Defaults) -> Verdict:
    """Compute the verdict on a BMC."""
    placed = facts.placed
    account = _own(bmc, facts, 'ServiceAccount')
    deployment = _own(bmc, facts, 'Deployment')
    foreign = _foreign(bmc, facts)
    conflicts = _conflicts(bmc, facts, foreign)
    state_taken = 'Secret ' + state_secret.name(bmc.vm.name) in foreign
    auth = _own_secret(bmc, facts.auth)
    named = facts.source if bmc.auth else auth
    certificate = _certificate(bmc, facts)
    vm = _judge_vm(bmc, facts)
    secret = _judge_secret(bmc, facts, named, foreign)
    withdrawn = Cause.NOT_PERMITTED in (vm.cause, secret.cause)
    wrong_hosts = spec.wrong_hosts(bmc)
    image_allowed = bmc.image is None or permissions.image_allowed(
        bmc.image, defaults.allowed_images)
    slot = placed.serving(_has_ready_pod(deployment))
    own_pod = not placed.wanted or slot is None and deployment is not None
    # All volumes of a pod must exist: a pod that waits for one does not serve.
    # Nor must it get the rights or the credentials of a foreign object.
    keeps_entry = bool(
        wrong_hosts or conflicts or not secret.holds
        or credentials.copies(bmc) and not auth
        or deployments.tls_secret(bmc) and not certificate)
    # If a new image is refused, an allowed pod stays.
    keeps_pod = not withdrawn and (
        placed.wanted or account is None or keeps_entry
        or not image_allowed and _is_allowed(deployment, defaults))
    draft = Verdict(
        account=account, deployment=deployment,
        service=_own(bmc, facts, 'Service'),
        route=_own(bmc, facts, 'Route', naming.route(bmc)),
        vm_service=_vm_service(bmc, facts, foreign), foreign=foreign,
        conflicts=conflicts, state_taken=state_taken, credentials=named,
        unusable_keys=_unusable_keys(bmc, named), certificate=certificate,
        certificate_problem=_certificate_problem(bmc, facts, certificate),
        validity=_validity(facts), wrong_hosts=wrong_hosts,
        image_allowed=image_allowed, withdrawn=withdrawn, slot=slot,
        own_pod=own_pod, accounts=() if state_taken else _accounts(
            bmc, facts, foreign, own_pod),
        keeps_pod=keeps_pod, keeps_entry=keeps_entry, vm=vm, secret=secret,
        # Below, as they follow from the rest.
        emulator=vm, endpoint=vm)
    return dataclasses.replace(
        draft, emulator=_judge_emulator(bmc, facts, draft),
        endpoint=_judge_endpoint(bmc, facts, draft))


def foreign_refs(bmc: spec.Bmc, live: facts.Live
                 ) -> list[bmc_resources.ObjectRef]:
    """List the foreign objects that have a name which a BMC needs.

    A foreign Service of `naming.possible_vm_service` is none of them unless
    the BMC is to have that Service, nor is a foreign Route.

    :param live: as in `facts.Facts`
    """
    unneeded: set[tuple[str, str, str | None]] = set()
    if not naming.vm_service(bmc):
        unneeded.add(('Service', bmc.namespace,
                      naming.possible_vm_service(bmc)))
    if not bmc.route:
        unneeded.add(('Route', bmc.namespace, naming.route(bmc)))
    return [ref for ref, obj in live.items()
            if ref not in unneeded and not naming.is_ours(bmc, obj)]


def _foreign(bmc: spec.Bmc, facts: facts.Facts) -> tuple[str, ...]:
    """List the foreign objects with names of the BMC's, as 'Kind name'."""
    foreign = [f'{ref.kind} {ref.name}'
               for ref in foreign_refs(bmc, facts.live)]
    if (facts.auth and credentials.is_made(bmc)
            and not naming.is_ours(bmc, facts.auth.obj)
            and not credentials.is_left_over(bmc, facts.auth.obj)):
        foreign.append('Secret ' + naming.auth(bmc.name))
    if (facts.tls and deployments.is_issued(bmc)
            and not naming.is_ours(bmc, facts.tls.obj)):
        foreign.append('Secret ' + naming.tls(bmc.name))
    # The pod would read a foreign Secret, or one that another controller
    # writes, if it has another type.
    if facts.state and (
            facts.state.type != secret_summary.TYPE
            or (facts.state.obj['metadata'].get('labels') or {}).get(
                naming.MANAGED_BY) not in (
                    naming.OPERATOR, state_secret.MANAGER)):
        foreign.append('Secret ' + state_secret.name(bmc.vm.name))
    return tuple(foreign)


def _conflicts(bmc: spec.Bmc, facts: facts.Facts,
               foreign: abc.Iterable[str]) -> tuple[str, ...]:
    """List the foreign objects whose rights or credentials a pod would get."""
    unneeded = [f'{kind} {naming.base(bmc.name)}' for kind in (
        'ConfigMap', 'Deployment', 'NetworkPolicy', 'Role', 'RoleBinding',
        'ServiceAccount') if facts.placed.wanted]
    return tuple(subject for subject in foreign if subject not in unneeded
                 and not subject.startswith(('Service ', 'Route ')))


def _vm_service(bmc: spec.Bmc, facts: facts.Facts,
                foreign: abc.Container[str]) -> str | None:
    name = naming.vm_service(bmc)
    return None if (facts.reserved or f'Service {name}' in foreign
                    or _is_unnamable(name, facts)) else name


def _is_unnamable(name: str | None, facts: facts.Facts) -> bool:
    return naming.begins_with_digit(name) and not facts.digits


def _certificate(bmc: spec.Bmc, facts: facts.Facts
                 ) -> secret_summary.Summary | None:
    served = facts.user_tls if bmc.redfish.secret else _own_secret(
        bmc, facts.tls)
    return served if served and served.certificate else None


def _validity(facts: facts.Facts
              ) -> tuple[datetime.datetime, datetime.datetime] | None:
    pem = facts.user_tls.certificate if facts.user_tls else None
    return pki.validity(pem) if pem else None


def _is_allowed(deployment: objects.Json | None,
                defaults: deployments.Defaults) -> bool:
    """Tell whether all images of the present pod are allowed."""
    patterns = (*defaults.allowed_images,
                permissions.repository(defaults.image))
    return deployment is not None and all(
        permissions.image_allowed(image, patterns)
        for image in deployments.images(deployment))


def _accounts(bmc: spec.Bmc, facts: facts.Facts,
              foreign: abc.Container[str], own_pod: bool) -> tuple[str, ...]:
    """List the accounts that may act on the VM by the Role of the BMC, no
    foreign one.

    That of a shared pod may by a Role of the shard, but for a VM in another
    namespace.
    """
    own, placed = naming.base(bmc.name), facts.placed
    accounts = [own] if own_pod and (
        'ServiceAccount ' + own not in foreign) else []
    if (placed.slot and not entry.vm(bmc)
            and not placed.taken.startswith('ServiceAccount ')):
        accounts.append(placed.slot.name)
    return tuple(accounts)


def _judge_vm(bmc: spec.Bmc, facts: facts.Facts) -> Judgment:
    if not _is_permitted(bmc, bmc.vm, facts.vm):
        return Judgment(Cause.NOT_PERMITTED, f'VirtualMachine {bmc.vm}')
    if facts.vm is None:
        return Judgment(Cause.VM_NOT_FOUND)
    if 'deletionTimestamp' in facts.vm['metadata']:
        return Judgment(Cause.VM_TERMINATING)
    return Judgment(Cause.VM_FOUND)


def _judge_secret(bmc: spec.Bmc, facts: facts.Facts,
                  secret: secret_summary.Summary | None,
                  foreign: abc.Container[str]) -> Judgment:
    generated = 'Secret ' + naming.auth(bmc.name)
    if facts.refused and facts.refused.subject == generated:
        return Judgment(Cause.REFUSED, *facts.refused)
    if bmc.auth is None and generated in foreign:
        return Judgment(Cause.NAME_TAKEN, generated)
    if bmc.auth is not None and not _is_permitted(
            bmc, bmc.auth, secret.obj if secret else None):
        return Judgment(Cause.NOT_PERMITTED, f'Secret {bmc.auth}')
    if secret is None:
        return Judgment(Cause.SECRET_NOT_FOUND if bmc.auth
                        else Cause.SECRET_PENDING)
    if secret.missing_keys:
        return Judgment(Cause.SECRET_INCOMPLETE)
    if any(protocol in credentials.protocols(bmc)
           for protocol, _ in secret.unusable_keys):
        return Judgment(Cause.SECRET_UNUSABLE)
    if _unusable_keys(bmc, secret):
        return Judgment(Cause.SECRET_UNUSABLE_FOR_IPMI)
    if bmc.auth is None:
        return Judgment(Cause.SECRET_GENERATED)
    host = credentials.owning_host(secret.obj)
    if host:
        return Judgment(Cause.SECRET_OWNED_BY_HOST, host)
    return Judgment(Cause.SECRET_FOUND)


def _is_permitted(bmc: spec.Bmc, reference: objects.ObjectKey,
                  obj: objects.AnyObject | None) -> bool:
    """Tell whether a BMC may use an object.

    The same for one that does not exist: a BMC must not reveal which objects
    there are in other namespaces.
    """
    return reference.namespace == bmc.namespace or (
        obj is not None and permissions.reference_permitted(
            bmc.namespace, obj))


def _unusable_keys(bmc: spec.Bmc, secret: secret_summary.Summary | None
                   ) -> tuple[tuple[str, str], ...]:
    protocols = credentials.protocols(bmc)
    if bmc.ipmi_is_optional:
        protocols.append(credentials.IPMI)
    return tuple(
        (protocol, key)
        for protocol, key in (secret.unusable_keys if secret else ())
        if protocol in protocols)


def _judge_emulator(bmc: spec.Bmc, facts: facts.Facts,
                    verdict: Verdict) -> Judgment:
    placed, problem = facts.placed, verdict.certificate_problem
    is_served = _has_ready_pod(verdict.deployment) or placed.served
    if verdict.vm.cause is Cause.NOT_PERMITTED:
        return Judgment(Cause.WAITING_FOR_VM)
    if facts.refused and facts.refused.subject not in (
            *_endpoint_objects(bmc), 'Secret ' + naming.auth(bmc.name)):
        return Judgment(Cause.REFUSED, *facts.refused)
    if not verdict.secret.holds and not is_served:
        return Judgment(Cause.WAITING_FOR_SECRET)
    if not verdict.image_allowed:
        return Judgment(Cause.IMAGE_NOT_ALLOWED)
    if verdict.wrong_hosts:
        return Judgment(Cause.HOSTS_INVALID)
    if verdict.conflicts:
        return Judgment(Cause.NAME_TAKEN, verdict.conflicts[0])
    # Without a slot there is no Service, and without that no certificate.
    if problem and not is_served and not (
            placed.wanted and placed.slot is None):
        return Judgment(Cause.WAITING_FOR_CERTIFICATE)
    judgment = _judge_pod(facts, verdict)
    if bmc.media.size_margin is None and judgment.cause in (
            Cause.POD_READY, Cause.SHARED_POD_READY):
        return Judgment(Cause.SIZE_MARGIN_INVALID)
    return judgment


def _judge_pod(facts: facts.Facts, verdict: Verdict) -> Judgment:
    if facts.placed.wanted:
        return _judge_shared_pod(facts, verdict)
    if verdict.slot and facts.placed.served:
        return Judgment(Cause.SHARED_POD_SERVES_YET, verdict.slot.name)
    return _judge_deployment(verdict.deployment) or Judgment(Cause.POD_READY)


def _judge_shared_pod(facts: facts.Facts, verdict: Verdict) -> Judgment:
    placed = facts.placed
    if _has_ready_pod(verdict.deployment) and not placed.served:
        return Judgment(Cause.OWN_POD_SERVES_YET)
    if placed.taken:
        return Judgment(Cause.SHARED_NAME_TAKEN)
    if placed.refused:
        return Judgment(Cause.REFUSED, *placed.refused)
    if placed.slot is None:
        return Judgment(Cause.NO_SLOT)
    problem = _judge_deployment(placed.deployment)
    if problem:
        return problem
    if placed.problem:
        return Judgment(Cause.ENTRY_PROBLEM)
    if not placed.served:
        return Judgment(Cause.ENTRY_STARTING)
    return Judgment(Cause.SHARED_POD_UPGRADE_WAITS if placed.waiting
                    else Cause.SHARED_POD_READY)


def _judge_deployment(deployment: objects.Json | None) -> Judgment | None:
    """Judge a Deployment of a BMC or a shard.

    :returns: None if it is ready
    """
    if deployment is None:
        return Judgment(Cause.POD_CREATING)
    if deployments.is_ready(deployment):
        return None
    # Until the present pod was ready once, it is starting.
    if deployments.is_progressing(deployment):
        return Judgment(Cause.POD_STARTING)
    return Judgment(Cause.POD_NOT_READY, detail=deployments.failure_message(
        deployment.get('status') or {}))


def _judge_endpoint(bmc: spec.Bmc, facts: facts.Facts,
                    verdict: Verdict) -> Judgment:
    name = 'Service ' + naming.base(bmc.name)
    if name in verdict.foreign:
        return Judgment(Cause.NAME_TAKEN, name)
    if facts.refused and facts.refused.subject in _endpoint_objects(bmc):
        return Judgment(Cause.REFUSED, *facts.refused)
    if bmc.refused_networks:
        return Judgment(Cause.NETWORKS_INVALID)
    problem = (verdict.certificate_problem or _validity_problem(facts, verdict)
               or _route_problem(bmc, facts, verdict))
    if problem:
        return problem
    address = verdict.service and endpoints.host(bmc, verdict.service)
    second = naming.vm_service(bmc)
    if address and second and not verdict.vm_service:
        return Judgment(
            Cause.SECOND_NAME_INVALID if _is_unnamable(second, facts)
            else Cause.SECOND_NAME_TAKEN, address)
    if address:
        return Judgment(Cause.ADDRESS_ASSIGNED, address)
    if verdict.service and bmc.service.type == network.LOAD_BALANCER:
        return Judgment(Cause.LOAD_BALANCER_PENDING)
    return Judgment(Cause.SERVICE_PENDING)


def _certificate_problem(bmc: spec.Bmc, facts: facts.Facts,
                         certificate: secret_summary.Summary | None
                         ) -> Judgment | None:
    if certificate or not deployments.tls_secret(bmc):
        return None
    if not bmc.redfish.secret:
        return Judgment(Cause.CERTIFICATE_PENDING)
    if facts.user_tls and facts.user_tls.fault:
        return Judgment(Cause.CERTIFICATE_UNUSABLE,
                        detail=facts.user_tls.fault)
    return Judgment(Cause.CERTIFICATE_MISSING)


def _validity_problem(facts: facts.Facts, verdict: Verdict
                      ) -> Judgment | None:
    if verdict.validity is None:
        return None
    begin, end = verdict.validity
    if facts.now >= end:
        return Judgment(Cause.CERTIFICATE_EXPIRED)
    if facts.now < begin:
        return Judgment(Cause.CERTIFICATE_NOT_YET_VALID)
    return None


def _route_problem(bmc: spec.Bmc, facts: facts.Facts, verdict: Verdict
                   ) -> Judgment | None:
    """Tell why the BMC lacks the Route that its spec asks for.

    :returns: None if it has it, or needs none
    """
    if bmc.route is None:
        return None
    if facts.route_problem == routes.MISSING:
        return Judgment(Cause.ROUTE_API_MISSING)
    if facts.route_problem == routes.FORBIDDEN:
        return Judgment(Cause.ROUTE_API_FORBIDDEN)
    if (bmc.route.termination == routes.REENCRYPT
            and facts.user_tls and facts.user_tls.authority is None):
        return Judgment(Cause.ROUTE_AUTHORITY_UNUSABLE)
    name = 'Route ' + naming.route(bmc)
    if name in verdict.foreign:
        return Judgment(Cause.NAME_TAKEN, name)
    if facts.route_conflict:
        return Judgment(Cause.ROUTE_CHANGED)
    if routes.hosts(verdict.route):
        return None
    rejection = routes.rejection(verdict.route)
    if rejection:
        return Judgment(Cause.ROUTE_REJECTED, detail=rejection)
    return Judgment(Cause.ROUTE_PENDING)


def _has_ready_pod(deployment: objects.Json | None) -> bool:
    """Tell whether the BMC's own pod, maybe a previous one, is ready."""
    status = (deployment or {}).get('status') or {}
    return bool(status.get('readyReplicas', 0) > 0)


def _endpoint_objects(bmc: spec.Bmc) -> tuple[str, ...]:
    """Name the objects whose refusal belongs to the condition of the
    endpoint."""
    return ('Service ' + naming.base(bmc.name),
            f'Service {naming.vm_service(bmc)}',
            'Secret ' + naming.tls(bmc.name),
            'Secret ' + naming.AUTHORITY,
            'ConfigMap ' + naming.authority(bmc.name),
            'Route ' + naming.route(bmc))


def _own(bmc: spec.Bmc, facts: facts.Facts, kind: str,
         name: str = '') -> objects.Json | None:
    obj = facts.live.get(bmc_resources.ObjectRef(
        kind, bmc.namespace, name or naming.base(bmc.name)))
    return obj if obj and naming.is_ours(bmc, obj) else None


def _own_secret(bmc: spec.Bmc, secret: secret_summary.Summary | None
                ) -> secret_summary.Summary | None:
    return secret if secret and naming.is_ours(bmc, secret.obj) else None
