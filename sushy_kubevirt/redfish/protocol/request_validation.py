# SPDX-License-Identifier: Apache-2.0
"""Checks of every request: method, OData-Version, origin, Accept and query.

DSP0266, "Request headers", "HTTP methods", "Query parameters". Bodies are
checked by `payload`.
"""

from __future__ import annotations

import functools
import typing

import flask
from werkzeug import datastructures
from werkzeug import http

from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import internal_requests
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import query_parameters
from sushy_kubevirt.redfish.protocol import routing

if typing.TYPE_CHECKING:
    from wsgiref import types

#: Environ key of the request's `query_parameters.Query`.
QUERY = internal_requests.PREFIX + 'query'

METHODS = ('GET', 'HEAD', 'POST', 'PATCH', 'PUT', 'DELETE', 'OPTIONS')

_READS = ('GET', 'HEAD')
_VERSIONS = ('4.0',)

# Sec-Fetch-Site (W3C Fetch Metadata) of a browser's cross-site requests. The
# browser adds the stored password, and some actions need no body, so a form on
# another site could otherwise trigger them. A WebSocket could also be read.
# Browsers do not send it to http:// addresses of other hosts than their own:
# there Origin tells, unless the client has a token, which a form has not. A
# proxy may have changed Host; so a login, whose JSON no form can send, is not
# refused either.
_OTHER_SITES = ('cross-site', 'same-site')
_JSON = 'application/json'


def strip_members_segment(environ: types.WSGIEnvironment) -> None:
    """Treat POST to ``<collection>/Members`` as POST to the collection.

    DSP0266, "POST (create)".

    :param environ: its PATH_INFO is changed
    """
    if environ['REQUEST_METHOD'] == 'POST':
        path = environ['PATH_INFO'].rstrip('/')
        if path.endswith('/Members'):
            environ['PATH_INFO'] = path.removesuffix('/Members')


def check() -> None:
    """Check method, OData-Version, Origin, Sec-Fetch-Site and Accept.

    For Flask's before_request.

    :raises: `error_responses.RedfishError`, 403, 406, 412, 501; Werkzeug's
        404, 405
    """
    request = application.request()
    environ = request.environ
    if request.method not in METHODS:
        raise error_responses.general_error(
            501, f'The method {messages.truncate(request.method)} is not '
            'implemented.',
            f"Use one of {', '.join(METHODS)}.")
    version = environ.get('HTTP_ODATA_VERSION')
    if version is not None and version.strip() not in _VERSIONS:
        raise error_responses.base_error(
            412, 'HeaderInvalid', f'OData-Version: {version}',
            resolution='Send OData-Version 4.0 or leave it out.')
    websocket = authentication.wants_websocket()
    if ((websocket or request.method not in _READS)
            and (environ.get('HTTP_SEC_FETCH_SITE') in _OTHER_SITES
                 or (websocket or 'HTTP_X_AUTH_TOKEN' not in environ
                     and request.path.rstrip('/') != authentication.SESSIONS)
                 and _is_foreign(environ))):
        raise error_responses.general_error(
            403, 'Changes and WebSockets requested by a web page of another '
            'site are refused.',
            'Use a Redfish client, or a page of this server.')
    if request.routing_exception is not None:
        # 404 and 405 come before errors of the body or of conditions.
        raise request.routing_exception
    if request.method in _READS and internal_requests.INTERNAL not in environ:
        accept = environ.get('HTTP_ACCEPT')
        if accept is not None and not _accepts(accept, _media_type(request)):
            raise error_responses.base_error(
                406, 'HeaderInvalid', f'Accept: {accept}',
                resolution=f'Accept {_media_type(request)}.')


def _is_foreign(environ: types.WSGIEnvironment) -> bool:
    """Tell whether a page of another host or port sends the request.

    The scheme may be changed by a proxy. Both headers leave out its port.
    """
    origin = environ.get('HTTP_ORIGIN')
    return origin is not None and origin.partition('://')[2].lower() != (
        environ.get('HTTP_HOST', '').lower())


def _media_type(request: flask.Request) -> str:
    """Return the media type of the responses of the request's route."""
    return routing.current().of(request.endpoint).media


@functools.lru_cache(maxsize=256)
def _accepts(header: str, media: str) -> bool:
    accepted = http.parse_accept_header(header, datastructures.MIMEAccept)
    kind = media.partition('/')[0]
    return not accepted or any(
        quality > 0 and media_range.partition(';')[0].strip().lower() in (
            '*/*', '*', kind + '/*', media)
        for media_range, quality in accepted)


def parse_query() -> None:
    """Store the parsed query in the environ, under `QUERY`.

    For Flask's before_request.

    :raises: `error_responses.RedfishError`, 400 or 501
    """
    request = application.request()
    text = request.environ.get('QUERY_STRING')
    if not text or _media_type(request) != _JSON:
        # The event stream parses its $filter itself.
        return
    query = query_parameters.parse(text)
    if query is None:
        return
    if request.method not in _READS:
        raise error_responses.base_error(400, 'QueryNotSupportedOnOperation')
    request.environ[QUERY] = query


def prefers(preference: str) -> bool:
    """Check whether the header Prefer has a preference (RFC 7240).

    :param preference: such as ``return=representation``
    """
    header = flask.request.environ.get('HTTP_PREFER')
    return header is not None and preference in (
        value.partition(';')[0].replace(' ', '').lower()
        for value in header.split(','))
