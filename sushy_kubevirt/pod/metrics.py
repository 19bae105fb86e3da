# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of Redfish.

Requests are labelled with the rule of their route, not with the path: the
number of rules is bounded, paths are chosen by clients.
"""

from __future__ import annotations

import functools

import flask

from sushy_kubevirt.pod import prometheus

#: Labels for a path without a route, and for an unknown method.
_NONE = 'none'
_OTHER = 'other'

_METHODS = ('GET', 'HEAD', 'POST', 'PATCH', 'PUT', 'DELETE', 'OPTIONS')


class Metrics:
    """Metrics of one application.

    :param app: sushy-emulator's application with the kubevirt driver
    :param connections: function that returns the number of connections
    """

    def __init__(self, app, connections) -> None:
        self._requests = requests(app)
        # Responses that are sent again do not reach Flask.
        app.sushy_kubevirt.responses.observers.append(
            functools.partial(count_cached, self._requests))
        #: Tuple of the metrics.
        self.all = (self._requests, *gauges([app.sushy_kubevirt.services],
                                            connections))


def requests(app=flask.request_finished.ANY):
    """Count requests that an application answers.

    :param app: the application; by default all of the process
    :returns: `prometheus.Counter`
    """
    counter = prometheus.Counter(
        'virtbmc_redfish_requests_total',
        'Requests answered, by route (the rule, not the path), method '
        'and status code.', ('route', 'method', 'code'))

    def count(_app, response, **_) -> None:
        request = flask.request
        rule, method = request.url_rule, request.method
        counter.add(_NONE if rule is None else rule.rule,
                    method if method in _METHODS else _OTHER,
                    response.status_code)

    flask.request_finished.connect(count, app, weak=False)
    return counter


def count_cached(counter, environ, response) -> None:
    """Count a response that is sent again.

    :param counter: as from `requests`
    :param environ: of the request (WSGI)
    :param response: a `response_cache.Response`
    """
    counter.add(response.rule, environ['REQUEST_METHOD'],
                int(response.status[:3]))


def gauges(services, connections):
    """Return the gauges of BMCs.

    :param services: list of their `service_context.Services`
    :param connections: function that returns the number of connections
    :returns: tuple of `prometheus.Gauge`
    """
    return (
        prometheus.Gauge('virtbmc_redfish_sessions',
                         'Open sessions of Redfish.',
                         lambda: sum(len(one.sessions.all())
                                     for one in services)),
        prometheus.Gauge('virtbmc_redfish_connections',
                         'Open connections of clients.', connections),
    )
