# SPDX-License-Identifier: Apache-2.0
"""EventService v1.10: settings, Server-Sent Events stream and the test event.

Subscriptions belong to the service, not to a system. A client that wants the
events of one system subscribes with OriginResources.
"""

from __future__ import annotations

import contextlib
import select
import socket
import typing

import flask

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import event_destination
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import filters
from sushy_kubevirt.redfish.services.events import server_sent_events
from sushy_kubevirt.redfish.services.events import service_settings
from sushy_kubevirt.redfish.services import server_threads

if typing.TYPE_CHECKING:
    from collections import abc
    from wsgiref import types

ROOT = event_destination.SERVICE
STREAM = ROOT + '/SSE'

_TEST = 'EventService.SubmitTestEvent'
_TEST_PATH = f'{ROOT}/Actions/{_TEST}'

#: Seconds that a new stream waits until changes of machines make events.
_OBSERVE_SECONDS = 5.0

_SHAPE: payload.Shape = {
    **payload.read_only(
        'Id', 'Name', 'Description', 'Status', 'EventTypesForSubscription',
        'EventFormatTypes', 'RegistryPrefixes', 'ResourceTypes',
        'SubordinateResourcesSupported', 'Severities', 'Subscriptions',
        'IncludeOriginOfConditionSupported', 'ServerSentEventUri',
        'SSEFilterPropertiesSupported', 'Actions'),
    'ServiceEnabled': bool,
    'DeliveryRetryAttempts': payload.Range(*service_settings.ATTEMPTS),
    'DeliveryRetryIntervalSeconds': payload.Range(*service_settings.INTERVAL),
}

# Property: field of Settings.
_FIELDS = {'ServiceEnabled': 'enabled', 'DeliveryRetryAttempts': 'attempts',
           'DeliveryRetryIntervalSeconds': 'interval'}

_TEST_SHAPE: payload.Shape = {
    'EventType': event_record.TYPES,
    'EventId': str,
    'EventTimestamp': str,
    'Severity': str,
    'MessageSeverity': event_destination.SEVERITIES,
    'Message': str,
    'MessageId': str,
    'MessageArgs': payload.ListOf(str, most=20),
    'OriginOfCondition': str,
    'EventGroupId': int,
}


def resource() -> responses.Json:
    """GET /redfish/v1/EventService"""
    settings = event_destination.events().settings()
    body = {
        '@odata.id': ROOT,
        '@odata.type': '#EventService.v1_10_0.EventService',
        'Id': 'EventService',
        'Name': 'Event Service',
        'Description': 'Events of the systems and of this service',
        'ServiceEnabled': settings.enabled,
        'Status': {'State': 'Enabled' if settings.enabled else 'Disabled',
                   'Health': 'OK'},
        'DeliveryRetryAttempts': settings.attempts,
        'DeliveryRetryIntervalSeconds': settings.interval,
        'EventFormatTypes': ['Event'],
        'EventTypesForSubscription': list(event_record.TYPES),
        'RegistryPrefixes': list(event_registry.PREFIXES),
        'ResourceTypes': list(event_destination.RESOURCE_TYPES),
        'Severities': list(event_destination.SEVERITIES),
        'SubordinateResourcesSupported': True,
        'IncludeOriginOfConditionSupported': False,
        'Subscriptions': responses.link(event_destination.ROOT),
        'Actions': {'#' + _TEST: {
            'target': _TEST_PATH,
            'EventType@Redfish.AllowableValues': list(event_record.TYPES),
            'MessageSeverity@Redfish.AllowableValues':
                list(event_destination.SEVERITIES),
        }},
    }
    if server_threads.several(flask.request.environ):
        body['ServerSentEventUri'] = STREAM
        # EventType works but is deprecated, so it is not advertised.
        body['SSEFilterPropertiesSupported'] = {
            name: True for name in filters.PROPERTIES if name != 'EventType'}
    return body


def patch() -> None:
    """PATCH /redfish/v1/EventService"""
    event_destination.events().set(**{
        _FIELDS[name]: value
        for name, value in payload.properties(_SHAPE).items()})


