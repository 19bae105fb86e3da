# SPDX-License-Identifier: Apache-2.0
"""Successful responses.

A view returns one of these. Headers, ETags, query parameters and the JSON text
are added to all of them by `postprocessing`.
"""

from __future__ import annotations

import flask

_JSON = 'application/json'


class Document(flask.Response):
    """A response with a JSON body that is not serialized yet.

    :param document: dict
    :param status: HTTP status code
    :param headers: dict of additional headers
    :param rendered: (its JSON text, its ETag) if they are known
    """

    def __init__(self, document, status: int = 200, headers=None,
                 rendered=None) -> None:
        super().__init__(status=status, headers=headers, content_type=_JSON)
        self.document = document
        self.rendered = rendered


def document_of(response):
    """Return the resource in a response, also of sushy-emulator's views.

    :param response: `flask.Response`
    :returns: dict, or None if it contains none
    """
    if isinstance(response, Document):
        return response.document
    if response.is_json and not response.is_streamed:
        found = response.get_json(silent=True)
        return found if isinstance(found, dict) else None
    return None


def resource(body):
    """Create the response 200 with a resource.

    :param body: dict
    """
    return Document(body)


def created(body, headers=None):
    """Create the response 201 with a new resource; Location has its path.

    :param body: dict with ``@odata.id``
    :param headers: dict of additional headers
    """
    return Document(body, 201, {'Location': body['@odata.id'],
                                **(headers or {})})


def accepted(monitor, body, seconds=None):
    """Create the response 202: the operation continues.

    DSP0266, "Asynchronous operations".

    :param monitor: path of the task monitor
    :param body: the task, dict
    :param seconds: Retry-After; None omits it
    """
    headers = {'Location': monitor}
    if seconds is not None:
        headers['Retry-After'] = str(seconds)
    return Document(body, 202, headers)


def no_content():
    """Create the response 204, as sushy-emulator answers changes."""
    return flask.Response(status=204, content_type=_JSON)


def link(path):
    """Create a reference to another resource.

    :param path: its ``@odata.id``
    :returns: dict
    """
    return {'@odata.id': path}


def collection(kind, name, path, members):
    """Create the response 200 with a collection.

    :param kind: schema of the collection, such as ``ProcessorCollection``
    :param name: value of Name
    :param path: its ``@odata.id``
    :param members: list of the members' paths
    """
    return resource(collection_body(kind, name, path, members))


def collection_body(kind, name, path, members):
    """Build the body of a collection; parameters as of `collection`."""
    return {
        '@odata.id': path,
        '@odata.type': f'#{kind}.{kind}',
        'Name': name,
        'Members@odata.count': len(members),
        'Members': [link(member) for member in members],
    }
