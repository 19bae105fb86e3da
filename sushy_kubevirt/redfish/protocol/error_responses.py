# SPDX-License-Identifier: Apache-2.0
"""Redfish errors: HTTP status codes and error bodies.

`error_response` is the error handler of the whole application, including
sushy-emulator's routes. A client receives the name of the object, the refused
value and what to do. Tracebacks and names of files and functions go only to
the log.

Status codes for errors of `sushy_kubevirt.kube.errors`:

- client errors: 404 unknown system; 400 invalid value; 409 wrong state,
  change rejected by KubeVirt, or ambiguous name; 501 not supported by any
  KubeVirt VM;
- 503 with Retry-After: the Kubernetes API is unavailable, or did not finish a
  change in time;
- 500 with the message Base.AccessDenied: Kubernetes denies *this service* a
  request. 403 would report missing privileges of the client (sushy then logs
  in again), and 503 would ask the client to wait; neither would help.
"""

from __future__ import annotations

import json
import math
import typing

import flask
from werkzeug import exceptions

from sushy_tools import error

from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.protocol import messages

if typing.TYPE_CHECKING:
    from collections import abc
    import logging

#: Default of the header Retry-After, seconds.
RETRY_AFTER = 5

#: Largest number of messages in an error response.
MAX_MESSAGES = 20

_JSON = 'application/json'


class RedfishError(Exception):
    """An error response.

    :param status: HTTP status code
    :param entries: messages, most important first
    :param headers: additional headers
    """

    def __init__(self, status: int, *entries: messages.Message,
                 headers: abc.Mapping[str, str] | None = None) -> None:
        entries = entries[:MAX_MESSAGES]
        super().__init__('; '.join(entry['Message'] for entry in entries))
        self.status = status
        self.entries = entries
        self.headers: abc.Mapping[str, str] = headers or {}


def base_error(status: int, key: str, *args: typing.Any,
               headers: abc.Mapping[str, str] | None = None,
               **options: typing.Any) -> RedfishError:
    """Create an error with one message of the Base registry.

    :param status: HTTP status code
    :param key: MessageKey; the other arguments are those of
        `messages.message`
    :param headers: additional headers
    """
    return RedfishError(status, messages.message(key, *args, **options),
                        headers=headers)


def resource_not_found(kind: str, name: str) -> RedfishError:
    """Create the error 404: the resource does not exist.

    :param kind: its schema, such as ``ComputerSystem``
    :param name: its id
    """
    return base_error(404, 'ResourceNotFound', kind, name)


def uri_not_found() -> RedfishError:
    """Create the error 404: no resource at the URI of this request."""
    return base_error(404, 'ResourceMissingAtURI', flask.request.path)


def general_error(status: int, text: str, resolution: str = '',
                  headers: abc.Mapping[str, str] | None = None
                  ) -> RedfishError:
    """Create an error without a message in the Base registry (GeneralError).

    :param status: HTTP status code
    :param text: a sentence; replaces the registry's text
    :param resolution: what to do, a sentence
    :param headers: additional headers
    """
    entry = messages.message('GeneralError', resolution=resolution)
    # Clients show Message; the registry's text has no information.
    entry['Message'] = text
    return RedfishError(status, entry, headers=headers)


def unavailable(text: str, retry_after: float | None = None) -> RedfishError:
    """Create the error 503 with Retry-After.

    :param text: a sentence that names what is unavailable
    :param retry_after: seconds; default `RETRY_AFTER`
    """
    seconds = str(max(1, math.ceil(retry_after or RETRY_AFTER)))
    return base_error(
        503, 'ServiceTemporarilyUnavailable', seconds, detail=text,
        headers={'Retry-After': seconds})


def internal_error() -> RedfishError:
    """Create the error 500 without details, for an unexpected exception."""
    return base_error(500, 'InternalError')


def error_body(entries: abc.Sequence[messages.Message]
               ) -> dict[str, typing.Any]:
    """Build the body of an error response (DSP0266, "Error responses")."""
    return {'error': {
        'code': entries[0]['MessageId'],
        'message': ' '.join(entry['Message'] for entry in entries),
        '@Message.ExtendedInfo': list(entries),
    }}


