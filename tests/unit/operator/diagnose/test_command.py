# SPDX-License-Identifier: Apache-2.0
"""The command line of ``diagnose``, its output and its exit status."""

import contextlib
import io
import json
import os
from unittest import mock

from oslotest import base

from sushy_kubevirt.cmd import operator
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator.diagnose import command
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator.diagnose import kinds
from sushy_kubevirt.operator.diagnose import manifests
from tests.unit.operator import bodies
from tests.unit.operator.diagnose import fakes


class Connection:
    server, namespace = 'https://api.test', 'lab'

    @classmethod
    def from_options(cls, kubeconfig=None, context=None):
        if kubeconfig == 'none':
            raise errors.ConfigError('The kubeconfig none does not exist')
        return cls()


class CommandTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.client = fakes.Client()
        for name, value in (('connection.Connection', Connection),
                            ('client.Client', lambda *args: self.client)):
            patch = mock.patch('sushy_kubevirt.kube.' + name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def diagnose(self, *words):
        """Run the command.

        :returns: exit status, standard output, standard error
        """
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = operator.main(['diagnose', *words])
            except SystemExit as e:
                code = e.code
        return code, out.getvalue(), err.getvalue()

    def found(self, *words):
        code, out, _ = self.diagnose('--output=json', *words)
        self.data = json.loads(out)
        return code, {one['reason'] for one in self.data['findings']}

    def test_text(self):
        code, out, err = self.diagnose()
        self.assertEqual(1, code)
        self.assertEqual(
            'sushy-kubevirt-operator diagnose, version '
            f'{command_line.version()}, of https://api.test',
            out.splitlines()[0])
        self.assertIn('ok        Kubernetes: The version is v1.34.4.\n', out)
        self.assertIn('\nproblem   Definition: ', out)
        self.assertIn('\n          -> Apply the manifests ', out)
        self.assertRegex(out, r'\n\d+ problems?, \d+ warnings?, \d+ not '
                              r'checked, \d+ ok\n$')
        self.assertIn('rights of sushy-kubevirt-system/', err)

    def test_json(self):
        code, reasons = self.found()
        self.assertEqual(1, code)
        self.assertIn('DefinitionMissing', reasons)
        # Nothing is asked of a kind that is not served.
        self.assertNotIn('BMCsListed', reasons)
        self.assertEqual('https://api.test', self.data['server'])
        self.assertEqual(
            {'area', 'status', 'reason', 'message', 'remedy'},
            set(self.data['findings'][0]))
        self.assertEqual(len(self.data['findings']),
                         sum(self.data['summary'].values()))

    def test_server_does_not_answer(self):
        def fail():
            raise errors.Unavailable('The API server does not answer')
        self.client.version = fail
        code, reasons = self.found()
        self.assertEqual((1, {'NotAnswered'}), (code, reasons))

    def test_kind_that_fails_stops_no_other_check(self):
        self.client.denied.add(kinds.STORAGE_CLASS)

        def fail(group):
            raise errors.ServerError('not now')
        self.client.serves_group = fail
        code, reasons = self.found()
        self.assertEqual(1, code)
        self.assertLessEqual(
            {'NotAnswered', 'NotChecked', 'PolicyMissing'}, reasons)

    def test_time_is_over(self):
        with mock.patch('time.monotonic', side_effect=range(0, 9999, 5)):
            code, out, _ = self.diagnose('--timeout', '30')
        self.assertIn('the time for all checks is over; see --timeout', out)

    def test_unexpected_object_stops_no_other_check(self):
        self.client.put(kinds.STORAGE_CLASS, {'metadata': {
            'name': 'secret', 'annotations': 'secret'}})
        code, out, _ = self.diagnose()
        self.assertRegex(out, r'AttributeError in\s+sushy_kubevirt\.operator\.'
                              r'diagnose\.storage\.default_class\.\n')
        self.assertIn('bug of sushy-kubevirt: report it', out)
        self.assertNotIn("'secret'", out)
        self.assertIn('Policies: Not installed', out)

    def test_package_without_manifests(self):
        def fail(path):
            raise manifests.Missing('the manifest x is not there')
        with mock.patch.object(manifests, 'read', fail):
            self.found()
        [found] = [one for one in self.data['findings']
                   if one['area'] == 'Policies']
        self.assertEqual(
            ('unknown', 'Not checked: the manifest x is not there.',
             manifests.Missing.remedy),
            (found['status'], found['message'], found['remedy']))

    def test_exit_status(self):
        warning = findings.warning('B', 'c')
        for one, status in ((warning, 0), (findings.unknown('c'), 0),
                            (findings.ok('B', 'c'), 0),
                            (findings.problem('B', 'c'), 1)):
            with mock.patch.object(
                    command.Run, 'cluster',
                    lambda self, *args, one=one: self._add('A', one)):
                self.assertEqual(status, self.diagnose()[0])

    def test_name_of_the_bmc(self):
        self.client.put(kinds.DEFINITION, fakes.named(
            'virtualmachinebmcs.bmc.kubevirt.io', spec={'versions': []}))
        for words, expected in (
                (('node',), 'BMC lab/node'),
                (('far/node',), 'BMC far/node'),
                (('node', '--namespace', 'far'), 'BMC far/node')):
            self.assertIn('BMCNotFound', self.found(*words)[1])
            self.assertEqual(expected, self.data['findings'][-1]['area'])

    def test_a_bmc(self):
        self.client.put(kinds.DEFINITION, fakes.named(
            'virtualmachinebmcs.bmc.kubevirt.io', spec={'versions': []}))
        self.client.put(fakes.BMC, bodies.body(virtualMedia={
            'storageClassName': 'fast'}))
        code, reasons = self.found('node')
        self.assertEqual(1, code)
        self.assertLessEqual(
            {'NotManaged', 'VirtualMachineNotFound', 'AccountMissing',
             'StorageClassMissing'}, reasons)

    def test_wrong_words(self):
        for words in (['Node'], ['a/b/c'], ['a', 'b'], ['--timeout=0'],
                      ['--output=xml'], ['--namespace=A']):
            code, out, err = self.diagnose(*words)
            self.assertEqual((2, ''), (code, out))
            self.assertIn('sushy-kubevirt-operator diagnose: error:', err)

    def test_no_kubeconfig(self):
        self.assertEqual(
            (1, '', 'sushy-kubevirt-operator diagnose: The kubeconfig none '
             'does not exist\n'), self.diagnose('--kubeconfig', 'none'))

    def test_interrupted(self):
        with mock.patch.object(command.Run, 'cluster',
                               side_effect=KeyboardInterrupt):
            code, out, err = self.diagnose('--output=json')
        self.assertEqual((130, ''), (code, out))
        self.assertEqual('sushy-kubevirt-operator diagnose: interrupted\n',
                         err)

    def test_output_that_is_not_read(self):
        for words in (), ('--output=json',):
            reading, writing = os.pipe()
            os.close(reading)
            err = io.StringIO()
            # Closing it writes what is buffered.
            with (open(writing, 'w') as out, contextlib.redirect_stdout(out),
                  contextlib.redirect_stderr(err)):
                code = operator.main(['diagnose', *words])
            self.assertEqual(141, code)
            self.assertNotIn('Broken', err.getvalue())

    def test_help(self):
        code, out, _ = self.diagnose('--help')
        self.assertEqual(0, code)
        for word in ('[NAMESPACE/]BMC', '--output', '--timeout',
                     '--system-namespace', 'Changes nothing.'):
            self.assertIn(word, out)


class TextTestCase(base.BaseTestCase):

    def test_summary(self):
        one = [findings.problem('B', 'c'), findings.warning('B', 'c')]
        self.assertEqual('1 problem, 1 warning, 0 not checked, 0 ok',
                         findings.summary(one))
        self.assertEqual('2 problems, 2 warnings, 0 not checked, 0 ok',
                         findings.summary(one * 2))
        self.assertTrue(findings.summary([]).startswith(
            '0 problems, 0 warnings, '))

    def test_lines_are_wrapped(self):
        found = findings.text(findings.warning(
            'Reason', 'word ' * 30, 'remedy ' * 20, 'Area'))
        lines = found.splitlines()
        self.assertTrue(lines[0].startswith('warning   Area: word word'))
        self.assertEqual([], [one for one in lines if len(one) > 79])
        self.assertEqual(1, found.count('->'))
        self.assertTrue(all(one.startswith(' ' * 10) for one in lines[1:]))

    def test_terminal_is_not_controlled(self):
        for one in '\x1b', '\x07', '\x9b', '\x7f', '\u202e', '\ud800':
            found = findings.text(findings.problem(
                'Reason', f'a{one}[2J\nb', f'c{one}d\u2028e', 'Area'))
            self.assertEqual('problem   Area: a\ufffd[2J b\n'
                             '          -> c\ufffdd e', found)
            self.assertEqual(one, json.loads(findings.as_json([
                findings.ok('Reason', one)], {}))['findings'][0][
                    'message'])

    def test_endless_message(self):
        found = findings.text(findings.ok('Reason', 'ab ' * 100000))
        self.assertLess(len(found), 3000)
        self.assertTrue(found.endswith(' …'))
