# SPDX-License-Identifier: Apache-2.0
"""Answers that are a success."""

import json

import flask

_JSON = 'application/json'


def resource(body):
    """200 with a resource.

    :param body: dict
    """
    return flask.Response(json.dumps(body), content_type=_JSON)


def done():
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
        '@odata.type': '#%s.%s' % (kind, kind),
        'Name': name,
        'Members@odata.count': len(members),
        'Members': [link(member) for member in members],
    })
