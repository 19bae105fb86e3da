# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of Redfish.

Requests are labelled with the rule of their route, not with the path: the
number of rules is bounded, paths are chosen by clients.
"""

from __future__ import annotations

from collections import abc
import functools
import typing

import flask

from sushy_kubevirt.pod import prometheus
from sushy_kubevirt.redfish.protocol import application

if typing.TYPE_CHECKING:
    from wsgiref import types

    from sushy_kubevirt.redfish.protocol import response_cache
    from sushy_kubevirt.redfish.services import service_context

#: Labels for a path without a route, and for an unknown method.
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


def of(app: Application, connections: abc.Callable[[], int]
       ) -> tuple[prometheus.Metric, ...]:
    """Return the metrics of one application.

    :param connections: function that returns the number of connections
    """
    counter = requests(app)
    # Responses that are sent again do not reach Flask.
    app.sushy_kubevirt.responses.observers.append(
        functools.partial(count_cached, counter))
    return counter, *gauges([app.sushy_kubevirt.services], connections)


def requests(app: object = flask.request_finished.ANY) -> prometheus.Counter:
    """Count requests that an application answers.

    :param app: the application; by default all of the process
    """
    counter = prometheus.Counter(
        'virtbmc_redfish_requests_total',
        'Requests answered, by route (the rule, not the path), method '
        'and status code.', ('route', 'method', 'code'))

    def count(_app: object, response: flask.Response, **_: object) -> None:
        request = flask.request
        rule, method = request.url_rule, request.method
        counter.add(_NONE if rule is None else rule.rule,
                    method if method in _METHODS else _OTHER,
                    response.status_code)

    flask.request_finished.connect(count, app, weak=False)
    return counter


def count_cached(counter: prometheus.Counter,
                 environ: types.WSGIEnvironment,
                 response: response_cache.Response) -> None:
    """Count a response that is sent again.

    :param counter: as from `requests`
    :param environ: of the request
    """
    counter.add(response.rule, environ['REQUEST_METHOD'],
                int(response.status[:3]))


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
