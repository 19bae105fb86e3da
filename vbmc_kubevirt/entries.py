# SPDX-License-Identifier: Apache-2.0
"""BMC entries of the daemon: one directory with a config file for each.

The format is virtualbmc's, so that entries made by ``vbmcd`` remain valid. In
addition, names are checked before they become directory names, and files are
readable by the daemon's user only, because they contain passwords.
"""

from __future__ import annotations

import configparser
import os
import shutil
import tempfile
import typing

from vbmc_kubevirt import upstream

#: Options of an entry: texts, but ``port`` is an int and ``active`` a bool.
Entry: typing.TypeAlias = dict[str, typing.Any]

#: Replaces the slash of ``namespace/name`` in directory names. Kubernetes
#: names contain no colon.
_SLASH = ':'


def port_number(text: str | int) -> int:
    """Parse a UDP port.

    :raises: ValueError
    """
    number = int(text)
    if not 0 < number < 65536:
        raise ValueError(f'{text} is not a valid port')
    return number


class Entries:
    """Config files of all entries.

    :param folder: path, ``config_dir`` of the daemon; created if missing
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def path(self, name: str) -> str:
        """Return the directory of an entry.

        :param name: ``domain_name`` as given to ``vbmc``
        :raises: `upstream.DomainNotFound` for an invalid name
        """
        first, slash, second = name.partition('/')
        parts = (first, second) if slash else (first,)
        if any(part in ('', '.', '..') or '/' in part or '\0' in part
               for part in parts) or slash and _SLASH in name:
            raise upstream.DomainNotFound(domain=name)
        return os.path.join(self.folder, _SLASH.join(parts))

    def names(self) -> list[str]:
        """Return the names of all entries, sorted."""
        names = []
        for folder in sorted(os.listdir(self.folder)):
            if os.path.isfile(os.path.join(self.folder, folder, 'config')):
                names.append(folder.replace(_SLASH, '/')
                             if self._has_namespace(folder) else folder)
        return names

    def _has_namespace(self, folder: str) -> bool:
        # A colon may also be part of a libvirt domain's name.
        config = self._read(os.path.join(self.folder, folder, 'config'))
        return '/' in config.get('domain_name', '')

    @staticmethod
    def _read(path: str) -> Entry:
        config = configparser.ConfigParser()
        try:
            if not config.read(path):
                return {}
            return dict(config.items(upstream.SECTION))
        except (configparser.Error, UnicodeDecodeError):
            return {}

    def load(self, name: str) -> Entry:
        """Read an entry.

        :raises: `upstream.DomainNotFound`, `upstream.VirtualBMCError`
        """
        path = os.path.join(self.path(name), 'config')
        if not os.path.exists(path):
            raise upstream.DomainNotFound(domain=name)
        entry = self._read(path)
        try:
            entry['port'] = port_number(entry['port'])
            entry['active'] = entry.get('active', '').lower() == 'true'
            entry['username'], entry['password'], entry['address']
        except (KeyError, ValueError) as exc:
            raise upstream.VirtualBMCError(
                f'Config file {path} is invalid: {exc}')
        entry['domain_name'] = name
        return entry

    def create(self, entry: Entry) -> None:
        """Store a new entry.

        :param entry: see `store`
        :raises: `upstream.VirtualBMCError` if the name exists
        """
        try:
            os.mkdir(self.path(entry['domain_name']), mode=0o700)
        except FileExistsError:
            raise upstream.VirtualBMCError(
                f"A BMC for {entry['domain_name']} already exists")
        try:
            self.store(entry)
        except BaseException:
            self.remove(entry['domain_name'])
            raise

    def store(self, entry: Entry) -> None:
        """Write an entry atomically, without the values that are None."""
        config = configparser.ConfigParser()
        config.add_section(upstream.SECTION)
        for option, value in entry.items():
            if value is not None:
                # Escape for interpolation, here and in upstream's reader.
                config.set(upstream.SECTION, option,
                           str(value).replace('%', '%%'))
        folder = self.path(entry['domain_name'])
        os.chmod(folder, 0o700)
        # NamedTemporaryFile creates the file with mode 0600.
        with tempfile.NamedTemporaryFile('w', dir=folder, delete=False) as f:
            try:
                config.write(f)
                f.flush()
                os.fsync(f.fileno())
                os.rename(f.name, os.path.join(folder, 'config'))
            except BaseException:
                os.unlink(f.name)
                raise

    def remove(self, name: str) -> None:
        """Delete an entry.

        :raises: `upstream.DomainNotFound`
        """
        try:
            shutil.rmtree(self.path(name))
        except FileNotFoundError:
            raise upstream.DomainNotFound(domain=name)
