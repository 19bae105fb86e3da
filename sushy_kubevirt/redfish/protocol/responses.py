# SPDX-License-Identifier: Apache-2.0
"""Answers that are a success.

A view makes one of these and needs to know nothing of HTTP: headers, ETags,
query parameters and the JSON text come later, for all alike
(`protocol.finish`).
"""

import flask

_JSON = 'application/json'


class Document(flask.Response):
    """A response with a JSON body that is not text yet.

    :param document: dict
    :param status: HTTP code
    :param headers: dict of further headers
    """

    def __init__(self, document, status=200, headers=None):
        super().__init__(status=status, headers=headers, content_type=_JSON)
        self.document = document


def document_of(response):
    """The resource that a response holds, upstream's as well.

    :returns: dict, or None if it holds none
    """
    if isinstance(response, Document):
        return response.document
    if response.is_json and not response.is_streamed:
        found = response.get_json(silent=True)
        return found if isinstance(found, dict) else None
    return None


def resource(body):
    """200 with a resource.

    :param body: dict
    """
    return Document(body)


def created(body, headers=None):
    """201 with a resource that was made; its path is in Location.

    :param body: dict
    :param headers: dict of further headers
    """
    return Document(body, 201, {'Location': body['@odata.id'],
                                **(headers or {})})


def accepted(monitor, body, seconds=None):
    """202: it is under way (DSP0266, "Asynchronous operations").

    :param monitor: path of the task monitor
    :param body: the task, a dict
    :param seconds: when to look again; None if nobody can know
    """
    headers = {'Location': monitor}
    if seconds is not None:
        headers['Retry-After'] = str(seconds)
    return Document(body, 202, headers)


def no_content():
    """204, as upstream answers what it has carried out."""
    return flask.Response(status=204, content_type=_JSON)


def link(path):
    """A reference to another resource."""
    return {'@odata.id': path}


def collection(kind, name, path, members):
    """200 with a collection.

    :param kind: schema of the collection, such as ``ProcessorCollection``
    :param path: its own path
    :param members: paths
    """
    return resource({
        '@odata.id': path,
        '@odata.type': f'#{kind}.{kind}',
        'Name': name,
        'Members@odata.count': len(members),
        'Members': [link(member) for member in members],
    })
