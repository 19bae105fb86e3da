# SPDX-License-Identifier: Apache-2.0
"""Agents that serve only a part, and the rows about them."""

import os
import pathlib
import shlex
import signal
import subprocess
import sys
import textwrap
import types
from unittest import mock

import fixtures
from oslotest import base
import psutil

from tests.bench import agent
from tests.bench import bmc
from tests.bench import commanding
from tests.bench import load
from tests.bench import processor
from tests.bench import redfish_client
from tests.bench import rounds

#: Serves HTTP with sessions, and closes each connection.
AGENT = """
    import http.server
    import json
    import os

    class Handler(http.server.BaseHTTPRequestHandler):

        def say(self, code, body, *headers):
            self.send_response(code)
            for pair in headers:
                self.send_header(*pair)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def do_GET(self):
            if self.headers.get('X-Auth-Token') != 't':
                return self.say(401, {})
            self.say(200, {'Members': [
                {'@odata.id': '/redfish/v1/Systems/' + name}
                for name in ('another', os.environ['BENCH_VM'])]})

        def do_POST(self):
            body = json.loads(self.rfile.read(
                int(self.headers['Content-Length'])))
            if body != {'UserName': os.environ['BENCH_USER'],
                        'Password': os.environ['BENCH_PASSWORD']}:
                return self.say(403, {})
            self.say(201, {}, ('X-Auth-Token', 't'))

    print('not served: https: it has no TLS', flush=True)
    http.server.ThreadingHTTPServer(
        (os.environ['BENCH_ADDRESS'], int(os.environ['BENCH_HTTP_PORT'])),
        Handler).serve_forever()
"""


class AgentTestCase(base.BaseTestCase):

    def start(self, source):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        script = folder / 'agent.py'
        script.write_text(textwrap.dedent(source))
        return self.useFixture(agent.Agent(
            'other', shlex.join([sys.executable, str(script)]),
            types.SimpleNamespace(url='https://127.0.0.1:1',
                                  kubeconfig='kubeconfig'), 'vm-1'))

    def test_parts_that_are_not_served(self):
        self.useFixture(fixtures.MonkeyPatch('tests.bench.agent.START', 2))
        one = self.start(AGENT).wait()
        self.assertEqual({'https': 'it has no TLS',
                          'ipmi': 'no answer within 2 s'}, one.missing)
        self.assertEqual(('http', '/redfish/v1/Systems/vm-1'),
                         (one.protocol, one.path))
        # With the session, and a connection for each request.
        with one.connection('http') as connection:
            connection.get()
            connection.get()

    def test_requests_that_are_not_cached(self):
        for varies, number in (False, 1), (True, 3):
            with mock.patch('socket.create_connection') as connect, \
                    redfish_client.Connection(
                        ('host', 80), '/', {}, varies=varies) as connection, \
                    mock.patch.object(connection, '_read'):
                for _ in range(3):
                    connection.get()
            requests = {call.args[0] for call
                        in connect.return_value.sendall.call_args_list}
            self.assertEqual(number, len(requests))
            for request in requests:
                self.assertRegex(request.decode(),
                                 r'^GET (?s:.)*[^\r\n]\r\n\r\n\Z')

    def test_agent_that_ends(self):
        one = self.start("raise SystemExit('no such VM')")
        exc = self.assertRaises(RuntimeError, one.wait)
        self.assertIn('no such VM', str(exc))

    def fail(self, source, turn):
        """Have an agent take a turn that fails; return reason and failures."""
        self.useFixture(fixtures.MonkeyPatch('tests.bench.agent.START', 2))
        self.useFixture(fixtures.MonkeyPatch(
            'tests.bench.redfish_client.TIMEOUT', 0.2))
        one = self.start(source).wait()
        side = bmc.side(one, ('http',), turn)
        rounds.alternate([side], 2, lambda text: None)
        self.assertTrue(side.failed)
        return side.reason, one.failures

    def get(self, one):
        with one.connection('http') as connection:
            connection.get()
        return {('GET', 's'): 1.0}

    def test_agent_that_dies_in_the_middle(self):
        def die(one):
            one.process.send(9)
            one.process.wait()
            return self.get(one)

        reason, failures = self.fail(AGENT, die)
        self.assertIn('ended with -9', reason)
        self.assertEqual(set(agent.NEEDS), set(failures))

    def test_agent_that_hangs(self):
        def hang(one):
            one.process.send(signal.SIGSTOP)
            self.addCleanup(one.process.kill)
            return self.get(one)

        reason, failures = self.fail(AGENT, hang)
        self.assertEqual(('failed: timed out', {'http': reason}),
                         (reason, failures))

    def test_agent_that_refuses(self):
        def refuse(one):
            raise load.Refused('POST: 500')

        self.assertEqual(('failed: POST: 500', {}), self.fail(AGENT, refuse))


