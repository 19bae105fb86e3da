# SPDX-License-Identifier: Apache-2.0
"""Startup and termination of the operator process."""

import asyncio
import dataclasses
import itertools
import json
import subprocess
import sys
from unittest import mock

from oslotest import base

from sushy_kubevirt.cmd import operator
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import cluster_hosts
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import process


def new_operator(**options):
    return process.Operator(
        command_line.Options(**options), connection.Connection(
            lambda: connection.Access('http://127.0.0.1:1')))


class ProcessTestCase(base.BaseTestCase):

    def definition(self, namespaces, rounds):
        """Wait for the CustomResourceDefinition to be readable.

        :param rounds: for each round, {namespace: error that is raised}
        :returns: (namespaces that are left out, number of rounds)
        """
        checked = []

        class Api:
            async def check_readable(self, resource, namespace):
                if not checked or namespace in checked[-1]:
                    checked.append([])
                checked[-1].append(namespace)
                answer = rounds[len(checked) - 1].get(namespace)
                if answer:
                    raise answer(namespace)

        async def main():
            made = new_operator(namespaces=namespaces)
            made._api = Api()
            return await made._wait_for_definition()

        with mock.patch.object(process, 'DEFINITION_SECONDS', 0):
            return asyncio.run(main()), len(checked)

    def test_does_not_wait_for_unreadable_namespaces(self):
        denied, away = errors.AccessDenied, errors.Unavailable
        for namespaces, rounds, left_out, many in (
                ((), [{}], set(), 1),
                ((), [{None: denied}, {None: away}, {}], set(), 3),
                (('a', 'b'), [{}], set(), 1),
                # Permissions may take effect late.
                (('a', 'b'), [{'b': denied}, {}], set(), 2),
                (('a', 'b'), [{'b': denied}] * 2, {'b'}, 2),
                (('a', 'b', 'c'), [{'b': denied}, {'c': denied}] + [
                    {'a': denied, 'c': denied}] * 2, {'a', 'c'}, 4),
                (('a', 'b'), [{'b': away}, {'b': denied}] + [
                    {'b': denied}], {'b'}, 3),
                # At least one namespace must be readable.
                (('a', 'b'), [{'a': denied, 'b': denied}] * 3 + [{}],
                 set(), 4),
                (('a',), [{'a': denied}] * 3 + [{}], set(), 4)):
            with self.subTest(namespaces=namespaces, rounds=rounds):
                self.assertEqual((left_out, many),
                                 self.definition(namespaces, rounds))

    def test_user_of_pods(self):
        def decide(asked, *answers):
            made = new_operator(pod_user=asked)
            made._api = mock.Mock(
                serves_group=mock.AsyncMock(side_effect=answers))
            with mock.patch.object(process, 'DEFINITION_SECONDS', 0):
                found = asyncio.run(made._pod_user())
            self.assertEqual(
                [mock.call('security.openshift.io')] * len(answers),
                made._api.serves_group.mock_calls)
            return found

        self.assertIsNone(decide('auto', True))
        self.assertEqual(65532, decide('auto', False))
        self.assertIsNone(decide('auto', errors.Unavailable('x'), True))
        with self.assertLogs('sushy_kubevirt', 'WARNING') as logs:
            self.assertEqual(65532, decide(
                'auto', errors.AccessDenied('x'), False))
        self.assertIn('--pod-user none (OpenShift) or 65532', logs.output[0])
        self.assertIsNone(decide(None))
        self.assertEqual(1000, decide(1000))

    def hosts_denied(self, found, many):
        """Return what is denied to BMCs, one after the other.

        :param found: what `cluster_hosts.find` returns, one after the other;
            the last one again and again
        :param many: number of changes to wait for
        """
        made, denied = new_operator(), []

        async def main():
            made._options = dataclasses.replace(
                made._options, cluster_hosts=await made._cluster_hosts())
            ended = asyncio.Event()
            task = asyncio.create_task(made._refresh_hosts(mock.Mock(
                deny=lambda hosts: (
                    denied.append(hosts),
                    len(denied) == many and ended.set()))))
            async with asyncio.timeout(30):
                await ended.wait()
            task.cancel()

        with mock.patch.multiple(process, DEFINITION_SECONDS=0,
                                 HOSTS_SECONDS=0), \
                mock.patch.object(process.cluster_hosts, 'find',
                                  mock.AsyncMock(side_effect=itertools.chain(
                                      found, itertools.repeat(found[-1])))):
            asyncio.run(main())
        return denied

    def test_hosts_of_the_cluster_are_looked_for_again(self):
        with self.assertLogs('sushy_kubevirt', 'WARNING') as logs:
            denied = self.hosts_denied([
                (('192.0.2.1:6443', '192.0.2.2:6443'), ()),
                # A control-plane node restarts.
                (('192.0.2.2:6443',), ('a gap',)),
                errors.Unavailable('x'),
                (('192.0.2.2:6443', '192.0.2.3:6443'), ('a gap',)),
                ((), ())], 1)
        self.assertEqual(('192.0.2.1:6443', '192.0.2.2:6443',
                          '192.0.2.3:6443'), denied[0])
        self.assertEqual(1, str(logs.output).count('a gap'))

    def test_hosts_that_are_gone(self):
        old, new, network = '192.0.2.1:6443', '192.0.2.2:6443', '10.96.0.0/12'
        good = (network, new), ()
        denied = self.hosts_denied([
            ((network, old), ()),
            ((network, old), ()),
            good,
            # Nothing is gone that cannot be read.
            *[((new,), ('a gap',))] * process.GONE_LOOKS,
            # Nor while the API server does not answer.
            *[errors.Unavailable('x')] * process.GONE_LOOKS,
            *[good] * (process.GONE_LOOKS - 2),
            # It is there again.
            ((network, old, new), ()),
            *[good] * (process.GONE_LOOKS - 1),
            # The next look is the last one without it.
            ((network, new, 'other:1'), ())], 2)
        self.assertEqual([(network, old, new), (network, new, 'other:1')],
                         denied[:2])

    def test_hosts_that_are_gone_before_kubernetes_1_33(self):
        """It has no networks of Services, for ever."""
        old, new = '192.0.2.1:6443', '192.0.2.2:6443'
        gaps = f'Not denied: {cluster_hosts.UNSERVED}.',
        with self.assertLogs('sushy_kubevirt', 'WARNING'):
            denied = self.hosts_denied([((old,), gaps), ((new,), gaps)], 2)
        self.assertEqual([(old, new), (new,)], denied[:2])

    def test_ends_when_namespace_is_readable_again(self):
        class Api:
            async def watch(self, resource, namespace, metadata_only):
                yield 'LISTED', set()

        e = self.assertRaises(
            errors.MachineError, asyncio.run, process._end_when_readable(
                Api(), 'lab'))
        self.assertIn('The BMCs of namespace lab may be listed now', str(e))

    def run_with(self, beside):
        """Run an operator with these tasks."""
        async def main():
            made = new_operator()
            tasks = [asyncio.create_task(one(made)) for one in beside]
            try:
                async with asyncio.timeout(30):
                    await made._run_tasks(tasks)
            finally:
                self.assertTrue(all(task.done() for task in tasks))

        asyncio.run(main())

    async def stop(self, made):
        made._stopping.set()
        await asyncio.sleep(100)

    async def sleep(self, made):
        await asyncio.sleep(100)

    async def fail(self, made):
        raise KeyError('a mistake')

    def test_ends_when_stopped(self):
        self.run_with([self.stop, self.sleep])

    def test_ends_when_a_task_fails(self):
        self.assertRaises(KeyError, self.run_with, [self.sleep, self.fail])

    def test_readiness_problem(self):
        async def main():
            made = new_operator()
            found = [made._problem()]
            made._controller = mock.Mock(**{'problem.return_value': None})
            found.append(made._problem())
            made._controller.problem.return_value = 'not listed yet: x'
            found.append(made._problem())
            # A replica that waits for the Lease is ready.
            made._elector = mock.Mock(is_leader=False)
            return [*found, made._problem()]

        self.assertEqual([
            'virtualmachinebmcs.bmc.kubevirt.io cannot be listed yet; see '
            'the log for the reason', None, 'not listed yet: x', None],
            asyncio.run(main()))

    def test_write_needs_lease(self):
        async def main():
            made = new_operator()
            made._check_leadership()
            made._elector = mock.Mock(**{
                'check_leadership.side_effect': errors.Unavailable('no')})
            self.assertRaises(errors.Unavailable, made._api._client.patch,
                              mock.Mock(), 'lab', 'x', {})
            self.assertEqual({}, made._api.calls)

        asyncio.run(main())


