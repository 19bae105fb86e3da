# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs are read as kubectl does: both send the same to the server."""

import base64
import http.server
import json
import os
import pathlib
import ssl
import subprocess
import threading

from cryptography.hazmat.primitives import serialization
import fixtures
from oslotest import base
import testtools
import yaml

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import options
from tests.fixtures import authority
from tests.fixtures import base as test_case

SECRET = 'hunter2'

#: Prints the credentials in $ANSWER and writes what it was told.
PLUGIN = '''#!/bin/sh
printf %s "$KUBERNETES_EXEC_INFO" >"$(dirname "$0")/told"
printf '{"kind": "ExecCredential", "apiVersion": "%s", "status": %s}' \\
    "$1" "$ANSWER"
'''

GROUP = 'client.authentication.k8s.io'


def encoded(text):
    return base64.b64encode(text.encode()).decode()


class _Recorder(http.server.BaseHTTPRequestHandler):
    """Records the identity that a request claims."""

    requests = None

    def do_GET(self):
        peer = self.connection.getpeercert() or {}
        self.requests.append({
            'certificate': [value for field in peer.get('subject', ())
                            for _, value in field],
            'headers': sorted(
                (name.title(), value) for name, value in self.headers.items()
                if name.title().startswith(('Authorization', 'Impersonate')))})
        body = b'{"metadata": {"name": "a"}}'
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class KubectlTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('KUBECONFIG', 'KUBERNETES_SERVICE_HOST', 'HTTPS_PROXY',
                     'https_proxy', 'NO_PROXY', 'no_proxy'):
            self.useFixture(fixtures.EnvironmentVariable(name))
        self.useFixture(fixtures.EnvironmentVariable('HOME', str(self.folder)))
        self.authority = authority.Authority()
        self.requests = []
        self.server = http.server.ThreadingHTTPServer(
            ('127.0.0.1', 0),
            type('Recorder', (_Recorder,), {'requests': self.requests}))
        self.url = f'https://127.0.0.1:{self.server.server_port}'
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file('server.pem', '\n'.join(
            self.authority.issue('server', '127.0.0.1', 'kube.example'))))
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.authority.pem)
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True,
            do_handshake_on_connect=False)
        thread = threading.Thread(target=self.server.serve_forever,
                                  kwargs={'poll_interval': 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.file('ca.pem', self.authority.pem)
        self.certificate, self.key = self.authority.issue('alice')
        self.file('cert.pem', self.certificate)
        self.file('key.pem', self.key)

    def file(self, name, content, mode=0o600):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str)
                        else yaml.safe_dump(content))
        path.chmod(mode)
        return str(path)

    def config(self, user, cluster=None, name='x', **more):
        return {
            'clusters': [{'name': name, 'cluster': {
                'server': self.url, 'certificate-authority': 'ca.pem',
                **(cluster or {})}}],
            'users': [{'name': name, 'user': user}],
            'contexts': [{'name': name, 'context': {
                'cluster': name, 'user': name}}],
            'current-context': name, **more}

    def plugin(self, version='v1', answer=None, **more):
        """Return a user with an exec plugin."""
        self.file('plugin', PLUGIN, 0o700)
        return {'exec': {
            'apiVersion': f'{GROUP}/{version}', 'command': './plugin',
            'args': [f'{GROUP}/{version}'], 'interactiveMode': 'Never',
            'env': [{'name': 'ANSWER', 'value': json.dumps(
                answer or {'token': 'of-plugin'})}], **more}}

    def kubectl(self, paths, context=None):
        """Return what kubectl sends; None if it refuses the files."""
        self.requests.clear()
        words = ['--context', context] if context else []
        done = subprocess.run(
            ['kubectl', *words, 'get', '--raw', '/api', '--v=0'],
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
            env={**os.environ, 'KUBECONFIG': ':'.join(paths)}, timeout=60)
        self.addDetail('kubectl', testtools.content.text_content(
            done.stdout + done.stderr))
        return None if done.returncode else self.requests[-1]

    def ours(self, paths, context=None):
        """Return what the product sends."""
        self.requests.clear()
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBECONFIG', ':'.join(paths)))
        kube_client = client.Client(
            connection.Connection.from_options(context=context),
            options.Options(request_timeout=5))
        self.addCleanup(kube_client.close)
        kube_client.get(api_resources.VM, 'default', 'a')
        return self.requests[-1]

    def assert_same(self, *paths, context=None):
        """Compare with kubectl; return what both send."""
        sent = self.kubectl(paths, context)
        self.assertIsNotNone(sent, paths)
        self.assertEqual(sent, self.ours(paths, context))
        return sent

    def user_headers(self, user, cluster=None):
        path = self.file('config', self.config(user, cluster))
        return dict(self.assert_same(path)['headers'])

    # Users

    def test_tokens_and_passwords(self):
        self.file('token', 'of-file\n')
        for user, expected in (
                ({'token': 'abc'}, 'Bearer abc'),
                ({'tokenFile': 'token'}, 'Bearer of-file'),
                ({'token': 'abc', 'tokenFile': 'token'}, 'Bearer of-file'),
                ({'username': 'ü', 'password': 'p:w'},
                 f"Basic {encoded('ü:p:w')}")):
            self.assertEqual({'Authorization': expected},
                             self.user_headers(user))

    def test_certificates(self):
        lines = base64.encodebytes(self.key.encode()).decode()
        for user in (
                {'client-certificate': 'cert.pem', 'client-key': 'key.pem'},
                {'client-certificate-data': encoded(self.certificate),
                 'client-key-data': lines},
                {'client-certificate': 'cert.pem', 'client-key': 'key.pem',
                 **self.plugin()}):
            sent = self.assert_same(self.file('config', self.config(user)))
            self.assertEqual(['alice'], sent['certificate'])
            self.assertEqual([], sent['headers'])

    def test_impersonation(self):
        user = {'token': 'abc', 'as': 'bob', 'as-uid': '7',
                'as-groups': ['one', 'two'], 'as-user-extra': {
                    'example.com/scope': ['a', 'b']}}
        self.user_headers(user)
        sent = self.assert_same(self.file('config', self.config(user)))
        self.assertIn(('Impersonate-Group', 'one'), sent['headers'])
        self.assertIn(('Impersonate-Group', 'two'), sent['headers'])
        self.assertEqual(7, len(sent['headers']))

    def test_context_without_a_user(self):
        config = self.config({})
        del config['contexts'][0]['context']['user'], config['users']
        self.file('config', config)
        sent = self.ours([str(self.folder / 'config')])
        self.assertEqual([], sent['headers'])

    # Exec plugins

    def test_plugins(self):
        for version in 'v1', 'v1beta1':
            self.assertEqual(
                {'Authorization': 'Bearer of-plugin'},
                self.user_headers(self.plugin(version)))
        sent = self.assert_same(self.file('config', self.config(self.plugin(
            answer={'clientCertificateData': self.certificate,
                    'clientKeyData': self.key}))))
        self.assertEqual(['alice'], sent['certificate'])
        # Other credentials come first.
        self.assertEqual({'Authorization': 'Bearer abc'}, self.user_headers(
            {'token': 'abc', **self.plugin()}))

    def test_what_a_plugin_is_told(self):
        told = self.folder / 'told'
        for user, cluster in (
                (self.plugin(), {}),
                (self.plugin(provideClusterInfo=True), {
                    'tls-server-name': 'kube.example', 'extensions': [
                        {'name': f'{GROUP}/exec', 'extension': {
                            'audience': 'x'}},
                        {'name': 'other', 'extension': {'a': 'b'}}]}),
                (self.plugin(provideClusterInfo=True, version='v1beta1'), {
                    'insecure-skip-tls-verify': True,
                    'certificate-authority': ''})):
            path = self.file('config', self.config(user, cluster))
            self.assertIsNotNone(self.kubectl([path]))
            expected = json.loads(told.read_text())
            told.unlink()
            self.ours([path])
            self.assertEqual(without_null(expected),
                             json.loads(told.read_text()))

    # Several files and contexts

    def test_several_files(self):
        first = self.file('one/config', {
            **self.config({'token': 'first'}, {
                'certificate-authority': '../ca.pem'}),
            'current-context': ''})
        second = self.file('config', {
            **self.config({'token': 'second'}, name='other')})
        third = self.file('two/config', self.config({'token': 'third'}))
        empty = self.file('empty', '')
        null = self.file('null', {'contexts': None, 'users': None})
        for paths, context, token in (
                ((first, second, third), None, 'second'),
                ((first, second, third), 'x', 'first'),
                ((second, third, first), None, 'second'),
                ((empty, null, '/no/such', second), None, 'second')):
            self.assertEqual(
                [('Authorization', f'Bearer {token}')],
                self.assert_same(*paths, context=context)['headers'])

    def test_proxy_of_environment_is_not_for_this_host(self):
        self.useFixture(fixtures.EnvironmentVariable(
            'HTTPS_PROXY', 'http://192.0.2.1:9'))
        self.user_headers({'token': 'abc'})

    def test_json(self):
        path = self.file('config', json.dumps(self.config({'token': 'abc'})))
        self.assert_same(path)

    # Files that cannot be used

    def test_what_kubectl_refuses(self):
        user = {'token': SECRET}
        config = self.config(user)
        plugin = self.plugin()['exec']
        told = self.plugin(provideClusterInfo=True)
        self.file('lines', f'{SECRET}\n{SECRET}')
        for reason, content in (
                ('YAML', f'token: [{SECRET}'),
                ('line 2', f'a: b\n{SECRET}: "'),
                ('keys and values', f'- {SECRET}'),
                ('list as users', {**config, 'users': SECRET}),
                ('keys and values', {**config, 'users': [SECRET]}),
                ('several users', {**config, 'users': config['users'] * 2}),
                ('no context gone', {**config, 'current-context': 'gone'}),
                ('no cluster x', {**config, 'clusters': []}),
                ('no user x', {**config, 'users': []}),
                ('needs a server', self.config(user, {'server': ''})),
                ('/no/such', self.config(user, {
                    'certificate-authority': '/no/such'})),
                ('certificate-authority', self.config(user, {
                    'certificate-authority-data': f'!{SECRET}'})),
                ('CA or client certificate', self.config(user, {
                    'certificate-authority-data': encoded(SECRET)})),
                ('true or false', self.config(user, {
                    'insecure-skip-tls-verify': SECRET})),
                ('proxy', self.config(user, {'proxy-url': 'ftp://x'})),
                ('client-key', self.config({
                    'client-certificate': 'cert.pem'})),
                ('CA or client certificate', self.config({
                    'client-certificate': 'cert.pem',
                    'client-key-data': encoded(SECRET)})),
                ('CA or client certificate', self.config({
                    'client-certificate': 'cert.pem',
                    'client-key-data': encoded(self.encrypted_key())})),
                ('/no/such', self.config({'tokenFile': '/no/such'})),
                ('ASCII', self.config({'token': f'{SECRET}\n'})),
                ('text as token', self.config({'token': [SECRET]})),
                ('"as"', self.config({**user, 'as-groups': ['a']})),
                ('apiVersion', self.config({'exec': {
                    **plugin, 'apiVersion': 'v3'}})),
                ('terminal', self.config({'exec': {
                    **plugin, 'interactiveMode': 'Always'}})),
                ('a command', self.config({'exec': {
                    **plugin, 'command': ''}})),
                ('get it there', self.config({'exec': {
                    **plugin, 'command': '/no/such',
                    'installHint': 'get it there'}})),
                ('exit code 1', self.config({'exec': {
                    **plugin, 'command': 'false'}})),
                ('no ExecCredential', self.config({'exec': {
                    **plugin, 'command': 'echo', 'args': [SECRET]}})),
                ('another apiVersion', self.config({'exec': {
                    **plugin, 'args': [f'{GROUP}/v1beta1']}})),
                ('neither a token', self.config(
                    self.plugin(answer={'a': SECRET}))),
                ('with its key', self.config(self.plugin(answer={
                    'clientKeyData': SECRET}))),
                ('with its key', self.config(self.plugin(answer={
                    'token': SECRET,
                    'clientCertificateData': self.certificate}))),
                ('no ExecCredential', self.config(self.plugin(answer={
                    'token': SECRET, 'expirationTimestamp': 'soon'}))),
                ('no ExecCredential', self.config({'exec': {
                    **plugin, 'command': 'printf',
                    'args': ['[%.0s' * 9999 + SECRET,
                             *map(str, range(9999))]}})),
                ('list as extensions', self.config(told, {
                    'extensions': SECRET})),
                ('an extension must have keys', self.config(told, {
                    'extensions': [SECRET]})),
                ('list as env', self.config({'exec': {
                    **plugin, 'env': SECRET}})),
                ('ASCII', self.config({'tokenFile': 'lines'}))):
            path = self.file('config', content)
            self.assertIsNone(self.kubectl([path]), content)
            error = self.assertRaises(errors.ConfigError, self.ours, [path])
            self.assertIn(reason, str(error))
            self.assertNotIn(SECRET, str(error))

    def encrypted_key(self):
        key = serialization.load_pem_private_key(self.key.encode(), None)
        return key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(SECRET.encode())).decode()

    def test_credentials_are_not_sent_in_the_clear(self):
        plain = http.server.ThreadingHTTPServer(
            ('127.0.0.1', 0), http.server.BaseHTTPRequestHandler)
        self.addCleanup(plain.server_close)
        path = self.file('config', self.config({'token': SECRET}, {
            'server': f'http://127.0.0.1:{plain.server_port}'}))
        access = connection.Connection.from_options(path).access()
        self.assertEqual([], access.headers)


