# SPDX-License-Identifier: Apache-2.0
"""Reading a resource from within a request for another one.

As its client would read it, with the same access checks, but without HTTP
and without what is done to an answer afterwards.
"""

import io

import flask

from sushy_kubevirt.redfish.protocol import responses

# What belongs to the outer request alone.
_NOT_COPIED = ('werkzeug.request', 'CONTENT_TYPE', 'CONTENT_LENGTH',
               'HTTP_TRANSFER_ENCODING', 'HTTP_IF_MATCH', 'HTTP_IF_NONE_MATCH',
               'HTTP_ACCEPT', 'HTTP_PREFER', 'REQUEST_URI', 'RAW_URI')

#: Of what lies in the environ and belongs to the outer request alone.
PREFIX = 'sushy_kubevirt.request.'

#: In the environ of such a request.
INTERNAL = 'sushy_kubevirt.internal'


def get(path):
    """GET of a path.

    :param path: without a query
    :returns: the resource, a dict; None if it is not to be had
    """
    app = flask.current_app._get_current_object()
    environ = {name: value for name, value in
               flask.request.environ.items()
               if name not in _NOT_COPIED and not name.startswith(PREFIX)}
    environ.update({'REQUEST_METHOD': 'GET', 'PATH_INFO': path,
                    'QUERY_STRING': '', 'wsgi.input': io.BytesIO(),
                    INTERNAL: True})
    # A context of its own: `flask.g` is about one request.
    with app.app_context(), app.request_context(environ):
        try:
            answer = app.preprocess_request()
            if answer is None:
                answer = app.dispatch_request()
        except Exception as exc:
            app.logger.debug('GET %s, within another request: %s', path, exc)
            return None
        response = app.make_response(answer)
    if response.status_code != 200:
        return None
    return responses.document_of(response)
