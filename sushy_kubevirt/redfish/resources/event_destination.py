# SPDX-License-Identifier: Apache-2.0
"""EventDestination v1.14: event subscriptions and open SSE streams."""

from __future__ import annotations

from collections import abc
import typing

import flask

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import filters
from sushy_kubevirt.redfish.services.events import subscriptions

if typing.TYPE_CHECKING:
    from sushy_kubevirt.redfish.services.events import dispatcher

SERVICE = '/redfish/v1/EventService'
ROOT = SERVICE + '/Subscriptions'

SEVERITIES = ('OK', 'Warning', 'Critical')
RESOURCE_TYPES = ('ComputerSystem', 'EventService', 'ManagerAccount',
                  'SessionService', 'Task', 'VirtualMedia')

_POLICIES = tuple(policy.value for policy in subscriptions.Policy)

#: Entries of one list, and characters of a text.
_MAX_ENTRIES = 100
_MAX_LENGTH = 1024

# Property: field of Filter.
_LISTS = {
    'EventTypes': 'types',
    'RegistryPrefixes': 'registries',
    'MessageIds': 'messages',
    'ExcludeRegistryPrefixes': 'no_registries',
    'ExcludeMessageIds': 'no_messages',
    'ResourceTypes': 'resource_types',
    'OriginResources': 'origins',
    'Severities': 'severities',
}
_MESSAGE_ID = payload.Text(
    _MAX_LENGTH, f"({'|'.join(event_registry.PREFIXES)})[.](?s:.*)",
    'The form is Registry.Key, with a registry of '
    f"{', '.join(event_registry.PREFIXES)}.")
_VALUES: payload.Shape = {
    'EventTypes': event_record.TYPES,
    'RegistryPrefixes': event_registry.PREFIXES,
    'MessageIds': _MESSAGE_ID,
    'ExcludeRegistryPrefixes': event_registry.PREFIXES,
    'ExcludeMessageIds': _MESSAGE_ID,
    'ResourceTypes': RESOURCE_TYPES,
    'OriginResources': {'@odata.id': payload.Text(
        _MAX_LENGTH, '/redfish/v1/(?s:.*)',
        'Only links to resources of this service are allowed.')},
    'Severities': SEVERITIES,
}

_WRITABLE: payload.Shape = {
    'Context': payload.Text(_MAX_LENGTH),
    'DeliveryRetryPolicy': _POLICIES,
    'VerifyCertificate': bool,
    # Validated in this module, so that no response or log repeats secrets.
    'HttpHeaders': object,
}
_CREATE: payload.Shape = {
    **_WRITABLE,
    'Destination': str,
    'Name': str,
    'Protocol': ('Redfish',),
    'SubscriptionType': ('RedfishEvent',),
    'EventFormatType': ('Event',),
    'SubordinateResources': bool,
    **{name: payload.ListOf(kind, _MAX_ENTRIES)
       for name, kind in _VALUES.items()},
}
_PATCH: payload.Shape = {
    **payload.read_only(*_CREATE, 'Id', 'Description', 'Status', 'Actions'),
    **_WRITABLE,
}

_SUSPEND = 'EventDestination.SuspendSubscription'
_RESUME = 'EventDestination.ResumeSubscription'


def events() -> dispatcher.EventDispatcher:
    """Return the event service of this application."""
    return authentication.services().events


def collection() -> responses.Json:
    """GET /redfish/v1/EventService/Subscriptions"""
    return responses.collection(
        'EventDestination', 'Event Subscriptions', ROOT,
        [destination.id
         for destinations in (events().subscriptions.all(),
                              events().streams.all())
         for destination in destinations])


def resource(subscription: str) -> responses.Json:
    """GET /redfish/v1/EventService/Subscriptions/<subscription>"""
    stored = events().subscriptions.get(subscription)
    return _stream(subscription) if stored is None else _body(stored)


def _missing(id_: str) -> error_responses.RedfishError:
    return error_responses.resource_not_found('EventDestination', id_)


def _path(id_: str) -> str:
    return f'{ROOT}/{id_}'


def _body(subscription: subscriptions.Subscription) -> responses.Json:
    here = _path(subscription.id)
    event_filter = subscription.filter
    failures = events().failures(subscription.id)
    return {
        '@odata.id': here,
        '@odata.type': '#EventDestination.v1_14_0.EventDestination',
        'Id': subscription.id,
        'Name': subscription.name,
        'Destination': subscription.destination,
        'Context': subscription.context,
        'Protocol': 'Redfish',
        'SubscriptionType': 'RedfishEvent',
        'EventFormatType': 'Event',
        **{name: list(getattr(event_filter, field))
           for name, field in _LISTS.items()},
        'EventTypes': list(event_filter.types) or [event_record.OTHER],
        'OriginResources': [
            responses.link(path) for path in event_filter.origins],
        'OriginResources@odata.count': len(event_filter.origins),
        'SubordinateResources': event_filter.subordinate,
        'DeliveryRetryPolicy': subscription.policy.value,
        'VerifyCertificate': subscription.verify,
        # Not shown, because they may contain credentials (DSP0268).
        'HttpHeaders': [],
        'Status': {
            'State': 'Disabled' if subscription.suspended else 'Enabled',
            'Health': 'Warning' if failures else 'OK'},
        'Actions': {'#' + name: {'target': f'{here}/Actions/{name}'}
                    for name in (_SUSPEND, _RESUME)},
    }


