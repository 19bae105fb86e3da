# SPDX-License-Identifier: Apache-2.0
"""Label and field selectors.

Grammar and messages follow ``apimachinery/pkg/labels/selector.go`` and
``pkg/fields/selector.go`` (1.36).
"""
import re

from kubevirt_sandbox.api import errors

_KEY = r'[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?'
_VALUE = r'(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?'
_SET = re.compile(rf'({_KEY})\s+(in|notin)\s*\(([^)]*)\)\s*$')
_COMPARE = re.compile(rf'({_KEY})\s*(==|=|!=|>|<)\s*({_VALUE})\s*$')
_EXISTS = re.compile(rf'(!?)\s*({_KEY})\s*$')


def _split(text):
    """Split at the commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char == '(':
            depth += 1
        elif char == ')':
            depth -= 1
        elif char == ',' and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part.strip() for part in parts]


def _integer(text):
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def _requirement(part):
    if match := _SET.match(part):
        key, operator, values = match.groups()
        values = {v.strip() for v in values.split(',')}
        if operator == 'in':
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EXISTS.match(part):
        absent, key = match.groups()
        return lambda labels: (key in labels) != bool(absent)
    if match := _COMPARE.match(part):
        key, operator, value = match.groups()
        if operator in ('=', '=='):
            return lambda labels: labels.get(key) == value
        if operator == '!=':
            return lambda labels: labels.get(key) != value
        bound = _integer(value)
        if bound is not None:
            def compare(labels):
                have = _integer(labels.get(key))
                if have is None:
                    return False
                return have > bound if operator == '>' else have < bound
            return compare
    raise errors.bad_request(
        f'unable to parse requirement: found \'{part}\', expected: an '
        'identifier, \'!\', \'=\', \'==\', \'!=\', \'in\' or \'notin\'')


class Selector:
    """The selector of a list, watch or deletecollection.

    :param labels: a label selector, e.g. ``a=b,c in (d, e),!f``; or ''.
    :param fields: a field selector, e.g. ``metadata.name=x``; or ''.
    :param kind: the Kind, which says what fields can be selected.
    :raises errors.ApiError: 400 for what cannot be read.
    """

    def __init__(self, labels, fields, kind):
        self._labels = []
        self._fields = []
        self.name = None
        if labels and labels.strip():
            self._labels = [_requirement(p) for p in _split(labels)]
        if fields and fields.strip():
            for part in fields.split(','):
                self._fields.append(self._term(part, kind))

    def _term(self, part, kind):
        for operator in ('!=', '==', '='):
            path, found, value = part.partition(operator)
            if found:
                break
        else:
            raise errors.bad_request(f'invalid selector: \'{part}\'; can\'t '
                                     f'understand \'{part}\'')
        path = path.strip()
        if path not in ('metadata.name', 'metadata.namespace',
                        *kind.selectable_fields):
            raise errors.bad_request(f'field label not supported: {path}')
        if path == 'metadata.name' and operator != '!=':
            self.name = value
        return tuple(path.split('.')), value, operator != '!='

    def __bool__(self):
        return bool(self._labels or self._fields)

    def matches(self, obj):
        """Tell whether an object is selected."""
        for path, value, same in self._fields:
            here = obj
            for step in path:
                here = here.get(step) if isinstance(here, dict) else None
            if isinstance(here, bool):
                here = 'true' if here else 'false'
            if (('' if here is None else str(here)) == value) != same:
                return False
        if self._labels:
            labels = obj['metadata'].get('labels') or {}
            return all(wanted(labels) for wanted in self._labels)
        return True
