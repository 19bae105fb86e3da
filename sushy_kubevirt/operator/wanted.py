# SPDX-License-Identifier: Apache-2.0
"""Which objects are to be there for a BMC, at this moment and in this order.

The Secrets with random content (`credentials`, `authority`) are none of
them: they are made once and not put right.
"""

from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import configuration
from sushy_kubevirt.operator import media
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import pods
from sushy_kubevirt.operator import rights
from sushy_kubevirt.redfish.services import state_secret


def objects(bmc, world, defaults):
    """The objects.

    What is there already, and could not be made now (its Secret vanished,
    its VM is gone), stays as long as it may: it is among them as well, or
    `held`.

    :param bmc: a `spec.Bmc`
    :param world: a `conditions.World`
    :param defaults: `pods.Defaults`
    :returns: list of dicts; what is ours and not among them is to go
    """
    if bmc.deleting:
        return []
    found = {one.type: one for one in conditions.conditions(bmc, world)}
    wanted = [network.service(bmc)]
    if _withdrawn(found):
        # Neither rights nor a pod, also if there were some: a permission
        # that is taken back is gone.
        return wanted
    # Before the rights: see `rights`.
    if world.vm is not None and 'deletionTimestamp' not in world.vm[
            'metadata']:
        wanted.append(rights.state(world.vm))
    wanted.append(rights.account(bmc))
    if not _strange(bmc, world):
        wanted += [rights.role(bmc, bool(defaults.proxy)),
                   rights.binding(bmc)]
    policy = network.policy(bmc)
    if policy is not None:
        wanted.append(policy)
    if held(bmc, world):
        return wanted
    if bmc.redfish.enabled:
        wanted.append(configuration.config_map(bmc, defaults.proxy))
    if bmc.image is None or world.image_allowed:
        wanted.append(pods.deployment(
            bmc, defaults, world.account['metadata']['uid']))
    return wanted


def held(bmc, world):
    """Whether the pod and its config file, if there are any, are left as
    they are: neither changed nor deleted.

    :param bmc: a `spec.Bmc`
    :param world: a `conditions.World`
    """
    if media.wrong_hosts(bmc) or world.account is None:
        return True
    if bmc.image and not world.image_allowed and world.pod_allowed:
        # It asks in vain; but a pod that may not be there goes.
        return True
    # What a pod mounts has to be there: one that waits for it serves nobody.
    secret = next(one for one in conditions.conditions(bmc, world)
                  if one.type == conditions.SECRET)
    if (not secret.status or copies(bmc) and not world.copied
            or pods.tls_secret(bmc) and not world.certificate):
        return True
    # Nothing runs with rights, or credentials, of somebody else.
    return any(not one.startswith('Service ') for one in world.taken)


def _strange(bmc, world):
    """Whether rights would be somebody else's, or about his Secret."""
    return bool(
        {
            'ServiceAccount ' + naming.base(bmc.name),
            'Secret ' + bmc.vm.name + state_secret.ENDING,
        }
        & set(world.taken)
    )


def copies(bmc):
    """Whether the pod mounts the copy of a Secret of another namespace."""
    return bmc.auth is not None and bmc.auth.namespace != bmc.namespace


def withdrawn(bmc, world):
    """Whether the BMC refers to what it may not use.

    :param bmc: a `spec.Bmc`
    :param world: a `conditions.World`
    """
    return _withdrawn({one.type: one for one in (
        conditions.conditions(bmc, world))})


def _withdrawn(found):
    return conditions.NOT_PERMITTED in (found[conditions.VM].reason,
                                        found[conditions.SECRET].reason)
