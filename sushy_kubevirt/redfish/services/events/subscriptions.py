# SPDX-License-Identifier: Apache-2.0
"""Subscriptions to events, kept in Kubernetes by `services.state_secret`.

Checks the properties of a subscription; `delivery` sends its events.
"""

import dataclasses
import enum
import re
import uuid

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import url_policy
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import filters

_SECTION = 'subscriptions'

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_VALUE = re.compile(r'[\t\x20-\x7e\x80-\xff]*')

# What one is called here, and in a path.
_ID = re.compile(r'[A-Za-z0-9-]{1,64}')

#: Headers that are not a client's to choose.
_OURS = ('host', 'content-length', 'content-type', 'transfer-encoding',
         'connection', 'te', 'trailer', 'upgrade', 'expect')

_MOST_HEADERS = 16
_LONGEST_HEADERS = 8192


class Policy(enum.Enum):
    """Redfish's ``DeliveryRetryPolicy``: what is done when a subscriber does
    not take an event.
    """

    TERMINATE = 'TerminateAfterRetries'
    """Try so many times, then delete the subscription."""

    SUSPEND = 'SuspendRetries'
    """Try so many times, then suspend it."""

    FOREVER = 'RetryForever'
    """Go on, at a constant pace."""

    BACKOFF = 'RetryForeverWithBackoff'
    """Go on, with longer and longer pauses."""


class LimitReached(errors.Rejected):
    """There are as many subscriptions as there may be."""


@dataclasses.dataclass(frozen=True)
class Subscription:
    """Somebody who is sent events.

    :param id: its name
    :param destination: URL
    :param name: for people
    :param context: text that goes with every event
    :param headers: tuple of (name, value) to send; secret
    :param filter: a `filters.Filter`
    :param policy: a `Policy`
    :param verify: whether the destination's certificate is checked
    :param suspended: whether it is sent nothing until it is resumed
    :param created: when, ISO 8601
    :param owner: name of the account that made it, '' for none
    """

    id: str
    destination: str
    name: str = 'Event Subscription'
    context: str = ''
    headers: tuple = dataclasses.field(default=(), repr=False)
    filter: filters.Filter = filters.Filter()
    policy: Policy = Policy.BACKOFF
    verify: bool = False
    suspended: bool = False
    created: str = ''
    owner: str = ''

    def packed(self):
        """:returns: dict, for JSON"""
        found = dataclasses.asdict(self)
        del found['id']
        return {**found, 'policy': self.policy.value}


def _read(id_, data):
    """What the Secret says of a subscription. Others may have written it.

    :returns: a `Subscription`; None for what this service would not write,
        or one of a later version
    """
    try:
        return _unpacked(id_, data)
    except (KeyError, TypeError, ValueError, AttributeError,
            errors.InvalidValue):
        return None


def _unpacked(id_, data):
    given = data.get('filter') or {}
    one = Subscription(
        id=id_, destination=data['destination'],
        name=data.get('name') or Subscription.name,
        context=data.get('context', ''),
        headers=tuple((name, value)
                      for name, value in data.get('headers') or ()),
        filter=filters.Filter(**{
            field.name: _filtering(field, given[field.name])
            for field in dataclasses.fields(filters.Filter)
            if field.name in given.keys()}),
        policy=Policy(data.get('policy', Policy.BACKOFF.value)),
        verify=bool(data.get('verify')),
        suspended=bool(data.get('suspended')),
        created=data.get('created', ''), owner=data.get('owner', ''))
    if not _ID.fullmatch(id_) or not all(map(_is_text, (
            one.destination, one.name, one.context, one.created,
            one.owner))):
        raise ValueError('no subscription of ours')
    check_headers(one.headers)
    return one


def _filtering(field, value):
    """A field of a `filters.Filter`, as `Subscription.packed` leaves it."""
    if isinstance(field.default, bool):
        wrong = not isinstance(value, bool)
    else:
        wrong = not isinstance(value, list) or not all(map(_is_text, value))
    if wrong:
        raise ValueError('no filter of ours')
    return value if isinstance(value, bool) else tuple(value)


def _is_text(value):
    return isinstance(value, str)


