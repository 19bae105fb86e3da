# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import pathlib
import tempfile
import unittest

from kubevirt_sandbox import cmd


class CommandLineTestCase(unittest.TestCase):

    def usage_error(self, *words):
        message = io.StringIO()
        with contextlib.redirect_stderr(message), self.assertRaises(
                SystemExit) as caught:
            cmd.main(words)
        self.assertEqual(2, caught.exception.code, words)
        return message.getvalue()

    def test_rejects_invalid_options(self):
        with tempfile.TemporaryDirectory() as home:
            path = pathlib.Path(home) / 'kubeconfig'
            for words, why in (
                    (['--listen', '0.0.0.0:0'], '--allow-remote'),
                    (['--listen', '[::]:0'], '--allow-remote'),
                    (['--listen', '192.0.2.1:6443'], '--allow-remote'),
                    (['--listen', 'nowhere'], 'ADDRESS:PORT'),
                    (['--listen', 'example.test:1'], 'no IP address'),
                    (['--listen', '127.0.0.1:99999'], 'ADDRESS:PORT'),
                    (['--vms', '-1'], 'not a count'),
                    (['--vms', 'x'], 'not a count'),
                    (['--boot-seconds', 'x'], 'not a time'),
                    (['--boot-seconds', 'nan'], 'not a time'),
                    (['--boot-seconds', '-1'], 'not a time')):
                message = self.usage_error('--kubeconfig', str(path), *words)
                self.assertIn(why, message.replace('is not an', 'no'), words)
            self.assertFalse(path.exists())
        self.assertIn('--kubeconfig', self.usage_error())

    def test_parses_options(self):
        options = cmd.parser().parse_args([
            '--kubeconfig', 'x', '--listen', 'localhost:0', '--gates',
            'A, B,', '--vms', '3', '--boot-seconds', '0.5'])
        self.assertEqual((('127.0.0.1', 0), ['A', 'B'], 3, 0.5), (
            options.listen, options.gates, options.vms,
            options.boot_seconds))
        options = cmd.parser().parse_args([
            '--kubeconfig', 'x', '--listen', '[::1]:6443', '--gates', ''])
        self.assertEqual((('::1', 6443), []), (options.listen,
                                               options.gates))


class DocumentsTestCase(unittest.TestCase):

    def test_every_option_is_documented(self):
        text = (pathlib.Path(__file__).parents[2]
                / 'doc/source/usage.rst').read_text()
        for action in cmd.parser()._actions:
            for option in action.option_strings:
                if option.startswith('--') and option != '--help':
                    # As the term of a definition.
                    self.assertRegex(text, rf'(?m)^``{option}[` ]')