def without_null(info):
    """Drop a ``config`` of null, which kubectl adds."""
    cluster = info['spec'].get('cluster', {})
    if not cluster.get('config'):
        cluster.pop('config', None)
    return info


class SandboxTestCase(test_case.SandboxTestCase):

    def test_config_that_kubectl_has_written(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        config = yaml.safe_load(self.sandbox.kubeconfig.read_text())
        (folder / 'ca.pem').write_bytes(base64.b64decode(
            config['clusters'][0]['cluster']['certificate-authority-data']))
        path = str(folder / 'config')
        for embedded in 'true', 'false':
            for words in (
                    ['set-cluster', 'lab', '--server',
                     config['clusters'][0]['cluster']['server'],
                     '--certificate-authority', str(folder / 'ca.pem'),
                     f'--embed-certs={embedded}'],
                    ['set-credentials', 'me', '--token',
                     config['users'][0]['user']['token']],
                    ['set-context', 'here', '--cluster', 'lab', '--user',
                     'me', '--namespace', 'nodes'],
                    ['use-context', 'here']):
                subprocess.run(['kubectl', '--kubeconfig', path, 'config',
                                *words], check=True, capture_output=True)
            kube = connection.Connection.from_options(path)
            self.assertEqual('nodes', kube.namespace)
            kube_client = client.Client(kube, options.Options())
            self.addCleanup(kube_client.close)
            self.assertRaises(errors.ObjectNotFound, kube_client.get,
                              api_resources.VM, 'nodes', 'gone')
