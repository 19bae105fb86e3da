# SPDX-License-Identifier: Apache-2.0
"""Validates and stores event subscriptions.

They are stored in Kubernetes by `services.state_secret`; `delivery` sends the
events.
"""

from __future__ import annotations

from collections import abc
import enum
import json
import re
import typing
import uuid

from sushy_kubevirt.bmc import shares
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import url_policy
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import filters

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import state_secret
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.redfish.services.events import event_options

_SECTION = 'subscriptions'

_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}"
_VALUE = r'[\t\x20-\x7e\x80-\xff]*'

# Ids that can be part of a resource's path.
_ID = '[A-Za-z0-9-]{1,64}'

#: Headers that `http_push` sets, or that control the connection.
_RESERVED = ('host', 'content-length', 'content-type', 'transfer-encoding',
             'connection', 'te', 'trailer', 'upgrade', 'expect')

_MAX_HEADERS = 16
_MAX_HEADER_LENGTH = 8192

#: Characters of all subscriptions as JSON, which are divided among accounts.
MAX_LENGTH = 300 * 1024


class Policy(enum.Enum):
    """Redfish's ``DeliveryRetryPolicy``: reaction to a failed delivery."""

    TERMINATE = 'TerminateAfterRetries'
    """Delete the subscription after DeliveryRetryAttempts retries."""

    SUSPEND = 'SuspendRetries'
    """Suspend the subscription after DeliveryRetryAttempts retries."""

    FOREVER = 'RetryForever'
    """Retry every DeliveryRetryIntervalSeconds."""

    BACKOFF = 'RetryForeverWithBackoff'
    """Retry with increasing intervals."""


class LimitReached(errors.Rejected):
    """An account has no room for more subscriptions, or for larger ones."""


class Subscription(typing.NamedTuple):
    """A subscription to events.

    :param id: Id of its resource
    :param destination: URL that receives the events
    :param name: Name of its resource
    :param context: Context of its events
    :param headers: (name, value) of HTTP headers to send; secret
    :param verify: whether to verify the destination's TLS certificate
    :param suspended: whether no events are sent until it is resumed
    :param created: time of creation, ISO 8601
    :param owner: to whose share it belongs, see `shares`: the name of the
        account that created it, or ':' and the network of its client
    """

    id: str
    destination: str
    name: str = 'Event Subscription'
    context: str = ''
    headers: tuple[tuple[str, str], ...] = ()
    filter: filters.Filter = filters.Filter()
    policy: Policy = Policy.BACKOFF
    verify: bool = False
    suspended: bool = False
    created: str = ''
    owner: str = ''

    def __repr__(self) -> str:
        return f'Subscription({self.id!r}, {self.destination!r})'  # no headers

    def to_dict(self) -> objects.Json:
        """Return the fields but the id for JSON."""
        fields = self._asdict()
        del fields['id']
        return {**fields, 'filter': self.filter._asdict(),
                'policy': self.policy.value}


def _parse_valid(id_: str, data: typing.Any) -> Subscription | None:
    """Restore a subscription from the Secret.

    :param data: decoded JSON; other clients of Kubernetes, or a later
        version of this service, may have written it
    :returns: None if the data are invalid
    """
    try:
        return _parse_subscription(id_, data)
    except (KeyError, TypeError, ValueError, AttributeError,
            errors.InvalidValue):
        return None


def _parse_subscription(id_: str, data: typing.Any) -> Subscription:
    filter_data = data.get('filter') or {}
    subscription = Subscription(
        id=id_, destination=data['destination'],
        name=data.get('name') or Subscription._field_defaults['name'],
        context=data.get('context', ''),
        headers=tuple((name, value)
                      for name, value in data.get('headers') or ()),
        filter=filters.Filter(**{
            name: _parse_filter_field(default, filter_data[name])
            for name, default in filters.Filter._field_defaults.items()
            if name in filter_data.keys()}),
        policy=Policy(data.get('policy', Policy.BACKOFF.value)),
        verify=bool(data.get('verify')),
        suspended=bool(data.get('suspended')),
        created=data.get('created', ''), owner=data.get('owner', ''))
    if not re.fullmatch(_ID, id_) or not all(map(_is_text, (
            subscription.destination, subscription.name,
            subscription.context, subscription.created,
            subscription.owner))):
        raise ValueError('invalid subscription')
    check_headers(subscription.headers)
    return subscription


