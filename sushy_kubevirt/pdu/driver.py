# SPDX-License-Identifier: Apache-2.0
"""Driver of virtualpdu for the VMs of a namespace.

An outlet that is switched off is a plug that is pulled: the guest ends at
once. One that is switched on starts the VM, whatever its power restore policy,
as a server that is set to power on when power returns: Ironic expects that.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.pdu import upstream

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import cluster

_OFF = power_state.PowerState.OFF, power_state.PowerState.POWERING_OFF


class KubeVirtDriver:
    """What virtualpdu calls. All may raise `errors.MachineError`.

    :param machines: of one namespace
    """

    def __init__(self, machines: cluster.Cluster) -> None:
        self._machines = machines

    def machine(self, name: str) -> cluster.Machine:
        """Find a VM."""
        return self._machines.machine(
            f'{self._machines.default_namespace}/{name}', wait=False)

    def power_on(self, name: str) -> None:
        """Start a VM, also one that is stopping."""
        self.machine(name).reset(power_state.ResetType.ON)

    def power_off(self, name: str) -> None:
        """Stop a VM at once."""
        self.machine(name).reset(power_state.ResetType.FORCE_OFF)

    def get_power_state(self, name: str) -> str:
        """Read the state from the cache: no API call delays the answer.

        :returns: `upstream.POWER_ON` or `upstream.POWER_OFF`
        :raises: `errors.Unavailable` if the cache is stale
        """
        if problem := self._machines.cache.problem:
            raise errors.Unavailable(problem)
        state = self.machine(name).cached_state()
        if state is None:
            raise errors.MachineNotFound(name)
        return (upstream.POWER_OFF if power_state.of(state) in _OFF
                else upstream.POWER_ON)
