# SPDX-License-Identifier: Apache-2.0
"""What clients send: read, checked, and refused by name.

Everything in a body is checked before anything is done, so a request that is
refused has changed nothing. A route says what it takes as a *shape*: a dict
of property to `bool`, `str`, a tuple of the texts allowed, a dict again, or
`ReadOnly`.
"""

import io

import flask
from werkzeug import exceptions as http

from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import messages

#: Bytes. The largest thing a client has to send is a certificate.
MAX_BODY = 2 ** 18

_WITHOUT_BODY = ('GET', 'HEAD', 'OPTIONS')


class ReadOnly:
    """A property that the resource has and no client may set.

    :param why: a sentence, if more is to be said
    """

    def __init__(self, why=''):
        self.why = why


def read_only(*names):
    """The part of a shape for properties that only can be read."""
    return dict.fromkeys(names, ReadOnly())


def check():
    """Refuse a body that is no JSON object, whichever route it is for.

    No body at all is left to the route.

    :raises: `errors.RedfishError`, 400, 413 or 415
    """
    request = flask.request
    if request.method in _WITHOUT_BODY or not _has_body(request):
        return
    if isinstance(request.environ.get('wsgi.input'), io.RawIOBase):
        # Werkzeug's own server takes a chunk that ends too early for a whole
        # one, with the memory behind it. A buffer notices.
        request.environ['wsgi.input'] = io.BufferedReader(
            request.environ['wsgi.input'])
    if request.max_content_length is None:
        request.max_content_length = MAX_BODY
    if not request.is_json:
        raise errors.RedfishError(415, messages.message(
            'HeaderInvalid',
            'Content-Type: %s' % (request.content_type or ''),
            resolution='Send application/json.'))
    try:
        body = request.get_json()
    except RecursionError:
        raise errors.RedfishError(
            400, messages.message('MalformedJSON')) from None
    if not isinstance(body, dict):
        raise errors.RedfishError(400, messages.message(
            'MalformedJSON', detail='It has to be an object.'))


def _has_body(request):
    if request.content_length is not None:
        return request.content_length > 0
    return 'HTTP_TRANSFER_ENCODING' in request.environ


def drain(request):
    """Read what a request still has, or its server takes it for the next
    one, or hangs up on a client that wants to go on.

    :param request: `flask.Request`
    """
    length = request.environ.get('CONTENT_LENGTH')
    if length and length.isdecimal() and 0 < int(length) <= MAX_BODY:
        try:
            request.get_data(cache=False)
        except (OSError, http.HTTPException):
            pass    # it is gone


def body():
    """The request's JSON object.

    :raises: `errors.RedfishError`, 400, when there is none
    """
    if not _has_body(flask.request):
        raise errors.RedfishError(400, messages.message(
            'MalformedJSON', detail='There is no body.'))
    return flask.request.get_json()


def is_annotation(name):
    # DSP0266, "Modify (PATCH)": OData annotations in a body are ignored.
    return name.startswith('@odata.') or name.startswith('@Redfish.')


def properties(shape):
    """The properties a PATCH changes, checked against a shape.

    :returns: dict
    :raises: `errors.RedfishError`, 400, with a message for each that is
        wrong
    """
    found = []
    values = _check_object(body(), shape, '#', found)
    if found:
        raise errors.RedfishError(400, *found)
    if not any(value != {} for value in values.values()):
        takes = ', '.join(_writable_names(shape)) or 'none'
        raise errors.RedfishError(400, messages.message(
            'NoOperation', detail=f'Properties to set: {takes}.'))
    return values


def _writable_names(shape, prefix=''):
    for name, kind in shape.items():
        if isinstance(kind, dict):
            yield from _writable_names(kind, prefix + name + '/')
        elif not isinstance(kind, ReadOnly):
            yield prefix + name


def _check_object(given, shape, where, found):
    """Check one object of a body; what is wrong is added to `found`."""
    values = {}
    for name, value in given.items():
        if is_annotation(name):
            continue
        pointer = f'{where}/{name}'
        kind = shape.get(name)
        if kind is None:
            found.append(messages.message('PropertyUnknown', name,
                                          related=[pointer]))
        elif isinstance(kind, ReadOnly):
            found.append(messages.message('PropertyNotWritable', name,
                                          detail=kind.why, related=[pointer]))
        elif isinstance(kind, dict):
            if isinstance(value, dict):
                values[name] = _check_object(value, kind, pointer, found)
            else:
                found.append(_wrong_type(name, value, pointer))
        elif isinstance(kind, tuple):
            if not isinstance(value, str):
                found.append(_wrong_type(name, value, pointer))
            elif value not in kind:
                found.append(not_in_list(name, value, kind, pointer))
            else:
                values[name] = value
        elif isinstance(value, kind):
            values[name] = value
        else:
            found.append(_wrong_type(name, value, pointer))
    return values


def _wrong_type(name, value, pointer):
    return messages.message('PropertyValueTypeError', _redact(name, value),
                            name, related=[pointer])


def _redact(name, value):
    """A value for an answer, and so for the log."""
    return '…' if 'Password' in name else value


def not_in_list(name, value, allowed, pointer):
    """The message for a value that is none of those allowed."""
    return messages.message(
        'PropertyValueNotInList', value, name, related=[pointer],
        detail=f"It takes {', '.join(allowed)}.")


def parameters(action, shape, required=()):
    """The parameters of an action, checked against a (flat) shape.

    :param action: its name, such as ``ComputerSystem.Reset``
    :param required: names that have to be there
    :returns: dict
    :raises: `errors.RedfishError`, 400
    """
    given = body() if required or _has_body(flask.request) else {}
    found, values = [], {}
    for name, value in given.items():
        if is_annotation(name):
            continue
        kind = shape.get(name)
        if kind is None:
            found.append(messages.message(
                'ActionParameterUnknown', action, name))
        elif not isinstance(value, str if isinstance(kind, tuple) else kind):
            found.append(messages.message(
                'ActionParameterValueTypeError', _redact(name, value), name,
                action))
        elif isinstance(kind, tuple) and value not in kind:
            found.append(messages.message(
                'ActionParameterValueNotInList', value, name, action,
                detail=f"It takes {', '.join(kind)}."))
        else:
            values[name] = value
    for name in required:
        if name not in given:
            found.append(messages.message(
                'ActionParameterMissing', action, name))
    if found:
        raise errors.RedfishError(400, *found)
    return values
