# SPDX-License-Identifier: Apache-2.0
"""Power of a node, through its BMC, by Redfish."""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.remote import endpoint

#: Actions of the command line, and Redfish's ``ResetType``
#: (Resource.v1_20_1), as far as KubeVirt has them.
ACTIONS = {'on': 'On', 'off': 'ForceOff', 'soft-off': 'GracefulShutdown',
           'reboot': 'ForceRestart', 'soft-reboot': 'GracefulRestart',
           'pause': 'Pause', 'resume': 'Resume'}


def run(bmc: endpoint.Bmc, kubernetes: client.Client,
        action: str | None = None) -> str:
    """Request a change of the power state, and read it.

    :param kubernetes: client to connect through
    :param action: a key of `ACTIONS`; None to change nothing
    :returns: Redfish's ``PowerState``, such as ``On`` or ``PoweringOff``
    :raises: `endpoint.BmcUnavailable`
    """
    # Imported here, as most commands do without.
    from sushy_kubevirt.remote import redfish
    system = redfish.Client(bmc, kubernetes)
    if action:
        system.reset(ACTIONS[action])
    return system.power_state()
