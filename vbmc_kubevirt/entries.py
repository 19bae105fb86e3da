# SPDX-License-Identifier: Apache-2.0
"""The entries of a daemon: one folder with a config file for each BMC.

The format is virtualbmc's own, so that entries made by ``vbmcd`` go on
working. What is added: names that are safe as names of folders, and files
that nobody else can read, for they hold passwords.
"""

import configparser
import os
import shutil
import tempfile

from vbmc_kubevirt import upstream

#: What ``namespace/name`` has in place of the slash as a folder. No
#: Kubernetes name has a colon in it.
_SLASH = ':'


def port_number(text):
    """:raises: ValueError"""
    number = int(text)
    if not 0 < number < 65536:
        raise ValueError(f'{text} is no port')
    return number


class Entries:
    """The config files below a folder.

    :param folder: ``config_dir`` of the daemon; made if it is not there
    """

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def path(self, name):
        """The folder of an entry.

        :param name: ``domain_name``, as ``vbmc`` is given it
        :raises: `upstream.DomainNotFound`: no entry can have this name
        """
        first, slash, second = name.partition('/')
        parts = (first, second) if slash else (first,)
        if any(part in ('', '.', '..') or '/' in part or '\0' in part
               for part in parts) or slash and _SLASH in name:
            raise upstream.DomainNotFound(domain=name)
        return os.path.join(self.folder, _SLASH.join(parts))

    def names(self):
        """:returns: list of the names of all entries, sorted"""
        names = []
        for folder in sorted(os.listdir(self.folder)):
            if os.path.isfile(os.path.join(self.folder, folder, 'config')):
                names.append(folder.replace(_SLASH, '/')
                             if self._slashed(folder) else folder)
        return names

    def _slashed(self, folder):
        # A libvirt domain may have a colon in its name.
        config = self._read(os.path.join(self.folder, folder, 'config'))
        return '/' in config.get('domain_name', '')

    @staticmethod
    def _read(path):
        config = configparser.ConfigParser()
        try:
            if not config.read(path):
                return {}
            return dict(config.items(upstream.SECTION))
        except (configparser.Error, UnicodeDecodeError):
            return {}

    def load(self, name):
        """Read an entry.

        :returns: dict of strings, but ``port`` is an int and ``active`` a
            bool
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
                f'Config file {path} cannot be used: {exc}')
        entry['domain_name'] = name
        return entry

    def create(self, entry):
        """Store a new entry.

        :raises: `upstream.VirtualBMCError`: there is one of this name
        """
        try:
            os.mkdir(self.path(entry['domain_name']), mode=0o700)
        except FileExistsError:
            raise upstream.VirtualBMCError(
                f"There is a BMC for {entry['domain_name']} already")
        try:
            self.store(entry)
        except BaseException:
            self.remove(entry['domain_name'])
            raise

    def store(self, entry):
        """Write an entry, whole or not at all.

        :param entry: dict; values that are None are left out
        """
        config = configparser.ConfigParser()
        config.add_section(upstream.SECTION)
        for option, value in entry.items():
            if value is not None:
                # Whoever reads it, here or upstream, interpolates.
                config.set(upstream.SECTION, option,
                           str(value).replace('%', '%%'))
        folder = self.path(entry['domain_name'])
        os.chmod(folder, 0o700)
        # Made with mode 0600.
        with tempfile.NamedTemporaryFile('w', dir=folder, delete=False) as f:
            try:
                config.write(f)
                f.flush()
                os.fsync(f.fileno())
                os.rename(f.name, os.path.join(folder, 'config'))
            except BaseException:
                os.unlink(f.name)
                raise

    def remove(self, name):
        """Delete an entry.

        :raises: `upstream.DomainNotFound`
        """
        try:
            shutil.rmtree(self.path(name))
        except FileNotFoundError:
            raise upstream.DomainNotFound(domain=name)
