# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
from unittest import mock

from oslotest import base

from vbmc_kubevirt.cmd import pod

SOUND = {'VIRTBMC_VM': 'lab/node-0', 'VIRTBMC_AUTH_FOLDER': '/etc/auth'}


class ReadTest(base.BaseTestCase):

    def test_the_least(self):
        settings = pod.read(SOUND)
        self.assertEqual(
            ('lab/node-0', '/etc/auth', '::', 6230, 8082),
            (settings.vm, settings.folder, settings.address, settings.port,
             settings.health_port))
        self.assertEqual('RerunOnFailure', settings.options.run_strategy)
        self.assertEqual(8, settings.options.write_deadline)
        self.assertEqual(300, settings.options.watch_seconds)
        self.assertTrue(settings.options.keeper)

    def test_all(self):
        settings = pod.read(dict(
            SOUND, POD_IP='10.0.0.7', VIRTBMC_PORT='623',
            VIRTBMC_HEALTH_PORT='0', VIRTBMC_RUN_STRATEGY='Manual'))
        self.assertEqual(('10.0.0.7', 623, 0, 'Manual'), (
            settings.address, settings.port, settings.health_port,
            settings.options.run_strategy))

    def test_what_cannot_be(self):
        for name, value in (
                ('VIRTBMC_VM', ''), ('VIRTBMC_VM', 'node-0'),
                ('VIRTBMC_VM', 'a/b/c'), ('VIRTBMC_VM', 'a/b\n'),
                ('VIRTBMC_VM', 'a/..'), ('VIRTBMC_AUTH_FOLDER', ''),
                ('VIRTBMC_PORT', '-1'), ('VIRTBMC_PORT', '65536'),
                ('VIRTBMC_HEALTH_PORT', 'x'),
                ('VIRTBMC_RUN_STRATEGY', 'Halted'),
                ('VIRTBMC_RUN_STRATEGY', 'once')):
            with self.assertRaisesRegex(pod.Invalid, name):
                pod.read(dict(SOUND, **{name: value}))


class MainTest(base.BaseTestCase):

    def main(self, *argv, environ=None):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err), \
                mock.patch.dict(pod.os.environ, environ or {}, clear=True):
            return pod.main(list(argv)), out.getvalue(), err.getvalue()

    def test_help(self):
        code, out, err = self.main('--help')
        self.assertEqual((0, ''), (code, err))
        for name in (*SOUND, 'POD_IP', 'VIRTBMC_PORT', 'VIRTBMC_HEALTH_PORT',
                     'VIRTBMC_RUN_STRATEGY'):
            self.assertIn(name, out)

    def test_version(self):
        code, out, err = self.main('--version')
        self.assertEqual((0, ''), (code, err))
        self.assertRegex(out, r'^sushy-kubevirt-ipmi \d+\.\d+')

    def test_other_options_there_are_none(self):
        code, out, err = self.main('--port', '1')
        self.assertEqual((2, ''), (code, out))
        self.assertIn('usage', err)

    def test_an_environment_that_is_wrong(self):
        code, out, err = self.main()
        self.assertEqual((2, ''), (code, out))
        self.assertIn('VIRTBMC_VM', err)
