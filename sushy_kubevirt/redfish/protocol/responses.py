# SPDX-License-Identifier: Apache-2.0
"""Successful responses.

Headers, ETags, query parameters and the JSON text are added to all of them by
`postprocessing`.
"""

from __future__ import annotations

import typing

import flask

if typing.TYPE_CHECKING:
    from collections import abc

_JSON = 'application/json'

#: A resource, or an object in one.
Json: typing.TypeAlias = dict[str, typing.Any]


class Document(flask.Response):
    """A response with a JSON body that is not serialized yet.

    :param status: HTTP status code
    :param headers: additional headers
    :param rendered: its JSON text and its ETag, if they are known
    """

    def __init__(self, document: Json, status: int = 200,
                 headers: abc.Mapping[str, str] | None = None,
                 rendered: tuple[str, str] | None = None) -> None:
        super().__init__(status=status, headers=headers, content_type=_JSON)
        self.document = document
        self.rendered = rendered


def document_of(response: flask.Response) -> Json | None:
    """Return the resource in a response, also of sushy-emulator's views.

    :returns: None if it contains none
    """
    if isinstance(response, Document):
        return response.document
    if response.is_json and not response.is_streamed:
        document = response.get_json(silent=True)
        return document if isinstance(document, dict) else None
    return None


def created(body: Json, headers: abc.Mapping[str, str] | None = None
            ) -> Document:
    """Create the response 201 with a new resource; Location has its path.

    :param headers: additional headers
    """
    return Document(body, 201, {'Location': body['@odata.id'],
                                **(headers or {})})


def accepted(monitor: str, body: Json, seconds: int | None = None) -> Document:
    """Create the response 202: the operation continues.

    DSP0266, "Asynchronous operations".

    :param monitor: path of the task monitor
    :param body: the task
    :param seconds: Retry-After; None omits it
    """
    headers = {'Location': monitor}
    if seconds is not None:
        headers['Retry-After'] = str(seconds)
    return Document(body, 202, headers)


def no_content() -> flask.Response:
    """Create the response 204, as sushy-emulator answers changes."""
    return flask.Response(status=204, content_type=_JSON)


def link(path: str) -> dict[str, str]:
    """Create a reference to another resource.

    :param path: its ``@odata.id``
    """
    return {'@odata.id': path}


def present(**properties: typing.Any) -> Json:
    """Return the given properties without those that have no value."""
    return {name: value for name, value in properties.items()
            if value not in (None, '', [])}


def collection(kind: str, name: str, here: str, ids: abc.Iterable[str]
               ) -> Json:
    """Build a collection.

    :param kind: schema of its members, such as ``Processor``
    :param name: value of Name
    :param here: its path
    :param ids: ids of its members
    """
    members = [link(f'{here}/{id_}') for id_ in ids]
    return {
        '@odata.id': here,
        '@odata.type': f'#{kind}Collection.{kind}Collection',
        'Name': name,
        'Members@odata.count': len(members),
        'Members': members,
    }


def action_info(here: str, name: str, *parameters: Json) -> Json:
    """Build the description of an action's parameters (ActionInfo v1.4).

    :param here: its path, the last part of which is its Id
    :param name: value of Name
    """
    return {
        '@odata.id': here,
        '@odata.type': '#ActionInfo.v1_4_1.ActionInfo',
        'Id': here.rpartition('/')[2],
        'Name': name,
        'Parameters': list(parameters),
    }


def parameter(name: str, required: bool, kind: str = 'String',
              values: abc.Iterable[str] = ()) -> Json:
    """Describe a parameter of an action, for `action_info`.

    :param kind: DataType
    :param values: AllowableValues; none if all are
    """
    allowed = {'AllowableValues': list(values)} if values else {}
    return {'Name': name, 'Required': required, 'DataType': kind, **allowed}
