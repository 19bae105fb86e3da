# SPDX-License-Identifier: Apache-2.0
"""Entries of kubeconfigs, merged and checked as kubectl does.

Source: tools/clientcmd/loader.go and api/v1/types.go of client-go v0.37.
Messages name files and keys, but no values, which may be secrets.
"""

from __future__ import annotations

import base64
from collections import abc
import os
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects


class Entry:
    """A context, cluster or user, or a section of it.

    :ivar path: the file, in whose folder relative paths begin
    :ivar document: content of the file
    :param label: names the entry in messages
    :param fields: its content
    :raises: `errors.ConfigError`, as all methods do for a wrong value
    """

    def __init__(self, path: str, document: objects.Json, label: str,
                 fields: typing.Any) -> None:
        self.path = path
        self.document = document
        self._label = label
        if not isinstance(fields, dict):
            raise self.error('must have keys and values')
        self.fields: objects.Json = fields

    def error(self, problem: str) -> errors.ConfigError:
        """Make the exception for a problem of this entry."""
        return errors.ConfigError(
            f'Kubeconfig {self.path}: {self._label} {problem}')

    def section(self, key: str) -> Entry | None:
        """Return the keys and values below a key; None without them."""
        fields = self.fields.get(key)
        return fields and Entry(self.path, self.document,
                                f'{self._label}: {key}', fields)

    def text(self, key: str) -> str | None:
        """Return a text; None if it is empty."""
        value = self.fields.get(key)
        if not isinstance(value, str | None):
            raise self.error(f'needs a text as {key}: put it in quotes')
        return value or None

    def line(self, key: str) -> str | None:
        """Return a text for a header of HTTP."""
        value = self.text(key)
        if value and not (value.isascii() and value.isprintable()):
            raise self.error(f'needs a line of ASCII characters as {key}')
        return value

    def texts(self, key: str) -> list[str]:
        """Return a list of texts."""
        values = self.fields.get(key) or []
        if not isinstance(values, list) or not all(
                isinstance(value, str) for value in values):
            raise self.error(f'needs a list of texts as {key}: put them in '
                             'quotes')
        return values

    def entries(self, key: str, label: str) -> list[Entry]:
        """Return a list of entries.

        :param label: names each of them in messages
        """
        items = self.fields.get(key) or []
        if not isinstance(items, list):
            raise self.error(f'needs a list as {key}')
        return [Entry(self.path, {}, label, item) for item in items]

    def flag(self, key: str) -> bool:
        """Return a truth value; False without it."""
        value = self.fields.get(key) or False
        if not isinstance(value, bool):
            raise self.error(f'needs true or false as {key}')
        return value

    def file(self, key: str) -> str | None:
        """Return the absolute path of a file."""
        name = self.text(key)
        return name and os.path.join(
            os.path.dirname(os.path.abspath(self.path)), name)

    def pem(self, key: str) -> str | None:
        """Return the PEM text that is in KEY-data or in the file KEY."""
        data, path = self.text(f'{key}-data'), self.file(key)
        try:
            if data:
                return base64.b64decode(''.join(data.split()), validate=True
                                        ).decode('ascii')
            if path:
                with open(path) as f:
                    return f.read()
        except OSError as e:
            raise self.error(f'names a file as {key} that cannot be read: '
                             f'{path}: {e.strerror}') from None
        except ValueError:
            raise self.error(f'needs PEM as {key}, in {key}-data encoded '
                             'in base64') from None
        return None


class Merged:
    """Several kubeconfigs, in which the first that has a value wins.

    :param paths: the files
    :raises: `errors.ConfigError`
    """

    def __init__(self, paths: abc.Sequence[str]) -> None:
        self._where = f'Kubeconfig {os.pathsep.join(paths)}'
        self._current: str | None = None
        self._entries: dict[str, dict[str, Entry]] = {
            'context': {}, 'cluster': {}, 'user': {}}
        for path in paths:
            document = Entry(path, {}, 'it', _load(path))
            self._current = self._current or document.text('current-context')
            for kind, entries in self._entries.items():
                self._entries[kind] = _named(document, kind) | entries

    def context(self, name: str | None) -> tuple[str, Entry]:
        """Return a context and its name.

        :param name: None for the current context
        :raises: `errors.ConfigError`
        """
        name = name or self._current
        if not name:
            raise errors.ConfigError(
                f'{self._where} has no current context; name one of: '
                f"{self._names('context')}")
        return name, self.get('context', name)

    def get(self, kind: str, name: str | None) -> Entry:
        """Return an entry.

        :param kind: 'context', 'cluster' or 'user'
        :raises: `errors.ConfigError`
        """
        try:
            return self._entries[kind][name or '']
        except KeyError:
            raise errors.ConfigError(
                f"{self._where} has no {kind} {name or 'without a name'}; "
                f'there are: {self._names(kind)}') from None

    def _names(self, kind: str) -> str:
        return ', '.join(sorted(self._entries[kind])) or 'none'


def _load(path: str) -> typing.Any:
    import yaml     # not in a pod, which has a service account

    try:
        with open(path, 'rb') as f:
            # The C library is missing in some builds of PyYAML.
            return yaml.load(f, getattr(
                yaml, 'CSafeLoader', yaml.SafeLoader)) or {}
    except OSError as e:
        raise errors.ConfigError(
            f'Kubeconfig {path} cannot be read: {e.strerror}') from None
    except (yaml.YAMLError, ValueError) as e:
        mark = getattr(e, 'problem_mark', None)
        raise errors.ConfigError(
            f'Kubeconfig {path} is not valid YAML'
            + (f', see line {mark.line + 1}' if mark else '')) from None


def _named(document: Entry, kind: str) -> dict[str, Entry]:
    """Return the contexts, clusters or users of a file by their names."""
    entries: dict[str, Entry] = {}
    for named in document.entries(f'{kind}s', f'a {kind}'):
        name = named.text('name') or ''
        if name in entries:
            raise document.error(f'has several {kind}s with the name {name}')
        entries[name] = Entry(document.path, document.fields,
                              f'{kind} {name}', named.fields.get(kind) or {})
    return entries
