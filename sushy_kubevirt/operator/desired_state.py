# SPDX-License-Identifier: Apache-2.0
"""Desired state: the objects that a BMC should have now, in order.

The Secrets with random content (`credentials`, `pki`) are not included: they
are created once, and `plan` only adds missing keys.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator.shared import entry
from sushy_kubevirt.operator import spec

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects as kube_objects
    from sushy_kubevirt.operator.shared import placement


def objects(bmc: spec.Bmc, state: conditions.BmcState,
            defaults: deployments.Defaults) -> list[kube_objects.Json]:
    """Make the desired objects of a BMC.

    Objects that exist stay desired, or are kept by `keeps_pod`, when the
    Secret or the VM is deleted, as long as the BMC is permitted to use it.

    :returns: objects; all others of the BMC are to be deleted
    """
    if bmc.deleting:
        return []
    selected = slot(state)
    wanted = [network.service(bmc, selected)]
    if state.vm_service:
        wanted.append(network.vm_service(bmc, selected))
    if withdrawn(bmc, state):
        # A permission was withdrawn: delete the Role and the pod.
        return wanted
    # Before the Role: see `rbac`.
    if state.vm is not None and 'deletionTimestamp' not in state.vm[
            'metadata']:
        wanted.append(rbac.state(state.vm))
    accounts = _accounts(bmc, state)
    if has_own_pod(state):
        wanted.append(rbac.account(bmc))
    if accounts and not has_foreign_state(bmc, state):
        wanted += [rbac.role(bmc, bool(defaults.proxy)),
                   rbac.binding(bmc, accounts)]
    policy = network.policy(bmc)
    if policy is not None and has_own_pod(state):
        wanted.append(policy)
    if state.account is None or keeps_pod(bmc, state):
        return wanted
    if bmc.redfish.enabled:
        wanted.append(config_map.config_map(
            bmc, defaults.proxy, defaults.denied))
    if bmc.image is None or state.image_allowed:
        wanted.append(deployments.deployment(
            bmc, defaults, state.account['metadata']['uid']))
    return wanted


def keeps_pod(bmc: spec.Bmc, state: conditions.BmcState) -> bool:
    """Tell whether the Deployment and its ConfigMap must be neither changed
    nor deleted now."""
    if state.placed.wanted or state.account is None:
        return True
    if bmc.image and not state.image_allowed and state.pod_allowed:
        # The new image is refused, and the present pod is allowed.
        return True
    return keeps_entry(bmc, state)


def keeps_entry(bmc: spec.Bmc, state: conditions.BmcState) -> bool:
    """Tell whether what the pod reads must not be changed now."""
    if spec.wrong_hosts(bmc):
        return True
    # All volumes of a pod must exist: a pod that waits for one does not serve.
    secret = next(condition for condition in conditions.conditions(bmc, state)
                  if condition.type == conditions.SECRET)
    if (not secret.status or copies(bmc) and not state.copied
            or deployments.tls_secret(bmc) and not state.certificate):
        return True
    # A pod must not get the rights or the credentials of a foreign object.
    return bool(conditions.pod_conflicts(bmc, state))


def slot(state: conditions.BmcState) -> placement.Slot | None:
    """Choose the slot of a shared pod that the Service selects.

    :returns: None for the pod of the BMC's own
    """
    return state.placed.serving(conditions.has_ready_pod(state))


def has_own_pod(state: conditions.BmcState) -> bool:
    """Tell whether the BMC is to have a pod of its own, or still has it."""
    return not state.placed.wanted or (
        slot(state) is None and state.deployment is not None)


def _accounts(bmc: spec.Bmc, state: conditions.BmcState) -> list[str]:
    """List the accounts that may act on the VM by the Role of the BMC, no
    foreign one.

    That of a shared pod may by a Role of the shard, but for a VM in another
    namespace.
    """
    own = naming.base(bmc.name)
    accounts = [own] if has_own_pod(state) and (
        'ServiceAccount ' + own not in state.foreign) else []
    if (state.placed.slot and not entry.vm(bmc)
            and not state.placed.taken.startswith('ServiceAccount ')):
        accounts.append(state.placed.slot.name)
    return accounts


def has_foreign_state(bmc: spec.Bmc, state: conditions.BmcState) -> bool:
    """Tell whether the Secret with the BMC's state is foreign."""
    return 'Secret ' + state_secret.name(bmc.vm.name) in state.foreign


def copies(bmc: spec.Bmc) -> bool:
    """Tell whether the pod mounts a copy of a Secret of another namespace."""
    return bmc.auth is not None and bmc.auth.namespace != bmc.namespace


def withdrawn(bmc: spec.Bmc, state: conditions.BmcState) -> bool:
    """Tell whether the BMC refers to an object that it may not use."""
    return any(condition.reason == conditions.NOT_PERMITTED
               for condition in conditions.conditions(bmc, state)
               if condition.type in (conditions.VM, conditions.SECRET))