def _parse_filter_field(default: bool | tuple[str, ...],
                        value: typing.Any) -> typing.Any:
    """Restore a field of a `filters.Filter` from the Secret."""
    if isinstance(default, bool):
        wrong = not isinstance(value, bool)
    else:
        wrong = not isinstance(value, list) or not all(map(_is_text, value))
    if wrong:
        raise ValueError('invalid filter')
    return value if isinstance(value, bool) else tuple(value)


def _owner(data: typing.Any) -> str:
    """Return the owner of a subscription in the Secret, '' if unknown."""
    return (data.get('owner') if isinstance(data, dict) else None) or ''


def _length(data: typing.Any) -> int:
    """Return the number of characters of a subscription in the Secret."""
    return len(json.dumps(data))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


class Subscriptions:
    """All subscriptions."""

    def __init__(self, state: state_secret.StateSecret,
                 options: event_options.EventOptions) -> None:
        self._state = state
        self._options = options

    def all(self) -> tuple[Subscription, ...]:
        """Return all subscriptions, oldest first.

        :raises: `errors.MachineError` if they cannot be read
        """
        return self._parse_section(self._state.read(_SECTION))

    def cached(self) -> tuple[Subscription, ...]:
        """Return the cached subscriptions, without blocking or failing."""
        return self._parse_section(self._state.cached(_SECTION))

    @staticmethod
    def _parse_section(section: objects.Json) -> tuple[Subscription, ...]:
        parsed = (_parse_valid(*item) for item in section.items())
        return tuple(sorted(filter(None, parsed), key=lambda subscription: (
            subscription.created, subscription.id)))

    def get(self, id_: str) -> Subscription | None:
        """Find a subscription.

        :raises: `errors.MachineError` if they cannot be read
        """
        for fresh in (False, True):
            # It may have been created by another host a moment ago.
            subscription = _parse_valid(id_, self._state.read(
                _SECTION, fresh=fresh).get(id_))
            if subscription is not None:
                return subscription
        return None

    def add(self, destination: str, **fields: typing.Any) -> Subscription:
        """Create a subscription.

        :param destination: URL
        :param fields: further fields of `Subscription`
        :raises: `errors.InvalidValue`, `LimitReached`,
            `errors.MachineError` if it cannot be stored
        """
        self.check_destination(destination)
        check_headers(fields.get('headers', ()))
        subscription = Subscription(
            id=str(uuid.uuid4()), destination=destination,
            created=event_record.now(), **fields)
        self._state.update(_SECTION, lambda section: self._store(
            section, subscription))
        return subscription

    def change(self, id_: str, **fields: typing.Any) -> Subscription | None:
        """Change fields of a subscription.

        :param fields: fields of `Subscription`
        :returns: the changed one; None if it does not exist
        :raises: `errors.InvalidValue`, `errors.MachineError`
        """
        check_headers(fields.get('headers', ()))

        def edit(section: objects.Json) -> None:
            before = _parse_valid(id_, section.get(id_))
            if before is not None:
                self._store(section, before._replace(**fields))

        return _parse_valid(id_, self._state.update(_SECTION, edit).get(id_))

    def _store(self, section: objects.Json, subscription: Subscription
               ) -> None:
        """Add or replace a subscription, within its owner's share.

        :param section: of the Secret, by id
        :raises: `LimitReached`
        """
        before, after = section.get(subscription.id), subscription.to_dict()
        others = [other for id_, other in section.items()
                  if id_ != subscription.id]
        own = [other for other in others
               if _owner(other) == subscription.owner]
        if before is None and not shares.fits(
                len(own), len(others),
                shares.total(self._options.subscriptions)):
            raise LimitReached(
                f'The maximum of {self._options.subscriptions} subscriptions '
                'of an account, or half of those that are left, is reached; '
                'delete one first')
        length = _length(after)
        if length > _length(before) and not shares.fits(
                sum(map(_length, own)),
                sum(map(_length, others)) + length, MAX_LENGTH, length):
            raise LimitReached(
                'The subscriptions of an account may take at most half of '
                'the room that is left; delete one first, or use shorter '
                'lists and headers')
        section[subscription.id] = after

    def remove(self, id_: str) -> bool:
        """Delete a subscription.

        :returns: whether it existed
        :raises: `errors.MachineError`
        """
        removed: list[str] = []

        def edit(section: objects.Json) -> None:
            if section.pop(id_, None) is not None:
                removed.append(id_)

        self._state.update(_SECTION, edit)
        return bool(removed)

    # Checks

    def check_destination(self, url: str) -> None:
        """Check that events may be sent to a URL.

        :raises: `errors.InvalidValue`
        """
        try:
            parsed = read_url(url)
            self.addresses(parsed)
        except errors.MediaUnreachable:
            # The host name may be resolvable by the time of the first event.
            pass

    def addresses(self, parsed: url_policy.ParsedUrl) -> tuple[str, ...]:
        """Resolve a URL's host and check that its addresses are allowed.

        :returns: IP addresses to connect to
        :raises: `errors.InvalidValue` if one is not allowed,
            `errors.MediaUnreachable` if the name cannot be resolved
        """
        try:
            return url_policy.check(parsed, self._options)
        except errors.InvalidValue as e:
            raise _destination_error(e) from None


