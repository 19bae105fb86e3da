# SPDX-License-Identifier: Apache-2.0
"""The command ``sushy-kubevirt-operator`` and its replicas."""

import base64
import json
import os
import signal
import subprocess
import sys
import time

import fixtures
import requests
import yaml

from kubevirt_sandbox.testing import process
from tests.fixtures import operator

VERSION = r'^sushy-kubevirt-operator \d+\.\d+\.\d+'
PORT = r'Metrics and probes are at (http://127\.0\.0\.1:\d+)"'
WAITS = 'holds the Lease; this replica waits'

# As in a container of the image, whose user id has no name.
NAMELESS = '''
import pwd, sys
def getpwuid(number):
    raise KeyError('getpwuid(): uid not found: %s' % number)
pwd.getpwuid = getpwuid
from sushy_kubevirt.cmd import operator as cmd
sys.exit(cmd.main())
'''

# Seconds; long enough for a process to be delayed on a busy host.
LEASE = 9


def run(*words, **environ):
    """Run the command until it exits.

    :param environ: additional environment variables.
    """
    return subprocess.run(
        [process.BIN / operator.NAME, *map(str, words)], text=True,
        env=process.environment(process.NO_HOME, environ),
        capture_output=True, timeout=60)


class CommandTestCase(operator.OperatorTestCase):

    SANDBOX = ('--pods', 'pretended')
    RUNS = False

    def start(self, *words, kubeconfig=None, ready=None):
        """Start the operator on a free port; return the process."""
        home = self.useFixture(fixtures.TempDir()).path
        return self.useFixture(process.Process(
            [operator.NAME, '--kubeconfig', kubeconfig or self.account,
             '--metrics-address', '127.0.0.1:0', '--lease-seconds', str(LEASE),
             *words], ready=ready, timeout=60,
            env=process.environment(home)))

    def ask(self, one, path):
        """Send a request to the port for metrics and probes."""
        return requests.get(one.wait_output(PORT)[1] + path, timeout=10)

    def metric(self, one, name):
        return next(line.split()[-1] for line in self.ask(
            one, '/metrics').text.splitlines() if line.split()[0] ==
            'sushy_kubevirt_operator_' + name)

    def lease(self):
        return self.admin.within(operator.NAMESPACE).get(
            'lease', operator.NAME)

    def test_help_and_version(self):
        done = run('--help')
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        for word in ('--kubeconfig', '--auto-create', '--lease-seconds'):
            self.assertIn(word, done.stdout)
        done = run('--version')
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        self.assertRegex(done.stdout, VERSION)

    def test_invalid_arguments(self):
        for words in (['--nonsense'], ['--auto-create', 'a b'],
                      ['--metrics-address', 'localhost:8080'],
                      ['--lease-seconds', '1']):
            done = run(*words)
            self.assertEqual((2, ''), (done.returncode, done.stdout))
            self.assertIn('error: argument' if len(words) == 2
                          else 'error: unrecognized', done.stderr)

    def test_missing_cluster_configuration(self):
        for words, environ in ((['--kubeconfig', '/nonexistent'], {}),
                               (['--kubeconfig', self.account, '--context',
                                 'nonsense'], {}),
                               ([], {}), ([], {'KUBECONFIG': '/dev/null'})):
            done = run(*words, **environ)
            self.assertEqual(1, done.returncode)
            line = json.loads(done.stderr)
            self.assertEqual('error', line['level'])
            self.assertNotIn('error', line)

    def test_lease_is_denied_or_has_no_namespace(self):
        # The namespace does not exist; the account has no permission in it.
        one = self.start('--system-namespace', 'far',
                         ready='lacks the right to')
        self.assertIsNone(one.returncode)
        one = self.start('--system-namespace', 'far',
                         kubeconfig=self.sandbox.kubeconfig)
        self.assertEqual(1, one.wait())
        self.assertIn('There is no namespace far for the Lease: create it',
                      one.output)

    def test_user_without_name(self):
        one = self.useFixture(process.Process(
            [sys.executable, '-c', NAMELESS, '--kubeconfig', self.account,
             '--metrics-address', '127.0.0.1:0', '--lease-seconds',
             str(LEASE)], ready=operator.READY, timeout=60,
            env=process.environment(
                self.useFixture(fixtures.TempDir()).path,
                dict.fromkeys(('LOGNAME', 'USER', 'LNAME', 'USERNAME')))))
        self.bmc('nameless').ready()
        self.assertNotIn('"warning"', one.output)

    def test_serves_and_ends_on_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            one = self.start(ready=operator.READY)
            self.assertEqual((200, 'ok\n'), (
                self.ask(one, '/readyz').status_code,
                self.ask(one, '/livez').text))
            self.assertEqual('1', self.metric(one, 'leader'))
            bmc = self.bmc(f'box-{number}', 'box').ready()
            # The operator leaves no finalizer and no annotation on the BMC.
            meta = bmc.resource['metadata']
            self.assertNotIn('finalizers', meta)
            self.assertNotIn('annotations', meta)
            # The operator's watch may be later than this test's.
            self.until('BMCs', lambda: self.metric(
                one, 'bmcs{reason="ServiceReady"}'),
                '1' if number == signal.SIGTERM else '2')
            self.assertEqual('0', self.metric(one, 'queue_length'))
            self.assertNotEqual('0', self.metric(
                one, 'reconciles_total{result="done"}'))
            one.send(number)
            self.assertEqual(0, one.wait())
            lines = [json.loads(line) for line in one.output.splitlines()]
            self.assertEqual([], [
                line for line in lines
                if line['level'] not in ('info', 'debug')])
            self.assertIn((self.namespace, f'box-{number}'), [
                (line.get('namespace'), line.get('name')) for line in lines])
            # The Lease is released, so the next replica need not wait.
            self.assertEqual('', self.lease()['spec']['holderIdentity'])
            self.assertNotIn(yaml.safe_load(self.account.read_text())[
                'users'][0]['user']['token'], one.output)

    def test_plain_log_without_secrets(self):
        one = self.start('--log-format', 'plain', '--metrics-address', '',
                         '--log-level', 'debug',
                         ready=r'^\S+Z INFO    All resources are listed')
        self.bmc().ready()
        self.bmc('made', secret=None).ready()
        one.wait_output(rf'^\S+Z INFO    {self.namespace}/box: ')
        self.assertNotIn('Metrics', one.output)
        # Not even debug messages contain a secret.
        self.assertIn('Z DEBUG   ', one.output)
        made = self.kubectl.get('secret', 'made-virtbmc-auth')['data']
        key = self.kubectl.get('secret', 'made-virtbmc-tls')['data']
        for secret in (*self.passwords, made['password'], key['tls.key'],
                       base64.b64decode(made['password']).decode(),
                       yaml.safe_load(self.account.read_text())[
                           'users'][0]['user']['token']):
            self.assertNotIn(secret, one.output)
        self.assertNotIn('PRIVATE KEY', one.output)

    def test_waits_for_custom_resource_definition(self):
        crd = 'crd/virtualmachinebmcs.bmc.kubevirt.io'
        self.admin('delete', crd)
        self.addCleanup(operator.install, self.admin)
        one = self.start()
        one.wait_output('install its CustomResourceDefinition')
        self.assertEqual(503, self.ask(one, '/readyz').status_code)
        operator.install(self.admin)
        one.wait_output(operator.READY)

    def test_rotated_token(self):
        # As the kubelet does: the file is replaced, the old token expires.
        config = yaml.safe_load(self.account.read_text())
        user = config['users'][0]['user']
        home = self.useFixture(fixtures.TempDir()).path
        tokens = os.path.join(home, 'token')

        def put(text):
            with open(tokens + '.new', 'w') as stream:
                stream.write(text)
            os.rename(tokens + '.new', tokens)

        old = self.admin.within(operator.NAMESPACE)(
            'create', 'token', operator.NAME, '--bound-object-kind=Secret',
            '--bound-object-name=' + self.create_bound_secret()).strip()
        put(old)
        config['users'][0]['user'] = {'tokenFile': tokens}
        path = os.path.join(home, 'kubeconfig')
        with open(path, 'w') as stream:
            yaml.safe_dump(config, stream)
        one = self.start(kubeconfig=path, ready=operator.READY)
        self.bmc('first', 'box').ready()
        put(user['token'])
        self.admin.within(operator.NAMESPACE)('delete', 'secret', 'bound')
        self.bmc('second', 'box').ready()
        one.send(signal.SIGTERM)
        self.assertEqual(0, one.wait())
        self.assertNotIn('credentials', one.output)

    def create_bound_secret(self):
        self.admin.within(operator.NAMESPACE)(
            'create', 'secret', 'generic', 'bound')
        return 'bound'

    # Replicas

    def pair(self):
        first = self.start(ready=operator.READY)
        second = self.start(ready=WAITS)
        self.assertEqual(200, self.ask(second, '/readyz').status_code)
        self.assertEqual('0', self.metric(second, 'leader'))
        return first, second

    def wait_takeover(self, second, least=0):
        """Wait until the second replica is the leader.

        :param least: minimum number of seconds.
        """
        before = time.monotonic()
        second.wait_output(operator.READY)
        self.assertGreater(time.monotonic() - before, least)
        self.assertEqual('1', self.metric(second, 'leader'))
        self.bmc().ready()

    def test_takeover_after_leader_ends(self):
        first, second = self.pair()
        lease = self.lease()
        first.send(signal.SIGTERM)
        self.wait_takeover(second)
        operator.check_takeover(self.sandbox, lease)
        self.assertEqual(0, first.wait())

    def test_takeover_after_leader_is_killed(self):
        first, second = self.pair()
        transitions = self.lease()['spec']['leaseTransitions']
        first.kill()
        self.wait_takeover(second, LEASE / 3)
        self.assertEqual(transitions + 1,
                         self.lease()['spec']['leaseTransitions'])

    def test_resumed_leader_ends(self):
        first, second = self.pair()
        first.send(signal.SIGSTOP)
        self.addCleanup(self.resume, first)
        self.wait_takeover(second, LEASE / 3)
        first.send(signal.SIGCONT)
        self.assertEqual(1, first.wait())
        # The exit status may be read before the output.
        first.wait_output('The Lease ')
        self.assertIn('The Lease ', first.output.splitlines()[-1])
        # The second replica still runs.
        self.assertIsNone(second.returncode)

    @staticmethod
    def resume(one):
        if one.returncode is None:
            one.send(signal.SIGCONT)

    def test_leader_ends_in_long_outage(self):
        one = self.start(ready=operator.READY)
        self.sandbox.outage(LEASE + 1)
        self.addCleanup(self.until, 'the API', self.sandbox.is_available,
                        True)
        self.assertEqual(1, one.wait())
        # The exit status may be read before the output.
        one.wait_output('The Lease could not be renewed in time')
        self.assertIn('The Lease could not be renewed in time',
                      one.output.splitlines()[-1])

    def test_leader_ends_when_lease_is_deleted(self):
        first, second = self.pair()
        self.admin.within(operator.NAMESPACE)('delete', 'lease',
                                              operator.NAME)
        # The first ends at once; the second still waits for the Lease's end.
        self.assertEqual(1, first.wait())
        self.wait_takeover(second, LEASE / 3)

    def test_runs_without_leader_election(self):
        self.start('--no-leader-election', ready=operator.READY)
        self.bmc().ready()
