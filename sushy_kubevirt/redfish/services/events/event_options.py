# SPDX-License-Identifier: Apache-2.0
"""What the configuration says about events."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class EventOptions:
    """Settings of a `hub.Events`.

    What hosts events may be sent to is said like where images may come from,
    see `kubevirt.media.addresses`.
    """

    #: Names, ``*.domain``, addresses and networks that events may be sent
    #: to; empty for all but those below.
    allowed_hosts: tuple = ()

    #: Those they may never be sent to.
    denied_hosts: tuple = ()

    #: Whether they may be sent to this very host, and to its link.
    allow_loopback: bool = False
    allow_link_local: bool = False

    #: How many subscriptions there may be, and how many open streams.
    subscriptions: int = 200
    streams: int = 8

    #: Whether what happens to a VM is kept as Events of Kubernetes, which
    #: its log shows.
    log: bool = True