def test_event() -> None:
    """POST …/Actions/EventService.SubmitTestEvent"""
    given = payload.parameters(_TEST, _TEST_SHAPE)
    time = given.get('EventTimestamp')
    if time and payload.date_time(time) is None:
        raise error_responses.base_error(
            400, 'ActionParameterValueError', 'EventTimestamp', _TEST)
    severity = given.get('MessageSeverity') or given.get('Severity')
    record = event_record.make(
        event_registry.TEST, given.get('EventType', event_record.OTHER))
    event_destination.events().emit(event_record.changed(
        record, message_id=given.get('MessageId'),
        text=given.get('Message'), args=given.get('MessageArgs', []),
        severity=severity if severity in event_destination.SEVERITIES
        else None, time=time and time.upper(),
        origin=given.get('OriginOfCondition')))


# Server-Sent Events stream

def stream() -> flask.Response:
    """GET /redfish/v1/EventService/SSE"""
    if not server_threads.several(flask.request.environ):
        raise error_responses.general_error(
            501, 'Event streams need a server with several threads; this '
            'one has one.', 'Subscribe to events instead, or run the server '
            'with several threads.')
    request = flask.request
    try:
        expression = filters.Expression(request.args.get('$filter', ''))
    except filters.BadFilter as exc:
        raise error_responses.base_error(
            400, 'QueryParameterValueFormatError',
            request.args.get('$filter', ''), '$filter',
            detail=f'The filter is invalid: {exc}.') from None
    answer = flask.Response(content_type='text/event-stream', headers={
        'Cache-Control': 'no-cache', 'X-Accel-Buffering': 'no'})
    if request.method == 'HEAD':
        return answer
    # The client may cause an event as soon as it is connected.
    event_destination.events().wait_observing(_OBSERVE_SECONDS)
    try:
        answer.response = event_destination.events().streams.open(
            authentication.owner(), expression, _client(request),
            request.headers.get('Last-Event-ID'),
            _connected(request.environ), authentication.still_authorized(),
            _disconnect(request.environ))
    except server_sent_events.TooMany:
        raise error_responses.unavailable(
            'The maximum number of event streams is open.',
            30) from None
    return answer


def _connection(environ: types.WSGIEnvironment) -> socket.socket | None:
    return (environ.get('gunicorn.socket')
            or environ.get('werkzeug.socket')
            or environ.get('sushy_kubevirt.socket'))


def _disconnect(environ: types.WSGIEnvironment) -> abc.Callable[[], None]:
    """Return a function that closes the client's connection."""
    connection = _connection(environ)

    def disconnect() -> None:
        if connection is not None:
            with contextlib.suppress(OSError, ValueError):
                connection.shutdown(socket.SHUT_RDWR)

    return disconnect


def _connected(environ: types.WSGIEnvironment) -> abc.Callable[[], bool]:
    """Return a function that tells whether the client is still connected."""
    connection = _connection(environ)
    if connection is None:
        return lambda: True

    def connected() -> bool:
        # A closed socket has none; its former one may be another's.
        descriptor = connection.fileno()
        if descriptor < 0:
            return False
        poll = select.poll()
        poll.register(descriptor, select.POLLRDHUP)
        return not poll.poll(0)

    return connected


def _client(request: flask.Request) -> str:
    address = request.remote_addr or '0.0.0.0'
    if ':' in address:
        address = f'[{address}]'
    return f"{address}:{request.environ.get('REMOTE_PORT') or 0}"


ROUTES = (
    routing.add(ROOT, resource, patch=patch),
    routing.add(_TEST_PATH, post=test_event),
    routing.add(STREAM, stream, media='text/event-stream'),
)

ROOT_LINKS = {'EventService': ROOT}

REGISTRIES = (routing.Registry(
    f'{event_registry.PREFIX}.{event_registry.VERSION}',
    f"{event_registry.PREFIX}.{event_registry.VERSION.rpartition('.')[0]}",
    'Message Registry of sushy-kubevirt', event_registry.registry),)
