# SPDX-License-Identifier: Apache-2.0
"""Hold a cluster file against the table of its keys."""

from __future__ import annotations

from collections import abc
import copy
import re
import typing

from sushy_kubevirt.cluster import fields
from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cluster import wording
from sushy_kubevirt.kube import quantity

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import document

Kind = fields.Kind
Problem = problems.Problem

_TRAIT = re.compile(r'[A-Z][A-Z0-9_]{0,254}')
_SIZE = re.compile(r'([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]?)(i?b?)', re.IGNORECASE)


#: A mapping of the file with all keys that the table has for it.
Values: typing.TypeAlias = dict[str, typing.Any]


def size(text: str | int) -> str | None:
    """Translate a size from Tenks' units to those of Kubernetes.

    :param text: a number is one of bytes
    :returns: such as ``2G`` for ``2GB`` and ``2Gi`` for ``2G``, as Tenks and
        virsh understand them; None if it is no size, or 0
    """
    match = _SIZE.fullmatch(str(text).strip())
    if not match:
        return None
    number, power, unit = match.groups()
    if power and unit.lower() != 'b':
        suffix = power.upper() + 'i'
    else:
        # Kubernetes' symbol for 10^3 is the only one in lower case.
        suffix = power.upper() if power not in 'kK' else power.lower()
    translated = number + suffix
    return translated if (quantity.to_int(translated) or 0) > 0 else None


