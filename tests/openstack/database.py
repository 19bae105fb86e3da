# SPDX-License-Identifier: Apache-2.0
"""MariaDB as a fixture, with the schemas of all services.

It listens on a socket in a folder of this user only, and asks for no password.

To make the schemas takes a minute of CPU time. The server's files with empty
tables are therefore kept in the cache of `tests.fixtures.environments`, and
copied.
"""

import os
import pathlib
import subprocess
import tempfile

import fixtures

from kubevirt_sandbox.testing import process
from tests.fixtures import environments

#: The server, and what makes its system tables; Debian has the former in a
#: folder that is not in everybody's PATH.
SERVER = '/usr/sbin/mariadbd'
INSTALL = '/usr/bin/mariadb-install-db'

# Without it, MariaDB refuses to run as root. USER and LOGNAME in the
# environment may name another user.
_USER = () if os.geteuid() else ('--user=root',)

# Contents are lost if the machine crashes, so nothing waits for a disk.
_OPTIONS = ('--skip-networking', '--skip-log-bin', '--skip-innodb-doublewrite',
            '--innodb-flush-log-at-trx-commit=0', '--max-connections=400',
            '--innodb-buffer-pool-size=128M', '--innodb-log-file-size=16M',
            '--performance-schema=OFF', '--character-set-server=utf8mb4')


class Database(fixtures.Fixture):
    """A running MariaDB.

    :param files: folder with its files
    """

    def __init__(self, files):
        super().__init__()
        self._files = pathlib.Path(files)
        self._socket = self._files / 'socket'

    def _setUp(self):
        self.process = self.useFixture(process.Process(
            [SERVER, '--no-defaults', *_USER,
             f'--datadir={self._files}', f'--socket={self._socket}',
             f"--pid-file={self._files / 'pid'}", *_OPTIONS],
            ready=r'ready for connections', grace=30,
            env=process.environment(self._files)))

    def url(self, name):
        """Return the URL of a database, as SQLAlchemy has it."""
        return (f'mysql+pymysql://root@localhost/{name}'
                f'?unix_socket={self._socket}&charset=utf8mb4')

    def create(self, names):
        """Create empty databases."""
        subprocess.run(
            ['mariadb', '--no-defaults', '--user=root',
             f'--socket={self._socket}', '--execute',
             '; '.join(f'CREATE DATABASE {name}' for name in names)],
            stdin=subprocess.DEVNULL, check=True, timeout=60)


def template(name, fill):
    """Return the files of a server that has been filled.

    :param name: of what it is filled with; another for other contents
    :param fill: function of a running `Database`, called if there is none
    :returns: :class:`pathlib.Path` of a folder to copy
    """
    with environments.locked(name):
        folder = environments.CACHE / name
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                files = pathlib.Path(made, 'files')
                _install(files)
                with Database(files) as database:
                    fill(database)
                files.rename(folder)
        return folder


def _install(files):
    subprocess.run(
        [INSTALL, '--no-defaults', *_USER,
         f'--datadir={files}', '--auth-root-authentication-method=normal',
         '--skip-test-db', *_OPTIONS], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, check=True, timeout=120)
