# SPDX-License-Identifier: Apache-2.0
"""A YAML file as plain values, and where in the file each of them is.

YAML is as in Ansible, with these differences. A key may appear once only.
Numbers are decimal: ``010`` and ``52:54:00`` are text, as are dates. Tags,
such as ``!vault``, are refused. Anchors, aliases and ``<<`` are understood,
within limits.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import typing

import yaml

from sushy_kubevirt.cluster import problems

#: Largest file, in bytes.
MAX_SIZE = 1 << 20

#: Most values in a file, once aliases are replaced by what they stand for.
MAX_VALUES = 100_000

#: Deepest nesting of mappings and lists.
MAX_DEPTH = 40

_TAG = 'tag:yaml.org,2002:'
_MERGE = _TAG + 'merge'
_MAX_DIGITS = 18
_TRUE = {'true', 'yes', 'on'}

#: Where a value is: the keys and indices that lead to it.
ValuePath: typing.TypeAlias = tuple[str | int, ...]


class Mark(typing.NamedTuple):
    """A position in a file; both numbers begin at 1."""

    line: int
    column: int


class _Loader(yaml.SafeLoader):
    """PyYAML's, with fewer kinds of scalars."""

    yaml_implicit_resolvers = {}


for _kind, _pattern, _first in (
        ('bool', r'yes|no|true|false|on|off', 'yYnNtTfFoO'),
        ('null', r'~|null|', ['~', 'n', 'N', '']),
        ('int', rf'[-+]?(?:0|[1-9][0-9]{{0,{_MAX_DIGITS - 1}}})',
         '-+0123456789'),
        ('float', rf'[-+]?[0-9]{{1,{_MAX_DIGITS}}}\.[0-9]{{1,{_MAX_DIGITS}}}',
         '-+0123456789'),
        ('merge', '<<', '<')):
    _Loader.add_implicit_resolver(
        _TAG + _kind, re.compile(rf'(?:{_pattern})\Z', re.IGNORECASE),
        list(_first))


@dataclasses.dataclass(frozen=True)
class Document:
    """A file that was read.

    :param path: of the file, as it was given
    :param value: of dicts with text as keys, lists, text, int, float, bool
        and None
    :param marks: of a dict's member that of its key
    """

    path: str
    value: object
    marks: dict[ValuePath, Mark]

    def mark(self, path: ValuePath = ()) -> Mark | None:
        """Find a value.

        :param path: of one that is missing, the mark of what should contain it
            is returned
        :returns: None in an empty file
        """
        while path and path not in self.marks:
            path = path[:-1]
        return self.marks.get(path)

    def place(self, path: ValuePath = ()) -> str:
        """Say where a value is, such as ``cluster.yaml:3:5``.

        :param path: likewise
        """
        mark = self.mark(path)
        return '{}:{}:{}'.format(self.path, *mark) if mark else self.path


def read(path: str | os.PathLike[str]) -> Document:
    """Read a file.

    :raises InvalidFile: if it cannot be read, or is not such YAML
    """
    path = pathlib.Path(path)
    try:
        with path.open('rb') as file:
            content = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise _invalid(path, f'cannot be read: {error.strerror}') from error
    if len(content) > MAX_SIZE:
        raise _invalid(path, f'the file has more than {MAX_SIZE} bytes')
    return parse(content, path)


def parse(content: str | bytes, path: str | os.PathLike[str]) -> Document:
    """Read text.

    :param path: what to call it in messages
    :raises InvalidFile: if it is not such YAML
    """
    try:
        node = _Loader(content).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        text = ': '.join(filter(None, (error.context, error.problem)))
        raise _invalid(_place(path, mark),
                       f'not valid YAML: {text}') from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise _invalid(path, f'not valid YAML: {error}') from error
    except RecursionError as error:
        raise _invalid(path, 'mappings and lists are nested too deeply') \
            from error
    if node is None:
        return Document(str(path), None, {})
    builder = _Builder(str(path))
    return Document(str(path), builder.build(node, ()), builder.marks)


