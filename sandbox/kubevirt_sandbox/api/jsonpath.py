# SPDX-License-Identifier: Apache-2.0
"""The JSONPath that printer columns use.

Fields (also quoted, ``\\.`` for a dot in a name), indexes, ``[*]`` and
filters like ``[?(@.type=='Ready')]``; a subset of
``client-go/util/jsonpath``.
"""
import functools
import json
import re

_STEP = re.compile(r'''
    \.?\[\?\(@\.(?P<where>[^=!<>\s]+)\s*(?P<op>==|!=)\s*
        (?P<quote>["'])(?P<value>.*?)(?P=quote)\)\]
  | \.?\[(?P<index>-?\d+|\*)\]
  | \.?\[(?P<q>["'])(?P<quoted>.*?)(?P=q)\]
  | \.(?P<field>(?:\\.|[^.\[\\])+)
''', re.VERBOSE)


@functools.lru_cache(maxsize=1024)
def _steps(path):
    path = path.strip().strip('{}')
    if not path.startswith(('.', '[')):
        path = '.' + path
    steps, at = [], 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            return None
        steps.append(match)
        at = match.end()
    return steps


def _step(match, value):
    if match['where']:
        wanted = match['op'] == '=='
        where = '.' + match['where']
        return [v for v in value if isinstance(value, list) and (
            [str(f) for f in find(where, v)] == [match['value']]) == wanted]
    if match['index'] == '*':
        if isinstance(value, dict):
            return list(value.values())
        return list(value) if isinstance(value, list) else []
    if match['index']:
        try:
            return [value[int(match['index'])]] if isinstance(
                value, list) else []
        except IndexError:
            return []
    name = match['quoted']
    if name is None:
        name = re.sub(r'\\(.)', r'\1', match['field'])
    if isinstance(value, dict) and name in value:
        return [value[name]]
    return []


def find(path, value):
    """List the values at a path; empty when nothing is there."""
    steps = _steps(path)
    if steps is None:
        return []
    found = [value]
    for match in steps:
        found = [v for here in found for v in _step(match, here)]
    return [v for v in found if v is not None]


def text(values):
    """Format several values, or one that is not a scalar, as text."""
    return ','.join(v if isinstance(v, str) else json.dumps(v)
                    for v in values)
