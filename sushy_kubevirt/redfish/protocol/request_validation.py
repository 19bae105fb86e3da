# SPDX-License-Identifier: Apache-2.0
"""What a request may be at all, whichever resource it is for.

Method, OData-Version, Accept and query parameters (DSP0266, "Request
headers", "HTTP methods", "Query parameters"). Bodies are `payload`'s matter.
"""

import functools

import flask
from werkzeug import datastructures
from werkzeug import http

from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import internal_requests
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import query_parameters

#: In the environ: a `query_parameters.Query`, if there is one.
QUERY = internal_requests.PREFIX + 'query'

METHODS = ('GET', 'HEAD', 'POST', 'PATCH', 'PUT', 'DELETE', 'OPTIONS')

_READS = ('GET', 'HEAD')
_VERSIONS = ('4.0',)

# Fetch Metadata (W3C): where a browser says that a request comes from another
# page than one of this server. It adds the password that it was told for here,
# and some actions take no body that a form could not send.
_OTHER_SITES = ('cross-site', 'same-site')
_JSON = 'application/json'


def strip_members_segment(environ):
    """POST to a collection's Members is POST to the collection.

    DSP0266, "POST (create)".

    :param environ: of WSGI; its PATH_INFO is changed
    """
    if environ['REQUEST_METHOD'] == 'POST':
        path = environ['PATH_INFO'].rstrip('/')
        if path.endswith('/Members'):
            environ['PATH_INFO'] = path.removesuffix('/Members')


def check():
    """For Flask's before_request.

    :raises: `errors.RedfishError`, 403, 406, 412 or 501; Werkzeug's 404 and
        405
    """
    request = flask.request._get_current_object()
    environ = request.environ
    if request.method not in METHODS:
        raise errors.general_error(
            501, 'The method %s is not implemented.'
            % messages.truncate(request.method),
            f"Use one of {', '.join(METHODS)}.")
    version = environ.get('HTTP_ODATA_VERSION')
    if version is not None and version.strip() not in _VERSIONS:
        raise errors.RedfishError(412, messages.message(
            'HeaderInvalid', f'OData-Version: {version}',
            resolution='Send OData-Version 4.0 or leave it out.'))
    if (environ.get('HTTP_SEC_FETCH_SITE') in _OTHER_SITES
            and request.method not in _READS):
        raise errors.general_error(
            403, 'A page of another site may not change anything here.',
            'Use a client of Redfish, or a page that this server serves.')
    if request.routing_exception is not None:
        # Before anything is said of its body or its conditions.
        raise request.routing_exception
    if request.method in _READS and internal_requests.INTERNAL not in environ:
        accept = environ.get('HTTP_ACCEPT')
        if accept is not None and not _accepts(accept, _media_type(request)):
            raise errors.RedfishError(406, messages.message(
                'HeaderInvalid', f'Accept: {accept}',
                resolution=f'Accept {_media_type(request)}.'))
    return None


def _media_type(request):
    """The media type of what a route answers with."""
    return flask.current_app.extensions['sushy_kubevirt.media'].get(
        request.url_rule.endpoint, _JSON)


@functools.lru_cache(maxsize=256)
def _accepts(header, media):
    found = http.parse_accept_header(header, datastructures.MIMEAccept)
    kind = media.partition('/')[0]
    return not found or any(
        quality > 0 and one.partition(';')[0].strip().lower() in (
            '*/*', '*', kind + '/*', media)
        for one, quality in found)


def parse_query():
    """Read the query into the environ: for Flask's before_request.

    :raises: `errors.RedfishError`, 400 or 501
    """
    request = flask.request._get_current_object()
    text = request.environ.get('QUERY_STRING')
    if not text or _media_type(request) != _JSON:
        # A stream of events has a $filter, and reads it itself.
        return
    found = query_parameters.parse(text)
    if found is None:
        return
    if request.method not in _READS:
        raise errors.RedfishError(400, messages.message(
            'QueryNotSupportedOnOperation'))
    request.environ[QUERY] = found
