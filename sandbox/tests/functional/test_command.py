# SPDX-License-Identifier: Apache-2.0
"""The command ``kubevirt-sandbox`` itself."""

import base64
import os
import pathlib
import signal
import socket
import ssl
import stat
import subprocess
import sys
from urllib import parse

import fixtures
from oslotest import base
import requests
import yaml

COMMAND = [sys.executable, '-m', 'kubevirt_sandbox.cmd']


class CommandTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.kubeconfig = self.home / 'kubeconfig'

    def run_command(self, *words):
        return subprocess.run([*COMMAND, *words], capture_output=True,
                              text=True, timeout=60)

    def start(self, *words):
        process = subprocess.Popen(
            [*COMMAND, '--listen', '127.0.0.1:0', '--kubeconfig',
             str(self.kubeconfig), *words], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process, process.stdout.readline()

    def test_prints_address_and_ends_after_signal(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            process, line = self.start()
            self.assertRegex(line, r'^ready https://127\.0\.0\.1:\d+\n$')
            process.send_signal(number)
            out, err = process.communicate(timeout=10)
            self.assertEqual((0, ''), (process.returncode, out), err)
            self.assertNotIn('Traceback', err)

    def test_ends_despite_open_watch(self):
        process, line = self.start()
        config = yaml.safe_load(self.kubeconfig.read_text())
        token = config['users'][0]['user']['token']
        answer = requests.get(
            line.split()[1] + '/api/v1/namespaces?watch=1', stream=True,
            verify=False, timeout=10,
            headers={'Authorization': 'Bearer ' + token})
        self.addCleanup(answer.close)
        process.terminate()
        out, err = process.communicate(timeout=10)
        self.assertEqual(0, process.returncode, err)
        self.assertNotIn(token, out + err)

    def test_only_owner_can_read_kubeconfig(self):
        self.start()
        mode = stat.S_IMODE(os.stat(self.kubeconfig).st_mode)
        self.assertEqual(0o600, mode)
        self.assertEqual([self.kubeconfig], list(self.home.iterdir()))

    def test_client_library_verifies_the_server(self):
        process, line = self.start('--vms', '2')
        # The Kubernetes client library reads the file and verifies.
        done = subprocess.run([sys.executable, '-c', (
            'from kubernetes import client, config; import sys\n'
            'config.load_kube_config(sys.argv[1])\n'
            'api = client.CustomObjectsApi()\n'
            'found = api.list_namespaced_custom_object('
            '"kubevirt.io", "v1", "default", "virtualmachines")\n'
            'print([v["metadata"]["name"] for v in found["items"]])\n'
            'print([n.metadata.name for n in '
            'client.CoreV1Api().list_namespace().items])\n'),
            str(self.kubeconfig)], capture_output=True, text=True,
            timeout=60)
        self.assertIn("['vm-0', 'vm-1']\n", done.stdout, done.stderr)
        self.assertIn("'kube-system'", done.stdout)

    def test_certificate_has_names_of_kubernetes_service(self):
        process, line = self.start()
        cluster = yaml.safe_load(self.kubeconfig.read_text())['clusters'][0][
            'cluster']
        context = ssl.create_default_context(cadata=base64.b64decode(
            cluster['certificate-authority-data']).decode())
        token = yaml.safe_load(self.kubeconfig.read_text())['users'][0][
            'user']['token']
        url = line.split()[1]
        service = requests.get(
            url + '/api/v1/namespaces/default/services/kubernetes',
            verify=False, timeout=10,
            headers={'Authorization': 'Bearer ' + token}).json()
        names = [service['spec']['clusterIP'], 'kubernetes',
                 'kubernetes.default', 'kubernetes.default.svc',
                 'kubernetes.default.svc.cluster.local', 'localhost']
        self.assertRegex(names[0], r'^127\.53\.')
        address = parse.urlsplit(url)
        for name in names:
            with socket.create_connection(
                    (address.hostname, address.port), 10) as plain:
                context.wrap_socket(plain, server_hostname=name).close()
        with socket.create_connection(
                (address.hostname, address.port), 10) as plain:
            self.assertRaises(
                ssl.SSLCertVerificationError, context.wrap_socket, plain,
                server_hostname='evil.default.svc')

    def test_error_for_port_in_use(self):
        process, line = self.start()
        port = line.strip().rpartition(':')[2]
        done = self.run_command('--listen', '127.0.0.1:' + port,
                                '--kubeconfig', str(self.home / 'other'))
        self.assertEqual(1, done.returncode)
        self.assertIn('in use', done.stderr)
        self.assertNotIn('Traceback', done.stderr)
        self.assertFalse((self.home / 'other').exists())

    def test_error_for_kubeconfig_that_cannot_be_written(self):
        done = self.run_command('--listen', '127.0.0.1:0', '--kubeconfig',
                                str(self.home / 'none' / 'kubeconfig'))
        self.assertEqual(1, done.returncode)
        self.assertNotIn('Traceback', done.stderr)

    def test_help_and_version(self):
        self.assertIn('development', self.run_command('--help').stdout)
        self.assertRegex(self.run_command('--version').stdout,
                         r'^kubevirt-sandbox \S+\n$')