class Subscriptions:
    """All of them.

    :param state: a `state.State`
    :param options: an `options.EventOptions`
    """

    def __init__(self, state, options):
        self._state = state
        self._options = options

    def all(self):
        """:returns: tuple of `Subscription`, by time of creation
        :raises: `errors.MachineError` if they cannot be read
        """
        return self._of(self._state.read(_SECTION))

    def cached(self):
        """As `all`, as far as they are known: at once, without an error."""
        return self._of(self._state.cached(_SECTION))

    @staticmethod
    def _of(section):
        found = (_read(*item) for item in section.items())
        return tuple(sorted(filter(None, found),
                            key=lambda one: (one.created, one.id)))

    def get(self, id_):
        """:returns: a `Subscription`; None if there is none of that name"""
        for fresh in (False, True):
            # Another worker, or another host, may have made it just now.
            for one in self._of(self._state.read(_SECTION, fresh=fresh)):
                if one.id == id_:
                    return one
        return None

    def add(self, destination, **fields):
        """Make one.

        :param fields: of `Subscription`
        :returns: it
        :raises: `errors.InvalidValue`, `LimitReached`
        """
        self.check_destination(destination)
        check_headers(fields.get('headers', ()))
        made = Subscription(id=str(uuid.uuid4()), destination=destination,
                            created=event_record.now(), **fields)

        def edit(section):
            if (len(section) >= self._options.subscriptions
                    and made.id not in section):
                raise LimitReached(
                    'There are %d subscriptions and may not be more; delete '
                    'one first' % len(section))
            section[made.id] = made.packed()

        self._state.update(_SECTION, edit)
        return made

    def change(self, id_, **fields):
        """Change some fields of one.

        :returns: it as it is now; None if there is none
        """
        check_headers(fields.get('headers', ()))
        changed = []

        def edit(section):
            del changed[:]
            one = _read(id_, section.get(id_))
            if one is not None:
                one = dataclasses.replace(one, **fields)
                changed.append(one)
                section[id_] = one.packed()

        self._state.update(_SECTION, edit)
        return changed[0] if changed else None

    def remove(self, id_):
        """:returns: whether there was one of that name"""
        there = []

        def edit(section):
            if section.pop(id_, None) is not None:
                there.append(id_)

        self._state.update(_SECTION, edit)
        return bool(there)

    # Checks

    def check_destination(self, url):
        """See that a URL may be sent events.

        :raises: `errors.InvalidValue`
        """
        try:
            place = read_url(url)
            self.addresses(place)
        except errors.MediaUnreachable:
            # It may have a name by the time there is something to tell.
            pass

    def addresses(self, place):
        """The addresses to connect to, looked up now and all allowed.

        :param place: an `url_policy.ParsedUrl`
        :raises: `errors.InvalidValue`, `errors.MediaUnreachable`
        """
        try:
            return url_policy.check(place, self._options)
        except errors.InvalidValue as e:
            raise _worded(e) from None


def read_url(url):
    """:returns: an `url_policy.ParsedUrl`
    :raises: `errors.InvalidValue`
    """
    try:
        place = url_policy.parse(url)
    except errors.InvalidValue as e:
        raise _worded(e) from None
    if place.username or place.password:
        # It is shown to everybody who reads the subscription.
        raise errors.InvalidValue(
            'Destination', place.text, message='Destination may not hold a '
            'user name or password; send them as HttpHeaders')
    return place


def _worded(error):
    """What is refused about a URL, in the words of a subscription."""
    why = str(error).partition(': ')[2] or str(error)
    return errors.InvalidValue(
        'Destination', error.value, message='Events cannot be sent to %s: %s'
        % (error.value or 'there', why.replace('MEDIA_', 'EVENT_')))


def check_headers(headers):
    """See that headers can be sent.

    :param headers: sequence of (name, value)
    :raises: `errors.InvalidValue`, which holds no value of a header
    """
    size = 0
    for name, value in headers:
        shown = name[:64] if isinstance(name, str) else ''
        if not isinstance(name, str) or not _HEADER.fullmatch(name):
            raise _bad_header(shown, 'it is no name of a header')
        if name.lower() in _OURS:
            raise _bad_header(shown, 'this header is not yours to choose')
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise _bad_header(shown, 'its value cannot be sent')
        size += len(name) + len(value)
    if len(headers) > _MOST_HEADERS or size > _LONGEST_HEADERS:
        raise _bad_header('', 'they are too many or too long')


def _bad_header(name, why):
    return errors.InvalidValue(
        'HttpHeaders', name, message='HttpHeaders cannot hold %s: %s'
        % (name or 'these', why))
