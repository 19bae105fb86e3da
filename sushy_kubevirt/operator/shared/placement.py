# SPDX-License-Identifier: Apache-2.0
"""Where a BMC runs: in a pod of its own, or in a slot of a shared pod."""

from __future__ import annotations

import dataclasses
import typing

from sushy_kubevirt.operator import naming

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.operator import spec

#: Values of ``spec.placement``.
PER_VM, SHARED = 'PerVM', 'Shared'

#: Default and maximum number of BMCs in one pod.
BMCS_PER_POD, MAX_BMCS_PER_POD = 250, 1000

#: Number of slots of a pod: more than BMCs, as a free slot rests.
SLOTS = 2 * MAX_BMCS_PER_POD

#: Ports of slot 0 in the pod: Redfish (TCP), HTTP beside HTTPS (TCP), IPMI
#: (UDP). Slot s has the port s above.
REDFISH_PORT, HTTP_PORT, IPMI_PORT = 10000, 20000, 30000


class ShardKey(typing.NamedTuple):
    """Identifies a shard, by its number in the namespace of its BMCs."""

    namespace: str
    number: int


@dataclasses.dataclass(frozen=True)
class Slot:
    """A place in a shared pod.

    :param shard: number of the shard in the namespace
    :param number: of the slot in the shard
    """

    shard: int
    number: int

    @property
    def name(self) -> str:
        """Name of the shard's objects."""
        return naming.shared(self.shard)


@dataclasses.dataclass(frozen=True)
class Placement:
    """The placement of a BMC, as observed.

    :param wanted: whether the BMC is to be in a shared pod
    :param claimed: whether it has a slot, maybe one that is not recorded yet
    :param slot: that which is recorded in the cluster
    :param digest: of the entry that was last made for it; '' for none
    :param policy: its part of that of the shard
    :param vm: name of the VM that the shard's account has rights to; '' for
        none, or if those are in a Role of the BMC
    :param served: whether the pod serves that entry
    :param problem: why the pod cannot serve that entry, a sentence
    :param recent: whether the slot or the entry is so new that the pod need
        not serve it yet
    :param deployment: that of the shard
    :param taken: foreign object with a name of the shard's, 'Kind name'
    :param refused: what the API server refused of the shard: 'Kind name' and
        its message
    :param waiting: whether the upgrade of the pod waits for other upgrades
    """

    wanted: bool = False
    claimed: bool = False
    slot: Slot | None = None
    digest: str = ''
    policy: spec.NetworkPolicy | None = None
    vm: str = ''
    served: bool = False
    problem: str = ''
    recent: bool = False
    deployment: objects.Json | None = None
    taken: str = ''
    refused: tuple[str, str] | None = None
    waiting: bool = False

    def serving(self, own_pod: bool) -> Slot | None:
        """Choose the pod that the Service selects.

        It is the present one until the other one serves the BMC.

        :param own_pod: whether the BMC has a pod of its own that is ready
        :returns: None for a pod of its own
        """
        if own_pod and not (self.wanted and self.served):
            return None
        return self.slot


def is_shared(bmc: spec.Bmc, default: str) -> bool:
    """Tell whether a BMC is to be in a shared pod.

    A BMC that has settings of a pod has a pod of its own, unless its spec says
    otherwise, which the definition refuses.

    :param default: placement of BMCs that name none
    """
    if bmc.placement is not None:
        return bmc.placement == SHARED
    return default == SHARED and not (
        bmc.image or bmc.node_selector or bmc.tolerations or bmc.resources)
