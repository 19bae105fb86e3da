# SPDX-License-Identifier: Apache-2.0
"""TLS options of a kubeconfig: CA, server name, client certificate, proxy."""

import base64
import http.server
import os
import select
import socket
import socketserver
import ssl
import threading

import fixtures
from oslotest import base
import yaml

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import options
from tests.fixtures import authority


class _Handler(http.server.BaseHTTPRequestHandler):
    client_names = None

    def do_GET(self):
        peer = self.connection.getpeercert() or {}
        subject = dict(x[0] for x in peer.get('subject', ()))
        self.client_names.append(subject.get('commonName'))
        body = b'{"metadata": {"name": "a"}}'
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class _Proxy(socketserver.StreamRequestHandler):
    """An HTTP proxy that supports only CONNECT."""

    requests = None

    def handle(self):
        request = self.rfile.readline().split()
        auth = ''
        while line := self.rfile.readline().decode().strip():
            if line.lower().startswith('proxy-authorization:'):
                auth = line.split()[-1]
        self.requests.append((request[1].decode(), auth))
        host, port = request[1].rsplit(b':', 1)
        with socket.create_connection((host, int(port))) as upstream:
            self.wfile.write(b'HTTP/1.1 200 OK\r\n\r\n')
            targets = {self.connection: upstream, upstream: self.connection}
            while True:
                for ready in select.select(list(targets), [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    targets[ready].sendall(data)


class TlsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.dir = self.useFixture(fixtures.TempDir()).path
        for name in ('HTTPS_PROXY', 'https_proxy', 'KUBECONFIG'):
            self.useFixture(fixtures.EnvironmentVariable(name))
        self.ca = authority.Authority()
        self.client_names = []
        self.server = http.server.ThreadingHTTPServer(
            ('127.0.0.1', 0),
            type('Handler', (_Handler,), {'client_names': self.client_names}))
        self.server.handle_error = lambda *args: None

    def serve(self, *names, clients=None):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file('s', '\n'.join(
            self.ca.issue('server', *names))))
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=clients.pem)
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True,
            do_handshake_on_connect=False)
        self.run_server(self.server)

    def run_server(self, server):
        thread = threading.Thread(
            target=server.serve_forever, kwargs={'poll_interval': 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)

    def file(self, name, text):
        path = os.path.join(self.dir, name)
        with open(path, 'w') as f:
            f.write(text)
        return path

    def kubeconfig(self, cluster, user=None):
        where = {'server': f'https://127.0.0.1:{self.server.server_port}'}
        return self.file('config', yaml.safe_dump({
            'current-context': 'x',
            'clusters': [{'name': 'x', 'cluster': {**where, **cluster}}],
            'users': [{'name': 'x', 'user': user or {'token': 't'}}],
            'contexts': [{'name': 'x', 'context': {
                'cluster': 'x', 'user': 'x'}}]}))

    def get(self, cluster, user=None):
        kube_client = client.Client(
            connection.Connection.from_options(
                self.kubeconfig(cluster, user)),
            options.Options(request_timeout=30))
        self.addCleanup(kube_client.close)
        return kube_client.get(api_resources.VM, 'default', 'a')

    def data(self, text):
        return base64.b64encode(text.encode()).decode()

    def trusted_cluster(self):
        return {'certificate-authority-data': self.data(self.ca.pem)}

    def test_ca_inline_or_in_a_file(self):
        self.serve('127.0.0.1')
        self.get(self.trusted_cluster())
        self.file('ca.pem', self.ca.pem)
        self.get({'certificate-authority': 'ca.pem'})

    def test_certificate_of_untrusted_ca(self):
        self.serve('127.0.0.1')
        e = self.assertRaises(errors.Unavailable, self.get, {
            'certificate-authority-data': self.data(
                authority.Authority().pem)})
        self.assertIn('certificate verify failed', str(e))
        self.assertEqual([], self.client_names)

    def test_tls_server_name(self):
        self.serve('kube.example')
        self.assertRaises(errors.Unavailable, self.get, self.trusted_cluster())
        self.get({**self.trusted_cluster(), 'tls-server-name': 'kube.example'})

    def test_insecure_skip_tls_verify(self):
        self.serve('elsewhere.example')
        self.get({'insecure-skip-tls-verify': True})

    def test_client_certificate(self):
        others = authority.Authority()
        self.serve('127.0.0.1', clients=others)
        certificate, key = others.issue('bmc')
        self.get(self.trusted_cluster(), {
            'client-certificate-data': self.data(certificate),
            'client-key-data': self.data(key)})
        self.file('c.pem', certificate)
        self.file('k.pem', key)
        self.get(self.trusted_cluster(), {'client-certificate': 'c.pem',
                                          'client-key': 'k.pem'})
        self.assertEqual(['bmc', 'bmc'], self.client_names)
        self.assertRaises(errors.Unavailable, self.get, self.trusted_cluster())

    def test_ca_file_is_read_again(self):
        self.serve('127.0.0.1')
        ca = self.file('ca.pem', authority.Authority().pem)
        where = f'https://127.0.0.1:{self.server.server_port}'

        def read():
            with open(ca) as f:
                return connection.Access(where, ca=f.read())

        conn = connection.Connection(read)
        kube_client = client.Client(conn, options.Options(request_timeout=30))
        self.addCleanup(kube_client.close)
        self.file('ca.pem', self.ca.pem)
        conn._renewed_at -= connection.RENEW_SECONDS
        kube_client.get(api_resources.VM, 'default', 'a')

    def test_lost_connection_is_no_reason_to_read_again(self):
        # Closes connections without TLS's notice.
        server = socketserver.TCPServer(('127.0.0.1', 0),
                                        socketserver.BaseRequestHandler)
        self.run_server(server)
        where = f'https://127.0.0.1:{server.server_address[1]}'
        reads = []

        def read():
            reads.append(1)
            return connection.Access(where, ca=self.ca.pem)

        conn = connection.Connection(read)
        kube_client = client.Client(conn, options.Options(request_timeout=30))
        self.addCleanup(kube_client.close)
        conn.access()
        conn._renewed_at -= connection.RENEW_SECONDS
        e = self.assertRaises(errors.ConnectionLost, kube_client.delete,
                              api_resources.VM, 'default', 'a')
        self.assertIn('EOF', str(e))
        self.assertEqual([1], reads)

    def test_proxy_url(self):
        self.serve('127.0.0.1')
        proxied = []
        proxy = socketserver.ThreadingTCPServer(
            ('127.0.0.1', 0), type('Proxy', (_Proxy,), {'requests': proxied}))
        proxy.daemon_threads = True
        self.run_server(proxy)
        self.get({**self.trusted_cluster(), 'proxy-url':
                  f'http://me:p%40ss@127.0.0.1:{proxy.server_address[1]}'})
        self.assertEqual([(f'127.0.0.1:{self.server.server_port}',
                           self.data('me:p@ss'))], proxied)
