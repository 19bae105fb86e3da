# SPDX-License-Identifier: Apache-2.0
"""Forwarded ports, against a server of the protocol."""

import contextlib
import os
import socket
import threading

import fixtures
from oslotest import base
from websockets.sync import server

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import api_responses
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import portforward

PORT = (8443).to_bytes(2, 'little')


def close(connections):
    for stream in connections:
        with contextlib.suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)


class PortForwardTestCase(base.BaseTestCase):

    def connect(self, handler, renew=None, **more):
        """Serve a WebSocket, and connect to it.

        :param renew: returns another Authorization
        """
        self.requests, connections = [], []

        def handle(socket):
            connections.append(socket.socket)
            self.requests.append((socket.request, socket.subprotocol))
            for channel in 0, 1:
                socket.send(bytes([channel]) + PORT)
            handler(socket)

        serving = server.serve(handle, '127.0.0.1', 0,
                               subprotocols=[portforward.PROTOCOL], **more)
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(serving.shutdown)
        # A handler whose client does not close would not end.
        self.addCleanup(close, connections)
        port = serving.socket.getsockname()[1]
        call = api_responses.ApiCall(
            'create', api_resources.POD, 'space', 'pod', 'portforward')
        call.path += '?ports=8443'
        url, words = f'http://127.0.0.1:{port}', ['Bearer secret']
        if renew:
            words.insert(0, renew)
        result = portforward.connect(
            connection.Connection(lambda: connection.Access(
                url, authorization=words.pop(0))), call, 'test', 10)
        self.addCleanup(result.socket.close)
        result.socket.settimeout(20)
        return result

    def receive(self, forwarded, length):
        received = bytearray()
        while len(received) < length:
            data = forwarded.socket.recv(65536)
            self.assertTrue(data, 'closed too early')
            received += data
        return bytes(received)

    def test_data_passes_both_ways(self):
        def echo(socket):
            for message in socket:
                self.assertEqual(0, message[0])
                # In several messages, also an empty one.
                socket.send(b'\0')
                socket.send(message[:2])
                socket.send(b'\0' + message[2:])
        forwarded = self.connect(echo)
        for data in b'hello', b'x' * 100000:
            forwarded.socket.sendall(data)
            self.assertEqual(data, self.receive(forwarded, len(data)))
        [(request, protocol)] = self.requests
        self.assertEqual(portforward.PROTOCOL, protocol)
        self.assertEqual(
            '/api/v1/namespaces/space/pods/pod/portforward?ports=8443',
            request.path)
        self.assertEqual('Bearer secret', request.headers['Authorization'])

    def test_error_of_the_node(self):
        closed = threading.Event()

        def refuse(socket):
            socket.send(b'\1cannot connect to 8443')
            list(socket)        # it does not close
            closed.set()
        forwarded = self.connect(refuse)
        self.assertEqual(b'', forwarded.socket.recv(1))
        self.assertEqual('cannot connect to 8443', forwarded.error)
        self.assertTrue(closed.wait(20))

    def test_end_of_either_side(self):
        begun, closed = threading.Event(), threading.Event()

        def serve(socket):
            begun.set()
            list(socket)
            closed.set()
        forwarded = self.connect(serve)
        self.assertTrue(begun.wait(20))
        forwarded.socket.close()
        self.assertTrue(closed.wait(20))
        forwarded = self.connect(lambda socket: socket.send(b'\0end'))
        self.assertEqual(b'end', forwarded.socket.recv(10))
        self.assertEqual(b'', forwarded.socket.recv(10))
        self.assertEqual('', forwarded.error)

    def test_flood_both_ways(self):
        sent = os.urandom(1 << 20) * 8

        def echo(socket):
            for message in socket:
                socket.send(message)
        forwarded = self.connect(echo)
        sending = threading.Thread(target=forwarded.socket.sendall,
                                   args=(sent,))
        sending.start()
        self.addCleanup(sending.join)
        self.assertEqual(hash(sent), hash(self.receive(forwarded, len(sent))))

    def test_tail_of_a_connection_that_is_closed(self):
        arrived = bytearray()
        closed = threading.Event()

        def collect(socket):
            for message in socket:
                arrived.extend(message[1:])
            closed.set()
        forwarded = self.connect(collect)
        forwarded.socket.sendall(b'x' * 3000000)
        forwarded.socket.close()
        self.assertTrue(closed.wait(20))
        self.assertEqual(3000000, len(arrived))

        def send(socket):
            for _ in range(1000):
                socket.send(b'\0' + b'x' * 3000)
        forwarded = self.connect(send)
        received = 0
        while data := forwarded.socket.recv(65536):
            received += len(data)
        self.assertEqual(3000000, received)

    def test_expired_credentials_are_renewed(self):
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.kube.connection.RENEW_SECONDS', 0))

        def check(socket, request):
            if request.headers['Authorization'] != 'Bearer secret':
                return socket.respond(401, 'expired')
        forwarded = self.connect(lambda socket: socket.send(b'\0end'),
                                 renew='Bearer expired', process_request=check)
        self.assertEqual(b'end', forwarded.socket.recv(10))

    def test_refusal(self):
        def refuse(socket, request):
            return socket.respond(403, 'no')
        error = self.assertRaises(
            errors.AccessDenied, self.connect, None, process_request=refuse)
        self.assertEqual(('create', 'pods/portforward', 'space'), (
            error.verb, error.resource, error.namespace))
