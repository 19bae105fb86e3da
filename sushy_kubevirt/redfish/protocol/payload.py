# SPDX-License-Identifier: Apache-2.0
"""Request bodies: parse and validate.

A whole body is validated before anything is changed, so a refused request has
changed nothing. A route declares what it accepts as a *shape*: a dict of
property name to type (`bool`, `str`, `list` ...), to a tuple of allowed
strings (and None), to `Range`, `Text`, `ListOf`, `Extension`, `ReadOnly`, or
to another shape (`Shape`).
"""

from __future__ import annotations

from collections import abc
import datetime
import errno
import functools
import json
import re
import time
import types
import typing

import flask
from werkzeug import exceptions

from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import routing

if typing.TYPE_CHECKING:
    import socket

    from sushy_kubevirt.redfish.protocol import responses

#: Bytes. The largest body that a client needs to send is a certificate.
MAX_BODY = 2 ** 18

_DISCARD_SECONDS = 1

_JSON = 'application/json'

_DATE_TIME = (r'(?a)\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?'
              r'([Zz]|[-+]\d\d:\d\d)')

_WITHOUT_BODY = ('GET', 'HEAD', 'OPTIONS')


class ReadOnly:
    """A property that the resource has and clients cannot set.

    :param why: sentence for the error message, optional
    """

    def __init__(self, why: str = '') -> None:
        self.why = why


class Range:
    """An integer.

    :param unit: for the error message, optional
    """

    def __init__(self, lowest: int, highest: int, unit: str = '') -> None:
        self.lowest, self.highest, self.unit = lowest, highest, unit


class Text:
    """A string.

    :param longest: number of characters
    :param pattern: of the string
    :param form: describes the pattern, for the error message
    :param secret: whether no response repeats it
    """

    def __init__(self, longest: int, pattern: str = '(?s:.*)',
                 form: str = '', secret: bool = False) -> None:
        self.longest, self.pattern = longest, pattern
        self.form, self.secret = form, secret


class ListOf:
    """A list.

    :param kind: of its entries
    :param most: number of them
    """

    def __init__(self, kind: Kind, most: int = 1000) -> None:
        self.kind, self.most = kind, most


class Extension:
    """An object with an object for each vendor, such as ``Oem``.

    This service has no such members. Those that request nothing (null, false,
    empty) are ignored, the others refused.

    :param why: sentence for the error message
    """

    def __init__(self, why: str) -> None:
        self.why = why


#: What a shape has for a property.
Kind: typing.TypeAlias = (
    'type[typing.Any] | types.UnionType | tuple[str | None, ...] | ReadOnly '
    '| Range | Text | ListOf | Extension | Shape')

#: Of a resource, or an object in it.
Shape: typing.TypeAlias = abc.Mapping[str, Kind]


def read_only(*names: str) -> dict[str, ReadOnly]:
    """Build the part of a shape for read-only properties."""
    return dict.fromkeys(names, ReadOnly())


def check() -> None:
    """Refuse a body that is not a JSON object, or what the route accepts.

    For Flask's before_request. A missing body is left to the route.

    :raises: `error_responses.RedfishError`: 400 not JSON, 413 more than
        `MAX_BODY` bytes, 415 wrong Content-Type
    """
    request = flask.request
    if not _has_body(request):
        return
    if request.method in _WITHOUT_BODY:
        # Its chunks have to be valid, too.
        request.max_content_length = MAX_BODY
        request.get_data(cache=False)
        return
    media = routing.current().of(request.endpoint).body
    if media != _JSON:
        if request.mimetype != media:
            raise _wrong_type_of_body(media)
        return      # the view reads it
    if request.max_content_length is None:
        request.max_content_length = MAX_BODY
    if not request.is_json:
        raise _wrong_type_of_body(_JSON)
    try:
        body = request.get_json()
    except RecursionError:
        raise error_responses.base_error(400, 'MalformedJSON') from None
    if not isinstance(body, dict):
        raise error_responses.base_error(
            400, 'MalformedJSON', detail='The body must be a JSON object.')
    require_text(body)


def require_text(value: typing.Any) -> None:
    """Refuse unpaired surrogates in names and values, NaN and Infinity.

    They are no text and no numbers (RFC 8259, sections 8.2 and 6), and cannot
    be sent or stored.

    :param value: parsed JSON
    :raises: `error_responses.RedfishError`, 400
    """
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise error_responses.base_error(
            400, 'MalformedJSON', detail='The body contains an unpaired '
            'surrogate, NaN or Infinity.') from None