class CommandTestCase(base.BaseTestCase):

    def test_kubernetes_package_is_not_imported(self):
        # It is installed for the tests.
        done = subprocess.run([sys.executable, '-c', (
            'import sys; from sushy_kubevirt.cmd import operator; '
            'operator.main; print([name for name in sys.modules '
            'if name.partition(".")[0] in ("kubernetes", "aiohttp")]); '
            'import kubernetes')], capture_output=True, text=True, timeout=60)
        self.assertEqual(('[]\n', ''), (done.stdout, done.stderr))

    def main(self, error):
        logged = []
        with (mock.patch.object(operator.process.Operator, 'run', mock.Mock(
                side_effect=error)),
              mock.patch.object(operator.logs, 'configure'),
              mock.patch.object(operator.os, 'umask'),
              mock.patch.object(operator.connection.Connection,
                                'from_options'),
              mock.patch.object(operator.LOG, 'error', lambda *args: (
                  logged.append(args[0] % args[1:]))),
              mock.patch.object(operator.LOG, 'exception', logged.append)):
            return operator.main([]), logged

    def test_exit_status_and_log_by_error(self):
        for error, status, logged in (
                (errors.ConfigError('no way'), 1, ['no way']),
                (OSError(98, 'in use'), 1, ['[Errno 98] in use']),
                (KeyboardInterrupt(), 0, []),
                (KeyError('x'), 1, ['Unexpected error, a bug in the '
                                    'operator'])):
            self.assertEqual((status, logged), self.main(error))

    def test_unexpected_error_is_logged_as_json(self):
        done = subprocess.run([sys.executable, '-c', (
            'from unittest import mock; '
            'from sushy_kubevirt.cmd import operator; '
            'operator.connection.Connection.from_options = mock.Mock('
            'side_effect=KeyError("x")); '
            'raise SystemExit(operator.main([]))')],
            capture_output=True, text=True, timeout=60)
        self.assertEqual(1, done.returncode)
        line = json.loads(done.stderr)
        self.assertIn('KeyError', line['error'])
