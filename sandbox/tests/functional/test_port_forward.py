# SPDX-License-Identifier: Apache-2.0
"""``portforward`` of pods, by the Kubernetes client and raw WebSockets."""

import os
import struct

from kubernetes import client
from kubernetes import config
from kubernetes import stream
import websocket

from kubevirt_sandbox.testing import api_user
from kubevirt_sandbox.testing import case
from kubevirt_sandbox.testing import sandbox

#: An echo that ends when it has read "end"; and an HTTP server.
_ECHO, _HTTP, _CLOSED = 7007, 8080, 9
_PROGRAM = r'''
import http.server, os, socketserver, threading
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            if data == b'end':
                return
            self.request.sendall(data)
        print('the client has closed the connection', flush=True)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
address = os.environ['POD_IP']
echo = Server((address, 7007), Echo)
threading.Thread(target=echo.serve_forever, daemon=True).start()
http.server.ThreadingHTTPServer(
    (address, 8080), http.server.SimpleHTTPRequestHandler).serve_forever()
'''


def pod(name, command, **spec):
    container = {
        'name': 'main', 'image': 'example.test/none', 'command': command,
        'env': [{'name': 'POD_IP', 'valueFrom': {
            'fieldRef': {'fieldPath': 'status.podIP'}}}]}
    if not spec:
        container['readinessProbe'] = {
            'tcpSocket': {'port': _HTTP}, 'periodSeconds': 1}
    return {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': name},
            'spec': {'terminationGracePeriodSeconds': 0,
                     'containers': [container], **spec}}


