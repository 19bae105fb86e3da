# SPDX-License-Identifier: Apache-2.0
"""One shared pod and its BMCs, in memory."""

from __future__ import annotations

import time
import typing

from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator.shared import entry
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator import spec

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects


class Member:
    """A BMC in a shard.

    :param uid: of the BMC
    :param slot: number of its slot

    ``digest`` is that of its entry, ``pending`` the text of an entry that is
    not written yet, or None; ``recorded`` tells whether the slot is in the
    cluster; ``report`` is what the pod reported; ``vm`` is as in
    `placement.Placement`; ``redfish`` and ``display`` are those of
    `spec.Redfish`.
    """

    __slots__ = ('uid', 'slot', 'digest', 'pending', 'recorded', 'report',
                 'policy', 'secrets', 'vm', 'redfish', 'display', 'size',
                 'since')

    def __init__(self, uid: str, slot: int) -> None:
        self.uid = uid
        self.slot = slot
        self.digest = ''
        self.pending: str | None = entry.reservation(uid, slot)
        self.recorded = False
        self.report = entry.Report('', '')
        self.policy = spec.NetworkPolicy()
        self.secrets: frozenset[str] = frozenset()
        self.vm = ''
        self.redfish = self.display = False
        self.size = 0
        self.since = time.monotonic()


class Shard:
    """One shared pod.

    :param room: number of BMCs that its pod has memory for

    ``members`` has a `Member` by the BMC's name; ``closed`` tells whether they
    have NetworkPolicies, which select the pod of all; ``deployment``,
    ``taken``, ``refused`` and ``waiting`` are as in `placement.Placement`;
    ``tried`` as in `plan.steps`.
    """

    def __init__(self, namespace: str, number: int, room: int) -> None:
        self.namespace = namespace
        self.number = number
        self.room = room
        self.members: dict[str, Member] = {}
        self.closed = False
        self.deployment: objects.Json | None = None
        self.taken = ''
        self.refused: tuple[str, str] | None = None
        self.waiting = False
        self.tried = plan.Tried()
        self.written = 0.0

    @property
    def key(self) -> placement.ShardKey:
        """Its key."""
        return placement.ShardKey(self.namespace, self.number)

    @property
    def size(self) -> int:
        """Characters of all entries."""
        return sum(member.size for member in self.members.values())
