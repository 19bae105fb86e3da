# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from kubevirt_sandbox import qemu
from kubevirt_sandbox.qemu import host


class SettingsTestCase(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        patch = mock.patch.dict(os.environ, PATH=folder.name)
        patch.start()
        self.addCleanup(patch.stop)

    def program(self, name, text='exit 0'):
        path = self.home / name
        path.write_text(f'#!/bin/sh\n{text}\n')
        path.chmod(0o700)

    def test_names_missing_program(self):
        with self.assertRaisesRegex(qemu.SettingsError,
                                    'qemu-system-x86_64 is not installed'):
            host.find()
        self.program(host.PROGRAM)
        with self.assertRaisesRegex(qemu.SettingsError, 'setpriv'):
            host.find()

    def test_images_must_exist(self):
        self.program(host.PROGRAM)
        self.program('setpriv')
        with self.assertRaisesRegex(qemu.SettingsError,
                                    'image x/y:1: there is no file'):
            host.find('tcg', images={'x/y:1': str(self.home / 'no')})
        image = self.home / 'image'
        image.touch()
        found = host.find('tcg', images={'x/y:1': str(image)})
        self.assertEqual({'x/y:1': str(image)}, found.images)
        self.assertEqual('tcg', found.accelerator)

    def test_uses_kvm_if_it_works(self):
        """It works if QEMU can create a virtual CPU."""
        self.program('setpriv')
        device = mock.patch.object(os, 'access', return_value=True)
        for text, accelerator in (('exit 0', 'kvm'),
                                  ('echo no MSR >&2; exit 6', 'tcg')):
            self.program(host.PROGRAM, text)
            with device:
                self.assertEqual(accelerator,
                                 host.find('auto').accelerator)
        with device, self.assertRaisesRegex(qemu.SettingsError,
                                            'KVM does not work.*no MSR'):
            host.find('kvm')
        with mock.patch.object(os, 'access', lambda path, mode:
                               path != '/dev/kvm'):
            self.assertEqual('tcg', host.find('auto').accelerator)