class Checker:
    """Checks a document, and completes it with defaults."""

    def __init__(self, file: document.Document) -> None:
        self._problems: list[tuple[document.Mark | None, Problem]] = []
        self._warnings: list[tuple[document.Mark | None, str]] = []
        self._document = file
        self._reported: set[document.ValuePath] = set()

    @property
    def problems(self) -> list[Problem]:
        """In the order of the file."""
        return [problem for _, problem in sorted(self._problems, key=_mark)]

    @property
    def warnings(self) -> list[str]:
        """In the order of the file."""
        return [warning for _, warning in sorted(self._warnings, key=_mark)]

    def check(self) -> Values:
        """Check the whole document.

        :returns: instead of a value that is invalid, its default
        """
        value = self._document.value
        if not isinstance(value, dict):
            self.problem((), 'the file has to be a mapping, with keys such as '
                         '"node_types" and "specs"')
            value = {}
        return self._mapping(value, (), '')

    def problem(self, path: document.ValuePath, text: str) -> None:
        """Record what is wrong with a value."""
        self._reported.add(path)
        self._problems.append((self._document.mark(path), Problem(
            self._document.place(path), text)))

    def reported(self, *path: str | int) -> bool:
        """Return whether there is a problem with just this value, so that its
        default is not what the user wants.
        """
        return path in self._reported

    def warn(self, path: document.ValuePath, text: str) -> None:
        """Record a warning, likewise."""
        self._warnings.append((self._document.mark(path), str(
            Problem(self._document.place(path), text))))

    def _mapping(self, value: dict[str, typing.Any],
                 path: document.ValuePath, schema: str) -> Values:
        known = fields.children(schema)
        for key in value:
            if key not in known:
                self._unknown_key(key, path, schema, known)
        result = {}
        for key, field in known.items():
            given = value.get(key)
            if given is None:
                if field.required:
                    self.problem(path, f'"{key}" is missing in '
                                 f'{wording.path(path)}')
                result[key] = self._default(field)
            else:
                result[key] = self._value(given, (*path, key), field)
        return result

    def _default(self, field: fields.Field) -> typing.Any:
        if field.kind is Kind.MAPPING and field.default is not None:
            return {key: self._default(child)
                    for key, child in fields.children(field.path).items()}
        return copy.copy(field.default)

    def _unknown_key(self, key: str, path: document.ValuePath, schema: str,
                     known: abc.Mapping[str, fields.Field]) -> None:
        where = (*path, key)
        ignored = fields.ignored(schema, key)
        if ignored:
            # The text is reStructuredText.
            text = ignored.text.replace('``', '"')
            self.warn(where, f'"{key}" has no effect here. {text}')
            return
        text = f'unknown key "{wording.short(key)}"'
        near, others = wording.closest(key, known), fields.elsewhere(key)
        if near:
            text += f'; did you mean "{near}"?'
        elif not others:
            text += f'; known here: {", ".join(sorted(known))}'
        if others:
            text += f'; there is {" and ".join(others)}'
        self.problem(where, text)

    def _value(self, value: object, path: document.ValuePath,
               field: fields.Field) -> typing.Any:
        assert field.kind is not None   # Ignored keys have no value.
        if not field.expressions and self._expressions(value, path):
            return self._default(field)
        # Types of YAML's values exactly: a bool of Python is an int, too.
        if field.kind in _SCALARS:
            types, convert = _SCALARS[field.kind]
            if type(value) in types:
                converted = convert(value)
                if converted is not None:
                    return converted
        else:
            expected, check = _CHECKS[field.kind]
            if type(value) is expected:
                return check(self, value, path, field)
        text = f'"{path[-1]}" has to be {field.kind.value}'
        if not isinstance(value, dict | list):
            text += f', not {wording.shown(value)}'
            if field.kind is Kind.TEXT:
                text += '; put it in quotes'
        self.problem(path, text)
        return self._default(field)

    def _expressions(self, value: object, path: document.ValuePath) -> bool:
        if isinstance(value, str) and ('{{' in value or '{%' in value):
            self.problem(path, 'expressions of Ansible are not evaluated '
                         'here; write the value instead of '
                         f'{wording.shown(value)}')
            return True
        return False

    # What follows is called with values of the types in _CHECKS. Problems are
    # recorded, and something of the right kind, or the default, is returned.

    def _named_mappings(self, value: dict[str, typing.Any],
                        path: document.ValuePath,
                        field: fields.Field) -> dict[str, Values]:
        result = {}
        for name, mapping in value.items():
            where = *path, name
            if mapping is None:
                mapping = {}
            if not isinstance(mapping, dict):
                self.problem(where, f'"{wording.short(name)}" has to be a '
                             'mapping')
                mapping = {}
            result[name] = self._mapping(mapping, where, f'{field.path}.*')
        return result

    def _list(self, value: list[typing.Any],
              path: document.ValuePath,
              field: fields.Field) -> list[Values | None]:
        result: list[Values | None] = []
        for index, item in enumerate(value):
            where = *path, index
            if isinstance(item, dict):
                result.append(self._mapping(item, where, f'{field.path}[]'))
            else:
                self.problem(where, f'each of "{path[-1]}" has to be a '
                             'mapping')
                # Keep the numbers of the others.
                result.append(None)
        return result

    def _text(self, value: str, path: document.ValuePath,
              field: fields.Field) -> object:
        if field.choices and value not in field.choices:
            self.problem(path, wording.choice(
                str(path[-1]), value, field.choices))
        elif not value:
            self.problem(path, f'"{path[-1]}" must not be empty')
        elif field.most is not None and len(value) > field.most:
            self.problem(path, f'"{path[-1]}" has {len(value)} characters; at '
                         f'most {field.most} are possible')
        else:
            return value
        return field.default

    def _integer(self, value: int, path: document.ValuePath,
                 field: fields.Field) -> object:
        assert field.least is not None and field.most is not None
        if not field.least <= value <= field.most:
            self.problem(path, f'"{path[-1]}" has to be from {field.least} to '
                         f'{field.most}, not {value}')
            return field.default
        return value

    def _texts(self, value: list[typing.Any],
               path: document.ValuePath,
               field: fields.Field) -> tuple[str, ...]:
        for index, text in enumerate(value):
            where = *path, index
            if not isinstance(text, str):
                self.problem(where, f'each of "{path[-1]}" has to be text, '
                             f'not {wording.shown(text)}')
            elif self._expressions(text, where):
                pass
            elif text in value[:index]:
                self.problem(where, f'"{wording.short(text)}" is in '
                             f'"{path[-1]}" twice')
        texts = [text for text in value if isinstance(text, str)]
        return tuple(dict.fromkeys(texts))

    def _traits(self, value: list[typing.Any],
                path: document.ValuePath,
                field: fields.Field) -> tuple[str, ...]:
        traits = self._texts(value, path, field)
        for index, trait in enumerate(value):
            if isinstance(trait, str) and not _TRAIT.fullmatch(trait):
                self.problem((*path, index), f'"{wording.short(trait)}" is no '
                             'trait; those of your own are CUSTOM_ and '
                             'capital letters, digits and underscores')
        return traits

    def _text_mapping(self, value: dict[str, typing.Any],
                      path: document.ValuePath,
                      field: fields.Field) -> dict[str, str]:
        result = {}
        for key, text in value.items():
            where = *path, key
            if isinstance(text, bool):
                text = str(text).lower()
            elif isinstance(text, int | float):
                text = str(text)
            if not isinstance(text, str):
                self.problem(where, f'"{wording.short(key)}" has to be text, '
                             f'not {wording.shown(text)}')
            elif not self._expressions(text, where):
                result[key] = text
        return result

    def _labels(self, value: dict[str, typing.Any],
                path: document.ValuePath,
                field: fields.Field) -> dict[str, str]:
        result = self._text_mapping(value, path, field)
        for key, label in result.items():
            if not identity.is_label(key):
                self.problem((*path, key), f'"{wording.short(key)}" is not '
                             f'{Kind.LABEL.value}')
            elif label and not identity.is_label_value(label):
                self.problem((*path, key), f'"{wording.short(label)}" cannot '
                             'be the value of a label')
        return result

    def _any_mapping(self, value: dict[str, typing.Any],
                     path: document.ValuePath,
                     field: fields.Field) -> dict[str, typing.Any]:
        if not field.expressions:
            self._search_expressions(value, path)
        return value

    def _any_list(self, value: list[typing.Any],
                  path: document.ValuePath,
                  field: fields.Field) -> tuple[dict[str, typing.Any], ...]:
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                self.problem((*path, index), f'each of "{path[-1]}" has to be '
                             'a mapping')
        self._search_expressions(value, path)
        return tuple(item for item in value if isinstance(item, dict))

    def _search_expressions(self, value: object,
                            path: document.ValuePath) -> None:
        members: abc.Iterable[tuple[str | int, object]] = (
            value.items() if isinstance(value, dict)
            else enumerate(value) if isinstance(value, list) else ())
        for key, member in members:
            self._expressions(member, (*path, key))
            self._search_expressions(member, (*path, key))


