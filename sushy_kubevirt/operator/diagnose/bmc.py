# SPDX-License-Identifier: Apache-2.0
"""Checks the conditions of BMCs.

The conditions of one BMC are computed from its objects as they are now, by
the functions that the operator uses, so that they are right, and have the
operator's words, while no operator works.
"""

from __future__ import annotations

import dataclasses

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import observed_state
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import routes
from sushy_kubevirt.operator import secret_summary
from sushy_kubevirt.operator.shared import entry
from sushy_kubevirt.operator.shared import objects
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator import spec

AREA = 'BMCs'

#: Reasons that only the operator knows: from its options, and from responses
#: to its writes.
_ITS_OWN = (conditions.REFUSED, 'ImageNotAllowed', 'RolloutWaiting',
            'PlacementWaiting', 'RouteAPIForbidden', 'RouteChanged')


@dataclasses.dataclass(frozen=True)
class Bmc:
    """A BMC and its objects.

    :param area: of findings about it
    :param spec: a `spec.Bmc`
    :param body: dict, as the API has it
    :param seen: `observed_state.ObservedState`; None if its objects cannot be
        read
    :param certificate: PEM text of the certificate in its Secret, or None
    """

    area: str
    spec: spec.Bmc
    body: dict
    seen: observed_state.ObservedState | None = None
    certificate: str | None = None

    @property
    def deployment(self):
        """The Deployment of its pod, a dict, or None."""
        state = self.seen and self.seen.bmc_state
        return state and (state.deployment or state.placed.deployment)

    @property
    def account(self):
        """Name of the ServiceAccount of its pod."""
        slot = self.seen and self.seen.bmc_state.placed.slot
        return slot.name if slot else naming.base(self.spec.name)

    @property
    def service(self):
        """Its Service, a dict, or None."""
        return self.seen and self.seen.bmc_state.service


def read(reader, namespace, name, take):
    """Read a BMC and its objects.

    :param reader: a `reader.Reader`
    :param namespace: of the BMC
    :param name: of the BMC
    :param take: function that is called with the `Bmc` if it can be checked
    :returns: iterator of `findings.Finding`: why it cannot, or not all of it
    """
    area = f'BMC {namespace}/{name}'
    body = reader.get(bmc_resources.BMC, namespace, name)
    if body is None:
        yield findings.problem(
            area, 'BMCNotFound', 'It does not exist.',
            'kubectl get vmbmc --all-namespaces lists those that do.')
        return
    found = spec.read(body)
    if not found.vm.name:
        yield findings.problem(
            area, 'VirtualMachineNotNamed',
            'It names no VirtualMachine, as it was stored under the '
            "definition of KubeVirtBMC, and is ignored.",
            'Set spec.virtualMachineRef, or delete it.')
        return
    made = Bmc(area, found, body)
    try:
        made = _observe(reader, made)
    except errors.AccessDenied as e:
        yield findings.denied(area, e)
    take(made)


def _observe(reader, made):
    bmc, live = made.spec, {}
    for resource, namespace, name in observed_state.object_refs(bmc):
        if resource == bmc_resources.ROUTE and not bmc.route:
            # The operator may read Routes only on OpenShift.
            continue
        obj = reader.get(resource, namespace, name)
        if obj is not None:
            live[resource.kind, namespace, name] = obj
    refs, secrets = observed_state.secret_refs(bmc), {}
    for at in refs.all():
        secret = reader.get(bmc_resources.SECRET, at.namespace, at.name)
        secrets[at] = secret and secret_summary.summarize(secret)
    vm = reader.get(bmc_resources.VM, bmc.vm.namespace, bmc.vm.name)
    seen = observed_state.assemble(
        bmc, made.body, live, vm, secrets, None, (permissions.ANY,), '',
        route_problem=None if not bmc.route or reader.serves(
            bmc_resources.ROUTE.group) else routes.MISSING,
        placed=_placed(reader, bmc, made.body))
    served = secrets.get(refs.user_tls or refs.tls)
    return dataclasses.replace(
        made, seen=seen, certificate=served.certificate
        if served and seen.bmc_state.certificate else None)


