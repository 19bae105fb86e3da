# SPDX-License-Identifier: Apache-2.0
"""``tools/bench --compare`` measures another agent beside this project's."""

import json
import pathlib
import signal
import subprocess
import sys
import unittest

import fixtures
from oslotest import base
import psutil

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import process
from tests.fixtures import checkout

#: A second instance of this project, without IPMI.
AGENT = """\
#!/bin/sh
echo 'not served: ipmi: this agent has no IPMI'
export BENCH_SERVE=redfish
exec tests/bench/agents/project {bin}
"""

#: An agent without IPMI that refuses a POST.
LAME = """\
#!{python}
import http.server
import os


class Handler(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{{"Members": [{{"@odata.id": "/system"}}]}}')


for part in 'https', 'ipmi':
    print(f'not served: {{part}}: this agent has HTTP', flush=True)
http.server.ThreadingHTTPServer(
    (os.environ['BENCH_ADDRESS'], int(os.environ['BENCH_HTTP_PORT'])),
    Handler).serve_forever()
"""

#: A program with the options of kube-apiserver: an API without KubeVirt.
APISERVER = """\
#!{python}
import argparse
import asyncio
import pathlib
import ssl

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import server

parser = argparse.ArgumentParser()
for name in ('etcd-servers', 'secure-port', 'tls-cert-file',
             'tls-private-key-file', 'token-auth-file'):
    parser.add_argument('--' + name, required=True)
options, _ = parser.parse_known_args()


async def serve():
    api = server.Server()
    core.install(api)
    token = pathlib.Path(options.token_auth_file).read_text().split(',')[0]
    api.tokens.add(token, server.ADMINISTRATOR)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.tls_cert_file,
                            options.tls_private_key_file)
    await api.start(port=int(options.secure_port), ssl_context=context)
    await asyncio.Event().wait()


asyncio.run(serve())
"""


CGROUPS = pathlib.Path('/sys/fs/cgroup')


class BenchTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def bench(self, *words, **variables):
        return subprocess.run(
            [sys.executable, '-m', 'tests.bench', *words],
            cwd=checkout.ROOT, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=300,
            env={**process.environment(self.folder, variables),
                 'TMPDIR': str(self.folder)})

    def program(self, name, text):
        """Make a program; returns its path."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)


@given_cluster.needs_sandbox('a cluster of its own')
class SandboxTestCase(BenchTestCase):
    """``tools/bench --only sandbox``, with programs beside the sandbox."""

    def rows(self, *words, **variables):
        figures = self.folder / 'figures.json'
        done = self.bench('--quick', '--only', 'sandbox', *words, '--json',
                          str(figures), **variables)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual([], process.running(str(self.folder)))
        return {(row['name'], row['unit']): row
                for row in json.loads(figures.read_text())['rows']}

    def test_another_version(self):
        rows = self.rows('--compare', str(process.BIN / 'kubevirt-sandbox'),
                         '--as', 'twin')
        for key in (('sandbox, start to ready', 's'),
                    ('sandbox, GET VM', 'a second'),
                    ('sandbox, list VMs', 'a second'),
                    ('sandbox, events of watches', 'a second'),
                    ('sandbox, JSON patch of a VM', 'a second'),
                    ('sandbox, apply a VM', 'a second'),
                    ('sandbox, VM start to Running', 'ms, mean'),
                    ('sandbox, memory with 10 VMs', 'MiB of PSS')):
            self.assertEqual('twin', rows[key]['neighbour'], key)
            for name in 'value', 'other', 'ratio':
                self.assertGreater(rows[key][name], 0, (key, name))

    def test_api_server(self):
        rows = self.rows(
            ETCD=self.program('etcd', '#!/bin/sh\nexec sleep 1000\n'),
            KUBE_APISERVER=self.program('kube-apiserver', APISERVER.format(
                python=sys.executable)))
        row = rows['sandbox, apply a VM', 'a second']
        self.assertEqual('kube-apiserver', row['neighbour'])
        self.assertGreater(row['ratio'], 0)
        row = rows['sandbox, VM start to Running', 'ms, mean']
        self.assertGreater(row['value'], 0)
        self.assertEqual('kube-apiserver: not served: it has no KubeVirt',
                         row['reason'])

    def test_api_server_that_ends(self):
        fails = self.program('fails', '#!/bin/sh\necho no data folder\n'
                             'exit 1\n')
        done = self.bench('--quick', '--only', 'sandbox', ETCD=fails,
                          KUBE_APISERVER=fails)
        self.assertNotEqual(0, done.returncode)
        self.assertIn('no data folder', done.stderr)


@given_cluster.needs_sandbox('a cluster of its own')
class CompareTestCase(BenchTestCase):

    def test_second_instance(self):
        agent = self.program('agent', AGENT.format(bin=process.BIN))
        figures = self.folder / 'figures.json'
        done = self.bench('--quick', '--compare', agent, '--as', 'twin',
                          '--json', str(figures))
        self.assertEqual(0, done.returncode, done.stderr)
        rows = {(row['name'], row['unit'], row.get('neighbour')): row
                for row in json.loads(figures.read_text())['rows']}

        for protocol in 'HTTPS', 'HTTP':
            row = rows[f'GET system, {protocol}, 1 client', 'a second', 'twin']
            self.assertEqual(2, row['rounds'])
            for name in 'value', 'other', 'ratio':
                self.assertGreater(row[name], 0, name)
        calls = rows['POST Reset On', 'API calls', 'twin']
        self.assertEqual(calls['value'], calls['other'])
        self.assertEqual(
            1, rows['POST Reset On', 'API calls', 'PUT start']['other'])
        self.assertGreater(rows['start to first answer, Redfish',
                                'ms, median', 'twin']['other'], 0)
        imports = rows['imports until the first answer, Redfish', 'modules',
                       'twin']
        self.assertGreater(min(imports['value'], imports['other']), 100)
        for key in (('IPMI commands to the BMC, one session', 'a second'),
                    ('idle BMC, both protocols', 'MiB of PSS'),
                    ('start to first answer, IPMI', 'ms, median'),
                    ('start to first answer, both protocols', 'ms, median')):
            row = rows[(*key, 'twin')]
            self.assertGreater(row['value'], 0, key)
            self.assertEqual('twin: not served: this agent has no IPMI',
                             row['reason'])
            self.assertNotIn('ratio', row)
            self.assertIn('not compared: ' + ', '.join(key), done.stdout)
        self.assertEqual([], process.running(str(self.folder)))

    def test_agents_that_fail(self):
        # A version whose Redfish does not start, and one that cannot turn a
        # VM on.
        (self.folder / 'sushy-kubevirt-ipmi').symlink_to(
            process.BIN / 'sushy-kubevirt-ipmi')
        lame = self.program('lame', LAME.format(python=sys.executable))
        figures = self.folder / 'figures.json'
        done = self.bench(
            '--quick', '--only', 'bmc-power', '--only', 'bmc-memory',
            '--compare', f'tests/bench/agents/project {self.folder}',
            '--as', 'broken', '--compare', lame, '--as', 'lame',
            '--json', str(figures))
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertRegex(done.stderr, 'broken failed: .* ended with 127')
        self.assertRegex(done.stderr,
                         'sushy-kubevirt-redfish.*No such file')
        rows = {(row['name'], row['unit'], row.get('neighbour')): row
                for row in json.loads(figures.read_text())['rows']}
        for name, reason in (('broken', 'ended with 127'), ('lame', ' 501: ')):
            row = rows['POST Reset On', 'ms, median', name]
            self.assertEqual([name], row['failed'])
            self.assertIn(f'{name}: failed: ', row['reason'])
            self.assertIn(reason, row['reason'])
            self.assertGreater(row['value'], 0)
        memory = 'idle BMC, both protocols', 'MiB of PSS'
        self.assertGreater(rows[(*memory, 'broken')]['value'], 0)
        self.assertEqual([], process.running(str(self.folder)))

    @unittest.skipUnless(kubectl.KUBECTL, 'kubectl is not installed')
    def test_operator_of_another_version(self):
        figures = self.folder / 'figures.json'
        done = self.bench(
            '--quick', '--only', 'placement', '--bmcs', '2',
            '--compare', f'tests/bench/agents/project {process.BIN}',
            '--as', 'twin', '--compare', str(self.folder), '--as', 'empty',
            '--json', str(figures))
        self.assertEqual(0, done.returncode, done.stderr)
        rows = json.loads(figures.read_text())['rows']
        self.assertEqual({'twin'}, {row['neighbour'] for row in rows})
        self.assertIn('; MiB of PSS: ', done.stderr)
        self.assertIn('empty: not served: ', done.stderr)
        rows = {row['unit']: row for row in rows}
        for unit in ('s, all Ready', 'MiB of PSS',
                     'ms, entry of a deleted BMC removed'):
            self.assertGreater(rows[unit]['ratio'], 0, unit)
        self.assertEqual([], process.running(str(self.folder)))


@given_cluster.needs_sandbox('a cluster of its own')
class ContentionTestCase(BenchTestCase):

    def start(self):
        """Start the benchmark; return it when its guests compute."""
        bench = subprocess.Popen(
            [sys.executable, '-m', 'tests.bench', '--only', 'contention'],
            cwd=checkout.ROOT, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**process.environment(self.folder),
                 'TMPDIR': str(self.folder)})
        self.addCleanup(bench.wait)
        self.addCleanup(bench.kill)
        self.addCleanup(bench.stderr.close)
        if not any('30m of CPU: ' in line for line in bench.stderr):
            self.assertEqual(0, bench.wait())
            self.skipTest('no right to make cgroups')
        return bench

    def test_run_that_is_killed(self):
        killed = self.start()
        group, = CGROUPS.glob(f'**/bench-{killed.pid}')
        processes = [psutil.Process(int(pid))
                     for path in group.glob('*/cgroup.procs')
                     for pid in path.read_text().split()]
        self.assertGreater(len(processes), 2)
        killed.kill()
        killed.wait()
        self.assertEqual([], psutil.wait_procs(processes, 60)[1])
        # The next one removes what it has left, and its own.
        ended = self.start()
        self.assertFalse(group.exists())
        group = group.with_name(f'bench-{ended.pid}')
        self.assertTrue(group.exists())
        ended.send_signal(signal.SIGTERM)
        self.assertEqual(143, ended.wait(60))
        self.assertFalse(group.exists())
        self.assertEqual([], process.running(str(self.folder)))
