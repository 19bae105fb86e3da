# SPDX-License-Identifier: Apache-2.0
"""The objects that a BMC is to have at this moment, in this order.

The Secrets with random content (`credentials`, `pki`) are not among them: they
are created once, and `plan` only adds what they lack.
"""

from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator import spec
from sushy_kubevirt.redfish.services import state_secret


def objects(bmc, world, defaults):
    """Make the objects.

    An object that exists and could not be created now, as its Secret or VM
    was deleted, is kept as long as it is permitted: it is among them as well,
    or `held`.

    :param bmc: a `spec.Bmc`
    :param world: a `conditions.World`
    :param defaults: `deployments.Defaults`
    :returns: list of dicts; all other objects of the BMC are to be deleted
    """
    if bmc.deleting:
        return []
    found = {one.type: one for one in conditions.conditions(bmc, world)}
    wanted = [network.service(bmc)]
    if _withdrawn(found):
        # A permission was withdrawn: rights and pod are deleted.
        return wanted
    # Before the Role: see `rbac`.
    if world.vm is not None and 'deletionTimestamp' not in world.vm[
            'metadata']:
        wanted.append(rbac.state(world.vm))
    wanted.append(rbac.account(bmc))
    if not _is_foreign(bmc, world):
        wanted += [rbac.role(bmc, bool(defaults.proxy)),
                   rbac.binding(bmc)]
    policy = network.policy(bmc)
    if policy is not None:
        wanted.append(policy)
    if held(bmc, world):
        return wanted
    if bmc.redfish.enabled:
        wanted.append(config_map.config_map(bmc, defaults.proxy))
    if bmc.image is None or world.image_allowed:
        wanted.append(deployments.deployment(
            bmc, defaults, world.account['metadata']['uid']))
    return wanted


def held(bmc, world):
    """Tell whether the pod and its config file are left as they are, neither
    changed nor deleted.

    :param bmc: a `spec.Bmc`
    :param world: a `conditions.World`
    """
    if spec.wrong_hosts(bmc) or world.account is None:
        return True
    if bmc.image and not world.image_allowed and world.pod_allowed:
        # The new image is refused, and the present pod is allowed.
        return True
    # All that a pod mounts must exist: a pod that waits for it serves no one.
    secret = next(one for one in conditions.conditions(bmc, world)
                  if one.type == conditions.SECRET)
    if (not secret.status or copies(bmc) and not world.copied
            or deployments.tls_secret(bmc) and not world.certificate):
        return True
    # No pod runs with rights or credentials of a foreign object.
    return any(not one.startswith('Service ') for one in world.taken)


def _is_foreign(bmc, world):
    """Tell whether the rights would be a foreign account's, or would be about
    a foreign Secret."""
    return bool({'ServiceAccount ' + naming.base(bmc.name),
                 'Secret ' + bmc.vm.name + state_secret.ENDING}
                & set(world.taken))


def copies(bmc):
    """Tell whether the pod mounts a copy of a Secret of another namespace."""
    return bmc.auth is not None and bmc.auth.namespace != bmc.namespace


def withdrawn(bmc, world):
    """Tell whether the BMC names an object that it may not use.

    :param bmc: a `spec.Bmc`
    :param world: a `conditions.World`
    """
    return _withdrawn({one.type: one for one in (
        conditions.conditions(bmc, world))})


def _withdrawn(found):
    return conditions.NOT_PERMITTED in (found[conditions.VM].reason,
                                        found[conditions.SECRET].reason)
