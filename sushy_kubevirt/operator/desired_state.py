# SPDX-License-Identifier: Apache-2.0
"""Desired state: the objects that a BMC should have now, in order.

The Secrets with random content (`credentials`, `pki`) are not included: they
are created once, and `plan` only adds missing keys.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator import routes

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects as kube_objects
    from sushy_kubevirt.operator import facts
    from sushy_kubevirt.operator import spec
    from sushy_kubevirt.operator import verdict


def objects(bmc: spec.Bmc, facts: facts.Facts, verdict: verdict.Verdict,
            defaults: deployments.Defaults) -> list[kube_objects.Json]:
    """Make the desired objects of a BMC, the Service first.

    Objects that exist stay desired, or are kept by `Verdict.keeps_pod`, when
    the Secret or the VM is deleted, as long as the BMC is permitted to use it.

    :returns: objects; all others of the BMC are to be deleted
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


def _authority(facts: facts.Facts) -> str:
    """Find the CA certificates that the BMC's certificate is verified by.

    :returns: PEM text; '' if they are not known
    """
    if facts.authority:
        return facts.authority.bundle
    return facts.user_tls.authority or '' if facts.user_tls else ''
