# SPDX-License-Identifier: Apache-2.0
"""Files that commands write."""

import os
import pathlib
import stat
import tempfile

from oslotest import base

from sushy_kubevirt.cluster.commands import files


class FilesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_file_is_replaced(self):
        path = self.folder / 'file'
        path.write_text('old')
        path.chmod(0o644)
        files.write(str(path), 'new', files.PRIVATE)
        self.assertEqual(('new', 0o600), (
            path.read_text(), stat.S_IMODE(path.stat().st_mode)))
        self.assertEqual([path], list(self.folder.iterdir()))

    def test_link_stays(self):
        path, link = self.folder / 'file', self.folder / 'link'
        link.symlink_to('file')
        for text in 'one', 'two':
            files.write(str(link), text, files.PRIVATE)
            self.assertEqual((text, True),
                             (path.read_text(), link.is_symlink()))

    def test_pipe_stays(self):
        """As does /dev/stdout, for root, too."""
        path = self.folder / 'pipe'
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        files.write(str(path), 'new', files.PRIVATE)
        self.assertEqual(b'new', os.read(reader, 10))
        self.assertTrue(path.is_fifo())

    def test_folder(self):
        self.assertRaises(IsADirectoryError, files.write, str(self.folder),
                          'new', files.PRIVATE)
