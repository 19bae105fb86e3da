# SPDX-License-Identifier: Apache-2.0
"""The shared folder: location, owner, permissions, removal."""

import os
import pathlib
import signal
import subprocess
import sys

import fixtures
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.services import shared_directory


class SharedDirectoryTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.base = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.config = {'SUSHY_EMULATOR_STATE_DIR': str(self.base)}

    def folder(self, **config):
        found = shared_directory.SharedDirectory({**self.config, **config})
        self.addCleanup(found.close)
        return found

    def test_configuration_determines_folder(self):
        one, two = self.folder(), self.folder()
        self.assertEqual(one.make(), two.make())
        self.assertEqual(self.base, one.path.parent)
        self.assertEqual(0o700, one.path.stat().st_mode & 0o777)
        other = self.folder(SUSHY_EMULATOR_KUBEVIRT_VM='default/a')
        self.assertNotEqual(one.path, other.path)
        self.assertEqual(one.path, self.folder(SUSHY_EMULATOR_X=1).path)

    def test_child_process_can_make_folder_while_parent_held_lock(self):
        folder = self.folder()
        with folder._lock:
            if not (pid := os.fork()):
                code = 1
                try:
                    signal.alarm(20)    # no endless wait
                    folder.make()
                    code = 0
                finally:
                    os._exit(code)
        self.assertEqual(0, os.waitpid(pid, 0)[1])
        self.assertTrue(folder.path.is_dir())

    def test_path_does_not_depend_on_order_of_sets(self):
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

    def test_defaults_to_temporary_directory(self):
        self.useFixture(fixtures.MonkeyPatch(
            'tempfile.tempdir', str(self.base)))
        folder = shared_directory.SharedDirectory({})
        self.addCleanup(folder.close)
        self.assertEqual(self.base, folder.make().parent)

    def test_creates_parents(self):
        folder = self.folder(
            SUSHY_EMULATOR_STATE_DIR=str(self.base / 'a' / 'b'))
        self.assertTrue(folder.make().is_dir())

    def assert_rejected(self, words):
        exc = self.assertRaises(errors.ConfigError, self.folder().make)
        self.assertIn(words, str(exc))
        self.assertIn('SUSHY_EMULATOR_STATE_DIR', str(exc))

    def test_rejects_symlink(self):
        target = self.base / 'target'
        target.mkdir(mode=0o700)
        self.folder().path.symlink_to(target)
        self.assert_rejected('is not a folder of this user alone')

    def test_rejects_file(self):
        self.folder().path.write_text('')
        self.assert_rejected('is not a folder of this user alone')

    def test_rejects_folder_that_others_can_open(self):
        self.folder().path.mkdir()
        self.folder().path.chmod(0o755)
        self.assert_rejected('is not a folder of this user alone')

    def test_rejects_folder_of_another_user(self):
        me = os.geteuid()
        self.useFixture(fixtures.MockPatch('os.geteuid', lambda: me + 1))
        # The new folder belongs to the real user.
        self.assert_rejected('is not a folder of this user alone')

    def test_rejects_parent_that_all_users_can_write(self):
        self.base.chmod(0o777)
        self.assert_rejected('All users can replace')
        self.base.chmod(0o1777)
        self.folder().make()

    def test_error_when_folder_cannot_be_created(self):
        (self.base / 'file').write_text('')
        self.config['SUSHY_EMULATOR_STATE_DIR'] = str(self.base / 'file')
        self.assert_rejected('cannot be made')

    def test_recreates_removed_folder(self):
        folder = self.folder()
        folder.make().rmdir()
        self.assertTrue(folder.make().is_dir())

    def test_removes_old_unused_folders(self):
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
