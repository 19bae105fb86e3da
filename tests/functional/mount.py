# SPDX-License-Identifier: Apache-2.0
"""A Secret as a node mounts it into a pod."""

import os
import pathlib
import shutil

import fixtures


class Mount(fixtures.Fixture):
    """A folder of links that are all turned to new content at once.

    ``path`` is where it is.

    :param files: what it has at first, see :meth:`write`.
    """

    def __init__(self, **files):
        super().__init__()
        self.files = files
        self._number = 0

    def _setUp(self):
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'mount'
        self.path.mkdir()
        if self.files:
            self.write(**self.files)

    def write(self, **files):
        """Have these files and no others, as after a change of the Secret.

        :param files: dictionary of name, with ``_`` for a dot, and bytes.
        """
        files = {name.replace('_', '.'): data for name, data in files.items()}
        self._number += 1
        new = self.path / ('..2026_11_21_%d' % self._number)
        new.mkdir()
        for name, value in files.items():
            (new / name).write_bytes(value)
        data, turned = self.path / '..data', self.path / '..data_tmp'
        old = data.resolve() if data.is_symlink() else None
        turned.symlink_to(new.name)
        turned.rename(data)
        for name in files:
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to('..data/' + name)
        for name in os.listdir(self.path):
            if not name.startswith('..') and name not in files:
                (self.path / name).unlink()
        if old is not None:
            shutil.rmtree(old)
