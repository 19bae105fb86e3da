# SPDX-License-Identifier: Apache-2.0
"""Query parameters: parse and validate (DSP0266, "Query parameters").

Supported: ``only``, ``$select``, ``$expand``, ``$top`` and ``$skip``. Other
parameters that begin with ``$`` are refused, all others ignored.
`expand_select` applies the result to a resource.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import re
import typing
import urllib.parse

from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages

#: Maximum of $levels.
MAX_LEVELS = 6

_EXPAND = re.compile(r'([*.~])(?:\(\$levels=(\d{1,9})\))?')
_NUMBER = re.compile(r'-?\d{1,9}')
_PROPERTY = re.compile(r'[\w@#.]+(?:/[\w@#.]+)*')

#: For ServiceRoot: ProtocolFeaturesSupported.
FEATURES = {
    'ExcerptQuery': False,
    'ExpandQuery': {
        'ExpandAll': True,
        'Levels': True,
        'Links': True,
        'MaxLevels': MAX_LEVELS,
        'NoLinks': True,
    },
    'FilterQuery': False,
    'OnlyMemberQuery': True,
    'SelectQuery': True,
    'TopSkipQuery': True,
}


@dataclasses.dataclass(frozen=True)
class Query:
    """Parsed query parameters; those not given are None or False.

    :param only: whether ``only`` was given
    :param select: properties, each as its names, one per level
    :param expand: ``*``, ``.`` or ``~``
    :param levels: $levels of $expand
    :param top: number of members
    :param skip: number of members
    """

    only: bool = False
    select: tuple[tuple[str, ...], ...] | None = None
    expand: str | None = None
    levels: int = 1
    top: int | None = None
    skip: int | None = None


def parse(text: str) -> Query | None:
    """Parse a query string.

    :param text: text after the question mark
    :returns: None if it has no supported parameter
    :raises: `error_responses.RedfishError`: 400 invalid, 501 unsupported
        parameter
    """
    try:
        pairs = urllib.parse.parse_qsl(text, keep_blank_values=True,
                                       max_num_fields=50)
    except ValueError:
        raise _bad_request(
            'QueryParameterValueFormatError',
            text,
            '?') from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in _PARSERS:
            if name.startswith('$'):
                raise error_responses.RedfishError(501, messages.message(
                    'QueryParameterUnsupported', name,
                    detail=f"Supported: {', '.join(_PARSERS)}."))
            continue
        if name in given:
            raise _bad_request('QueryParameterValueFormatError', value, name)
        given[name] = value
    if not given:
        return None
    fields: dict[str, typing.Any] = {}
    for name, value in given.items():
        fields.update(_PARSERS[name](name, value))
    if len(given) > 1 and 'only' in given:
        raise error_responses.RedfishError(400, messages.message(
            'QueryCombinationInvalid'))
    return Query(**fields)


def _bad_request(key: str, value: typing.Any, *more: typing.Any
                 ) -> error_responses.RedfishError:
    return error_responses.RedfishError(
        400, messages.message(key, value, *more))


def _only(name: str, value: str) -> dict[str, typing.Any]:
    if value:
        raise _bad_request('QueryParameterValueFormatError', value, name)
    return {'only': True}


def _select(name: str, value: str) -> dict[str, typing.Any]:
    paths = [path.strip() for path in value.split(',')]
    if len(paths) > 100 or not all(map(_PROPERTY.fullmatch, paths)):
        raise _bad_request('QueryParameterValueFormatError', value, name)
    return {'select': tuple(tuple(path.split('/')) for path in paths)}


def _expand(name: str, value: str) -> dict[str, typing.Any]:
    match = _EXPAND.fullmatch(value)
    if match is None:
        raise _bad_request('QueryParameterValueFormatError', value, name)
    levels = int(match[2] or 1)
    if not 1 <= levels <= MAX_LEVELS:
        raise _bad_request('QueryParameterOutOfRange', levels, '$levels',
                           f'1-{MAX_LEVELS}')
    return {'expand': match[1], 'levels': levels}


def _number(name: str, value: str) -> dict[str, typing.Any]:
    if not _NUMBER.fullmatch(value):
        raise _bad_request('QueryParameterValueTypeError', value, name)
    if value.startswith('-'):
        raise _bad_request('QueryParameterOutOfRange',
                           value, name, '0-999999999')
    return {name[1:]: int(value)}


# Parameter: function that parses its value into fields of Query.
_PARSERS: dict[str, abc.Callable[[str, str], dict[str, typing.Any]]] = {
    'only': _only, '$select': _select, '$expand': _expand,
    '$top': _number, '$skip': _number}
