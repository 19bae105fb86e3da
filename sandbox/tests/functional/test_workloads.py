# SPDX-License-Identifier: Apache-2.0
"""Workloads of the sandbox, as ``kubectl`` and clients see them."""

import json
import os
import pathlib
import pty
import shutil
import socket
import subprocess
import time
import unittest

import fixtures
import requests
import yaml

from kubevirt_sandbox.testing import case
from kubevirt_sandbox.testing import process
from kubevirt_sandbox.testing import sandbox

KUBECTL = shutil.which('kubectl')

PORT = 8080

ECHO = r'''
import os, socket
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.bind((os.environ['POD_IP'], 9999))
while True:
    data, sender = here.recvfrom(100)
    here.sendto(data[::-1], sender)
'''


def pod_spec(*containers, **more):
    return {'terminationGracePeriodSeconds': 2, 'containers': list(
        containers), **more}


def container(*command, **more):
    return {'name': 'main', 'image': 'example.test/none',
            'command': list(command), **more}


def deployment(name, spec, **more):
    return {'apiVersion': 'apps/v1', 'kind': 'Deployment',
            'metadata': {'name': name}, 'spec': {
                'selector': {'matchLabels': {'app': name}},
                'template': {'metadata': {'labels': {'app': name}},
                             'spec': spec}, **more}}


def pod(name, spec):
    return {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {
        'name': name, 'labels': {'app': name}}, 'spec': spec}


def service(name, port, target, protocol='TCP', **more):
    return {'apiVersion': 'v1', 'kind': 'Service',
            'metadata': {'name': name}, 'spec': {
                'selector': {'app': name}, 'ports': [{
                    'port': port, 'targetPort': target,
                    'protocol': protocol}], **more}}


# All pods are on one host: listening on all addresses would conflict with
# other test runs.
OWN_ADDRESS = [{'name': 'POD_IP', 'valueFrom': {
    'fieldRef': {'fieldPath': 'status.podIP'}}}]


def web():
    return container(
        'python', '-m', 'http.server', '--bind', '$(POD_IP)',
        '--directory', '/etc/word', str(PORT), env=OWN_ADDRESS,
        ports=[{'name': 'http', 'containerPort': PORT}],
        readinessProbe={'httpGet': {'path': '/word', 'port': 'http'},
                        'periodSeconds': 1},
        volumeMounts=[{'name': 'word', 'mountPath': '/etc/word'}])


WORD = [{'name': 'word', 'secret': {'secretName': 'word'}}]


