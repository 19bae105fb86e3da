# SPDX-License-Identifier: Apache-2.0
"""The shared folder: whose it is, where, and how long."""

import os
import pathlib
import signal
import subprocess
import sys

import fixtures
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.services import shared_directory


class TestFolder(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.base = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.config = {'SUSHY_EMULATOR_STATE_DIR': str(self.base)}

    def folder(self, **config):
        found = shared_directory.SharedDirectory({**self.config, **config})
        self.addCleanup(found.close)
        return found

    def test_same_configuration_same_folder(self):
        one, two = self.folder(), self.folder()
        self.assertEqual(one.make(), two.make())
        self.assertEqual(self.base, one.path.parent)
        self.assertEqual(0o700, one.path.stat().st_mode & 0o777)
        other = self.folder(SUSHY_EMULATOR_KUBEVIRT_VM='default/a')
        self.assertNotEqual(one.path, other.path)
        self.assertEqual(one.path, self.folder(SUSHY_EMULATOR_X=1).path)

    def test_a_thread_of_the_parent_was_making_it(self):
        folder = self.folder()
        with folder._lock:
            if not (pid := os.fork()):
                code = 1
                try:
                    signal.alarm(20)    # instead of for ever
                    folder.make()
                    code = 0
                finally:
                    os._exit(code)
        self.assertEqual(0, os.waitpid(pid, 0)[1])
        self.assertTrue(folder.path.is_dir())

    def test_sets_have_no_order(self):
        script = (
            'from sushy_kubevirt.redfish.services import shared_directory\n'
            'print(shared_directory.SharedDirectory({'
            '"SUSHY_EMULATOR_ALLOWED_INSTANCES": set("abcdefgh")}).path)'
        )
        paths = {subprocess.run(
            [sys.executable, '-c', script], check=True, text=True,
            stdout=subprocess.PIPE,
            env={**os.environ, 'PYTHONHASHSEED': seed}).stdout
            for seed in ('1', '2', '3')}
        self.assertEqual(1, len(paths))

    def test_temporary(self):
        self.useFixture(fixtures.MonkeyPatch(
            'tempfile.tempdir', str(self.base)))
        folder = shared_directory.SharedDirectory({})
        self.addCleanup(folder.close)
        self.assertEqual(self.base, folder.make().parent)

    def test_made_with_its_parents(self):
        folder = self.folder(
            SUSHY_EMULATOR_STATE_DIR=str(self.base / 'a' / 'b'))
        self.assertTrue(folder.make().is_dir())

    def refused(self, words):
        exc = self.assertRaises(errors.ConfigError, self.folder().make)
        self.assertIn(words, str(exc))
        self.assertIn('SUSHY_EMULATOR_STATE_DIR', str(exc))

    def test_symlink(self):
        target = self.base / 'target'
        target.mkdir(mode=0o700)
        self.folder().path.symlink_to(target)
        self.refused('is not a folder of this user alone')

    def test_file(self):
        self.folder().path.write_text('')
        self.refused('is not a folder of this user alone')

    def test_open_to_others(self):
        self.folder().path.mkdir()
        self.folder().path.chmod(0o755)
        self.refused('is not a folder of this user alone')

    def test_someone_elses(self):
        me = os.geteuid()
        self.useFixture(fixtures.MockPatch('os.geteuid', lambda: me + 1))
        # It is made, and turns out to be that of the true user.
        self.refused('is not a folder of this user alone')

    def test_anybody_may_write_beside_it(self):
        self.base.chmod(0o777)
        self.refused('All users can replace')
        self.base.chmod(0o1777)
        self.folder().make()

    def test_cannot_be_made(self):
        (self.base / 'file').write_text('')
        self.config['SUSHY_EMULATOR_STATE_DIR'] = str(self.base / 'file')
        self.refused('cannot be made')

    def test_made_again(self):
        folder = self.folder()
        folder.make().rmdir()
        self.assertTrue(folder.make().is_dir())

    def test_left_over(self):
        held = self.folder(SUSHY_EMULATOR_KUBEVIRT_VM='default/held')
        left = self.folder(SUSHY_EMULATOR_KUBEVIRT_VM='default/left')
        new = self.folder(SUSHY_EMULATOR_KUBEVIRT_VM='default/new')
        for one in held, left, new:
            (one.make() / 'file').write_text('')
        left.close()
        new.close()
        for one in held, left:
            os.utime(one.path, (0, 0))
        foreign = self.base / 'foreign'
        foreign.mkdir()
        os.utime(foreign, (0, 0))
        self.folder().make()
        self.assertEqual(
            [True, False, True, True],
            [one.exists() for one in (held.path, left.path, new.path,
                                      foreign)])
