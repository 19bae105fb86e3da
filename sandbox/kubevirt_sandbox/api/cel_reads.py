# SPDX-License-Identifier: Apache-2.0
"""Which parts of its variables a CEL expression reads.

The conversion of an object for CEL takes a hundred times as long as most
expressions, which read a few of its fields.
"""
import functools
import re

# A variable with up to two fields, of which none is a method; or compared with
# null. Text of string literals is taken for code, which only adds parts.
_VARIABLE = re.compile(
    r'\b(?<!\.)(object|oldObject|request|namespaceObject|params|authorizer|'
    r'self|oldSelf)\b((?:\s*\.\s*[A-Za-z_]\w*\b(?!\s*\()){0,2})'
    r'(\s*[!=]=\s*null\b)?')

#: The path of a value itself.
WHOLE = ()


@functools.lru_cache(1000)
def reads(text: str) -> dict[str, frozenset[tuple[str, ...]]]:
    """Return the variables that an expression names.

    :returns: ``{name: paths}``; a path has the names of one or two fields. A
        variable that is only compared with null has no paths.
    """
    paths = {}
    for name, fields, null in _VARIABLE.findall(text):
        path = tuple(field.strip() for field in fields.split('.')[1:])
        paths.setdefault(name, set()).update(
            () if null and not path else [path])
    return {name: frozenset(named) for name, named in paths.items()}


def part(value: object, paths: frozenset[tuple[str, ...]]) -> object:
    """Return a JSON value with no other fields than those of paths."""
    if WHOLE in paths or not isinstance(value, dict):
        return value
    kept = {}
    for name, *below in paths:
        if name not in value:
            continue
        if not below or (name,) in paths or not isinstance(
                value[name], dict):
            kept[name] = value[name]
        else:
            fields = kept.setdefault(name, {})
            if below[0] in value[name]:
                fields[below[0]] = value[name][below[0]]
    return kept
