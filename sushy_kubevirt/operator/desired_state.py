# SPDX-License-Identifier: Apache-2.0
"""Desired state: the objects that a BMC should have now, in order.

The Secrets with random content (`credentials`, `pki`) are not included: they
are created once, and `plan` only adds missing keys.
"""

from __future__ import annotations

from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator.shared import entry
from sushy_kubevirt.operator import spec


def objects(bmc, state, defaults):
    """Make the desired objects of a BMC.

    Objects that exist stay desired, or are kept by `keeps_pod`, when the
    Secret or the VM is deleted, as long as the BMC is permitted to use it.

    :param bmc: a `spec.Bmc`
    :param state: a `conditions.BmcState`
    :param defaults: `deployments.Defaults`
    :returns: list of dicts; all other objects of the BMC are to be deleted
    """
    if bmc.deleting:
        return []
    found = {one.type: one for one in conditions.conditions(bmc, state)}
    at = slot(state)
    wanted = [network.service(bmc, at)]
    if state.vm_service:
        wanted.append(network.vm_service(bmc, at))
    if _withdrawn(found):
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
    if keeps_pod(bmc, state):
        return wanted
    if bmc.redfish.enabled:
        wanted.append(config_map.config_map(
            bmc, defaults.proxy, defaults.denied))
    if bmc.image is None or state.image_allowed:
        wanted.append(deployments.deployment(
            bmc, defaults, state.account['metadata']['uid']))
    return wanted


def keeps_pod(bmc, state):
    """Tell whether the Deployment and its ConfigMap must be neither changed
    nor deleted now.

    :param bmc: a `spec.Bmc`
    :param state: a `conditions.BmcState`
    """
    if state.placed.wanted or state.account is None:
        return True
    if bmc.image and not state.image_allowed and state.pod_allowed:
        # The new image is refused, and the present pod is allowed.
        return True
    return keeps_entry(bmc, state)


def keeps_entry(bmc, state):
    """Tell whether what the pod reads must not be changed now.

    :param bmc: a `spec.Bmc`
    :param state: a `conditions.BmcState`
    """
    if spec.wrong_hosts(bmc):
        return True
    # All volumes of a pod must exist: a pod that waits for one does not serve.
    secret = next(one for one in conditions.conditions(bmc, state)
                  if one.type == conditions.SECRET)
    if (not secret.status or copies(bmc) and not state.copied
            or deployments.tls_secret(bmc) and not state.certificate):
        return True
    # A pod must not get the rights or the credentials of a foreign object.
    return bool(conditions.pod_conflicts(bmc, state))


def slot(state):
    """Choose the slot of a shared pod that the Service selects.

    :param state: a `conditions.BmcState`
    :returns: `placement.Slot`; None for the pod of the BMC's own
    """
    return state.placed.serving(conditions.has_ready_pod(state))


def has_own_pod(state) -> bool:
    """Tell whether the BMC is to have a pod of its own, or still has it.

    :param state: a `conditions.BmcState`
    """
    return not state.placed.wanted or (
        slot(state) is None and state.deployment is not None)


def _accounts(bmc, state):
    """List the accounts that may act on the VM by the Role of the BMC, no
    foreign one.

    That of a shared pod may by a Role of the shard, but for a VM in another
    namespace.
    """
    own = naming.base(bmc.name)
    found = [own] if has_own_pod(state) and (
        'ServiceAccount ' + own not in state.foreign) else []
    if (state.placed.slot and not entry.vm(bmc)
            and not state.placed.taken.startswith('ServiceAccount ')):
        found.append(state.placed.slot.name)
    return found


def has_foreign_state(bmc, state) -> bool:
    """Tell whether the Secret with the BMC's state is foreign.

    :param bmc: a `spec.Bmc`
    :param state: a `conditions.BmcState`
    """
    return 'Secret ' + state_secret.name(bmc.vm.name) in state.foreign


def copies(bmc):
    """Tell whether the pod mounts a copy of a Secret of another namespace."""
    return bmc.auth is not None and bmc.auth.namespace != bmc.namespace


def withdrawn(bmc, state):
    """Tell whether the BMC refers to an object that it may not use.

    :param bmc: a `spec.Bmc`
    :param state: a `conditions.BmcState`
    """
    return _withdrawn({one.type: one for one in (
        conditions.conditions(bmc, state))})


def _withdrawn(found) -> bool:
    return conditions.NOT_PERMITTED in (found[conditions.VM].reason,
                                        found[conditions.SECRET].reason)