def _wrong_type_of_body(media: str) -> error_responses.RedfishError:
    return error_responses.base_error(
        415, 'HeaderInvalid',
        f"Content-Type: {flask.request.content_type or ''}",
        resolution=f'Send {media}.')


def _has_body(request: flask.Request) -> bool:
    if request.content_length is not None:
        return request.content_length > 0
    return 'HTTP_TRANSFER_ENCODING' in request.environ


def drain(request: flask.Request, response: flask.Response) -> None:
    """Read the rest of the request body.

    Otherwise the server takes the rest for the next request, or closes a
    connection that the client wants to keep. Of a long body, gunicorn would
    read nothing, and the client might not receive the response (TCP RST).
    """
    length = request.environ.get('CONTENT_LENGTH')
    connection = request.environ.get('gunicorn.socket')
    if connection is not None and (
            length is None and 'HTTP_TRANSFER_ENCODING' in request.environ
            or length and length.isdecimal() and int(length) > MAX_BODY):
        response.call_on_close(functools.partial(
            _discard, connection, request.environ['wsgi.input']))
    elif length and length.isdecimal() and 0 < int(length) <= MAX_BODY:
        try:
            request.get_data(cache=False)
        except (OSError, exceptions.HTTPException):
            pass    # the client has disconnected


def _discard(connection: socket.socket, stream: typing.BinaryIO) -> None:
    """Read a body for `_DISCARD_SECONDS`, after the response was sent.

    :raises: BrokenPipeError if its end is not known, which makes gunicorn
        close the connection without a line in the log
    """
    end = time.monotonic() + _DISCARD_SECONDS
    try:
        connection.settimeout(_DISCARD_SECONDS)
        while stream.read(2 ** 16) and time.monotonic() < end:
            pass
    except (OSError, ValueError):
        raise BrokenPipeError(
            errno.EPIPE, 'The rest of the body was not received') from None


def body() -> responses.Json:
    """Return the JSON object of the request.

    :raises: `error_responses.RedfishError`, 400 if there is no body
    """
    if not _has_body(flask.request):
        raise error_responses.base_error(
            400, 'MalformedJSON', detail='The request has no body.')
    values: responses.Json = flask.request.get_json()
    return values


def is_annotation(name: str) -> bool:
    """Check for an OData annotation, ignored in bodies.

    DSP0266, "Modify (PATCH)".
    """
    return name.startswith('@odata.') or name.startswith('@Redfish.')


def properties(shape: Shape, required: abc.Collection[str] = ()
               ) -> responses.Json:
    """Validate the properties of a PATCH, or of a new resource.

    :param required: names of those that a new resource needs
    :returns: property to value
    :raises: `error_responses.RedfishError`, 400, with one message per
        invalid property
    """
    values = validated(body(), shape, required)
    if not any(value != {} for value in values.values()):
        writable = ', '.join(_writable_names(shape)) or 'none'
        raise error_responses.base_error(
            400, 'NoOperation', detail=f'Writable properties: {writable}.')
    return values


def parameters(action: str, shape: Shape, required: abc.Collection[str] = ()
               ) -> responses.Json:
    """Validate the parameters of an action.

    :param action: such as ``ComputerSystem.Reset``
    :param required: names of required parameters
    :returns: parameter to value
    :raises: `error_responses.RedfishError`, 400, with one message per error
    """
    given = body() if required or _has_body(flask.request) else {}
    return validated(given, shape, required, action)


def validated(given: responses.Json, shape: Shape,
              required: abc.Collection[str] = (), action: str = ''
              ) -> responses.Json:
    """Validate a JSON object against a shape.

    :param action: of which it has the parameters; '' for a resource
    :returns: property or parameter to value
    :raises: `error_responses.RedfishError`, 400, with one message per error
    """
    problems: list[messages.Message] = []
    values: responses.Json = _checked(
        '', given, shape, action, '#', problems)
    problems += [_problem('Missing', '', [], name, action, f'#/{name}')
                 for name in required if name not in given]
    if problems:
        raise error_responses.RedfishError(400, *problems)
    return values


