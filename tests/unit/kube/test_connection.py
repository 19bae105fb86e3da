# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs, service accounts and credentials, with real exec plugins."""

import base64
import http.server
import json
import os
import pathlib
import shlex
import stat
import threading
import time
from unittest import mock

import fixtures
from oslotest import base

from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors

TOKEN = {'token': 'secret'}


def kubeconfig(user=None, cluster=None, name='one', current='one',
               server='https://127.0.0.1:1', **context):
    config = {
        'apiVersion': 'v1', 'kind': 'Config',
        'clusters': [{'name': name, 'cluster': {
            'server': server, **(cluster or {})}}],
        'users': [{'name': name, 'user': user or TOKEN}],
        'contexts': [{'name': name, 'context': {
            'cluster': name, 'user': name, **context}}],
    }
    if current:
        config['current-context'] = current
    return config


class ConnectionTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.dir = self.useFixture(fixtures.TempDir()).path
        self.useFixture(fixtures.EnvironmentVariable('HOME', self.dir))
        for name in ('KUBECONFIG', 'KUBERNETES_SERVICE_HOST',
                     'SUSHY_KUBEVIRT_ACCOUNT', 'HTTPS_PROXY',
                     'https_proxy', 'NO_PROXY', 'no_proxy'):
            self.useFixture(fixtures.EnvironmentVariable(name))

    def file(self, content, name='config'):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as f:
            f.write(content if isinstance(content, str)
                    else json.dumps(content))
        return path

    def plugin(self, text, name='plugin'):
        path = self.file('#!/bin/sh\n' + text, name)
        os.chmod(path, stat.S_IRWXU)
        return {'exec': {'apiVersion': 'client.authentication.k8s.io/v1',
                         'command': path, 'interactiveMode': 'Never'}}

    def refused(self, *args):
        return str(self.assertRaises(
            errors.ConfigError, connection.Connection.from_options, *args))

    def access(self, *args):
        return connection.Connection.from_options(*args).access()

    # Choice of the configuration

    def test_kubeconfig_given_by_path(self):
        access = self.access(self.file(kubeconfig(namespace='lab')))
        self.assertEqual(
            ('https://127.0.0.1:1', 'Bearer secret', 'lab', 'one'),
            (access.server, access.authorization, access.namespace,
             access.context))

    def test_missing_file_is_named_in_error(self):
        self.assertIn('/no/such', self.refused('/no/such'))

    def test_file_that_is_no_kubeconfig(self):
        for content, reason in (
                ('hello', 'it must have keys and values'),
                ('[a]', 'it must have keys and values'),
                ('contexts: 5', 'it needs a list as contexts'),
                ('', 'no current context; name one of: none'),
                ('[1, 2', 'not valid YAML'),
                ('a: 1\nb: "', 'not valid YAML, see line 2')):
            path = self.file(content)
            text = self.refused(path)
            self.assertIn(path, text)
            self.assertIn(reason, text)

    def test_cluster_without_server_url(self):
        for server in ('', '192.0.2.1'):
            text = self.refused(self.file(kubeconfig(server=server)))
            self.assertIn('cluster one needs a server', text)

    def test_error_without_any_configuration(self):
        text = self.refused()
        self.assertIn('~/.kube/config', text)
        self.assertIn('$KUBECONFIG', text)

    def test_unknown_context(self):
        text = self.refused(self.file(kubeconfig()), 'other')
        self.assertIn('no context other', text)
        self.assertIn('one', text)

    def test_missing_current_context(self):
        text = self.refused(self.file(kubeconfig(current=None)))
        self.assertIn('name one of: one', text)

    def test_kubeconfig_in_home_directory(self):
        self.file(kubeconfig(), '.kube/config')
        self.assertEqual('Bearer secret', self.access().authorization)

    def test_first_of_several_files_wins(self):
        first = self.file(kubeconfig(), 'first')
        second = self.file(kubeconfig(
            {'token': 'two'}, name='two', current='two'), 'second')
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBECONFIG', ':'.join([first, '/no/such', second])))
        self.assertEqual('Bearer secret', self.access().authorization)
        self.assertEqual('Bearer two', self.access(
            None, 'two').authorization)

    def test_kubeconfig_variable_with_missing_file(self):
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBECONFIG', '/no/such'))
        self.assertIn('/no/such', self.refused())

    def test_service_account_of_pod(self):
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.kube.connection.ACCOUNT_DIR', self.dir))
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.kube.connection.TOKEN_SECONDS', 0))
        for name, value in (('HOST', 'fd00::1'), ('PORT', '6443')):
            self.useFixture(fixtures.EnvironmentVariable(
                'KUBERNETES_SERVICE_' + name, value))
        self.assertIn('ca.crt', self.refused())
        self.file('CA', 'ca.crt')
        self.file('lab', 'namespace')
        self.file('first\n', 'token')
        conn = connection.Connection.from_options()
        self.assertEqual(('https://[fd00::1]:6443', 'CA', 'lab'), (
            conn.server, conn.access().ca, conn.namespace))
        self.assertEqual('Bearer first', conn.access().authorization)
        self.file('second', 'token')
        self.assertEqual('Bearer second', conn.access().authorization)

    def test_service_account_in_other_directory(self):
        folder = os.path.join(self.dir, 'elsewhere')
        for name, value in (
                ('KUBECONFIG', '/no/such'),
                ('KUBERNETES_SERVICE_HOST', '192.0.2.1'),
                ('SUSHY_KUBEVIRT_ACCOUNT', folder)):
            self.useFixture(fixtures.EnvironmentVariable(name, value))
        self.assertIn(folder, self.refused())
        for name in 'ca.crt', 'namespace', 'token':
            self.file(name, 'elsewhere/' + name)
        conn = connection.Connection.from_options()
        self.assertEqual('Bearer token', conn.access().authorization)
        # Outside a pod the variable is ignored.
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBERNETES_SERVICE_HOST'))
        self.assertIn('/no/such', self.refused())

    # Content of the configuration

    def test_token_file_is_read_again(self):
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.kube.connection.TOKEN_SECONDS', 0))
        self.file('first', 'token')
        conn = connection.Connection.from_options(
            self.file(kubeconfig({'tokenFile': 'token'})))
        self.assertEqual('Bearer first', conn.access().authorization)
        self.file('second', 'token')
        self.assertEqual('Bearer second', conn.access().authorization)

    def test_token_file_that_is_no_token(self):
        path = self.file(kubeconfig({'tokenFile': 'token'}))
        for content in b'', b' \n', b'hunter\n2', 'hünter'.encode(), b'\xff':
            (pathlib.Path(path).parent / 'token').write_bytes(content)
            e = self.assertRaises(errors.ConfigError, self.access, path)
            self.assertIn('token needs a line of ASCII', str(e))

    def test_refused_token_is_read_again_at_once(self):
        self.file('first', 'token')
        conn = connection.Connection.from_options(
            self.file(kubeconfig({'tokenFile': 'token'})))
        seen = conn.access()
        self.assertIs(seen, conn.renew(seen))
        self.file('second', 'token')
        self.assertEqual('Bearer first', conn.access().authorization)
        self.assertEqual('Bearer second', conn.renew(seen).authorization)
        self.assertEqual('Bearer second', conn.access().authorization)

    def test_proxy_server_name_and_no_verification(self):
        access = self.access(self.file(kubeconfig(cluster={
            'proxy-url': 'http://proxy:3128', 'tls-server-name': 'kube',
            'insecure-skip-tls-verify': True})))
        self.assertEqual(('http://proxy:3128', 'kube', True), (
            access.proxy, access.tls_server_name, access.insecure))

    def test_proxy_of_environment(self):
        path = self.file(kubeconfig(server='https://kube.example:6443'))
        self.useFixture(fixtures.EnvironmentVariable(
            'HTTPS_PROXY', 'http://proxy:3128'))
        self.assertEqual('http://proxy:3128', self.access(path).proxy)
        self.useFixture(fixtures.EnvironmentVariable(
            'HTTPS_PROXY', 'proxy:3128'))
        self.assertEqual('http://proxy:3128', self.access(path).proxy)

    def test_servers_without_proxy(self):
        self.useFixture(fixtures.EnvironmentVariable('HTTPS_PROXY', 'proxy'))
        for host, no_proxy, direct in (
                ('localhost', '', True), ('127.0.0.2', '', True),
                ('[::1]', '', True), ('127.example', '', False),
                ('kube.example', '', False), ('kube.example', ',', False),
                ('kube.example', 'a, KUBE.example', True),
                ('kube.example', '*', True),
                ('kube.example', 'example', True),
                ('kube.example', '.example', True),
                ('kube.example', '*.example', True),
                ('kube.example', 'be.example', False),
                ('kube.example', '.kube.example', False),
                ('kube.example', 'kube.example:6443', True),
                ('kube.example', 'kube.example:443', False),
                ('kube.example', 'kube.example:x, [', False),
                ('192.0.2.7', '192.0.2.7', True),
                ('192.0.2.7', '192.0.2.0/24', True),
                ('192.0.2.7', '192.0.3.0/24, 2001:db8::/32', False),
                ('192.0.2.7', '192.0.2.7:6443', True),
                ('[2001:db8::7]', '2001:db8::7', True),
                ('[2001:db8::7]', '2001:db8::/64', True),
                ('[2001:db8::7]', '[2001:db8::7]:6443', True),
                ('[2001:db8::7]', '2001:db8:1::/64', False)):
            self.useFixture(fixtures.EnvironmentVariable(
                'NO_PROXY', no_proxy))
            access = self.access(self.file(kubeconfig(
                server=f'https://{host}:6443')))
            self.assertEqual(None if direct else 'http://proxy',
                             access.proxy, (host, no_proxy))

    def test_username_and_password(self):
        access = self.access(self.file(kubeconfig(
            {'username': 'u', 'password': 'p'})))
        self.assertEqual('Basic dTpw', access.authorization)

    # Exec plugins

    def test_token_of_plugin_is_renewed_before_expiry(self):
        expiry = time.strftime('%Y-%m-%dT%H:%M:%SZ',
                               time.gmtime(time.time() + 3600))
        user = self.plugin(
            'n=$(cat %(dir)s/n 2>/dev/null || echo 0); '
            'echo $((n + 1)) > %(dir)s/n\n'
            'echo \'{"apiVersion": "client.authentication.k8s.io/v1", '
            '"kind": "ExecCredential", "status": {"token": "t\'$n\'", '
            '"expirationTimestamp": "%(expiry)s"}}\'\n'
            % {'dir': shlex.quote(self.dir), 'expiry': expiry})
        conn = connection.Connection.from_options(self.file(kubeconfig(user)))
        self.assertEqual('Bearer t0', conn.access().authorization)
        self.assertEqual('Bearer t0', conn.access().authorization)
        conn._renew_at = conn._renewed_at = time.time() - 1
        conn._renewed_at = time.monotonic() - connection.RENEW_SECONDS
        self.assertEqual('Bearer t1', conn.access().authorization)
        self.assertEqual('Bearer t1', conn.access().authorization)

    def test_error_of_failing_plugin(self):
        user = self.plugin('echo please log in first >&2; exit 3\n')
        text = self.refused(self.file(kubeconfig(user)))
        self.assertIn('plugin', text)
        self.assertIn('please log in first', text)

    def test_missing_plugin(self):
        user = self.plugin('')
        user['exec']['command'] = 'no-such-plugin'
        text = self.refused(self.file(kubeconfig(user)))
        self.assertIn('no-such-plugin', text)

    def test_plugin_that_waits_for_input(self):
        # Its child keeps the pipe open.
        user = self.plugin('sleep 60 & wait\n')
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.kube.exec_plugin.SECONDS', 0.1))
        self.assertIn('waits for input', self.refused(
            self.file(kubeconfig(user))))

    def test_plugin_cannot_read_the_input_of_the_program(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, writer)
        before = os.dup(0)
        self.addCleanup(os.close, before)
        self.addCleanup(os.dup2, before, 0)
        os.dup2(reader, 0)
        os.close(reader)
        user = self.plugin('[ /proc/self/fd/0 -ef /dev/null ] && echo null '
                           '>&2; exit 1\n')
        self.assertIn(': null', self.refused(self.file(kubeconfig(user))))

    # Auth providers

    def test_missing_library(self):
        path = self.file(kubeconfig({'auth-provider': {
            'name': 'oidc', 'config': {'id-token': 'hunter2'}}}))
        with mock.patch.dict('sys.modules', {'kubernetes': None}):
            text = self.refused(path)
        self.assertIn('sushy-kubevirt[auth-provider]', text)
        self.assertNotIn('hunter2', text)

    def test_provider_that_the_library_does_not_know(self):
        for provider in {'name': 'azure'}, {}:
            self.assertIn('exec plugin', self.refused(self.file(kubeconfig({
                'auth-provider': {**provider, 'config': {'a': 'hunter2'}}}))))

    def test_expired_oidc_token_is_refreshed(self):
        def token(**claims):
            text = base64.urlsafe_b64encode(json.dumps(claims).encode())
            return f'e30.{text.decode().rstrip("=")}.x'

        asked = []

        class Provider(http.server.BaseHTTPRequestHandler):

            def do_GET(self):
                asked.append(self.path)
                self.answer({'token_endpoint': url + '/token'})

            def do_POST(self):
                asked.append(self.path)
                self.answer({'id_token': new, 'refresh_token': 'r2',
                             'access_token': 'a', 'token_type': 'bearer'})

            def answer(self, body):
                data = json.dumps(body).encode()
                self.send_response(200)
                self.send_header('Content-Type', 'application/json')
                self.send_header('Content-Length', str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Provider)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f'http://127.0.0.1:{server.server_port}'
        new = token(exp=time.time() + 3600)
        # oauthlib refuses plain HTTP otherwise.
        self.useFixture(fixtures.EnvironmentVariable(
            'OAUTHLIB_INSECURE_TRANSPORT', '1'))
        path = self.file(kubeconfig({'auth-provider': {
            'name': 'oidc', 'config': {
                'client-id': 'c', 'client-secret': 's', 'idp-issuer-url': url,
                'id-token': token(exp=1), 'refresh-token': 'r'}}}))
        access = self.access(path)
        self.assertEqual(['/.well-known/openid-configuration', '/token'],
                         asked)
        self.assertEqual('Bearer ' + new, access.authorization)
        with open(path) as f:
            self.assertIn('r2', f.read())
        self.assertEqual('Bearer ' + new, self.access(path).authorization)
        self.assertEqual(2, len(asked))

    # Renewal

    def test_renewal_is_rate_limited(self):
        reads = []

        def read():
            reads.append(1)
            return connection.Access('https://x')

        conn = connection.Connection(read)
        seen = conn.access()
        for _ in range(5):
            self.assertIs(seen, conn.renew(seen))
        self.assertEqual(1, len(reads))

    def test_credentials_are_used_until_expiry_if_renewal_fails(self):
        expiry = time.time() + 100
        accesses = [connection.Access('https://x', expiry=expiry)]

        def read():
            if not accesses:
                raise errors.ConfigError('the identity provider is away')
            return accesses.pop()

        conn = connection.Connection(read)
        conn._renew_at = time.time() - 1
        conn._renewed_at -= connection.RENEW_SECONDS
        seen = conn.access()
        self.assertEqual(expiry, seen.expiry)
        conn._renew_at = time.time() - 1
        conn._renewed_at -= connection.RENEW_SECONDS
        conn._access = connection.Access('https://x', expiry=time.time() - 1)
        self.assertRaises(errors.ConfigError, conn.access)

    def test_renewal_of_refused_credentials_backs_off(self):
        conn = connection.Connection(lambda: connection.Access('https://x'))
        seen = conn.access()
        for _ in range(10):
            conn._renewed_at = -10 ** 6
            self.assertIs(seen, conn.renew(seen))
        self.assertEqual(connection.LONGEST_RENEW_SECONDS, conn._pause)

    def test_secrets_are_not_shown(self):
        access = self.access(self.file(kubeconfig()))
        self.assertNotIn('secret', repr(access))
