# SPDX-License-Identifier: Apache-2.0
"""Processing of every response before it is sent, including sushy-emulator's.

Serializes the JSON text, sets the ETag (header and ``@odata.etag``), applies
the query, answers 304, and adds the headers of DSP0266, "Response headers":
OData-Version, Allow, Cache-Control, Strict-Transport-Security, and Link to
the schema.
"""

from __future__ import annotations

import functools
import json

import flask

from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import etags
from sushy_kubevirt.redfish.protocol import expand_select
from sushy_kubevirt.redfish.protocol import internal_requests
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import request_validation
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.protocol import schemas
from sushy_kubevirt.redfish.protocol import served_hosts

_READS = ('GET', 'HEAD')


def finish_response(response: flask.Response) -> flask.Response:
    """Process a response (Flask's after_request)."""
    request = application.request()
    etags.release_lock(request.environ)
    reads = request.method in _READS
    if reads:
        try:
            response = _finish_read(request, response)
        except error_responses.RedfishError as exc:
            response = error_responses.error_response(exc)
    else:
        response = _finish_write(request, response)
    headers = response.headers
    payload.drain(request, response)
    headers.add('OData-Version', '4.0')
    if 'Cache-Control' not in headers:
        headers.add('Cache-Control', 'no-cache' if reads else 'no-store')
    headers.update(served_hosts.transport_security(
        request.scheme, request.environ.get('HTTP_HOST')))
    if request.url_rule is not None and 'Allow' not in headers:
        headers.add('Allow', routing.current().allow[request.url_rule.rule])
    return response


def _finish_read(request: flask.Request, response: flask.Response
                 ) -> flask.Response:
    """Process a GET or HEAD: query, ETag, If-None-Match."""
    if response.status_code != 200:
        return _serialize(response)
    document = responses.document_of(response)
    if document is None:
        return response
    text, tag = getattr(response, 'rendered', None) or etags.render(document)
    query = request.environ.get(request_validation.QUERY)
    if query is None:
        if '@odata.id' in document:
            text = f'{text[:-1]}, "@odata.etag": "W/\\"{tag[3:-1]}\\""}}'
    else:
        queried = expand_select.apply(
            {**document, '@odata.etag': tag}, query,
            (request.path, request.query_string.decode('latin-1')))
        if queried.get('@odata.id') != document.get('@odata.id'):
            document, tag = queried, etags.compute(queried)   # ?only
            queried = expand_select.with_etag(queried)
        elif query.expand:
            # The tag covers the expanded resources.
            tag = etags.compute(queried)
        text = json.dumps(queried)
    if_none_match = request.environ.get('HTTP_IF_NONE_MATCH')
    if if_none_match is not None and etags.match(if_none_match, tag):
        return flask.Response(status=304, headers={'ETag': tag})
    _set_text(response, text)
    response.headers.add('ETag', tag)
    kind = document.get('@odata.type')
    if kind:
        response.headers.add('Link', _described_by(kind))
    return response


@functools.lru_cache(maxsize=256)
def _described_by(kind: str) -> str:
    return f'<{schemas.json_uri(kind)}>; rel=describedby'


def _finish_write(request: flask.Request, response: flask.Response
                  ) -> flask.Response:
    """Process a response to a change (ETag, Prefer)."""
    if (response.status_code == 204 and request.method == 'PATCH'
            and request_validation.prefers('return=representation')):
        document = internal_requests.get(request.path)
        if document is not None:
            response = responses.Document(document)
            response.headers['Preference-Applied'] = 'return=representation'
    if (isinstance(response, responses.Document)
            and response.status_code in (200, 201)
            and '@odata.id' in response.document):
        tag = etags.compute(response.document)
        response.headers['ETag'] = tag
        response.document = {**response.document, '@odata.etag': tag}
    return _serialize(response)


def _serialize(response: flask.Response) -> flask.Response:
    if isinstance(response, responses.Document):
        _set_text(response, json.dumps(response.document))
    return response


def _set_text(response: flask.Response, text: str) -> None:
    if isinstance(response, responses.Document):
        # It has no Content-Length yet; set_data() would compute one.
        response.response = [text.encode()]
    else:
        response.set_data(text)