def _from_machine_error(exc: errors.MachineError, log: logging.Logger
                        ) -> RedfishError:
    """Convert an `errors.MachineError`."""
    if isinstance(exc, errors.MachineNotFound):
        return resource_not_found('ComputerSystem', exc.identity)
    if isinstance(exc, errors.AmbiguousName):
        return general_error(409, str(exc), 'Use namespace:name.')
    if isinstance(exc, errors.InvalidValue):
        value = getattr(exc.value, 'value', exc.value)
        return base_error(
            400, 'PropertyValueIncorrect', exc.property, value,
            detail=str(exc), related=['#/' + exc.property])
    if isinstance(exc, (errors.WrongState, errors.Rejected)):
        return general_error(409, str(exc))
    if isinstance(exc, errors.Unsupported):
        return general_error(501, str(exc))
    if isinstance(exc, errors.MediaUnreachable):
        # Logged as well: not every client shows the error to its user.
        log.warning('Image not reachable: %s', exc)
        return _media_unreachable(exc)
    if isinstance(exc, errors.Unavailable):
        log.warning('Kubernetes API unavailable, answered 503: %s', exc)
        return unavailable(str(exc), exc.retry_after)
    if isinstance(exc, errors.AccessDenied):
        log.error('Kubernetes API denied access: %s. Check the credentials '
                  'of this service and the RBAC rules of its account.', exc)
        return base_error(
            500, 'AccessDenied', 'the Kubernetes API', detail=str(exc))
    # For example a connection configuration that no longer works. The client
    # cannot do anything about it.
    log.error('%s: %s', type(exc).__name__, exc)
    return internal_error()


def _media_unreachable(exc: errors.MediaUnreachable) -> RedfishError:
    """Convert `errors.MediaUnreachable`: an image cannot be read.

    The client named the URL, so the error is the client's (400) unless the
    image's server reports an error of its own (502).
    """
    if exc.kind == 'missing':
        entry = messages.message(
            'ResourceMissingAtURI', exc.url, detail=str(exc),
            resolution='Check that the URI is correct and that its server '
            'has the image.')
    elif exc.kind == 'unauthorized':
        entry = messages.message('ResourceAtUriUnauthorized', exc.url,
                                 str(exc))
    else:
        entry = messages.message('CouldNotEstablishConnection', exc.url,
                                 detail=str(exc))
    return RedfishError(502 if exc.kind == 'server' else 400, entry)


def _from_http_exception(exc: exceptions.HTTPException) -> RedfishError:
    """Convert an exception of Flask or Werkzeug."""
    headers = {name: value for name, value in exc.get_headers()
               if name.lower() in ('allow', 'retry-after')}
    code = exc.code or 500
    if code == 404:
        return uri_not_found()
    if code == 405:
        return base_error(405, 'OperationNotAllowed', headers=headers)
    if code == 413:
        return base_error(413, 'PayloadTooLarge')
    if code == 400 and flask.request.method in ('PATCH', 'POST', 'PUT'):
        # sushy-tools' own views parse the body themselves.
        return base_error(400, 'MalformedJSON')
    if code >= 500:
        return internal_error()
    return general_error(code, exc.description or exc.name, headers=headers)


def to_redfish_error(exc: Exception, log: logging.Logger) -> RedfishError:
    """Convert any exception; log what the client is not told."""
    if isinstance(exc, RedfishError):
        return exc
    if isinstance(exc, errors.MachineError):
        return _from_machine_error(exc, log)
    if isinstance(exc, exceptions.HTTPException):
        return _from_http_exception(exc)
    if isinstance(exc, error.NotFound):
        return uri_not_found()
    if isinstance(exc, error.FishyError):
        return general_error(exc.code, str(exc))
    log.error('Unexpected %s', type(exc).__name__, exc_info=exc)
    return internal_error()


def error_response(exc: Exception) -> flask.Response:
    """Build the response for an exception (Flask's error handler)."""
    log = flask.current_app.logger
    refusal = to_redfish_error(exc, log)
    log.debug('%s %r answered %d: %r', flask.request.method,
              flask.request.path, refusal.status, str(refusal))
    return flask.Response(
        json.dumps(error_body(refusal.entries)), status=refusal.status,
        headers=refusal.headers, content_type=_JSON)
