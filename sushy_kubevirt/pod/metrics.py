# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of Redfish.

Requests are labelled with the rule of their route, not with the path: the
number of rules is bounded, paths are chosen by clients.
"""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.pod import prometheus
from sushy_kubevirt.redfish.protocol import application

if typing.TYPE_CHECKING:
    from sushy_kubevirt.redfish.protocol import response_cache
    from sushy_kubevirt.redfish.services import service_context

#: Labels for no route, and for an unknown method or none.
_NONE = 'none'
_OTHER = 'other'

_METHODS = ('GET', 'HEAD', 'POST', 'PATCH', 'PUT', 'DELETE', 'OPTIONS')


class State(application.State, typing.Protocol):
    """What the kubevirt driver adds to an application."""

    responses: response_cache.ResponseCache

    def close(self) -> None:
        """Stop watches and threads."""


class Application(application.Application):
    """sushy-emulator's application with the kubevirt driver; a type only."""

    sushy_kubevirt: State


class Requests(prometheus.Counter):
    """Counts the requests that servers answer."""

    def __init__(self) -> None:
        super().__init__(
            'virtbmc_redfish_requests_total',
            'Requests answered, by route (the rule, not the path), method '
            'and status code.', ('route', 'method', 'code'))

    def count(self, rule: str | None, method: str | None, code: int) -> None:
        """Count a response; see `http_server.Server`."""
        self.add(rule or _NONE, method if method in _METHODS else _OTHER, code)


def gauges(services: abc.Sequence[service_context.Services],
           connections: abc.Callable[[], int]) -> tuple[prometheus.Gauge, ...]:
    """Return the gauges of BMCs.

    :param connections: function that returns the number of connections
    """
    return (
        prometheus.Gauge('virtbmc_redfish_sessions',
                         'Open sessions of Redfish.',
                         lambda: sum(len(bmc.sessions.all())
                                     for bmc in services)),
        prometheus.Gauge('virtbmc_redfish_connections',
                         'Open connections of clients.', connections),
    )
