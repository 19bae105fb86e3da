# SPDX-License-Identifier: Apache-2.0
"""One shared pod and its BMCs, in memory."""

from __future__ import annotations

import dataclasses
import time
import typing

from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator.shared import entry
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator import spec

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects


@dataclasses.dataclass(slots=True)
class Member:
    """A BMC in a shard.

    :param uid: of the BMC
    :param slot: number of its slot
    :param digest: of its entry
    :param pending: text of an entry that is not written yet; None if it is
    :param recorded: whether the slot is in the cluster
    :param report: what the pod reported, see `entry.report`
    :param rights: those that the pod has for it
    :param size: number of characters of the record and the NetworkPolicy
    :param since: time of the digest
    """

    uid: str
    slot: int
    digest: str = ''
    pending: str | None = None
    recorded: bool = False
    report: str = ''
    policy: spec.NetworkPolicy = spec.NetworkPolicy()
    rights: entry.Rights = entry.Rights()
    size: int = 0
    since: float = dataclasses.field(default_factory=time.monotonic)


@dataclasses.dataclass
class Shard:
    """One shared pod.

    :param room: number of BMCs that its pod has memory for
    :param members: by the BMC's name
    :param closed: whether they have NetworkPolicies, which select the pod of
        all
    :param tried: see `plan.steps`
    :param written: time of the last write

    The others are as in `placement.Placement`.
    """

    key: placement.ShardKey
    room: int
    members: dict[str, Member] = dataclasses.field(default_factory=dict)
    closed: bool = False
    deployment: objects.Json | None = None
    taken: str = ''
    refused: tuple[str, str] | None = None
    waiting: bool = False
    tried: plan.Tried = dataclasses.field(default_factory=plan.Tried)
    written: float = 0.0

    @property
    def namespace(self) -> str:
        """That of its BMCs and its objects."""
        return self.key.namespace

    @property
    def number(self) -> int:
        """Its number in the namespace."""
        return self.key.number

    @property
    def size(self) -> int:
        """Characters of all entries."""
        return sum(member.size for member in self.members.values())
