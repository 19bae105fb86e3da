# SPDX-License-Identifier: Apache-2.0
"""Desired state: what a BMC should have now.

The Secrets with random content (`credentials`, `pki`) are not included: they
are created once, and `plan` only adds missing keys.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator import routes
from sushy_kubevirt.operator.shared import entry

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.operator import facts
    from sushy_kubevirt.operator import spec
    from sushy_kubevirt.operator import verdict


class DesiredState(typing.NamedTuple):
    """What a BMC should have.

    :param objects: in the order in which they are made, the Service first; all
        others of the BMC are to be deleted
    :param entry: in its shared pod; None if it is to have none, or the present
        one must not be changed
    """

    objects: list[objects.Json]
    entry: str | None = None


def of(bmc: spec.Bmc, facts: facts.Facts, verdict: verdict.Verdict,
       defaults: deployments.Defaults) -> DesiredState:
    """Make the desired state of a BMC."""
    return DesiredState(_objects(bmc, facts, verdict, defaults),
                        _entry(bmc, facts, verdict, defaults))


def _objects(bmc: spec.Bmc, facts: facts.Facts, verdict: verdict.Verdict,
             defaults: deployments.Defaults) -> list[objects.Json]:
    """Make the desired objects.

    Objects that exist stay desired, or are kept by `Verdict.keeps_pod`, when
    the Secret or the VM is deleted, as long as the BMC is permitted to use it.
    """
    if bmc.deleting:
        return []
    wanted = [network.service(bmc, verdict.slot)]
    if facts.authority and not verdict.withdrawn:
        wanted.append(endpoints.authority(bmc, facts.authority.bundle))
    if verdict.vm_service:
        wanted.append(network.vm_service(bmc, verdict.slot))
    if verdict.withdrawn:
        # A permission was withdrawn: delete the Role and the pod.
        return wanted
    # Before the Role: see `rbac`.
    if facts.vm and verdict.vm.holds:
        wanted.append(rbac.state(facts.vm))
    if verdict.own_pod:
        wanted.append(rbac.account(bmc))
    if verdict.accounts:
        wanted += [rbac.role(bmc, bool(defaults.proxy)),
                   rbac.binding(bmc, verdict.accounts)]
    policy = network.policy(bmc)
    if policy is not None and verdict.own_pod:
        wanted.append(policy)
    if verdict.account and not verdict.keeps_pod:
        if bmc.redfish.enabled:
            wanted.append(config_map.config_map(
                bmc, defaults.proxy, defaults.denied))
        if verdict.image_allowed:
            wanted.append(deployments.deployment(
                bmc, defaults, verdict.account['metadata']['uid']))
    if bmc.route and not facts.route_problem:
        wanted.append(routes.route(bmc, _authority(facts)))
    return wanted


def _entry(bmc: spec.Bmc, facts: facts.Facts, verdict: verdict.Verdict,
           defaults: deployments.Defaults) -> str | None:
    auth = facts.auth if credentials.is_made(bmc) else facts.source
    slot = facts.placed.slot
    if (not facts.placed.wanted or slot is None or auth is None
            or verdict.keeps_entry):
        return None
    return entry.entry(
        bmc, slot.number, auth.version,
        verdict.certificate.version if verdict.certificate else None,
        defaults.proxy, defaults.denied)


def _authority(facts: facts.Facts) -> str:
    """Find the CA certificates that the BMC's certificate is verified by.

    :returns: PEM text; '' if they are not known
    """
    if facts.authority:
        return facts.authority.bundle
    return facts.user_tls.authority or '' if facts.user_tls else ''
