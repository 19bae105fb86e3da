# SPDX-License-Identifier: Apache-2.0
"""Apply query parameters to a resource ($skip, $top, $expand, $select, only).

In the order that DSP0266, "Query parameters", demands. Input dicts are not
modified.
"""

from __future__ import annotations

import typing
import urllib.parse

from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import etags
from sushy_kubevirt.redfish.protocol import internal_requests

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.redfish.protocol import query_parameters
    from sushy_kubevirt.redfish.protocol import responses

#: Largest number of resources that a request may read through $expand.
MAX_EXPANDED = 2000

# Returned in addition to the properties that $select names. Without the link
# to the next page, clients would miss its members.
_ALWAYS_SELECTED = (
    'Members@odata.nextLink',
    '@odata.id',
    '@odata.type',
    '@odata.etag',
    '@odata.context')


def apply(document: responses.Json, query: query_parameters.Query,
          target: tuple[str, str]) -> responses.Json:
    """Apply a query to a resource.

    :param target: path and query string of the request
    :raises: `error_responses.RedfishError`: 400 no collection, 507 too
        many resources
    """
    members: typing.Any = document.get('Members')
    if (query.only or query.top is not None or query.skip is not None) and (
            not isinstance(members, list)):
        raise error_responses.base_error(400, 'QueryNotSupportedOnResource')
    if query.only:
        return _only(document, members)
    if query.top is not None or query.skip is not None:
        document = _page(document, members, query, target)
    if query.expand:
        document = _Expansion(query.expand).of(document, query.levels)
    if query.select:
        document = _select(document, query.select)
    return document


def _only(document: responses.Json, members: list[responses.Json]
          ) -> responses.Json:
    """Return the only member of a collection, else the collection."""
    if len(members) != 1 or '@odata.id' not in members[0]:
        return document
    member = internal_requests.get(members[0]['@odata.id'])
    return document if member is None else member


def with_etag(document: responses.Json) -> responses.Json:
    """Return a copy of a resource with ``@odata.etag``."""
    return {**document, '@odata.etag': etags.compute(document)}


def _page(document: responses.Json, members: list[responses.Json],
          query: query_parameters.Query, target: tuple[str, str]
          ) -> responses.Json:
    start = query.skip or 0
    end = len(members) if query.top is None else start + query.top
    document = {**document, 'Members': members[start:end]}
    if query.top and end < len(members):
        path, text = target
        pairs = [(name, value) for name, value in urllib.parse.parse_qsl(
            text, keep_blank_values=True) if name != '$skip']
        text = urllib.parse.urlencode([*pairs, ('$skip', end)],
                                      safe='$*().~/,')
        document['Members@odata.nextLink'] = f'{path}?{text}'
    return document


class _Expansion:
    """Replaces links by the resources they lead to.

    :param which: ``*`` all links, ``~`` those below Links, ``.`` the others
    """

    def __init__(self, which: str) -> None:
        self._links = which in '*~'
        self._others = which in '*.'
        self._read = 0
        self._known: dict[str, responses.Json | None] = {}

    def of(self, document: responses.Json, levels: int,
           above: tuple[str, ...] = ()) -> responses.Json:
        """Expand the links of a resource.

        :param levels: depth, at least 1
        :param above: paths of the resources that contain it; they are not
            expanded again
        """
        above = (*above, document.get('@odata.id', ''))
        return {name: self._value(value, levels, above, name == 'Links')
                for name, value in document.items()}

    def _value(self, value: typing.Any, levels: int, above: tuple[str, ...],
               in_links: bool) -> typing.Any:
        if isinstance(value, list):
            return [self._value(item, levels, above, in_links)
                    for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1 and '@odata.id' in value:
            if not (self._links if in_links else self._others):
                return value
            return self._resource(value, levels, above)
        return {name: self._value(item, levels, above,
                                  in_links or name == 'Links')
                for name, item in value.items()}

    def _resource(self, reference: responses.Json, levels: int,
                  above: tuple[str, ...]) -> responses.Json:
        path = reference['@odata.id']
        if (not isinstance(path, str) or '#' in path or path in above
                or path.rstrip('/') == '/redfish/v1'):
            return reference
        document = self._get(path)
        if document is None:
            return reference
        if levels > 1:
            return self.of(document, levels - 1, above)
        return document

    def _get(self, path: str) -> responses.Json | None:
        self._read += 1
        if self._read > MAX_EXPANDED:
            raise error_responses.base_error(
                507, 'InsufficientStorage',
                detail=f'The response would contain more than {MAX_EXPANDED} '
                'resources. Use fewer levels, or $top.')
        if path not in self._known:
            document = internal_requests.get(path)
            self._known[path] = (
                None if document is None else with_etag(document))
        return self._known[path]


def _select(document: responses.Json, names: abc.Sequence[tuple[str, ...]]
            ) -> responses.Json:
    """Copy the selected properties of a resource.

    Names pass through arrays: ``Members/Name`` selects Name of each member.

    :param names: paths of properties, one name per level
    """
    selected = {name: document[name]
                for name in _ALWAYS_SELECTED if name in document}
    for name, value in document.items():
        below = [path[1:] for path in names if path[0] == name]
        if not below or name in selected:
            continue
        if () in below:
            selected[name] = value
        elif isinstance(value, dict):
            selected[name] = _select(value, below)
        elif isinstance(value, list):
            selected[name] = [_select(item, below) if isinstance(item, dict)
                              else item for item in value]
    return selected
