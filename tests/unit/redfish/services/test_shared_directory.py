# SPDX-License-Identifier: Apache-2.0
"""The shared folder: location, owner, permissions, removal."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading

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

    def fork(self, call):
        """Start a child process that calls a function and exits.

        :returns: function that waits for it and returns its exit status
        """
        if not (pid := os.fork()):
            code = 1
            try:
                signal.alarm(20)    # no endless wait
                call()
                code = 0
            finally:
                os._exit(code)
        return lambda: os.waitpid(pid, 0)[1]

    def test_last_process_removes_folder(self):
        one, two = self.folder(), self.folder()
        (one.make() / 'file').write_text('')
        two.make()
        one.close()
        self.assertTrue(two.path.is_dir())
        two.close()
        self.assertEqual([], list(self.base.iterdir()))
        # What runs until the end of the process does not make it again.
        two.make()
        self.assertEqual([], list(self.base.iterdir()))

    def test_processes_that_end_at_the_same_time(self):
        for _ in range(10):
            folders = [self.folder() for _ in range(4)]
            for folder in folders:
                folder.make()
            threads = [threading.Thread(target=folder.close)
                       for folder in folders]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
            self.assertEqual([], list(self.base.iterdir()))

    def worker(self):
        """Start a worker of a server, which is this process.

        :returns: function that ends it
        """
        made, end = os.pipe(), os.pipe()

        def work():
            folder = shared_directory.SharedDirectory(self.config)
            folder.make()
            os.write(made[1], b'.')
            os.read(end[0], 1)
            folder.close()

        wait = self.fork(work)
        os.read(made[0], 1)

        def stop():
            os.write(end[1], b'.')
            self.assertEqual(0, wait())

        for descriptor in made + end:
            self.addCleanup(os.close, descriptor)
        return stop

    def test_folder_survives_worker_that_is_replaced(self):
        with socket.create_server(('127.0.0.1', 0)):
            for _ in range(2):
                stop = self.worker()
                stop()
                self.assertEqual(1, len(list(self.base.iterdir())))
            stop = self.worker()
        # The server ends.
        stop()
        self.assertEqual([], list(self.base.iterdir()))

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

    def test_removes_folders_of_crashed_processes(self):
        held = self.folder(SUSHY_EMULATOR_KUBEVIRT_VM='default/held')
        crashed = self.folder(SUSHY_EMULATOR_KUBEVIRT_VM='default/crashed')
        (held.make() / 'file').write_text('')

        def crash():
            (crashed.make() / 'file').write_text('')
            os.kill(os.getpid(), signal.SIGKILL)

        self.assertEqual(signal.SIGKILL, self.fork(crash)())
        self.assertTrue(crashed.path.is_dir())
        (self.base / 'foreign').mkdir()
        new = self.folder().make()
        self.assertEqual({held.path, new, self.base / 'foreign'},
                         set(self.base.iterdir()))
