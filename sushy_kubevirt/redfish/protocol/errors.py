# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, as Redfish answers it: HTTP code and error body.

One place for all routes of the application, upstream's included
(`answer` is its error handler). What a client reads names the thing, the
value and the way out; what a client has no business with (tracebacks, names
of files and functions) goes to the log alone.

The codes of a machine's errors:

- the caller's making: 404 unknown system, 400 a value that cannot be, 409
  not in this state, not for this VM, or an ambiguous name, 501 what no
  KubeVirt VM can do;
- 503 with Retry-After: the cluster's API is away, or did not carry a change
  out in time;
- 500 with Base's AccessDenied: the cluster refuses this *service* what it
  needs. 403 would tell the client that its own rights are short (sushy then
  logs in anew), 503 that waiting helps; neither is so.
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
MOST = 20

_JSON = 'application/json'


class RedfishError(Exception):
    """An answer that is no success.

    :param status: HTTP code
    :param entries: what `messages.message` made, the most important first
    :param headers: dict of further headers
    """

    def __init__(self, status, *entries, headers=None):
        entries = entries[:MOST]
        super().__init__('; '.join(entry['Message'] for entry in entries))
        self.status = status
        self.entries = entries
        self.headers = headers or {}


def not_found(kind, name):
    """There is no such resource: 404.

    :param kind: its schema, such as ``ComputerSystem``
    """
    return RedfishError(
        404, messages.message('ResourceNotFound', kind, name))


def missing():
    """There is nothing at this URI: 404."""
    return RedfishError(404, messages.message(
        'ResourceMissingAtURI', flask.request.path))


def general(status, text, resolution='', headers=None):
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


def internal():
    """What nobody thought of: 500, without a word of how it came about."""
    return RedfishError(500, messages.message('InternalError'))


def body(entries):
    """The JSON body of an error response (DSP0266, "Error responses")."""
    return {'error': {
        'code': entries[0]['MessageId'],
        'message': ' '.join(entry['Message'] for entry in entries),
        '@Message.ExtendedInfo': list(entries),
    }}


def _of_machine(exc, log):
    """What a machine's error becomes."""
    if isinstance(exc, machine_errors.MachineNotFound):
        return not_found('ComputerSystem', exc.identity)
    if isinstance(exc, machine_errors.AmbiguousName):
        return general(409, str(exc), 'Use namespace:name.')
    if isinstance(exc, machine_errors.InvalidValue):
        value = getattr(exc.value, 'value', exc.value)
        return RedfishError(400, messages.message(
            'PropertyValueIncorrect', exc.property, value, detail=str(exc)))
    if isinstance(exc, (machine_errors.WrongState, machine_errors.Rejected)):
        return general(409, str(exc))
    if isinstance(exc, machine_errors.Unsupported):
        return general(501, str(exc))
    if isinstance(exc, machine_errors.MediaUnreachable):
        # The client may be a program that keeps it to itself.
        log.warning('An image cannot be had: %s', exc)
        return _unreachable(exc)
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
    return internal()


def _unreachable(exc):
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


def _of_http(exc):
    """What Flask and Werkzeug refuse."""
    headers = {name: value for name, value in exc.get_headers()
               if name.lower() in ('allow', 'retry-after')}
    code = exc.code or 500
    if code == 404:
        return missing()
    if code == 405:
        return RedfishError(405, messages.message('OperationNotAllowed'),
                            headers=headers)
    if code == 413:
        return RedfishError(413, messages.message('PayloadTooLarge'))
    if code == 400 and flask.request.method in ('PATCH', 'POST', 'PUT'):
        # Upstream's views read the body themselves.
        return RedfishError(400, messages.message('MalformedJSON'))
    if code >= 500:
        return internal()
    return general(code, exc.description or exc.name, headers=headers)


def _of_upstream(exc):
    """What sushy-tools raises, where a view or driver of its own runs."""
    if isinstance(exc, upstream.NotFound):
        return missing()
    return general(exc.code, str(exc))


def redfish_error(exc, log):
    """What an exception becomes.

    :param log: the application's logger
    :returns: `RedfishError`
    """
    if isinstance(exc, RedfishError):
        return exc
    if isinstance(exc, machine_errors.MachineError):
        return _of_machine(exc, log)
    if isinstance(exc, http.HTTPException):
        return _of_http(exc)
    if isinstance(exc, upstream.FishyError):
        return _of_upstream(exc)
    log.error('Unexpected %s', type(exc).__name__, exc_info=exc)
    return internal()


def answer(exc):
    """The response to a request that failed: Flask's error handler."""
    log = flask.current_app.logger
    found = redfish_error(exc, log)
    log.debug('%s %r answered %d: %r', flask.request.method,
              flask.request.path, found.status, str(found))
    return flask.Response(
        json.dumps(body(found.entries)), status=found.status,
        headers=found.headers, content_type=_JSON)
