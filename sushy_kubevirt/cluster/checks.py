# SPDX-License-Identifier: Apache-2.0
"""Hold a cluster file against the table of its keys."""

from __future__ import annotations

import copy
import re

from sushy_kubevirt.cluster import fields
from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cluster import wording
from sushy_kubevirt.kube import quantity

Kind = fields.Kind

_TRAIT = re.compile(r'[A-Z][A-Z0-9_]{0,254}')
_SIZE = re.compile(r'([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]?)(i?b?)', re.IGNORECASE)


def size(text):
    """Translate a size from Tenks' units to those of Kubernetes.

    :param text: or int, a number of bytes
    :returns: text, such as ``2G`` for ``2GB`` and ``2Gi`` for ``2G``, as
        Tenks and virsh understand them; None if it is no size, or 0
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
    found = number + suffix
    return found if (quantity.to_int(found) or 0) > 0 else None


class _WrongKind(Exception):
    """A value is not of the kind that its key has."""


class Checker:
    """Checks a document, and completes it with defaults.

    :param document: a `document.Document`
    """

    def __init__(self, document) -> None:
        self._problems = []
        self._warnings = []
        self._document = document
        self._reported = set()

    @property
    def problems(self):
        """List of `problems.Problem`, in the order of the file."""
        return [one for _, one in sorted(self._problems, key=_mark)]

    @property
    def warnings(self):
        """List of text, likewise."""
        return [one for _, one in sorted(self._warnings, key=_mark)]

    def check(self):
        """Check the whole document.

        :returns: dict in which every mapping of the table has all of its keys;
            instead of a value that is invalid, its default
        """
        value = self._document.value
        if not isinstance(value, dict):
            self.problem((), 'the file has to be a mapping, with keys such as '
                         '"node_types" and "specs"')
            value = {}
        return self._mapping(value, (), '')

    def problem(self, path, text) -> None:
        """Record a problem.

        :param path: tuple of keys and indices
        :param text: what is wrong
        """
        self._reported.add(path)
        self._problems.append((self._document.mark(path), problems.Problem(
            self._document.place(path), text)))

    def reported(self, *path) -> bool:
        """:returns: whether there is a problem with just this value, so that
            its default is not what the user wants
        """
        return path in self._reported

    def warn(self, path, text) -> None:
        """Record a warning, likewise."""
        self._warnings.append((self._document.mark(path), str(
            problems.Problem(self._document.place(path), text))))

    def _mapping(self, value, path, schema):
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

    def _default(self, field):
        if field.kind is Kind.MAPPING and field.default is not None:
            return {key: self._default(one)
                    for key, one in fields.children(field.path).items()}
        return copy.copy(field.default)

    def _unknown_key(self, key, path, schema, known) -> None:
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

    def _value(self, value, path, field):
        if not field.expressions and self._expressions(value, path):
            return self._default(field)
        try:
            return _CHECKS[field.kind](self, value, path, field)
        except _WrongKind:
            text = f'"{path[-1]}" has to be {field.kind.value}'
        if not isinstance(value, dict | list):
            text += f', not {wording.shown(value)}'
            if field.kind is Kind.TEXT:
                text += '; put it in quotes'
        self.problem(path, text)
        return self._default(field)

    def _expressions(self, value, path) -> bool:
        if isinstance(value, str) and ('{{' in value or '{%' in value):
            self.problem(path, 'expressions of Ansible are not evaluated '
                         'here; write the value instead of '
                         f'{wording.shown(value)}')
            return True
        return False

    # What follows raises _WrongKind. Other problems are recorded, and
    # something of the right kind, or the default, is returned.

    def _named_mappings(self, value, path, field):
        if not isinstance(value, dict):
            raise _WrongKind
        result = {}
        for name, one in value.items():
            where = *path, name
            if one is None:
                one = {}
            if not isinstance(one, dict):
                self.problem(where, f'"{wording.short(name)}" has to be a '
                             'mapping')
                one = {}
            result[name] = self._mapping(one, where, f'{field.path}.*')
        return result

    def _list(self, value, path, field):
        if not isinstance(value, list):
            raise _WrongKind
        result = []
        for index, one in enumerate(value):
            where = *path, index
            if isinstance(one, dict):
                one = self._mapping(one, where, f'{field.path}[]')
                result.append(one)
            else:
                self.problem(where, f'each of "{path[-1]}" has to be a '
                             'mapping')
                # Keep the numbers of the others.
                result.append(None)
        return result

    def _fixed_mapping(self, value, path, field):
        if isinstance(value, dict):
            return self._mapping(value, path, field.path)
        raise _WrongKind

    def _text(self, value, path, field):
        if not isinstance(value, str):
            raise _WrongKind
        if field.choices and value not in field.choices:
            self.problem(path, wording.choice(path[-1], value, field.choices))
        elif not value:
            self.problem(path, f'"{path[-1]}" must not be empty')
        elif field.most is not None and len(value) > field.most:
            self.problem(path, f'"{path[-1]}" has {len(value)} characters; at '
                         f'most {field.most} are possible')
        else:
            return value
        return field.default

    def _integer(self, value, path, field):
        if not isinstance(value, int) or isinstance(value, bool):
            raise _WrongKind
        if not field.least <= value <= field.most:
            self.problem(path, f'"{path[-1]}" has to be from {field.least} to '
                         f'{field.most}, not {value}')
            return field.default
        return value

    def _boolean(self, value, path, field):
        if not isinstance(value, bool):
            raise _WrongKind
        return value

    def _size(self, value, path, field):
        if isinstance(value, str | int) and not isinstance(value, bool):
            found = size(value)
            if found:
                return found
        raise _WrongKind

    def _mac(self, value, path, field):
        if isinstance(value, str) and identity.is_mac(value):
            return value.lower()
        raise _WrongKind

    def _object_name(self, value, path, field):
        if isinstance(value, str) and identity.is_object_name(value):
            return value
        raise _WrongKind

    def _label(self, value, path, field):
        if isinstance(value, str) and identity.is_label(value):
            return value
        raise _WrongKind

    def _texts(self, value, path, field):
        if not isinstance(value, list):
            raise _WrongKind
        for index, one in enumerate(value):
            where = *path, index
            if not isinstance(one, str):
                self.problem(where, f'each of "{path[-1]}" has to be text, '
                             f'not {wording.shown(one)}')
            elif self._expressions(one, where):
                pass
            elif one in value[:index]:
                self.problem(where, f'"{wording.short(one)}" is in '
                             f'"{path[-1]}" twice')
        found = [one for one in value if isinstance(one, str)]
        return tuple(dict.fromkeys(found))

    def _traits(self, value, path, field):
        found = self._texts(value, path, field)
        for index, one in enumerate(value):
            if isinstance(one, str) and not _TRAIT.fullmatch(one):
                self.problem((*path, index), f'"{wording.short(one)}" is no '
                             'trait; those of your own are CUSTOM_ and '
                             'capital letters, digits and underscores')
        return found

    def _text_mapping(self, value, path, field):
        if not isinstance(value, dict):
            raise _WrongKind
        result = {}
        for key, one in value.items():
            where = *path, key
            if isinstance(one, bool):
                one = str(one).lower()
            elif isinstance(one, int | float):
                one = str(one)
            if not isinstance(one, str):
                self.problem(where, f'"{wording.short(key)}" has to be text, '
                             f'not {wording.shown(one)}')
            elif not self._expressions(one, where):
                result[key] = one
        return result

    def _labels(self, value, path, field):
        result = self._text_mapping(value, path, field)
        for key, one in result.items():
            if not identity.is_label(key):
                self.problem((*path, key), f'"{wording.short(key)}" is not '
                             f'{Kind.LABEL.value}')
            elif one and not identity.is_label_value(one):
                self.problem((*path, key), f'"{wording.short(one)}" cannot be '
                             'the value of a label')
        return result

    def _any_mapping(self, value, path, field):
        if not isinstance(value, dict):
            raise _WrongKind
        if not field.expressions:
            self._search_expressions(value, path)
        return value

    def _any_list(self, value, path, field):
        if not isinstance(value, list):
            raise _WrongKind
        for index, one in enumerate(value):
            if not isinstance(one, dict):
                self.problem((*path, index), f'each of "{path[-1]}" has to be '
                             'a mapping')
        self._search_expressions(value, path)
        return tuple(one for one in value if isinstance(one, dict))

    def _search_expressions(self, value, path) -> None:
        items = (value.items() if isinstance(value, dict)
                 else enumerate(value) if isinstance(value, list) else ())
        for key, one in items:
            self._expressions(one, (*path, key))
            self._search_expressions(one, (*path, key))


_CHECKS = {
    Kind.MAPPING: Checker._fixed_mapping,
    Kind.NAMED_MAPPINGS: Checker._named_mappings,
    Kind.LIST: Checker._list,
    Kind.TEXT: Checker._text,
    Kind.INTEGER: Checker._integer,
    Kind.BOOLEAN: Checker._boolean,
    Kind.SIZE: Checker._size,
    Kind.MAC: Checker._mac,
    Kind.TEXTS: Checker._texts,
    Kind.TRAITS: Checker._traits,
    Kind.TEXT_MAPPING: Checker._text_mapping,
    Kind.NAME: Checker._object_name,
    Kind.LABEL: Checker._label,
    Kind.LABELS: Checker._labels,
    Kind.ANY_MAPPING: Checker._any_mapping,
    Kind.ANY_LIST: Checker._any_list,
}


def _mark(pair):
    return pair[0] or (0, 0)
