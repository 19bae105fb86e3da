# SPDX-License-Identifier: Apache-2.0
"""The query parameters of lists, watches and writes."""
import dataclasses

from kubevirt_sandbox.api import errors

_TRUE = ('1', 't', 'T', 'true', 'TRUE', 'True')
_FALSE = ('0', 'f', 'F', 'false', 'FALSE', 'False')


def flag(query, name):
    """Read a boolean parameter."""
    value = query.get(name)
    if value is None:
        return False
    if value == '':
        return True
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise errors.bad_request(
        f'invalid value "{value}" for query parameter {name}')


def number(query, name):
    """Read a non-negative integer parameter; 0 when it is absent."""
    value = query.get(name, '')
    if not value:
        return 0
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise errors.bad_request(
            f'strconv.ParseInt: parsing "{value}": invalid syntax')
    return int(value)


def _forbidden(field, why):
    return errors.ApiError(
        422, 'Invalid', f'ListOptions.meta.k8s.io "" is invalid: {field}: '
        f'Forbidden: {why}',
        {'group': 'meta.k8s.io', 'kind': 'ListOptions', 'causes': [
            {'reason': 'FieldValueForbidden', 'field': field,
             'message': f'Forbidden: {why}'}]})


@dataclasses.dataclass
class ListOptions:
    """Parameters of list and watch.

    :param version: the resourceVersion; None when absent.
    :param match: resourceVersionMatch.
    :param timeout: seconds, 0 for the server's choice.
    """

    labels: str
    fields: str
    limit: int
    token: str
    version: int | None
    match: str
    timeout: int
    bookmarks: bool
    initial_events: bool

    @classmethod
    def read(cls, query, watch, streaming=True):
        """Read the options from query parameters.

        :param streaming: whether watches may request the initial objects,
            Kubernetes' feature gate WatchList.
        :raises errors.ApiError: 400 or 422.
        """
        version = None
        if query.get('resourceVersion'):
            try:
                version = number(query, 'resourceVersion')
            except errors.ApiError:
                text = query['resourceVersion']
                raise errors.ApiError(
                    400, 'BadRequest', 'invalid resource version '
                    f'"{text}": strconv.ParseUint: parsing "{text}": '
                    'invalid syntax') from None
        match = query.get('resourceVersionMatch', '')
        initial = flag(query, 'sendInitialEvents')
        if 'sendInitialEvents' in query:
            if not watch:
                raise _forbidden('sendInitialEvents', 'sendInitialEvents is '
                                 'forbidden for list')
            if match != 'NotOlderThan':
                raise _forbidden(
                    'resourceVersionMatch', 'sendInitialEvents requires '
                    'setting resourceVersionMatch to NotOlderThan')
            if not streaming:
                raise _forbidden(
                    'sendInitialEvents', 'sendInitialEvents is forbidden for '
                    'watch unless the WatchList feature gate is enabled')
        elif match:
            if watch:
                raise _forbidden('resourceVersionMatch', 'resourceVersionMatch'
                                 ' is forbidden for watch unless '
                                 'sendInitialEvents is provided')
            if version is None:
                raise _forbidden('resourceVersionMatch', 'resourceVersionMatch'
                                 ' is forbidden unless resourceVersion is '
                                 'provided')
            if query.get('continue'):
                raise _forbidden('resourceVersionMatch', 'resourceVersionMatch'
                                 ' is forbidden when continue is provided')
        return cls(query.get('labelSelector', ''),
                   query.get('fieldSelector', ''), number(query, 'limit'),
                   query.get('continue', ''), version, match,
                   number(query, 'timeoutSeconds'),
                   flag(query, 'allowWatchBookmarks'), initial)