class PortForwardTestCase(case.FunctionalTestCase):
    """The pod ``server`` serves two ports."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.share(sandbox.Sandbox(vms=0))
        cls.user = api_user.ApiUser(cls.sandbox.kubeconfig)
        cls.user.apply(pod('server', ['python', '-c', _PROGRAM]))
        cls.user.wait('pod/server', 'condition=Ready')

    def api(self, kubeconfig=None):
        settings = client.Configuration()
        config.load_kube_config(str(kubeconfig or self.sandbox.kubeconfig),
                                client_configuration=settings)
        return client.CoreV1Api(client.ApiClient(settings))

    def forward(self, name='server', ports=(_ECHO,), kubeconfig=None):
        return stream.portforward(
            self.api(kubeconfig).connect_get_namespaced_pod_portforward, name,
            'default', ports=','.join(map(str, ports)))

    def connect(self, name='server', query=f'ports={_ECHO}',
                protocol='v4.channel.k8s.io'):
        settings = self.api().api_client.configuration
        headers = {
            'Authorization':
                settings.auth_settings()['BearerToken']['value']}
        opened = websocket.create_connection(
            'wss' + settings.host.removeprefix('https')
            + f'/api/v1/namespaces/default/pods/{name}/portforward?{query}',
            sslopt={'ca_certs': settings.ssl_ca_cert}, header=headers,
            timeout=30, subprotocols=[protocol] if protocol else None)
        self.addCleanup(opened.shutdown)
        return opened

    def refused(self, **more):
        error = self.assertRaises(websocket.WebSocketBadStatusException,
                                  self.connect, **more)
        return error.status_code, error.resp_body.decode()

    def test_two_ports_of_the_kubernetes_client(self):
        forward = self.forward(ports=(_ECHO, _HTTP))
        self.addCleanup(forward.close)
        echo, http = forward.socket(_ECHO), forward.socket(_HTTP)
        http.sendall(b'GET / HTTP/1.0\r\n\r\n')
        self.assertIn(b'200 OK', http.makefile('rb').readline())
        data = os.urandom(3 * 2 ** 20)
        for begin in range(0, len(data), 2 ** 18):
            part = data[begin:begin + 2 ** 18]
            echo.sendall(part)
            self.assertEqual(part, echo.makefile('rb').read(len(part)))
        self.assertIsNone(forward.error(_ECHO))

    def test_channels(self):
        opened = self.connect(query=f'ports={_ECHO}&ports={_HTTP}')
        self.assertEqual('v4.channel.k8s.io', opened.getsubprotocol())
        self.assertEqual(
            sorted(bytes([channel]) + struct.pack('<H', port)
                   for channel, port in ((0, _ECHO), (1, _ECHO), (2, _HTTP),
                                         (3, _HTTP))),
            sorted(opened.recv() for _ in range(4)))
        opened.send_binary(b'\1ignored')
        opened.send_binary(b'\7ignored')
        opened.send_binary(b'')
        opened.send_binary(b'\0hello')
        self.assertEqual(b'\0hello', opened.recv())
        opened.send_binary(b'\0end')
        # The other port is still open, and the WebSocket with it.
        opened.send_binary(b'\2GET / HTTP/1.0\r\n\r\n')
        answer = b''
        while frame := opened.recv():
            self.assertEqual(2, frame[0])
            answer += frame[1:]
        self.assertTrue(answer.startswith(b'HTTP/1.0 200 OK'), answer)

    def test_closed_port(self):
        opened = self.connect(query=f'ports={_CLOSED}', protocol=None)
        self.assertEqual(b'\0\x09\0', opened.recv())
        self.assertEqual(b'\1\x09\0', opened.recv())
        error = opened.recv()
        self.assertEqual(1, error[0])
        self.assertIn(b'error forwarding port 9 to pod', error)
        self.assertFalse(opened.recv())
        forward = self.forward(ports=(_CLOSED,))
        self.assertEqual(b'', forward.socket(_CLOSED).recv(1))
        self.assertIn('Connect call failed', forward.error(_CLOSED))

    def test_client_that_leaves(self):
        self.connect().close()
        self.until(lambda: 'the client has closed' in self.user(
            'logs', 'server'))

    def test_refusals(self):
        self.assertEqual(400, self.refused(query='')[0])
        self.assertEqual(400, self.refused(query='ports=x')[0])
        self.assertEqual(400, self.refused(query='ports=0')[0])
        self.assertEqual(400, self.refused(query='ports=65536')[0])
        self.assertEqual(404, self.refused(name='missing')[0])
        code, text = self.refused(protocol='v5.channel.k8s.io')
        self.assertEqual(403, code)
        self.assertIn('are not supported', text)
        self.sandbox.request(
            'POST', '/api/v1/namespaces/default/pods/server/portforward'
            f'?ports={_ECHO}', expect=400)

    def test_pods_that_do_not_run(self):
        self.user.apply(pod('waiting', ['true'], schedulerName='none',
                            nodeSelector={'no': 'node'}))
        code, text = self.refused(name='waiting')
        self.assertEqual(400, code)
        self.assertIn('pod waiting does not have a host assigned', text)
        self.user.apply(pod('over', ['true'], restartPolicy='Never'))
        self.user.watch('pod', 'over', lambda pod: (
            pod['status'].get('phase') == 'Succeeded'))
        self.assertEqual(500, self.refused(name='over')[0])

    def test_connection_ends_with_its_pod(self):
        self.user.apply(pod('brief', ['python', '-c', _PROGRAM]))
        self.user.wait('pod/brief', 'condition=Ready')
        opened = self.connect('brief')
        opened.send_binary(b'\0hello')
        for expected in (b'\0', b'\1', b'\0hello'):
            self.assertEqual(expected, opened.recv()[:len(expected)])
        self.user('delete', 'pod', 'brief')
        while opened.recv():
            pass

    def test_rights(self):
        self.user('create', 'serviceaccount', 'forwarder')
        kubeconfig = self.sandbox.account('forwarder')
        self.user('create', 'rolebinding', 'forwarder', '--role=forwarder',
                  '--serviceaccount=default:forwarder')
        for verbs in (['list'], ['get'], ['create'], ['get', 'create']):
            self.user.apply({
                'apiVersion': 'rbac.authorization.k8s.io/v1', 'kind': 'Role',
                'metadata': {'name': 'forwarder'}, 'rules': [{
                    'apiGroups': [''], 'resources': ['pods/portforward'],
                    'verbs': verbs}]})
            if len(verbs) == 2:
                self.forward(kubeconfig=kubeconfig).close()
            else:
                error = self.assertRaises(client.ApiException, self.forward,
                                          kubeconfig=kubeconfig)
                self.assertIn('403', str(error))
