# SPDX-License-Identifier: Apache-2.0
"""Options of the event service."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class EventOptions:
    """Options of a `dispatcher.EventDispatcher`.

    Hosts are given in the form used for image servers, see
    `sushy_kubevirt.machine.media.url_policy`.
    """

    #: Destinations that are allowed: host names, ``*.domain``, IP addresses
    #: and networks. If empty, all that are not denied.
    allowed_hosts: tuple[str, ...] = ()

    #: Destinations that are denied, in the same form.
    denied_hosts: tuple[str, ...] = ()

    #: File of more of them, an entry a line; read for every destination.
    denied_hosts_file: str | None = None

    #: Exceptions from both, in the same form.
    denied_except: tuple[str, ...] = ()

    #: Whether loopback and link-local addresses are allowed.
    allow_loopback: bool = False
    allow_link_local: bool = False

    #: Largest number of subscriptions, and of open streams, of one account.
    subscriptions: int = 200
    streams: int = 8

    #: Whether events of a VM are also written as Kubernetes Events, which
    #: its log shows.
    log: bool = True

    #: What messages to clients call these options, see `machine.option_hints`.
    names: dict[str, str] | None = dataclasses.field(
        default=None, compare=False)