def _stream(id_: str) -> responses.Json:
    stream = events().streams.get(id_)
    if stream is None:
        raise _missing(id_)
    return {
        '@odata.id': _path(stream.id),
        '@odata.type': '#EventDestination.v1_14_0.EventDestination',
        'Id': stream.id,
        'Name': 'Server-Sent Events',
        'Destination': 'redfish-sse://' + stream.client,
        'Context': stream.context,
        'Protocol': 'Redfish',
        'SubscriptionType': 'SSE',
        'EventFormatType': 'Event',
        'Status': {'State': 'Enabled', 'Health': 'OK'},
    }


# Changes

def create() -> flask.Response:
    """POST /redfish/v1/EventService/Subscriptions"""
    values = payload.properties(_CREATE, required=['Destination'])
    filter_fields = {field: tuple(values.get(name, ()))
                     for name, field in _LISTS.items()}
    filter_fields['origins'] = tuple(
        link.get('@odata.id') for link in filter_fields['origins'])
    if None in filter_fields['origins']:
        raise error_responses.base_error(
            400, 'PropertyMissing', '@odata.id',
            related=['#/OriginResources'])
    fields = _fields(values)
    if values.get('Name'):
        fields['name'] = values['Name'][:_MAX_LENGTH]
    created = events().subscriptions.add(
        values['Destination'], owner=authentication.owner(),
        filter=filters.Filter(
            **filter_fields,
            subordinate=values.get('SubordinateResources', False)),
        **fields)
    return responses.created(_body(created))


def patch(subscription: str) -> None:
    """PATCH /redfish/v1/EventService/Subscriptions/<subscription>"""
    if events().subscriptions.get(subscription) is None:
        _stream(subscription)
        raise error_responses.general_error(
            405, 'A stream cannot be changed.',
            'Open another one with another $filter.',
            {'Allow': 'DELETE, GET, HEAD, OPTIONS'})
    fields = _fields(payload.properties(_PATCH))
    if events().subscriptions.change(subscription, **fields) is None:
        raise _missing(subscription)


def delete(subscription: str) -> None:
    """DELETE /redfish/v1/EventService/Subscriptions/<subscription>"""
    stream = events().streams.get(subscription)
    if stream is not None:
        stream.terminate()
    elif not events().subscriptions.remove(subscription):
        raise _missing(subscription)


def _headers(value: typing.Any) -> tuple[tuple[str, str], ...]:
    """Convert HttpHeaders to names and values.

    :raises: `error_responses.RedfishError`, 400
    """
    if not isinstance(value, list | None) or not all(
            isinstance(header, dict) for header in value or ()):
        raise error_responses.base_error(
            400, 'PropertyValueTypeError', '…', 'HttpHeaders',
            related=['#/HttpHeaders'],
            detail='The value must be a list of objects: '
            '[{"Name": "value"}].')
    pairs = tuple(pair for header in value or () for pair in header.items())
    try:
        subscriptions.check_headers(pairs)
    except errors.InvalidValue as exc:
        raise error_responses.base_error(
            400, 'PropertyValueIncorrect', 'HttpHeaders', exc.value or '…',
            related=['#/HttpHeaders'], detail=f'{exc}.') from None
    return pairs


# Property, field of Subscription, conversion.
_FIELDS: tuple[tuple[str, str, abc.Callable[..., object]], ...] = (
    ('Context', 'context', str),
    ('DeliveryRetryPolicy', 'policy', subscriptions.Policy),
    ('VerifyCertificate', 'verify', bool),
    ('HttpHeaders', 'headers', _headers),
)


def _fields(values: responses.Json) -> dict[str, typing.Any]:
    """Convert the given properties to fields of a `Subscription`."""
    return {field: convert(values[name]) for name, field, convert in _FIELDS
            if name in values}


# Actions

def suspend(subscription: str) -> None:
    """POST …/Actions/EventDestination.SuspendSubscription"""
    payload.parameters(_SUSPEND, {})
    _set_suspended(subscription, True)


def resume(subscription: str) -> None:
    """POST …/Actions/EventDestination.ResumeSubscription"""
    payload.parameters(_RESUME, {})
    _set_suspended(subscription, False)


def _set_suspended(id_: str, suspended: bool) -> None:
    if events().subscriptions.change(id_, suspended=suspended) is None:
        if events().streams.get(id_) is not None:
            raise error_responses.general_error(
                405, 'A stream cannot be suspended.')
        raise _missing(id_)


def _owner(subscription: str) -> str | None:
    """Find the name of the account that created a subscription."""
    stored = events().subscriptions.get(subscription)
    return stored.owner if stored is not None else None


_RULE = ROOT + '/<subscription>'

ROUTES = (
    routing.add(ROOT, collection, post=create),
    routing.add(_RULE, resource, patch=patch, delete=delete, owner=_owner),
    routing.add(f'{_RULE}/Actions/{_SUSPEND}', post=suspend, owner=_owner),
    routing.add(f'{_RULE}/Actions/{_RESUME}', post=resume, owner=_owner),
)
