# SPDX-License-Identifier: Apache-2.0
"""Checks the conditions of BMCs.

The conditions of one BMC are computed from its objects as they are now, by
the functions that the operator uses, so that they are right, and have the
operator's words, while no operator works.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator import facts
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import routes
from sushy_kubevirt.operator import secret_summary
from sushy_kubevirt.operator.shared import entry
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator.shared import shard_manifests
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import verdict

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.diagnose import operator_state
    from sushy_kubevirt.operator.diagnose import reader as readers

AREA = 'BMCs'

#: Reasons that only the operator knows: from its options, and from responses
#: to its writes.
_ITS_OWN = (conditions.REFUSED, 'ImageNotAllowed', 'RolloutWaiting',
            'PlacementWaiting', 'RouteAPIForbidden', 'RouteChanged')


@dataclasses.dataclass
class Bmc:
    """A BMC and its objects.

    :param body: as the API has it
    :param facts: None if its objects cannot be read
    :param certificate: PEM text of the certificate in its Secret, or None
    :param served: DER of the certificate that the server sends, or None
    """

    spec: spec.Bmc
    body: objects.VirtualMachineBMC
    facts: facts.Facts | None = None
    verdict: verdict.Verdict | None = None
    certificate: str | None = None
    served: bytes | None = None

    @property
    def deployment(self) -> objects.Json | None:
        """The Deployment of its pod."""
        if self.facts is None or self.verdict is None:
            return None
        return self.verdict.deployment or self.facts.placed.deployment

    @property
    def account(self) -> str:
        """Name of the ServiceAccount of its pod."""
        slot = self.facts.placed.slot if self.facts else None
        return slot.name if slot else naming.base(self.spec.name)

    @property
    def service(self) -> objects.Json | None:
        """Its Service."""
        return self.verdict.service if self.verdict else None


def read(reader: readers.Reader, namespace: str, name: str,
         take: abc.Callable[[Bmc], object]) -> abc.Iterator[findings.Finding]:
    """Read a BMC and its objects.

    :param namespace: of the BMC
    :param name: of the BMC
    :param take: called with the BMC if it can be checked
    :returns: why it cannot, or not all of it
    """
    body = reader.get(bmc_resources.BMC, namespace, name)
    if body is None:
        yield findings.problem(
            'BMCNotFound', 'It does not exist.',
            'kubectl get vmbmc --all-namespaces lists those that do.')
        return
    parsed = spec.read(body)
    if not parsed.vm.name:
        yield findings.problem(
            'VirtualMachineNotNamed',
            'It names no VirtualMachine, as it was stored under the '
            "definition of KubeVirtBMC, and is ignored.",
            'Set spec.virtualMachineRef, or delete it.')
        return
    checked = Bmc(parsed, body)
    try:
        _observe(reader, checked)
    except errors.AccessDenied as e:
        yield findings.denied(e)
    take(checked)


def _observe(reader: readers.Reader, checked: Bmc) -> None:
    bmc = checked.spec
    live: facts.Live = {}
    for ref in facts.object_refs(bmc):
        if ref.kind == 'Route' and not bmc.route:
            # The operator may read Routes only on OpenShift.
            continue
        obj = reader.get(*ref.target)
        if obj is not None:
            live[ref] = obj
    auth, source, tls, user_tls, state = [
        _summary(reader, reference) for reference in facts.secret_refs(bmc)]
    checked.facts = facts.Facts(
        live, reader.get(bmc_resources.VM, bmc.vm.namespace, bmc.vm.name),
        auth, source, tls, user_tls, state,
        placed=_placed(reader, bmc, checked.body),
        route_problem=None if not bmc.route or reader.client.serves_group(
            bmc_resources.ROUTE.group) else routes.MISSING)
    checked.spec = bmc = verdict.served(bmc, checked.facts)
    checked.verdict = verdict.judge(bmc, checked.facts, deployments.Defaults(
        '', allowed_images=(permissions.ANY,)))
    if checked.verdict.certificate:
        checked.certificate = checked.verdict.certificate.certificate


def _summary(reader: readers.Reader, reference: objects.ObjectKey | None
             ) -> secret_summary.Summary | None:
    secret = reference and reader.get(
        bmc_resources.SECRET, reference.namespace, reference.name)
    return secret_summary.summarize(secret) if secret else None


def _placed(reader: readers.Reader, bmc: spec.Bmc,
            body: objects.VirtualMachineBMC) -> placement.Placement:
    """Find the placement in the objects of the shard that the status names."""
    stated = (body.get('status') or {}).get('placement') or {}
    wanted = stated.get('type') == placement.SHARED
    number = naming.shard_number(stated.get('deployment', ''))
    if number is None:
        return placement.Placement(wanted)
    name = naming.shared(number)
    record, reports = (
        (reader.get(bmc_resources.CONFIG_MAP, bmc.namespace, config_map)
         or {}).get('data') or {}
        for config_map in (name, shard_manifests.served(number)))
    text = record.get(bmc.name, '')
    recorded = entry.recorded(text)
    if recorded is None or recorded.uid != bmc.uid:
        return placement.Placement(wanted)
    deployment = reader.get(bmc_resources.DEPLOYMENT, bmc.namespace, name)
    digest, problem = entry.report(reports.get(bmc.name, ''))
    is_current = digest == entry.digest(text)
    return placement.Placement(
        wanted, True, placement.Slot(number, recorded.slot),
        entry.digest(text), served=bool(
            is_current and not problem and deployment
            and deployments.is_ready(deployment)),
        problem=problem if is_current else '', deployment=deployment)


def status(bmc: Bmc) -> abc.Iterator[findings.Finding]:
    """Check the conditions of one BMC."""
    stored = {type_: conditions.Condition(
        type_, condition['status'] == 'True', condition.get('reason', ''),
        condition.get('message', ''))
        for type_, condition in objects.conditions_of(bmc.body).items()}
    if not stored:
        yield findings.problem(
            'NotManaged', 'It has no status: no operator manages '
            'it.', 'Check that the operator runs and manages this namespace '
            '(--namespace).')
    present = dict(stored)
    if bmc.facts is not None and bmc.verdict is not None:
        placed = bmc.facts.placed
        for condition in conditions.conditions(
                bmc.spec, bmc.facts, bmc.verdict):
            if (stored.get(condition.type, condition).reason not in _ITS_OWN
                    # Only the operator knows why a BMC has no slot.
                    and not (condition.type == conditions.EMULATOR
                             and placed.wanted and placed.slot is None)):
                present[condition.type] = condition
    outdated = [type_ for type_, was in stored.items()
                if type_ not in conditions.SUMMARIES
                and (was.status, was.reason) != (present[type_].status,
                                                 present[type_].reason)]
    for type_ in conditions.SUMMARIES:
        present.pop(type_, None)
    bad = [condition for condition in present.values()
           if not condition.status]
    # A waiting condition repeats the one that it waits for.
    causes = [condition for condition in bad
              if condition.reason not in conditions.WAITING]
    for condition in causes or bad:
        yield findings.problem(condition.reason, condition.message)
    if outdated:
        yield findings.warning(
            'StatusOutdated',
            f"Its status is not up to date: {', '.join(outdated)}.",
            'If this lasts, see the findings about the operator, and its '
            'log.')
    if present and not bad:
        yield findings.ok('ServiceReady', 'All conditions are fulfilled.')


def not_ready(
        reader: readers.Reader,
        settings: operator_state.Settings) -> abc.Iterator[findings.Finding]:
    """Find the BMCs that are not ready, by their status."""
    count = 0
    for namespace in settings.namespaces or (None,):
        for body in reader.iterate(bmc_resources.BMC, namespace):
            count += 1
            metadata = body['metadata']
            name = f"{metadata['namespace']}/{metadata['name']}"
            ready: objects.Condition = objects.conditions_of(body).get(
                conditions.READY, {})
            if ready.get('status') != 'True':
                yield findings.problem(
                    ready.get('reason', 'NotManaged'),
                    ready.get('message') or 'It has no status: no operator '
                    'manages it.',
                    f'sushy-kubevirt-operator diagnose {name} tells more.',
                    f'BMC {name}')
    yield findings.ok('BMCsListed', f'There are {count} BMCs.'
                      + (' Name one to have it checked.' if count else ''))
