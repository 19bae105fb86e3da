# SPDX-License-Identifier: Apache-2.0
"""The status of a BMC."""

from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import endpoints


def document(bmc, world, old, now):
    """The status as it is to be.

    :param bmc: a `spec.Bmc`
    :param world: a `conditions.World`
    :param old: dict, the status as it is
    :param now: RFC 3339 text
    :returns: dict
    """
    found = conditions.conditions(bmc, world)
    made = {
        'observedGeneration': bmc.generation,
        'virtualMachine': bmc.vm.name if bmc.vm.namespace == bmc.namespace
        else str(bmc.vm),
        'conditions': conditions.merge(old.get('conditions'), found,
                                       bmc.generation, now)}
    if any(one.type == conditions.SECRET and one.status for one in found):
        made['authSecret'] = deployments.auth_secret(bmc)
    made.update((name, value) for name, value in endpoints.status(
        bmc, world.service).items() if value)
    return made


def ready(status):
    """The reason of the condition that says all.

    :param status: dict
    :returns: one word; '' if there is none yet
    """
    return next((one.get('reason', '') for one in status.get(
        'conditions') or () if one.get('type') == conditions.READY), '')
