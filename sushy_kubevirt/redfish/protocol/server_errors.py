# SPDX-License-Identifier: Apache-2.0
"""Bodies of errors that an HTTP server finds before it calls the application.

Requests that are not valid HTTP, or too long, never reach a view. The servers
would answer them in HTML: Werkzeug's by `request_handler`, gunicorn's by
`for_gunicorn`.
"""

from __future__ import annotations

import http
import json
import ssl
import typing

from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import served_hosts

if typing.TYPE_CHECKING:
    from collections import abc
    import socket
    from wsgiref import types

_RESOLUTIONS = {
    400: 'Send a valid HTTP request.',
    413: 'Send a shorter body.',
    414: 'Send a shorter URI.',
    421: 'Use an address of the service. Its administrator can add the name '
    'to SUSHY_EMULATOR_KUBEVIRT_HOST_NAMES, or configure accounts.',
    431: 'Send fewer or shorter headers.',
    501: 'Use a method of Redfish; send a body with Content-Length, or '
    'chunked.',
    505: 'Send the request as HTTP/1.1.',
}


class Refusal(typing.NamedTuple):
    """The response to a request that the server refuses."""

    phrase: str
    headers: dict[str, str]
    body: bytes


def response(code: int, detail: str = '', scheme: str = 'http',
             host: str | None = None) -> Refusal:
    """Build the response to a request that was not read.

    :param code: HTTP status code
    :param detail: what is wrong; it may contain parts of the request
    :param scheme: ``http`` or ``https``
    :param host: value of the request's header Host; None if it is not known
    """
    phrase = http.HTTPStatus(code).phrase
    if code == 413:
        error = error_responses.base_error(code, 'PayloadTooLarge')
    elif code == 500:
        error = error_responses.internal_error()
    else:
        error = error_responses.general_error(
            code, f'{phrase}: {messages.truncate(detail)}.' if detail
            else f'{phrase}.', _RESOLUTIONS.get(code, ''))
    body = json.dumps(error_responses.error_body(error.entries)).encode()
    return Refusal(phrase, {
        'Content-Type': 'application/json',
        'Content-Length': str(len(body)),
        'OData-Version': '4.0',
        'Cache-Control': 'no-store',
        'Connection': 'close',
        **served_hosts.transport_security(scheme, host),
    }, body)


def response_to(environ: types.WSGIEnvironment, code: int, detail: str = ''
                ) -> Refusal:
    """Build the response to a request that was read; see `response`."""
    return response(code, detail, environ['wsgi.url_scheme'],
                    environ.get('HTTP_HOST'))


def for_gunicorn(send: abc.Callable[[socket.socket, bytes], object]
                 ) -> abc.Callable[[socket.socket, int, str, str], None]:
    """Make a replacement for ``gunicorn.util.write_error`` (gunicorn 27).

    :param send: ``gunicorn.util.write_nonblock``
    :returns: function of socket, status code, reason phrase and detail
    """
    def write_error(sock: socket.socket, status_int: int, reason: str,
                    mesg: str) -> None:
        phrase, headers, body = response(
            status_int, mesg,
            'https' if isinstance(sock, ssl.SSLSocket) else 'http')
        lines = [f'HTTP/1.1 {status_int} {phrase}',
                 *map(': '.join, headers.items()), '', '']
        send(sock, '\r\n'.join(lines).encode() + body)

    return write_error