class _Builder:
    """Makes values of PyYAML's nodes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.marks: dict[ValuePath, Mark] = {}
        self.problems: list[problems.Problem] = []
        self._left = MAX_VALUES

    def build(self, node: yaml.Node, path: ValuePath) -> object:
        """Make the value of the root.

        :returns: as `Document.value`
        :raises InvalidFile: with all problems
        """
        self.marks[path] = _position(node)
        value = self._value(node, path)
        if self.problems:
            raise problems.InvalidFile(self.problems)
        return value

    def _value(self, node: yaml.Node, path: ValuePath) -> typing.Any:
        self._left -= 1
        if self._left < 0:
            self._end(node, f'there are more than {MAX_VALUES} values, '
                      'counting those that aliases repeat')
        if len(path) > MAX_DEPTH:
            self._end(node, 'mappings and lists are nested more than '
                      f'{MAX_DEPTH} deep, or contain themselves')
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return self._sequence(node, path)
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode,
                 path: ValuePath) -> dict[str, object]:
        self._check_tag(node, 'map')
        own: dict[str, object] = {}
        merged: dict[str, object] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                self._merge(value_node, path, merged)
                continue
            key = self._key(key_node)
            if key is None:
                continue
            where = *path, key
            if key in own:
                self._problem(key_node, f'"{key}" is here a second time; the '
                              f'first is in line {self.marks[where].line}')
                continue
            self.marks[where] = _position(key_node)
            own[key] = self._value(value_node, where)
        return {**{key: value for key, value in merged.items()
                   if key not in own}, **own}

    def _merge(self, node: yaml.Node, path: ValuePath,
               merged: dict[str, object]) -> None:
        # Of several, the first that has a key counts, and own keys before.
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                self._problem(source,
                              '"<<" takes a mapping, or a list of them')
                continue
            known, self.marks = self.marks, {}
            value = self._value(source, path)
            # Own keys have their places already, and keep them.
            for where, mark in self.marks.items():
                known.setdefault(where, mark)
            self.marks = known
            for key, member in value.items():
                merged.setdefault(key, member)

    def _sequence(self, node: yaml.SequenceNode,
                  path: ValuePath) -> list[object]:
        self._check_tag(node, 'seq')
        result = []
        for index, item in enumerate(node.value):
            where = *path, index
            self.marks[where] = _position(item)
            result.append(self._value(item, where))
        return result

    def _key(self, node: yaml.Node) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._problem(node, 'a key has to be text. Put braces in quotes; '
                          'expressions of Ansible, {{ … }}, are not evaluated '
                          'here')
            return None
        if node.tag != _TAG + 'str':
            self._problem(node, f'the key {node.value} is not text; put it in '
                          'quotes')
            return None
        return self._text(node)

    def _text(self, node: yaml.ScalarNode) -> str | None:
        try:
            node.value.encode()
        except UnicodeEncodeError:
            self._problem(node, 'the text has a surrogate, which is no '
                          'character; write the character itself, or by \\U')
            return None
        return node.value

    def _scalar(self, node: yaml.ScalarNode) -> object:
        kind = node.tag.removeprefix(_TAG)
        try:
            match kind:
                case 'str' | 'merge':
                    return self._text(node)
                case 'bool':
                    return node.value.lower() in _TRUE
                case 'int':
                    return int(node.value)
                case 'float':
                    return float(node.value)
                case 'null':
                    return None
        except ValueError:
            self._problem(node, f'"{node.value}" is not of the type {kind}')
            return None
        self._check_tag(node, 'str')
        return None

    def _check_tag(self, node: yaml.Node, kind: str) -> None:
        if node.tag != _TAG + kind:
            tag = node.tag.replace(_TAG, '!!')
            self._problem(node, f'the tag {tag} is not understood here')

    def _end(self, node: yaml.Node, text: str) -> typing.NoReturn:
        self._problem(node, text)
        raise problems.InvalidFile(self.problems)

    def _problem(self, node: yaml.Node, text: str) -> None:
        self.problems.append(problems.Problem(
            '{}:{}:{}'.format(self.path, *_position(node)), text))


def _position(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _place(path: str | os.PathLike[str], mark: yaml.Mark | None) -> str:
    return f'{path}:{mark.line + 1}:{mark.column + 1}' if mark else str(path)


def _invalid(place: str | os.PathLike[str], text: str) -> problems.InvalidFile:
    return problems.InvalidFile([problems.Problem(str(place), text)])
