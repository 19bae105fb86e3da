# SPDX-License-Identifier: Apache-2.0
"""Which objects are to be there for a BMC, at this moment and in this order.

The Secrets with random content (`credentials`, `authority`) are none of
them: they are made once and not put right.
"""

from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import configuration
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import pods
from sushy_kubevirt.operator import rights


def objects(bmc, world, defaults):
    """The objects.

    What is there already, and could not be made now (its Secret vanished,
    its VM is gone), stays as long as it may: it is among them as well.

    :param bmc: a `spec.Bmc`
    :param world: a `conditions.World`
    :param defaults: `pods.Defaults`
    :returns: list of dicts; what is ours and not among them is to go
    """
    found = {one.type: one for one in conditions.conditions(bmc, world)}
    if bmc.deleting:
        return []
    wanted = [network.service(bmc)]
    if conditions.NOT_PERMITTED in (found[conditions.VM].reason,
                                    found[conditions.SECRET].reason):
        # Neither rights nor a pod, also if there were some: a permission
        # that is taken back is gone.
        return wanted
    # Before the rights: see `rights`.
    if world.vm is not None and 'deletionTimestamp' not in world.vm[
            'metadata']:
        wanted.append(rights.state(world.vm))
    wanted += [rights.account(bmc), rights.role(bmc), rights.binding(bmc)]
    if bmc.redfish.enabled:
        wanted.append(configuration.config_map(bmc))
    policy = network.policy(bmc)
    if policy is not None:
        wanted.append(policy)
    if not _image(bmc, world):
        return wanted
    ready = (found[conditions.SECRET].status
             and (world.certificate or pods.tls_secret(bmc) is None))
    if ready or world.deployment is not None:
        wanted.append(pods.deployment(bmc, defaults))
    return wanted


def _image(bmc, world):
    return bmc.image is None or world.image_allowed
