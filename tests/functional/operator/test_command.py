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
HOLDS = 'This replica holds the Lease now'
WAITS = 'holds the Lease; this replica waits'

# As in a container of the image, where the user is a number without a name.
NAMELESS = '''
import pwd, sys
def getpwuid(number):
    raise KeyError('getpwuid(): uid not found: %s' % number)
pwd.getpwuid = getpwuid
from sushy_kubevirt.cmd import operator as cmd
sys.exit(cmd.main())
'''

# Seconds. A busy machine may keep a process waiting for some of them.
LEASE = 9


def run(*words, **environ):
    """Run the command to its end.

    :param environ: further environment.
    """
    return subprocess.run(
        [process.BIN / operator.NAME, *map(str, words)], text=True,
        env=process.environment('/nonexistent', environ),
        capture_output=True, timeout=60)


class CommandTestCase(operator.OperatorTestCase):

    SANDBOX = ('--pods', 'pretended')
    RUNS = False

    def start(self, *words, kubeconfig=None, ready=None):
        """Start the operator on a free port. :returns: the process"""
        home = self.useFixture(fixtures.TempDir()).path
        return self.useFixture(process.Process(
            [operator.NAME, '--kubeconfig', kubeconfig or self.account,
             '--metrics-address', '127.0.0.1:0', '--lease-seconds', str(LEASE),
             *words], ready=ready, timeout=60,
            env=process.environment(home)))

    def ask(self, one, path):
        """Ask the operator's own port; returns the answer."""
        return requests.get(one.wait_output(PORT)[1] + path, timeout=10)

    def metric(self, one, name):
        return next(line.split()[-1] for line in self.ask(
            one, '/metrics').text.splitlines() if line.split()[0] ==
            'sushy_kubevirt_operator_' + name)

    def lease(self):
        return self.admin.within(operator.NAMESPACE).get(
            'lease', operator.NAME)

    def test_it_says_how_it_is_used(self):
        done = run('--help')
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        for word in ('--kubeconfig', '--auto-create', '--lease-seconds'):
            self.assertIn(word, done.stdout)
        done = run('--version')
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        self.assertRegex(done.stdout, VERSION)

    def test_what_it_does_not_understand(self):
        for words in (['--nonsense'], ['--auto-create', 'a b'],
                      ['--metrics-address', 'localhost:8080'],
                      ['--lease-seconds', '1']):
            done = run(*words)
            self.assertEqual((2, ''), (done.returncode, done.stdout))
            self.assertIn('error: argument' if len(words) == 2
                          else 'error: unrecognized', done.stderr)

    def test_there_is_no_way_to_a_cluster(self):
        for words, environ in ((['--kubeconfig', '/nonexistent'], {}),
                               (['--kubeconfig', self.account, '--context',
                                 'nonsense'], {}),
                               ([], {}), ([], {'KUBECONFIG': '/dev/null'})):
            done = run(*words, **environ)
            self.assertEqual(1, done.returncode)
            line = json.loads(done.stderr)
            self.assertEqual('error', line['level'])
            self.assertNotIn('error', line)

    def test_it_may_not_have_the_lease(self):
        # There is no such namespace; the account may do nothing there.
        one = self.start('--system-namespace', 'far',
                         ready='lacks the right to')
        self.assertIsNone(one.returncode)
        one = self.start('--system-namespace', 'far',
                         kubeconfig=self.sandbox.kubeconfig)
        self.assertEqual(1, one.wait())
        self.assertIn('There is no namespace far for the Lease: create it',
                      one.output)

    def test_its_user_has_no_name(self):
        one = self.useFixture(process.Process(
            [sys.executable, '-c', NAMELESS, '--kubeconfig', self.account,
             '--metrics-address', '127.0.0.1:0', '--lease-seconds',
             str(LEASE)], ready=operator.READY, timeout=60,
            env=process.environment(
                self.useFixture(fixtures.TempDir()).path,
                dict.fromkeys(('LOGNAME', 'USER', 'LNAME', 'USERNAME')))))
        self.bmc('nameless').ready()
        self.assertNotIn('"warning"', one.output)

    def test_it_works_and_ends(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            one = self.start(ready=operator.READY)
            self.assertEqual((200, 'ok\n'), (
                self.ask(one, '/readyz').status_code,
                self.ask(one, '/livez').text))
            self.assertEqual('1', self.metric(one, 'leader'))
            bmc = self.bmc('box-%d' % number, 'box').ready()
            # Nothing of kopf's is left on what users made.
            meta = bmc.resource['metadata']
            self.assertNotIn('finalizers', meta)
            self.assertEqual(
                ['kubectl.kubernetes.io/last-applied-configuration'],
                list(meta['annotations']))
            self.assertEqual('1' if number == signal.SIGTERM else '2',
                             self.metric(one, 'bmcs{reason="ServiceReady"}'))
            self.assertEqual('0', self.metric(one, 'queue_length'))
            self.assertNotEqual('0', self.metric(
                one, 'reconciles_total{result="done"}'))
            one.send(number)
            self.assertEqual(0, one.wait())
            lines = [json.loads(line) for line in one.output.splitlines()]
            self.assertEqual([], [
                line for line in lines
                if line['level'] not in ('info', 'debug')])
            self.assertIn((self.namespace, 'box-%d' % number), [
                (line.get('namespace'), line.get('name')) for line in lines])
            # The Lease is released, so the next replica need not wait.
            self.assertEqual('', self.lease()['spec']['holderIdentity'])
            self.assertNotIn(yaml.safe_load(self.account.read_text())[
                'users'][0]['user']['token'], one.output)

    def test_text_for_people(self):
        one = self.start('--log-format', 'plain', '--metrics-address', '',
                         '--log-level', 'debug',
                         ready=r'^\S+Z INFO    ready$')
        self.bmc().ready()
        self.bmc('made', secret=None).ready()
        one.wait_output(rf'^\S+Z INFO    {self.namespace}/box: ')
        self.assertNotIn('Metrics', one.output)
        # However much is said.
        self.assertIn('Z DEBUG   ', one.output)
        made = self.kubectl.get('secret', 'made-virtbmc-auth')['data']
        key = self.kubectl.get('secret', 'made-virtbmc-tls')['data']
        for secret in (*self.passwords, made['password'], key['tls.key'],
                       base64.b64decode(made['password']).decode(),
                       yaml.safe_load(self.account.read_text())[
                           'users'][0]['user']['token']):
            self.assertNotIn(secret, one.output)
        self.assertNotIn('PRIVATE KEY', one.output)

    def test_the_definition_comes_later(self):
        crd = 'crd/virtualmachinebmcs.bmc.kubevirt.io'
        self.admin('delete', crd)
        self.addCleanup(operator.install, self.admin)
        one = self.start()
        one.wait_output('install its CustomResourceDefinition')
        self.assertEqual(503, self.ask(one, '/readyz').status_code)
        operator.install(self.admin)
        one.wait_output(operator.READY)

    def test_a_token_that_rotates(self):
        # As kubelet does it: another file, the old token is no good.
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
            '--bound-object-name=' + self.bound()).strip()
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

    def bound(self):
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

    def taken(self, second, seconds, least=0):
        """The second takes over.

        :param seconds: that it may take.
        :param least: that it must take.
        """
        before = time.monotonic()
        second.wait_output(operator.READY, seconds)
        self.assertGreater(time.monotonic() - before, least)
        self.assertEqual('1', self.metric(second, 'leader'))
        self.bmc().ready()

    def test_the_first_ends(self):
        first, second = self.pair()
        first.send(signal.SIGTERM)
        # At once, without waiting for the Lease's end.
        self.taken(second, LEASE - 1)
        self.assertEqual(0, first.wait())

    def test_the_first_is_killed(self):
        first, second = self.pair()
        transitions = self.lease()['spec']['leaseTransitions']
        first.kill()
        self.taken(second, 40, LEASE / 3)
        self.assertEqual(transitions + 1,
                         self.lease()['spec']['leaseTransitions'])

    def test_the_first_is_stopped_and_goes_on(self):
        first, second = self.pair()
        first.send(signal.SIGSTOP)
        self.addCleanup(self.go_on, first)
        self.taken(second, 40, LEASE / 3)
        first.send(signal.SIGCONT)
        self.assertEqual(1, first.wait())
        self.assertIn('The Lease ', first.output.splitlines()[-1])
        # The second was not disturbed.
        self.assertIsNone(second.returncode)

    @staticmethod
    def go_on(one):
        if one.returncode is None:
            one.send(signal.SIGCONT)

    def test_the_server_is_away_for_too_long(self):
        one = self.start(ready=operator.READY)
        self.sandbox.outage(LEASE + 1)
        self.addCleanup(self.until, 'the API', self.sandbox.is_available,
                        True)
        self.assertEqual(1, one.wait())
        self.assertIn('The Lease could not be renewed in time',
                      one.output.splitlines()[-1])

    def test_the_lease_is_deleted(self):
        first, second = self.pair()
        self.admin.within(operator.NAMESPACE)('delete', 'lease',
                                              operator.NAME)
        # It ends at once; the second waits as long as if it did not.
        self.assertEqual(1, first.wait())
        self.taken(second, 40, LEASE / 3)

    def test_without_a_lease(self):
        self.start('--no-leader-election', ready=operator.READY)
        self.bmc().ready()