def read_url(url: str) -> url_policy.ParsedUrl:
    """Parse the URL of a destination.

    :raises: `errors.InvalidValue`
    """
    try:
        parsed = url_policy.parse(url)
    except errors.InvalidValue as e:
        raise _destination_error(e) from None
    if parsed.username or parsed.password:
        # All clients that can read the subscription would see it.
        raise errors.InvalidValue(
            'Destination', parsed.text,
            message='Destination must not contain a user name or password; '
            'send them as HttpHeaders')
    return parsed


def _destination_error(error: errors.InvalidValue) -> errors.InvalidValue:
    """Reword an error of `url_policy` for the property Destination."""
    why = str(error).partition(': ')[2] or str(error)
    return errors.InvalidValue(
        'Destination', error.value,
        message=f"Events cannot be sent to {error.value or 'an empty URL'}: "
        f'{why}')


def check_headers(headers: abc.Sequence[tuple[str, str]]) -> None:
    """Validate HTTP headers of a subscription.

    :param headers: (name, value)
    :raises: `errors.InvalidValue`; it contains no value of a header
    """
    size = 0
    for name, value in headers:
        shown = name[:64] if isinstance(name, str) else ''
        if not isinstance(name, str) or not re.fullmatch(_HEADER, name):
            raise _bad_header(shown, 'the name is invalid')
        if name.lower() in _RESERVED:
            raise _bad_header(shown, 'the service sets this header itself')
        if not isinstance(value, str) or not re.fullmatch(_VALUE, value):
            raise _bad_header(shown, 'the value is invalid')
        size += len(name) + len(value)
    if len(headers) > _MAX_HEADERS or size > _MAX_HEADER_LENGTH:
        raise _bad_header('', f'at most {_MAX_HEADERS} headers with '
                          f'{_MAX_HEADER_LENGTH} characters are allowed')


def _bad_header(name: str, why: str) -> errors.InvalidValue:
    return errors.InvalidValue(
        'HttpHeaders', name, message='HttpHeaders cannot contain '
        f"{name or 'these headers'}: {why}")
