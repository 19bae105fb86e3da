# SPDX-License-Identifier: Apache-2.0
"""Query parameters: parse and validate (DSP0266, "Query parameters").

Supported: ``only``, ``$select``, ``$expand``, ``$top`` and ``$skip``. Other
parameters that begin with ``$`` are refused, all others ignored.
`expand_select` applies the result to a resource.
"""

from __future__ import annotations

import dataclasses
import re
import urllib.parse

from sushy_kubevirt.redfish.protocol import error_responses

#: Maximum of $levels.
MAX_LEVELS = 6

_MAX_NUMBER = 999999999

_NUMBER = re.compile(r'-?\d{1,9}')
_PATH = r'\s*[\w@#.]+(?:/[\w@#.]+)*\s*'

# Parameter: pattern of its value.
_PATTERNS = {
    'only': re.compile(''),
    '$select': re.compile(rf'{_PATH}(?:,{_PATH}){{0,99}}'),
    '$expand': re.compile(r'[*.~](?:\(\$levels=\d{1,9}\))?'),
    '$top': _NUMBER,
    '$skip': _NUMBER,
}

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
        raise error_responses.base_error(
            400, 'QueryParameterValueFormatError', text, '?') from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in _PATTERNS:
            if name.startswith('$'):
                raise error_responses.base_error(
                    501, 'QueryParameterUnsupported', name,
                    detail=f"Supported: {', '.join(_PATTERNS)}.")
            continue
        fault = 'Type' if _PATTERNS[name] is _NUMBER else 'Format'
        if name in given or not _PATTERNS[name].fullmatch(value):
            raise error_responses.base_error(
                400, f'QueryParameterValue{fault}Error', value, name)
        given[name] = value
    if len(given) > 1 and 'only' in given:
        raise error_responses.base_error(400, 'QueryCombinationInvalid')
    select, expand = given.get('$select'), given.get('$expand', '')
    levels = _number('$levels', re.sub(r'\D', '', expand), 1, MAX_LEVELS)
    return Query(
        only='only' in given,
        select=None if select is None else tuple(
            tuple(path.strip().split('/')) for path in select.split(',')),
        expand=expand[:1] or None, levels=levels or 1,
        top=_number('$top', given.get('$top'), 0, _MAX_NUMBER),
        skip=_number('$skip', given.get('$skip'), 0, _MAX_NUMBER),
    ) if given else None


def _number(name: str, text: str | None, lowest: int, highest: int
            ) -> int | None:
    if not text:
        return None
    if not lowest <= int(text) <= highest:
        raise error_responses.base_error(
            400, 'QueryParameterOutOfRange', text, name,
            f'{lowest}-{highest}')
    return int(text)
