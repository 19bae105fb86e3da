# SPDX-License-Identifier: Apache-2.0
"""What the process does with kopf, and what ends it."""

import asyncio
import json
import subprocess
import sys
import unittest
from unittest import mock

import kopf
from oslotest import base

from sushy_kubevirt.cmd import operator
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import options
from sushy_kubevirt.operator import running


class Work:
    """Registers nothing, and is never ready."""

    def __init__(self):
        self.listed = asyncio.Event()

    def register(self, registry):
        pass


class RunningTestCase(base.BaseTestCase):

    def test_kopf_is_small(self):
        settings = running._settings()
        self.assertTrue(settings.scanning.disabled)
        self.assertFalse(settings.posting.enabled)
        self.assertTrue(settings.peering.standalone)

    def definition(self, namespaces, rounds):
        """Ask for the definition.

        :param rounds: what is denied in each
        :returns: what is left out, and how many rounds that took
        """
        asked = []

        class Api:
            async def served(self, resource, namespace):
                if not asked or namespace in asked[-1]:
                    asked.append([])
                asked[-1].append(namespace)
                answer = rounds[len(asked) - 1].get(namespace)
                if answer:
                    raise answer(namespace)

        async def main():
            operator = running.Operator(
                options.Options(namespaces=namespaces), connection.Connection(
                    lambda: connection.Access('http://127.0.0.1:1')))
            return await operator._definition(Api())

        with mock.patch.object(running, 'DEFINITION_SECONDS', 0):
            return asyncio.run(main()), len(asked)

    def test_a_namespace_that_is_gone_does_not_keep_others_waiting(self):
        denied, away = errors.AccessDenied, errors.Unavailable
        for namespaces, rounds, left_out, many in (
                ((), [{}], set(), 1),
                ((), [{None: denied}, {None: away}, {}], set(), 3),
                (('a', 'b'), [{}], set(), 1),
                # Rights may be a moment late.
                (('a', 'b'), [{'b': denied}, {}], set(), 2),
                (('a', 'b'), [{'b': denied}] * 2, {'b'}, 2),
                (('a', 'b', 'c'), [{'b': denied}, {'c': denied}] + [
                    {'a': denied, 'c': denied}] * 2, {'a', 'c'}, 4),
                (('a', 'b'), [{'b': away}, {'b': denied}] + [
                    {'b': denied}], {'b'}, 3),
                # Never all: that would be another operator.
                (('a', 'b'), [{'a': denied, 'b': denied}] * 3 + [{}],
                 set(), 4),
                (('a',), [{'a': denied}] * 3 + [{}], set(), 4)):
            with self.subTest(namespaces=namespaces, rounds=rounds):
                self.assertEqual((left_out, many),
                                 self.definition(namespaces, rounds))

    def test_a_namespace_that_is_back_is_told_of(self):
        class Api:
            async def watch(self, resource, namespace, metadata_only):
                yield 'LISTED', set()

        e = self.assertRaises(
            errors.MachineError, asyncio.run, running._readable(Api(), 'lab'))
        self.assertIn('Namespace lab can be read now', str(e))

    def run_with(self, beside, **told):
        """Have kopf run beside something that never ends by itself."""
        given = {}

        async def spawn(**more):
            given.update(more)
            return more['stop_flag']

        async def run(flag, ignored):
            async with asyncio.timeout(30):
                await flag.wait()

        async def main():
            operator = running.Operator(
                options.Options(**told), connection.Connection(
                    lambda: connection.Access('http://127.0.0.1:1')))
            operator._work = Work()
            tasks = [asyncio.create_task(one(operator)) for one in beside]
            try:
                await operator._run_kopf(tasks)
            finally:
                self.assertTrue(all(task.done() for task in tasks))

        with (mock.patch.object(kopf, 'spawn_tasks', spawn),
              mock.patch.object(kopf, 'run_tasks', run)):
            asyncio.run(main())
        return given

    async def stop(self, operator):
        operator._stopping.set()
        await asyncio.sleep(100)

    async def sleep(self, operator):
        await asyncio.sleep(100)

    async def fail(self, operator):
        raise KeyError('a mistake')

    def test_it_is_told_to_end(self):
        given = self.run_with([self.stop, self.sleep])
        self.assertEqual(((), True), (given['namespaces'],
                                      given['clusterwide']))
        given = self.run_with([self.stop], namespaces=('a', 'b'))
        self.assertEqual((('a', 'b'), False), (given['namespaces'],
                                               given['clusterwide']))

    def test_it_does_not_go_on_blind(self):
        self.assertRaises(KeyError, self.run_with, [self.sleep, self.fail])


class CommandTestCase(base.BaseTestCase):

    @unittest.skipIf(sys.version_info >= (3, 12),
                     'json has a limit of its own, which nobody can move')
    def test_whatever_an_api_server_takes_can_be_read(self):
        # Anybody may nest managedFields as deep; kopf reads those of BMCs.
        done = subprocess.run([sys.executable, '-c', (
            'import asyncio, copy, json\n'
            'from sushy_kubevirt.cmd import operator\n'
            'running = operator._running()\n'
            'class Operator:\n'
            '    def __init__(self, *_):\n'
            '        pass\n'
            '    async def run(self):\n'
            '        json.dumps(copy.deepcopy(json.loads(\n'
            "            '{\"f:a\":' * 9999 + '1' + '}' * 9999)))\n"
            'running.Operator = Operator\n'
            'asyncio.run(running.run(None, None))\n')],
            capture_output=True, text=True, timeout=60)
        self.assertEqual((0, ''), (done.returncode, done.stderr))

    def test_the_kubernetes_client_is_not_loaded(self):
        # Though it is installed where the tests are.
        done = subprocess.run([sys.executable, '-c', (
            'import sys; from sushy_kubevirt.cmd import operator; '
            'operator._running(); print([name for name in sys.modules '
            'if name.partition(".")[0] == "kubernetes"]); '
            'import kubernetes')], capture_output=True, text=True, timeout=60)
        self.assertEqual(('[]\n', ''), (done.stdout, done.stderr))

    def main(self, error):
        logged = []
        running_ = mock.Mock(run=mock.Mock(side_effect=error))
        with (mock.patch.object(operator, '_running', lambda: running_),
              mock.patch.object(operator.logs, 'configure'),
              mock.patch.object(operator.os, 'umask'),
              mock.patch.object(
                operator.connection_.Connection,
                'from_options'),
                mock.patch.object(operator.LOG, 'error', lambda *args: (
                    logged.append(args[0] % args[1:]))),
                mock.patch.object(operator.LOG, 'exception', logged.append)):
            return operator.main([]), logged

    def test_how_it_ends(self):
        for error, status, logged in (
                (errors.ConfigError('no way'), 1, ['no way']),
                (OSError(98, 'in use'), 1, ['[Errno 98] in use']),
                (KeyboardInterrupt(), 0, []),
                (KeyError('x'), 1, ['This should not happen'])):
            self.assertEqual((status, logged), self.main(error))

    def test_what_should_not_happen_is_a_line_of_json_too(self):
        done = subprocess.run([sys.executable, '-c', (
            'from unittest import mock; '
            'from sushy_kubevirt.cmd import operator; '
            'operator.connection_.Connection.from_options = mock.Mock('
            'side_effect=KeyError("x")); '
            'raise SystemExit(operator.main([]))')],
            capture_output=True, text=True, timeout=60)
        self.assertEqual(1, done.returncode)
        line = json.loads(done.stderr)
        self.assertIn('KeyError', line['error'])
