# SPDX-License-Identifier: Apache-2.0
"""Agents that serve only a part, and the rows about them."""

import pathlib
import shlex
import sys
import textwrap
import types

import fixtures
from oslotest import base

from tests.bench import agent
from tests.bench import bmc

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

    def test_agent_that_ends(self):
        one = self.start("raise SystemExit('no such VM')")
        exc = self.assertRaises(RuntimeError, one.wait)
        self.assertIn('no such VM', str(exc))


class RowTestCase(base.BaseTestCase):

    def test_ratio_is_the_median_of_the_rounds(self):
        row = bmc.row('GET', 'a second', 'other', [10, 20, 60], [10, 10, 20])
        self.assertEqual((20, 10, 2.0, 3),
                         (row.value, row.other, row.ratio, row.rounds))

    def test_neighbour_that_does_not_serve_it(self):
        pair = [types.SimpleNamespace(name='ours', missing={}),
                types.SimpleNamespace(name='lean', missing={
                    'ipmi': 'it has none', 'power': 'no'})]
        row, = bmc._turns(pair, 2, ('ipmi',), lambda one: {('x', 's'): 4.0})
        self.assertEqual(('lean', 4.0, None, None,
                          'lean: not served: it has none'),
                         (row.neighbour, row.value, row.other, row.ratio,
                          row.reason))

    def test_time_too_short_to_count(self):
        row = bmc.row('GET', 'ms of CPU', 'other', [1.0], [0.0])
        self.assertEqual((None, 'too short to measure'),
                         (row.ratio, row.reason))
