# SPDX-License-Identifier: Apache-2.0
"""Options of the event service."""

from __future__ import annotations

import dataclasses

from sushy_kubevirt.machine import options


@dataclasses.dataclass(frozen=True)
class EventOptions(options.UrlOptions):
    """Options of a `dispatcher.EventDispatcher`, and of its destinations."""

    #: Largest number of subscriptions, and of open streams, of one account.
    subscriptions: int = 200
    streams: int = 8

    #: Whether events of a VM are also written as Kubernetes Events, which
    #: its log shows.
    log: bool = True