#: Types of values, and a function that makes the value of the key of one, or
#: None if it is not of the kind.
_SCALARS: dict[Kind, tuple[tuple[type, ...],
                           abc.Callable[[typing.Any], object]]] = {
    Kind.BOOLEAN: ((bool,), bool),
    Kind.SIZE: ((str, int), size),
    Kind.MAC: ((str,), lambda text: (
        text.lower() if identity.is_mac(text) else None)),
    Kind.NAME: ((str,), lambda text: (
        text if identity.is_object_name(text) else None)),
    Kind.LABEL: ((str,), lambda text: (
        text if identity.is_label(text) else None))}

#: Type of values, and the method that checks one.
_CHECKS: dict[Kind, tuple[type, abc.Callable[
    [Checker, typing.Any, 'document.ValuePath', fields.Field], object]]] = {
        Kind.MAPPING: (dict, lambda checker, value, path, field:
                       checker._mapping(value, path, field.path)),
        Kind.NAMED_MAPPINGS: (dict, Checker._named_mappings),
        Kind.LIST: (list, Checker._list),
        Kind.TEXT: (str, Checker._text),
        Kind.INTEGER: (int, Checker._integer),
        Kind.TEXTS: (list, Checker._texts),
        Kind.TRAITS: (list, Checker._traits),
        Kind.TEXT_MAPPING: (dict, Checker._text_mapping),
        Kind.LABELS: (dict, Checker._labels),
        Kind.ANY_MAPPING: (dict, Checker._any_mapping),
        Kind.ANY_LIST: (list, Checker._any_list)}


def _mark(pair: tuple[document.Mark | None, object]) -> tuple[int, int]:
    return pair[0] or (0, 0)
