# SPDX-License-Identifier: Apache-2.0
"""Internal GET requests: read a resource while answering another request.

With the client's account and the same access checks, but without HTTP and
without the processing of responses.
"""

from __future__ import annotations

import io

import flask

from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import responses

# Keys of the environ that an internal request does not inherit.
_NOT_COPIED = ('werkzeug.request', 'CONTENT_TYPE', 'CONTENT_LENGTH',
               'HTTP_TRANSFER_ENCODING', 'HTTP_IF_MATCH', 'HTTP_IF_NONE_MATCH',
               'HTTP_ACCEPT', 'HTTP_PREFER', 'REQUEST_URI', 'RAW_URI')

#: Prefix of our own environ keys that an internal request does not inherit.
PREFIX = 'sushy_kubevirt.request.'

#: Environ key that marks an internal request.
INTERNAL = 'sushy_kubevirt.internal'


def get(path: str) -> responses.Json | None:
    """Read a resource.

    :param path: path without a query
    :returns: None if the response is anything but 200 with a resource
    """
    app = application.current()
    environ = {name: value for name, value in
               flask.request.environ.items()
               if name not in _NOT_COPIED and not name.startswith(PREFIX)}
    environ.update({'REQUEST_METHOD': 'GET', 'PATH_INFO': path,
                    'QUERY_STRING': '', 'wsgi.input': io.BytesIO(),
                    INTERNAL: True})
    # A context of its own, because `flask.g` belongs to one request.
    with app.app_context(), app.request_context(environ):
        try:
            answer = app.preprocess_request()
            if answer is None:
                answer = app.dispatch_request()
        except Exception as exc:
            app.logger.debug('Internal GET %s failed: %s', path, exc)
            return None
        response = app.make_response(answer)
    if response.status_code != 200:
        return None
    return responses.document_of(response)
