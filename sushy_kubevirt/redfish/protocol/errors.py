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

import json
import math

import flask
from werkzeug import exceptions as http

from sushy_tools import error as upstream

from sushy_kubevirt.kube import errors as machine_errors
from sushy_kubevirt.redfish.protocol import messages

#: Seconds to wait, when nothing better is known (Retry-After).
RETRY_AFTER = 5

#: Mistakes of one request that are told; who makes more has enough to do.
MAX_MESSAGES = 20

_JSON = 'application/json'


class RedfishError(Exception):
    """An answer that is no success.

    :param status: HTTP code
    :param entries: what `messages.message` made, the most important first
    :param headers: dict of further headers
    """

    def __init__(self, status, *entries, headers=None):
        entries = entries[:MAX_MESSAGES]
        super().__init__('; '.join(entry['Message'] for entry in entries))
        self.status = status
        self.entries = entries
        self.headers = headers or {}


def resource_not_found(kind, name):
    """There is no such resource: 404.

    :param kind: its schema, such as ``ComputerSystem``
    """
    return RedfishError(
        404, messages.message('ResourceNotFound', kind, name))


def uri_not_found():
    """There is nothing at this URI: 404."""
    return RedfishError(404, messages.message(
        'ResourceMissingAtURI', flask.request.path))


def general_error(status, text, resolution='', headers=None):
    """An error for which the registry has no message of its own."""
    entry = messages.message('GeneralError', resolution=resolution)
    # A client shows the text of the message, which here would tell nothing.
    entry['Message'] = text
    return RedfishError(status, entry, headers=headers)


def unavailable(text, retry_after=None):
    """The cluster is away: 503 with Retry-After."""
    seconds = str(max(1, math.ceil(retry_after or RETRY_AFTER)))
    return RedfishError(
        503, messages.message('ServiceTemporarilyUnavailable', seconds,
                              detail=text),
        headers={'Retry-After': seconds})


def internal_error():
    """What nobody thought of: 500, without a word of how it came about."""
    return RedfishError(500, messages.message('InternalError'))


def error_body(entries):
    """The JSON body of an error response (DSP0266, "Error responses")."""
    return {'error': {
        'code': entries[0]['MessageId'],
        'message': ' '.join(entry['Message'] for entry in entries),
        '@Message.ExtendedInfo': list(entries),
    }}


def _from_machine_error(exc, log):
    """What a machine's error becomes."""
    if isinstance(exc, machine_errors.MachineNotFound):
        return resource_not_found('ComputerSystem', exc.identity)
    if isinstance(exc, machine_errors.AmbiguousName):
        return general_error(409, str(exc), 'Use namespace:name.')
    if isinstance(exc, machine_errors.InvalidValue):
        value = getattr(exc.value, 'value', exc.value)
        return RedfishError(400, messages.message(
            'PropertyValueIncorrect', exc.property, value, detail=str(exc)))
    if isinstance(exc, (machine_errors.WrongState, machine_errors.Rejected)):
        return general_error(409, str(exc))
    if isinstance(exc, machine_errors.Unsupported):
        return general_error(501, str(exc))
    if isinstance(exc, machine_errors.MediaUnreachable):
        # The client may be a program that keeps it to itself.
        log.warning('An image cannot be had: %s', exc)
        return _media_unreachable(exc)
    if isinstance(exc, machine_errors.Unavailable):
        log.warning('The cluster is not available: %s', exc)
        return unavailable(str(exc), exc.retry_after)
    if isinstance(exc, machine_errors.AccessDenied):
        log.error('The cluster refuses access: %s. Look at the credentials '
                  'of this service and the access rights of its account.',
                  exc)
        return RedfishError(500, messages.message(
            'AccessDenied', 'the Kubernetes API', detail=str(exc)))
    # A way to the cluster that no longer works, for one: no client's matter.
    log.error('%s: %s', type(exc).__name__, exc)
    return internal_error()


def _media_unreachable(exc):
    """An image cannot be had.

    The client named it, so the mistake counts as the client's unless the
    image's server says that it is its own.
    """
    if exc.kind == 'missing':
        entry = messages.message(
            'ResourceMissingAtURI', exc.url, detail=str(exc),
            resolution='Look whether the URI is right and its server has it.')
    elif exc.kind == 'unauthorized':
        entry = messages.message('ResourceAtUriUnauthorized', exc.url,
                                 str(exc))
    else:
        entry = messages.message('CouldNotEstablishConnection', exc.url,
                                 detail=str(exc))
    return RedfishError(502 if exc.kind == 'server' else 400, entry)


def _from_http_exception(exc):
    """What Flask and Werkzeug refuse."""
    headers = {name: value for name, value in exc.get_headers()
               if name.lower() in ('allow', 'retry-after')}
    code = exc.code or 500
    if code == 404:
        return uri_not_found()
    if code == 405:
        return RedfishError(405, messages.message('OperationNotAllowed'),
                            headers=headers)
    if code == 413:
        return RedfishError(413, messages.message('PayloadTooLarge'))
    if code == 400 and flask.request.method in ('PATCH', 'POST', 'PUT'):
        # Upstream's views read the body themselves.
        return RedfishError(400, messages.message('MalformedJSON'))
    if code >= 500:
        return internal_error()
    return general_error(code, exc.description or exc.name, headers=headers)


def _from_sushy_tools(exc):
    """Convert an exception of sushy-tools' own views and drivers."""
    if isinstance(exc, upstream.NotFound):
        return uri_not_found()
    return general_error(exc.code, str(exc))


def to_redfish_error(exc, log):
    """What an exception becomes.

    :param log: the application's logger
    :returns: `RedfishError`
    """
    if isinstance(exc, RedfishError):
        return exc
    if isinstance(exc, machine_errors.MachineError):
        return _from_machine_error(exc, log)
    if isinstance(exc, http.HTTPException):
        return _from_http_exception(exc)
    if isinstance(exc, upstream.FishyError):
        return _from_sushy_tools(exc)
    log.error('Unexpected %s', type(exc).__name__, exc_info=exc)
    return internal_error()


def error_response(exc):
    """The response to a request that failed: Flask's error handler."""
    log = flask.current_app.logger
    found = to_redfish_error(exc, log)
    log.debug('%s %r answered %d: %r', flask.request.method,
              flask.request.path, found.status, str(found))
    return flask.Response(
        json.dumps(error_body(found.entries)), status=found.status,
        headers=found.headers, content_type=_JSON)