def _writable_names(shape: Shape, prefix: str = '') -> abc.Iterator[str]:
    for name, kind in shape.items():
        if isinstance(kind, abc.Mapping):
            yield from _writable_names(kind, prefix + name + '/')
        elif not isinstance(kind, (ReadOnly, Extension)):
            yield prefix + name


def _checked(name: str, value: typing.Any, kind: Kind | None, action: str,
             pointer: str, problems: list[messages.Message]) -> typing.Any:
    """Validate a value, and what is in it.

    :param name: of the property or parameter
    :param pointer: JSON pointer of the value
    :param problems: messages are appended
    :returns: the value, without annotations
    """
    fault = _fault(value, kind)
    if fault is not None:
        secret = 'Password' in name or isinstance(kind, Text) and kind.secret
        problems.append(_problem(*fault, ['…' if secret else value], name,
                                 action, pointer))
    elif isinstance(kind, abc.Mapping):
        return {inner: _checked(inner, item, kind.get(inner), action,
                                f'{pointer}/{inner}', problems)
                for inner, item in value.items()
                if inner in kind or not is_annotation(inner)}
    elif isinstance(kind, Extension):
        problems += [
            _problem('Unknown', kind.why, [], f'{name}/{member}', action,
                     f'{pointer}/{member}')
            for member in _requested(value or {})]
    elif isinstance(kind, ListOf):
        return [_checked(name, item, kind.kind, action, f'{pointer}/{number}',
                         problems) for number, item in enumerate(value)]
    return value


def _requested(vendors: responses.Json) -> abc.Iterator[str]:
    """Yield the members of an extension that request something."""
    for vendor, members in vendors.items():
        if is_annotation(vendor) or not members:
            continue
        if not isinstance(members, dict):
            yield vendor
            continue
        for name, value in members.items():
            if value and not is_annotation(name):
                yield f'{vendor}/{name}'


def _fault(value: typing.Any, kind: Kind | None) -> tuple[str, str] | None:
    """Compare a value with what the shape has for it.

    :returns: what is wrong, as in the keys of messages, and a detail; None if
        it is valid, apart from what is in an object
    """
    if kind is None:
        return 'Unknown', ''
    if isinstance(kind, ReadOnly):
        return 'NotWritable', kind.why
    if value is None and (isinstance(kind, tuple) and None in kind
                          or isinstance(kind, Extension)):
        return None
    expected: typing.Any = {
        Range: int, Text: str, tuple: str, ListOf: list, dict: dict,
        Extension: dict,
    }.get(type(kind), kind)
    if not isinstance(value, expected) or (
            isinstance(kind, Range) and isinstance(value, bool)):
        return 'ValueTypeError', ''
    if isinstance(kind, Range) and not kind.lowest <= value <= kind.highest:
        numbers = f'{kind.lowest} to {kind.highest} {kind.unit}'
        return 'ValueOutOfRange', f'Allowed values: {numbers.rstrip()}.'
    if isinstance(kind, Text) and len(value) > kind.longest:
        return 'ValueFormatError', (
            f'At most {kind.longest} characters are allowed.')
    if isinstance(kind, Text) and not re.fullmatch(kind.pattern, value):
        return 'ValueFormatError', kind.form
    if isinstance(kind, ListOf) and len(value) > kind.most:
        return 'ValueFormatError', f'At most {kind.most} entries are allowed.'
    if isinstance(kind, tuple) and value not in kind:
        allowed = ', '.join(filter(None, kind))
        return 'ValueNotInList', f'Allowed values: {allowed}.'
    return None


def _problem(fault: str, detail: str, value: list[typing.Any], name: str,
             action: str, pointer: str) -> messages.Message:
    """Make the message for a property, or a parameter of an action.

    :param value: its value; most messages have it
    """
    if fault in ('Unknown', 'NotWritable'):
        value = []
    if not action:
        return messages.message(f'Property{fault}', *value, name,
                                detail=detail, related=[pointer])
    return messages.message(
        f'ActionParameter{fault}', *((*value, name, action) if value
                                     else (action, name)), detail=detail)


def date_time(text: str) -> datetime.datetime | None:
    """Parse a date-time (DSP0266, "Date-Time values").

    :param text: value of a property or parameter
    :returns: in UTC; None if it is invalid
    """
    if not re.fullmatch(_DATE_TIME, text):
        return None
    try:
        return datetime.datetime.fromisoformat(text.upper()).astimezone(
            datetime.timezone.utc)
    except (ValueError, OverflowError):
        return None