class ProcessorTestCase(base.BaseTestCase):

    def test_descendants_count(self):
        done = 'sum(range(10 ** 6)); print(0, flush=True); input()'
        with subprocess.Popen(
                [sys.executable, '-c', 'import subprocess, sys; '
                 f'subprocess.run([sys.executable, "-c", "{done}"])'],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
            parent.stdout.readline()
            both = processor.seconds(parent.pid)
            times = psutil.Process(parent.pid).cpu_times()
            self.assertLess(times.user + times.system, both)
            parent.stdin.close()

    def test_commands_share_one(self):
        before = os.sched_getaffinity(0)
        with subprocess.Popen(['sh', '-c', 'cat; true'], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as server:
            server.stdin.write(b'x')
            server.stdin.flush()
            server.stdout.read(1)
            pids = [0, *(process.pid for process in (
                psutil.Process(server.pid),
                *psutil.Process(server.pid).children()))]
            self.assertEqual(3, len(pids))
            seen = []

            def send():
                seen.append(list(map(os.sched_getaffinity, pids)))

            with mock.patch.object(commanding, 'session') as session:
                session.return_value.__enter__.return_value = send
                commanding.turn(None, server.pid, 1)
            self.assertEqual([[{max(before)}] * 3], seen)
            self.assertEqual([before] * 3,
                             list(map(os.sched_getaffinity, pids)))
            server.stdin.close()


class RowTestCase(base.BaseTestCase):

    def rows(self, *turns, **more):
        """Have sides take turns; return the rows.

        :param turns: for each side its values, or an exception
        :param more: reasons by the name of a further side
        """
        def side(name, values):
            return rounds.Side(name, mock.Mock(side_effect=[
                value if isinstance(value, Exception)
                else {('x', 's'): value} for value in values]))

        sides = [side(name, values) for name, values in zip(
            ('ours', 'lean', 'fat'), turns)]
        sides += [rounds.Side(name, None, reason)
                  for name, reason in more.items()]
        rounds.alternate(sides, len(turns[0]), self.said.append)
        return list(rounds.rows('what', sides))

    def setUp(self):
        super().setUp()
        self.said = []

    def test_ratio_is_the_median_of_the_rounds(self):
        row, = self.rows([10, 20, 60], [10, 10, 20])
        self.assertEqual((20, 10, 2.0, 3, 'lean'), (
            row.value, row.other, row.ratio, row.rounds, row.neighbour))

    def test_row_for_each_neighbour(self):
        self.assertEqual([('lean', 2.0), ('fat', 0.5)], [
            (row.neighbour, row.ratio)
            for row in self.rows([4.0], [2.0], [8.0], slow='not served: no')])

    def test_neighbour_that_does_not_serve_it(self):
        row, = self.rows([4.0, 4.0], lean='not served: it has none')
        self.assertEqual(('lean', 4.0, None, None, None,
                          'lean: not served: it has none'),
                         (row.neighbour, row.value, row.other, row.ratio,
                          row.failed, row.reason))
        self.assertEqual(['lean: not served: it has none'], self.said)

    def test_neighbour_that_fails(self):
        row, other = self.rows([4.0, 8.0, 6.0],
                               [2.0, ValueError('out of\nluck')], [2.0] * 3)
        self.assertEqual(
            (6.0, 3, None, ['lean'], 'lean: failed: out of luck'),
            (row.value, row.rounds, row.ratio, row.failed, row.reason))
        self.assertEqual((3.0, None), (other.ratio, other.failed))
        self.assertEqual(['lean failed: out of\nluck'], self.said)

    def test_all_fail(self):
        row, = self.rows([ValueError('1')], [ValueError('2')])
        self.assertEqual(('what', None, ['ours', 'lean'],
                          'ours: failed: 1; lean: failed: 2'),
                         (row.name, row.value, row.failed, row.reason))

    def test_time_too_short_to_count(self):
        row, = self.rows([1.0], [0.0])
        self.assertEqual((None, 'too short to measure'),
                         (row.ratio, row.reason))