def _placed(reader, bmc, body):
    """Find the placement in the objects of the shard that the status names.

    :returns: `placement.Placement`
    """
    at = (body.get('status') or {}).get('placement') or {}
    wanted = at.get('type') == placement.SHARED
    number = naming.shard_number(at.get('deployment', ''))
    if number is None:
        return placement.Placement(wanted)
    name = naming.shared(number)
    record, reports = (
        (reader.get(bmc_resources.CONFIG_MAP, bmc.namespace, one) or {}).get(
            'data') or {} for one in (name, objects.served(name)))
    text = record.get(bmc.name, '')
    place = entry.place(text)
    if place is None or place[0] != bmc.uid:
        return placement.Placement(wanted)
    deployment = reader.get(bmc_resources.DEPLOYMENT, bmc.namespace, name)
    digest, problem = entry.report(reports.get(bmc.name, ''))
    is_current = digest == entry.digest(text)
    return placement.Placement(
        wanted, True, placement.Slot(number, place[1]), entry.digest(text),
        served=bool(is_current and not problem and deployment
                    and deployments.is_ready(deployment)),
        problem=problem if is_current else '', deployment=deployment)


def status(bmc):
    """Check the conditions of one BMC.

    :param bmc: a `Bmc`
    :returns: iterator of `findings.Finding`
    """
    stored = {one['type']: conditions.Condition(
        one['type'], one['status'] == 'True', one.get('reason', ''),
        one.get('message', ''))
        for one in (bmc.body.get('status') or {}).get('conditions') or ()}
    if not stored:
        yield findings.problem(
            bmc.area, 'NotManaged', 'It has no status: no operator manages '
            'it.', 'Check that the operator runs and manages this namespace '
            '(--namespace).')
    found = dict(stored)
    if bmc.seen is not None:
        found.update((one.type, one) for one in conditions.conditions(
            bmc.spec, bmc.seen.bmc_state)
            if stored.get(one.type, one).reason not in _ITS_OWN
            and not (one.type == conditions.EMULATOR and _waits_for_slot(bmc)))
    outdated = [one for one, was in stored.items()
                if one != conditions.READY
                and (was.status, was.reason) != (found[one].status,
                                                 found[one].reason)]
    found.pop(conditions.READY, None)
    bad = [one for one in found.values() if not one.status]
    # A waiting condition repeats the one that it waits for.
    causes = [one for one in bad if one.reason not in conditions.WAITING]
    for one in causes or bad:
        yield findings.problem(bmc.area, one.reason, one.message)
    if outdated:
        yield findings.warning(
            bmc.area, 'StatusOutdated',
            f"Its status is not up to date: {', '.join(outdated)}.",
            'If this lasts, see the findings about the operator, and its '
            'log.')
    if found and not bad:
        yield findings.ok(bmc.area, 'ServiceReady',
                          'All conditions are fulfilled.')


def _waits_for_slot(bmc):
    """Tell whether a BMC has no place in a shared pod: only the operator knows
    why, such as a foreign object of the shard."""
    placed = bmc.seen.bmc_state.placed
    return placed.wanted and placed.slot is None


def not_ready(reader, settings):
    """Find the BMCs that are not ready, by their status.

    :param reader: a `reader.Reader`
    :param settings: `operator_state.Settings`
    :returns: iterator of `findings.Finding`
    """
    count = 0
    for namespace in settings.namespaces or (None,):
        for body in reader.iterate(bmc_resources.BMC, namespace):
            count += 1
            metadata = body['metadata']
            area = f"BMC {metadata['namespace']}/{metadata['name']}"
            ready = next((one for one in (body.get('status') or {}).get(
                'conditions') or () if one['type'] == conditions.READY), None)
            if ready is None or ready['status'] != 'True':
                yield findings.problem(
                    area, (ready or {}).get('reason', 'NotManaged'),
                    (ready or {}).get('message') or 'It has no status: no '
                    'operator manages it.',
                    f"sushy-kubevirt-operator diagnose {metadata['namespace']}"
                    f"/{metadata['name']} tells more.")
    yield findings.ok(AREA, 'BMCsListed', f'There are {count} BMCs.'
                      + (' Name one to have it checked.' if count else ''))