@unittest.skipUnless(KUBECTL, 'kubectl is not installed')
class WorkloadsTestCase(case.FunctionalTestCase):
    """Each test has its own namespace."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.share(sandbox.Sandbox(vms=0))

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.namespace = 'n-' + os.urandom(4).hex()
        self.kubectl('create', 'namespace', self.namespace)
        self.addCleanup(self.kubectl, 'delete', 'namespace', self.namespace)

    def kubectl(self, *words, stdin=None):
        """Run kubectl, which must succeed; return its output."""
        done = subprocess.run(
            [KUBECTL, *words], input=stdin, capture_output=True, text=True,
            timeout=60, env={
                **os.environ, 'HOME': str(self.home),
                'KUBECONFIG': str(self.sandbox.kubeconfig)})
        self.assertEqual(0, done.returncode, done.stderr + done.stdout)
        return done.stdout

    def call(self, *words, **more):
        return self.kubectl('-n', self.namespace, *words, **more)

    def apply(self, *objects):
        self.call('apply', '-f', '-', stdin=yaml.safe_dump_all(objects))

    def get(self, *words):
        return json.loads(self.call('get', *words, '-o', 'json'))

    def wait(self, what, condition):
        self.call('wait', what, f'--for={condition}', '--timeout=30s')

    def test_deployment_behind_service(self):
        self.apply(
            {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {
                'name': 'word'}, 'stringData': {'word': 'one'}},
            deployment('web', pod_spec(web(), volumes=WORD), replicas=2),
            service('web', 8000, 'http'))
        self.assertIn('successfully rolled out', self.call(
            'rollout', 'status', 'deployment/web', '--timeout=30s'))
        address = self.get('service', 'web')['spec']['clusterIP']
        self.assertTrue(address.startswith('127.53.'), address)
        url = f'http://{address}:8000/word'

        def word():
            answer = requests.get(url, timeout=5)
            answer.raise_for_status()
            return answer.content.decode()
        self.assertEqual('one', word())
        self.call('patch', 'secret', 'word', '-p',
                  '{"stringData": {"word": "two"}}')
        self.until(lambda: {word() for _ in range(4)} == {'two'})
        self.assertIn('GET /word', self.call(
            'logs', 'deployment/web', '--tail=5'))
        marks = [p['metadata']['uid'] for p in self.get('pods')['items']]
        self.assertEqual(2, len(marks))
        for mark in marks:
            self.assertTrue(process.running(mark))
        self.call('delete', 'deployment/web', 'service/web')
        self.call('wait', 'pod', '-l', 'app=web', '--for=delete',
                  '--timeout=30s')
        for mark in marks:
            self.assertEqual([], process.running(mark))
        for what in ('pods', 'replicasets', 'endpoints', 'endpointslices'):
            self.until(lambda what=what: not self.get(what)['items'])
        self.assertRaises(requests.ConnectionError, word)

    def test_rollout_and_undo(self):
        spec = pod_spec(container(
            'sh', '-c', 'echo $WORD; exec sleep 1000',
            env=[{'name': 'WORD', 'value': 'one'}]))
        self.apply(deployment('roll', spec))
        self.call('rollout', 'status', 'deployment/roll', '--timeout=30s')
        self.call('set', 'env', 'deployment/roll', 'WORD=two')
        self.call('rollout', 'status', 'deployment/roll', '--timeout=30s')
        self.call('rollout', 'undo', 'deployment/roll')
        self.call('rollout', 'status', 'deployment/roll', '--timeout=30s')
        self.assertEqual(2, len(self.get('replicasets')['items']))
        found = self.get('deployment', 'roll')
        self.assertEqual('3', found['metadata']['annotations'][
            'deployment.kubernetes.io/revision'])
        self.until(lambda: self.call('logs', 'deployment/roll') == 'one\n')

    def test_recreate_ends_old_pod_first(self):
        spec = pod_spec(container(
            'sh', '-c', 'trap "sleep 0.3; exit" TERM; sleep 1000 & wait'))
        self.apply(deployment('one', spec, strategy={'type': 'Recreate'}))
        self.call('rollout', 'status', 'deployment/one', '--timeout=30s')
        old = self.get('pods')['items'][0]['metadata']['name']
        self.call('set', 'env', 'deployment/one', 'A=b')
        self.call('rollout', 'status', 'deployment/one', '--timeout=30s')
        new = [p['metadata']['name'] for p in self.get('pods')['items']]
        self.assertEqual(1, len(new))
        self.assertNotEqual(old, new[0])

    def test_restarts_failed_container(self):
        self.apply(pod('fails', pod_spec(container(
            'sh', '-c', 'echo was here; exit 3'))))
        self.call('wait', 'pod/fails', '--timeout=30s', '--for=jsonpath='
                  '{.status.containerStatuses[0].state.waiting.reason}='
                  'CrashLoopBackOff')
        found = self.get('pod', 'fails')['status']['containerStatuses'][0]
        self.assertEqual(3, found['lastState']['terminated']['exitCode'])
        # A run that has just started has printed nothing yet.
        self.until(lambda: self.call('logs', 'fails') == 'was here\n')

    def test_restarts_container_after_failed_liveness_probe(self):
        self.apply(pod('hangs', pod_spec(container(
            'sh', '-c', 'exec sleep 1000', livenessProbe={
                'exec': {'command': ['false']}, 'periodSeconds': 1,
                'failureThreshold': 1}))))
        self.call('wait', 'pod/hangs', '--timeout=30s', '--for=jsonpath='
                  '{.status.containerStatuses[0].restartCount}=1')
        self.until(lambda: 'Liveness probe failed: exit code 1' in self.call(
            'get', 'events'))

    def test_udp_through_cluster_ip_load_balancer_and_node_port(self):
        echo = container('python', '-c', ECHO, env=OWN_ADDRESS)
        self.apply(pod('echo', pod_spec(echo)), service(
            'echo', 6230, 9999, 'UDP', type='LoadBalancer'))
        self.wait('pod/echo', 'condition=Ready')
        self.wait('service/echo', 'jsonpath={.status.loadBalancer.ingress}')
        found = self.get('service', 'echo')
        node = self.get('nodes')['items'][0]['status']['addresses'][0]
        for place in (
                (found['spec']['clusterIP'], 6230),
                (found['status']['loadBalancer']['ingress'][0]['ip'], 6230),
                (node['address'], found['spec']['ports'][0]['nodePort'])):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
                here.settimeout(0.2)

                def ask(here=here, place=place):
                    try:
                        here.sendto(b'abc', place)
                        return here.recvfrom(10)[0]
                    except OSError:
                        return None
                self.until(lambda ask=ask: ask() == b'cba')

    def test_pod_has_token_of_its_account(self):
        self.apply(pod('who', pod_spec(container(
            'kubectl', 'auth', 'whoami', '-o', 'jsonpath='
            '{.status.userInfo.username}'), restartPolicy='Never')))
        self.wait('pod/who', 'jsonpath={.status.phase}=Succeeded')
        self.assertEqual(f'system:serviceaccount:{self.namespace}:default',
                         self.call('logs', 'who'))

    def test_exec(self):
        self.apply(pod('host', pod_spec(container(
            'sleep', '600', env=[{'name': 'WORD', 'value': 'hello'}]))))
        self.wait('pod/host', 'condition=Ready')
        self.assertEqual('hello\n', self.call(
            'exec', 'host', '--', 'sh', '-c', 'echo $WORD'))
        numbers = '\n'.join(map(str, range(30000)))
        self.assertEqual(numbers, self.call(
            'exec', '-i', 'host', '--', 'cat', stdin=numbers))

        def run(*words, stdin=subprocess.DEVNULL):
            return subprocess.run(
                [KUBECTL, '-n', self.namespace, 'exec', 'host', *words],
                stdin=stdin, capture_output=True, text=True, timeout=60,
                env={
                    **os.environ, 'HOME': str(self.home),
                    'KUBECONFIG': str(self.sandbox.kubeconfig)})
        done = run('--', 'sh', '-c', 'echo out; echo wrong >&2; exit 3')
        self.assertEqual((3, 'out\n'), (done.returncode, done.stdout))
        self.assertTrue(done.stderr.startswith('wrong\n'), done.stderr)
        self.assertIn('not found in $PATH', run('--', 'nonsense').stderr)
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        with open(theirs) as terminal:
            self.assertIn('/dev/pts/', run('-it', '--', 'tty',
                                           stdin=terminal).stdout)
        # The command ends with the container.
        mark = 'exec-' + os.urandom(4).hex()
        waiting = subprocess.Popen(
            [KUBECTL, '-n', self.namespace, 'exec', 'host', '--', 'python',
             '-c', 'import time; time.sleep(600)', mark],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={
                **os.environ, 'HOME': str(self.home),
                'KUBECONFIG': str(self.sandbox.kubeconfig)})
        self.addCleanup(waiting.kill)
        self.until(lambda: len(process.running(mark)) > 1)
        self.call('delete', 'pod', 'host')
        self.assertNotEqual(0, waiting.wait(30))
        self.until(lambda: not process.running(mark))

    def test_drain_and_disruption_budget(self):
        self.apply(
            {'apiVersion': 'v1', 'kind': 'Node',
             'metadata': {'name': 'spare'}},
            deployment('web', pod_spec(container('sleep', '600')),
                       replicas=2),
            {'apiVersion': 'policy/v1', 'kind': 'PodDisruptionBudget',
             'metadata': {'name': 'web'}, 'spec': {
                 'minAvailable': 2, 'selector': {
                     'matchLabels': {'app': 'web'}}}})
        self.addCleanup(self.kubectl, 'delete', 'node', 'spare')
        self.addCleanup(self.kubectl, 'uncordon', 'node-0')
        self.call('rollout', 'status', 'deployment/web', '--timeout=30s')
        name = self.get('pods')['items'][0]['metadata']['name']
        answer = self.sandbox.request(
            'POST', sandbox.path('pods', name, self.namespace) + '/eviction',
            {'apiVersion': 'policy/v1', 'kind': 'Eviction',
             'metadata': {'name': name, 'namespace': self.namespace}},
            expect=429)
        self.assertIn('needs 2 healthy pods and has 2', answer.text)
        self.call('patch', 'pdb', 'web', '--type=merge', '--patch',
                  '{"spec": {"minAvailable": 0}}')
        self.kubectl('drain', 'node-0', '--timeout=60s')
        self.assertEqual({'spare'}, {
            one['spec']['nodeName'] for one in self.get('pods')['items']
            if 'deletionTimestamp' not in one['metadata']})

    def test_apply_diff_and_validation_of_list(self):
        spec = pod_spec(web(), volumes=WORD, enableServiceLinks=False,
                        securityContext={'runAsNonRoot': True})
        spec['containers'][0]['resources'] = {'limits': {'cpu': '1000m'}}
        items = {'apiVersion': 'v1', 'kind': 'List', 'items': [
            {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {
                'name': 'word'}, 'stringData': {'word': 'one'}},
            deployment('web', spec, strategy={'type': 'Recreate'}),
            service('web', 8000, 'http'),
            {'apiVersion': 'policy/v1', 'kind': 'PodDisruptionBudget',
             'metadata': {'name': 'web'}, 'spec': {
                 'maxUnavailable': 1, 'selector': {
                     'matchLabels': {'app': 'web'}}}}]}
        text = yaml.safe_dump(items)
        self.call('apply', '-f', '-', stdin=text)
        self.call('rollout', 'status', 'deployment/web', '--timeout=30s')
        # Defaults of the API server are no difference.
        self.assertEqual('', self.call('diff', '-f', '-', stdin=text))
        self.assertEqual({'limits': {'cpu': '1'}}, self.get(
            'deployment', 'web')['spec']['template']['spec']['containers'][
                0]['resources'])
        self.assertIn('periodSeconds', self.call(
            'explain', 'deployment.spec.template.spec.containers'
            '.startupProbe'))
        spec['containers'][0]['imagePolicy'] = 'Never'
        done = subprocess.run(
            [KUBECTL, '-n', self.namespace, 'apply', '-f', '-'],
            input=yaml.safe_dump(items), capture_output=True, text=True,
            timeout=60, env={**os.environ, 'HOME': str(self.home),
                             'KUBECONFIG': str(self.sandbox.kubeconfig)})
        self.assertIn(
            'unknown field "spec.template.spec.containers[0].imagePolicy"',
            done.stderr)

    def test_readiness_probe_runs_right_after_startup_probe(self):
        probe = {'httpGet': {'port': 'http'}, 'timeoutSeconds': 20}
        slow = container(
            'python', '-c', 'import time; time.sleep(1.5); import '
            'http.server as s, os; s.HTTPServer((os.environ["POD_IP"], '
            f'{PORT}), s.SimpleHTTPRequestHandler).serve_forever()',
            env=OWN_ADDRESS, ports=web()['ports'],
            startupProbe={**probe, 'periodSeconds': 1,
                          'failureThreshold': 60},
            readinessProbe={**probe, 'periodSeconds': 600},
            livenessProbe={**probe, 'periodSeconds': 600})
        self.apply(pod('slow', pod_spec(slow)))
        self.wait('pod/slow', 'condition=Ready')
        events = self.call('get', 'events', '-o', 'json')
        self.assertNotIn('Liveness', events)
        self.assertNotIn('Readiness', events)

    def test_pod_waits_for_missing_secret(self):
        self.apply(pod('early', pod_spec(container(
            'sh', '-c', 'echo $(cat /etc/word/word); exec sleep 1000',
            volumeMounts=[{'name': 'word', 'mountPath': '/etc/word'}]),
            volumes=WORD)))
        self.until(lambda: 'secret "word" not found' in self.call(
            'get', 'events'))
        self.call('create', 'secret', 'generic', 'word',
                  '--from-literal=word=late')
        self.wait('pod/early', 'condition=Ready')
        self.until(lambda: self.call('logs', 'early') == 'late\n')


@unittest.skipUnless(KUBECTL, 'kubectl is not installed')
class KilledTestCase(case.FunctionalTestCase):

    def test_killed_sandbox_leaves_no_processes(self):
        one = self.useFixture(sandbox.Sandbox(vms=0))
        mark = 'mark-' + os.urandom(8).hex()
        one.create('pods', pod('left', pod_spec(container(
            'sh', '-c', f'sh -c "sleep 1000; : $0" {mark} & '
            f'setsid sh -c "sleep 1000; : $0" {mark} & wait; : {mark}'))))
        end = time.monotonic() + 60
        # A child of the shell has the shell's command line until exec.
        while len(found := process.running(mark)
                  ) != 3 and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(3, len(found))
        os.kill(one.process.pid, 9)
        while process.running(mark) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual([], process.running(mark))


@unittest.skipUnless(KUBECTL, 'kubectl is not installed')
class PodsWithoutProcessesTestCase(case.FunctionalTestCase):
    """Pods that run no processes."""

    def test_deployment_and_endpoints(self):
        made = self.useFixture(sandbox.Sandbox(
            vms=0, arguments=['--pods', 'pretended']))

        def kubectl(*words, stdin=None):
            return subprocess.run(
                [KUBECTL, *words], input=stdin, capture_output=True,
                text=True, timeout=60, check=True, env={
                    **os.environ, 'KUBECONFIG': str(made.kubeconfig)}).stdout
        mark = 'pretended-' + os.urandom(4).hex()
        kubectl('apply', '-f', '-', stdin=yaml.safe_dump_all([
            deployment('web', pod_spec(container('sleep', mark)),
                       replicas=40), service('web', 80, 80)]))
        kubectl('rollout', 'status', 'deployment/web', '--timeout=30s')
        self.assertEqual([], process.running(mark))
        pods = json.loads(kubectl('get', 'pods', '-o', 'json'))['items']
        self.assertEqual(40, len({p['status']['podIP'] for p in pods}))
        found = json.loads(kubectl('get', 'endpoints', 'web', '-o', 'json'))
        self.assertEqual(40, len(found['subsets'][0]['addresses']))
        kubectl('delete', 'deployment', 'web')
        kubectl('wait', '--for=delete', 'pod', '--all', '--timeout=30s')


@unittest.skipUnless(KUBECTL, 'kubectl is not installed')
class TokensTestCase(case.FunctionalTestCase):
    """Mounted tokens with a short lifetime."""

    def test_tokens_are_renewed_and_expire(self):
        made = self.useFixture(sandbox.Sandbox(
            vms=0, arguments=['--token-seconds', '12']))
        mount = '/var/run/secrets/kubernetes.io/serviceaccount'
        script = (
            'import sys, time\nlast = None\nwhile True:\n'
            '    text = open(sys.argv[1]).read()\n'
            '    if text != last: print(text, flush=True)\n'
            '    last = text\n    time.sleep(0.1)\n')
        made.create('pods', pod('reader', pod_spec(container(
            'python', '-c', script, mount + '/token'))))
        tokens = []
        made.wait('pods', 'reader',
                  lambda one: one['status'].get('phase') == 'Running')
        with requests.get(
                made.url + sandbox.path('pods', 'reader') + '/log?follow=1',
                headers={'Authorization': 'Bearer ' + made.token},
                verify=made.ca, stream=True, timeout=30) as log:
            for line in log.iter_lines():
                tokens.append(line.decode())
                if len(tokens) == 2:
                    break

        def status(token):
            return requests.get(
                made.url + '/api', verify=made.ca, timeout=30, headers={
                    'Authorization': 'Bearer ' + token}).status_code
        self.assertEqual(2, len(set(tokens)))
        self.assertEqual(200, status(tokens[1]))
        end = time.monotonic() + 60
        while status(tokens[0]) != 401 and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(401, status(tokens[0]))
