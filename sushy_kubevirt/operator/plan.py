# SPDX-License-Identifier: Apache-2.0
"""Plan: the steps from the facts of a BMC to its desired state.

`steps` is a pure function, and executed steps are not recorded: an operator
that was killed between two steps makes a new plan from the facts.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import drift
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary
from sushy_kubevirt.operator.shared import entry
from sushy_kubevirt.operator import spec
from sushy_kubevirt.pod import options_file

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import desired_state
    from sushy_kubevirt.operator import facts
    from sushy_kubevirt.operator import verdict


@dataclasses.dataclass(frozen=True)
class Create:
    """Create an object; if it exists, read it."""

    body: objects.Json


@dataclasses.dataclass(frozen=True)
class Apply:
    """Change an object by server-side apply.

    :param uid: of the object
    :param upgrade: whether the operator's own desired state has changed, so
        that the change may have to wait for a slot of `rollout`
    """

    body: objects.Json
    uid: str
    upgrade: bool = False


@dataclasses.dataclass(frozen=True)
class Replace:
    """Replace an object, because other clients added fields that apply does
    not remove, or that are incompatible with the desired ones.

    :param uid: of the object
    """

    body: objects.Json
    uid: str


@dataclasses.dataclass(frozen=True)
class Delete:
    """Delete an object.

    :param uid: of the object
    :param conflict: what `route_conflict` returns for a Route that is created
        again because of it; '' for other objects
    """

    ref: bmc_resources.ObjectRef
    uid: str
    conflict: str = ''


@dataclasses.dataclass(frozen=True)
class Generate:
    """Generate user name and password, or the missing one.

    :param uid: of the Secret that lacks them; None if there is no Secret
    :param missing_keys: keys that are missing
    """

    uid: str | None = None
    missing_keys: tuple[str, ...] = (credentials.USERNAME,
                                     credentials.PASSWORD)


@dataclasses.dataclass(frozen=True)
class Adopt:
    """Make the BMC the owner of the Secret of a deleted BMC of its name.

    :param uid: of the Secret
    """

    uid: str


@dataclasses.dataclass(frozen=True)
class Copy:
    """Copy user name and password from the Secret of another namespace.

    :param uid: of the present copy; None if there is none
    """

    uid: str | None = None


@dataclasses.dataclass(frozen=True)
class Issue:
    """Issue a certificate.

    :param names: host names and addresses
    :param uid: of the Secret with the present one; None if there is none
    :param for_new_service: whether to add the address of the Service, which
        a step before this one creates
    """

    names: tuple[str, ...]
    uid: str | None = None
    for_new_service: bool = False


@dataclasses.dataclass(frozen=True)
class EndUpgrade:
    """Remove the annotation `stored_names.UPGRADING` from a Deployment.

    :param uid: of the Deployment
    """

    uid: str


@dataclasses.dataclass(frozen=True)
class Claim:
    """Claim a slot in a shared pod."""


@dataclasses.dataclass(frozen=True)
class Enter:
    """Set the entry of the BMC in its shared pod.

    :param text: see `entry.entry`
    """

    text: str


@dataclasses.dataclass(frozen=True)
class Revoke:
    """Take the rights to the VM from the shared pod."""


@dataclasses.dataclass(frozen=True)
class Leave:
    """Leave the shared pod."""


@dataclasses.dataclass(frozen=True)
class Finalizer:
    """Add the operator's finalizer to the BMC, or remove it.

    :param on: whether to add it
    """

    on: bool


#: Steps on one object, which need not be a BMC's.
Change: typing.TypeAlias = Create | Apply | Replace | Delete

Step: typing.TypeAlias = (
    Change | Generate | Adopt | Copy | Issue | EndUpgrade | Claim | Enter
    | Revoke | Leave | Finalizer)


class Attempt(typing.NamedTuple):
    """A step on an object that did not have the desired effect.

    :param step: class of the step
    :param digest: of the desired object
    :param version: of the object, which does not change with its status
    """

    step: type[Apply | Replace]
    digest: str
    version: int | str | None


@dataclasses.dataclass
class Tried:
    """The steps on a BMC's objects that did not have the desired effect.

    :param attempts: the last one on each object
    :param route_conflict: the last `Delete.conflict`
    """

    attempts: dict[bmc_resources.ObjectRef, Attempt] = dataclasses.field(
        default_factory=dict)
    route_conflict: str = ''


def steps(bmc: spec.Bmc, facts: facts.Facts, verdict: verdict.Verdict,
          desired: desired_state.DesiredState, tried: Tried) -> list[Step]:
    """Compute the next steps, in order.

    Plan again after executing them: more steps may follow from the results.

    :returns: empty if the desired state is reached
    """
    if bmc.deleting:
        return _cleanup_steps(bmc, facts, verdict)
    planned: list[Step] = []
    placed = facts.placed
    if (placed.wanted and placed.slot is None and not verdict.withdrawn
            and not verdict.service and not placed.taken
            and not placed.refused):
        # Everything else needs the slot, which is recorded with those of other
        # new BMCs, unless the shard cannot be written.
        return [] if placed.claimed else [Claim()]
    if (bmc.vm.namespace != bmc.namespace
            and stored_names.ELSEWHERE not in facts.finalizers):
        planned.append(Finalizer(True))
    if placed.wanted and not placed.claimed and not verdict.withdrawn:
        planned.append(Claim())
    ends = 'NetworkPolicy', 'Route'
    policies, route = ([obj for obj in desired.objects if obj['kind'] == kind]
                       for kind in ends)
    service, *others = (
        obj for obj in desired.objects if obj['kind'] not in ends)

    def change(objs: abc.Iterable[objects.Json]) -> list[Step]:
        return [step for obj in objs for step in _change_steps(
            bmc, obj, facts, verdict, tried)]

    return [
        *planned,
        # Before all that lets clients in: see `executor.Closed`.
        *change(policies),
        *change([service]),
        *_credentials_steps(bmc, facts, verdict),
        *_certificate_steps(bmc, facts, verdict, service),
        *change(others),
        *_membership_steps(bmc, facts, verdict, desired.entry),
        *_end_upgrade_steps(verdict),
        *_delete_steps(bmc, facts, verdict, desired.objects),
        # The last: if it is refused, all other steps have been made.
        *change(route)]


def attempt(step: type[Apply | Replace], wanted: objects.Json,
            live: objects.Json) -> Attempt:
    """Identify an attempt to change an object.

    :param wanted: the desired object
    :param live: as the API has it
    """
    metadata = live['metadata']
    return Attempt(
        step, drift.digest(unmarked(wanted)),
        metadata.get('generation') or metadata.get('resourceVersion'))


def route_conflict(live: objects.Json) -> str:
    """Identify what other clients have made of a Route.

    :param live: the Route as the API has it
    :returns: digest that changes with the desired Route that was last written,
        with the fields of the Route and with their owners
    """
    return drift.digest([drift.applied_digest(live), live.get('spec'),
                         drift.foreign_fields(live)])


def has_route_conflict(live: objects.Json | None, tried: Tried) -> bool:
    """Tell whether a Route was created again in vain: other clients have
    made the same of the new one.

    :param live: the Route as the API has it; None if there is none
    """
    return live is not None and tried.route_conflict == route_conflict(live)


def marked(obj: objects.Json) -> objects.Json:
    """Add the digest of the desired object to it."""
    metadata = obj['metadata']
    return {**obj, 'metadata': {**metadata, 'annotations': {
        **metadata.get('annotations', {}),
        stored_names.APPLIED: drift.digest(obj)}}}


def unmarked(obj: objects.Json) -> objects.Json:
    """Remove from an object what `marked` and an upgrade have added."""
    metadata = dict(obj['metadata'])
    annotations = {
        name: value for name, value in metadata.pop('annotations', {}).items()
        if name not in (stored_names.APPLIED, stored_names.UPGRADING)}
    if annotations:
        metadata['annotations'] = annotations
    return {**obj, 'metadata': metadata}


def _cleanup_steps(bmc: spec.Bmc, facts: facts.Facts,
                   verdict: verdict.Verdict) -> list[Step]:
    if (stored_names.HOST_FINALIZER in facts.finalizers
            or stored_names.ELSEWHERE not in facts.finalizers):
        # A BareMetalHost needs the BMC even while that is being deleted.
        return []
    left = [step for step in _delete_steps(bmc, facts, verdict, [])
            if step.ref.namespace != bmc.namespace]
    return [*left] or [Finalizer(False)]


def _change_steps(bmc: spec.Bmc, obj: objects.Json, facts: facts.Facts,
                  verdict: verdict.Verdict, tried: Tried) -> list[Step]:
    if obj['kind'] == 'Secret':
        return [] if facts.state else [Create(obj)]
    live = facts.live.get(bmc_resources.ref(obj))
    if live is None:
        return [Create(marked(obj))]
    if not naming.is_ours(bmc, live):
        return []
    # If the present spec was reconciled before, the difference comes from a
    # new version of the operator.
    return [
        dataclasses.replace(
            step, upgrade=step.upgrade
            and facts.observed_generation == bmc.generation
            and _needs_slot(bmc, obj, live, verdict.deployment))
        if isinstance(step, Apply) else step
        for step in changes(obj, live, tried)]


def changes(obj: objects.Json, live: objects.Json, tried: Tried
            ) -> list[Change]:
    """Compute the steps from an object to its desired state.

    :param obj: the desired object
    :param live: as the API has it
    :returns: `Apply.upgrade` tells whether the desired state has changed
    """
    if 'deletionTimestamp' in live['metadata']:
        return []
    uid = live['metadata'].get('uid')
    if drift.must_recreate(obj, live) or (
            obj['kind'] == 'Service'
            and network.has_another_class(obj, live)):
        return [Delete(bmc_resources.ref(obj), uid)]
    other = drift.applied_digest(live) != drift.digest(obj)
    if not other and not drift.differs(obj, live):
        return []
    last = tried.attempts.get(bmc_resources.ref(obj))
    if last == attempt(Apply, obj, live):
        if obj['kind'] == 'Route':
            # The API server keeps the host that another client has set.
            return [] if has_route_conflict(live, tried) else [
                Delete(bmc_resources.ref(obj), uid, route_conflict(live))]
        return [Replace(marked(obj), uid)]
    if last == attempt(Replace, obj, live):
        # The cluster changes it back every time.
        return []
    return [Apply(marked(obj), uid, other)]


def _membership_steps(bmc: spec.Bmc, facts: facts.Facts,
                      verdict: verdict.Verdict,
                      text: str | None) -> list[Step]:
    """Set the BMC's entry in its shared pod, or leave that.

    The Service selects another pod by then: see `Placement.serving`.
    """
    placed = facts.placed
    if verdict.withdrawn:
        return [Leave()] if placed.claimed else []
    if placed.vm and verdict.state_taken:
        return [Revoke()]
    if not placed.wanted:
        return [Leave()] if placed.claimed and verdict.slot is None else []
    if text is None or placed.digest == entry.digest(text) and (
            placed.policy, placed.vm) == (bmc.network_policy, entry.vm(bmc)):
        return []
    return [Enter(text)]


def _needs_slot(bmc: spec.Bmc, obj: objects.Json, live: objects.Json,
                deployment: objects.Json | None) -> bool:
    """Tell whether a change of an object needs a slot of `rollout`.

    It does if it stops a pod that is ready, or was until the previous
    upgrade. Another pod needs no slot and would never release it.

    :param live: the object as the API has it
    :param deployment: the Deployment as the API has it
    """
    if deployment is None or not (
            deployments.is_ready(deployment) or stored_names.UPGRADING in (
                deployment['metadata'].get('annotations') or {})):
        return False
    if obj['kind'] == 'Deployment':
        # A pod whose ServiceAccount was replaced does not work.
        return deployments.account(deployment) in (
            None, deployments.account(obj))
    # The running pod reads the other files of its ConfigMap again.
    return (
        obj['kind'] == 'ConfigMap'
        and obj['metadata']['name'] == naming.base(bmc.name)
        and obj['data'][options_file.FILE] != (
            live.get('data') or {}).get(options_file.FILE))


def _credentials_steps(bmc: spec.Bmc, facts: facts.Facts,
                       verdict: verdict.Verdict) -> list[Step]:
    auth, source = facts.auth, facts.source
    if not credentials.is_made(bmc) or credentials.copies(bmc) and (
            verdict.withdrawn or source is None or source.missing_keys):
        return []
    if auth is None:
        return [Copy() if source else Generate()]
    if credentials.is_left_over(bmc, auth.obj):
        return [Adopt(_uid(auth))]
    if not naming.is_ours(bmc, auth.obj):
        return []
    if source:
        return [Copy(_uid(auth))] if auth.digest != source.digest else []
    if auth.missing_keys:
        return [Generate(_uid(auth), auth.missing_keys)]
    return []


def _certificate_steps(bmc: spec.Bmc, facts: facts.Facts,
                       verdict: verdict.Verdict, wanted: objects.Json
                       ) -> list[Step]:
    """Issue the certificate for the Service.

    :param wanted: the desired Service
    """
    tls = facts.tls
    is_new = tls is None and bmc_resources.ref(wanted) not in facts.live
    service = wanted if is_new else verdict.service
    if (facts.authority is None or verdict.withdrawn or service is None
            or not is_new and endpoints.cluster_ip(service) is None):
        return []
    names = endpoints.names(bmc, service, verdict.vm_service, verdict.route)
    if tls is None:
        return [Issue(names, for_new_service=is_new)]
    if naming.is_ours(bmc, tls.obj) and (tls.certificate is None or pki.due(
            tls.certificate, names, facts.authority.pair)):
        return [Issue(names, _uid(tls))]
    return []


def _end_upgrade_steps(verdict: verdict.Verdict) -> list[Step]:
    live = verdict.deployment
    if live is None or stored_names.UPGRADING not in (
            live['metadata'].get('annotations') or {}):
        return []
    return [EndUpgrade(live['metadata']['uid'])] if deployments.is_ready(
        live) else []


def _delete_steps(bmc: spec.Bmc, facts: facts.Facts,
                  verdict: verdict.Verdict,
                  wanted: abc.Iterable[objects.Json]) -> list[Delete]:
    """Delete the objects of the BMC that are not desired."""
    stay = {bmc_resources.ref(obj) for obj in wanted}
    base = naming.base(bmc.name)
    keeps_pod = verdict.keeps_pod and not bmc.deleting
    if keeps_pod and verdict.own_pod:
        stay |= {bmc_resources.ObjectRef(kind, bmc.namespace, base)
                 for kind in ('Deployment', 'ConfigMap', 'NetworkPolicy')}
    if keeps_pod:
        stay.add(bmc_resources.ObjectRef(
            'ConfigMap', bmc.namespace, naming.authority(bmc.name)))
    deletions = [
        Delete(ref, live['metadata'].get('uid'))
        for ref, live in facts.live.items()
        if ref not in stay and _is_deletable(bmc, live)]
    if keeps_pod:
        # The present pod may mount them.
        return deletions
    unneeded = (
        (facts.auth, naming.auth(bmc.name), bmc.auth is not None and (
            verdict.withdrawn or not credentials.copies(bmc))),
        (facts.tls, naming.tls(bmc.name), facts.authority is None))
    return deletions + [
        Delete(bmc_resources.ObjectRef('Secret', bmc.namespace, name),
               _uid(summary))
        for summary, name, is_unneeded in unneeded
        if is_unneeded and summary and _is_deletable(bmc, summary.obj)]


def _is_deletable(bmc: spec.Bmc, obj: objects.Json) -> bool:
    return naming.is_ours(bmc, obj) and (
        'deletionTimestamp' not in obj['metadata'])


def _uid(summary: secret_summary.Summary) -> str:
    uid: str = summary.obj['metadata'].get('uid')
    return uid
