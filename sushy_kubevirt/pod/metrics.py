# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of Redfish.

Requests are labelled with the rule of their route, not with the path: the
number of rules is bounded, paths are chosen by clients.
"""

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

    def __init__(self, app, connections):
        self._requests = prometheus.Counter(
            'virtbmc_redfish_requests_total',
            'Requests answered, by route (the rule, not the path), method '
            'and status code.', ('route', 'method', 'code'))
        services = app.sushy_kubevirt.services
        #: Tuple of the metrics.
        self.all = (
            self._requests,
            prometheus.Gauge('virtbmc_redfish_sessions',
                             'Open sessions of Redfish.',
                             lambda: len(services.sessions.all())),
            prometheus.Gauge('virtbmc_redfish_connections',
                             'Open connections of clients.', connections),
        )
        flask.request_finished.connect(self._count, app)
        # Responses that are sent again do not reach Flask.
        app.sushy_kubevirt.responses.observers.append(self._count_cached)

    def _count_cached(self, environ, response):
        self._requests.add(response.rule, environ['REQUEST_METHOD'],
                           int(response.status[:3]))

    def _count(self, _app, response, **_):
        request = flask.request
        rule, method = request.url_rule, request.method
        self._requests.add(_NONE if rule is None else rule.rule,
                           method if method in _METHODS else _OTHER,
                           response.status_code)
