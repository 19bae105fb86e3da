# SPDX-License-Identifier: Apache-2.0
from http import client
import socket
import threading
import time
from unittest import mock

import fixtures

from sushy_kubevirt.pod import fairness
from sushy_kubevirt.pod import http_connection
from sushy_kubevirt.pod import http_server
from sushy_kubevirt.pod import redfish_probe
from sushy_kubevirt.redfish.services import server_threads
from tests.unit.pod import http_case


class LimitsTestCase(http_case.HttpServerTestCase):

    def test_disconnects_silent_client(self):
        self.set('REQUEST_SECONDS', 0.1)
        self.assert_closed(self.connect())

    def test_disconnects_client_that_sends_head_slowly(self):
        self.set('REQUEST_SECONDS', 0.3)
        sock = self.connect()
        begin = time.monotonic()
        try:
            while time.monotonic() - begin < http_case.TIMEOUT:
                sock.sendall(b'x')
                time.sleep(0.02)
        except OSError:
            pass
        self.assertLess(time.monotonic() - begin, http_case.TIMEOUT)

    def test_disconnects_client_that_does_not_send_body(self):
        self.set('REQUEST_SECONDS', 0.2)
        sock = self.send(b'POST /x HTTP/1.1\r\nHost: x\r\n'
                         b'Content-Length: 9\r\n\r\nab')
        self.assert_closed(sock)
        # The application was not called.
        self.assertFalse(self.app.called.acquire(blocking=False))

    def test_truncated_body_closes_connection(self):
        sock = self.send(b'POST /x HTTP/1.1\r\nHost: x\r\n'
                         b'Content-Length: 9\r\n\r\nab')
        sock.shutdown(socket.SHUT_WR)
        self.assert_closed(sock)
        self.assertFalse(self.app.called.acquire(blocking=False))

    def test_request_timeout_does_not_apply_to_response(self):
        self.ask('/wait')
        self.called()
        [connection] = self.server._connections
        self.assertAlmostEqual(http_connection.ANSWER_SECONDS,
                               connection.end - connection.since)

    def test_slow_response_closes_connection(self):
        self.set('ANSWER_SECONDS', 0.1)
        sock = self.ask('/wait')
        self.assert_closed(sock)

    def test_timeouts_do_not_apply_to_streams(self):
        sock = self.ask('/stream')
        self.assertEqual(b'H', sock.recv(1))
        [connection] = self.server._connections
        self.wait_for(lambda: connection.end is None)

    def test_closes_oldest_idle_connection_above_limit(self):
        self.set('MAX_CONNECTIONS', 3)
        busy = self.ask('/wait')
        self.called()
        silent = [self.connect() for _ in range(2)]
        self.wait_for(lambda: self.server.connections == 3)
        self.assertEqual(200, self.get()[0])
        self.assert_closed(silent[0])
        self.app.unblock.set()
        self.assertEqual(200, self.answer(busy)[0])

    def crowd(self, count, source, *requests):
        """Open connections; wait until each request is answered."""
        found = []
        for _ in range(count):
            sock = self.connect(source)
            for request in requests:
                sock.sendall(request)
                self.assertEqual(200, self.answer(sock)[0])
            found.append(sock)
        return found

    def test_network_with_most_connections_loses_one(self):
        self.set('MAX_CONNECTIONS', 6)
        kept, = self.crowd(1, '127.0.0.3', http_case.GET)
        crowd = self.crowd(20, '127.0.0.2', http_case.GET)
        bare = self.crowd(20, '127.0.0.2')
        for sock in crowd:
            self.assert_closed(sock)
        fresh, = self.crowd(1, '127.0.0.4')
        self.assert_closed(bare[-5])
        for sock in kept, fresh, bare[-1]:
            sock.sendall(http_case.GET)
            self.assertEqual(200, self.answer(sock)[0])

    def test_new_client_has_time_to_log_in(self):
        """Reading without login keeps no connection of one network alive."""
        self.set('MAX_CONNECTIONS', 4)
        reading = self.crowd(4, '127.0.0.2', http_case.GET)
        fresh, = self.crowd(1, '127.0.0.2')
        for sock in reading[1:]:
            sock.sendall(http_case.GET)
            self.assertEqual(200, self.answer(sock)[0])
        self.crowd(3, '127.0.0.2')
        fresh.sendall(http_case.GET)
        self.assertEqual(200, self.answer(fresh)[0])

    def test_accounts_and_others_have_half_each(self):
        self.set('MAX_CONNECTIONS', 8)
        kept = self.crowd(2, '127.0.0.2', http_case.LOGIN % b'owner')
        guests = self.crowd(20, '127.0.0.2', http_case.GET)
        for sock in guests[:-6]:
            self.assert_closed(sock)
        # The account with most connections gives.
        many = self.crowd(20, '127.0.0.2', http_case.LOGIN % b'other')
        for sock in (*guests[:-3], *many[:-3]):
            self.assert_closed(sock)
        for sock in (*kept, *guests[-3:], *many[-3:]):
            sock.sendall(http_case.GET)
            self.assertEqual(200, self.answer(sock)[0])

    def test_address_with_most_connections_of_an_account_loses_one(self):
        self.set('MAX_CONNECTIONS', 4)
        kept, = self.crowd(1, '127.0.0.3', http_case.LOGIN % b'owner')
        leaking = self.crowd(3, '127.0.0.2', http_case.LOGIN % b'owner')
        self.crowd(1, '127.0.0.3')
        self.assert_closed(leaking[0])
        kept.sendall(http_case.GET)
        self.assertEqual(200, self.answer(kept)[0])

    def test_requests_of_one_network_do_not_block_others(self):
        self.set('MAX_CONNECTIONS', 2)
        busy = [self.connect('127.0.0.2') for _ in range(2)]
        for sock in busy:
            sock.sendall(b'GET /wait HTTP/1.1\r\nHost: x\r\n\r\n')
            self.called()
        self.assertEqual(200, self.get()[0])
        self.assert_closed(busy[0])
        self.app.unblock.set()
        self.assertEqual(200, self.answer(busy[1])[0])

    def abandon(self, path, *sources):
        """Send requests that take long, and close their connections."""
        for source in sources:
            sock = self.connect(source)
            sock.sendall(http_case.GET.replace(b'/x', path))
            self.called()
            sock.close()
        self.wait_for(lambda: not self.server.connections)

    def test_requests_without_a_connection_count(self):
        self.server._requests = server_threads.Slots(2)
        self.abandon(b'/wait', '127.0.0.2', '127.0.0.2')
        refused = self.connect('127.0.0.2')
        refused.sendall(http_case.GET)
        response = client.HTTPResponse(refused)
        response.begin()
        self.assertEqual((503, '1'), (
            response.status, response.getheader('Retry-After')))
        self.assertIsNone(response.getheader('Strict-Transport-Security'))
        self.assertIn('in progress', response.read().decode())
        self.assert_closed(refused)
        self.assertEqual(200, self.get()[0])
        self.app.unblock.set()
        self.wait_for(lambda: not self.server._requests._used)
        self.crowd(1, '127.0.0.2', http_case.GET)

    def test_request_without_a_thread(self):
        self.server.fairness = fairness.Fairness()
        self.server._requests = server_threads.Slots(1)
        for _ in range(3):
            with mock.patch.object(http_server._thread, 'start_new_thread',
                                   side_effect=RuntimeError('no thread')):
                response = client.HTTPResponse(self.send(http_case.GET))
                response.begin()
            self.assertEqual((503, '1'), (
                response.status, response.getheader('Retry-After')))
            # Neither its slot nor its turn is lost.
            self.assertEqual({}, self.server._requests._used)
            self.assertIsNone(self.server.fairness._calling)
        self.assertIn('no thread', self.log.output)
        self.assertEqual(200, self.get()[0])

    def test_requests_of_an_account_from_many_addresses_count(self):
        self.server._requests = server_threads.Slots(2)
        self.abandon(b'/login/slow', '127.0.0.2', '127.0.0.3')
        for path, admitted in (b'/login/slow/x', False), (b'/login/x', True):
            self.crowd(1, '127.0.0.4', http_case.GET.replace(b'/x', path))
            self.assertEqual(admitted, self.app.admitted)

    def test_probe_has_a_place(self):
        self.set('MAX_CONNECTIONS', 2)
        self.useFixture(fixtures.MockPatchObject(
            redfish_probe, '_READY_SECONDS', -1))
        connected = threading.Event()

        def announce(port):
            self.server.probe_port = port
            connected.set()

        probe = redfish_probe.Probe('127.0.0.1', self.server.port, False,
                                    announce)
        self.useFixture(fixtures.MockPatchObject(
            redfish_probe, '_REQUEST',
            b'GET /wait HTTP/1.1\r\nHost: x\r\n\r\n'))
        problems = []
        thread = threading.Thread(
            target=lambda: problems.append(probe.ready()))
        thread.start()
        self.called()
        clients = self.crowd(3, '127.0.0.1')
        self.assert_closed(clients[0])
        self.assertEqual(3, self.server.connections)
        self.app.unblock.set()
        # The probe reads until the connection ends.
        self.server.stop()
        thread.join(http_case.TIMEOUT)
        self.assertEqual([''], problems)

    def test_rejects_connection_when_all_are_busy(self):
        self.set('MAX_CONNECTIONS', 2)
        busy = [self.ask('/wait')
                for _ in range(2)]
        for _ in busy:
            self.called()
        self.assert_closed(self.connect())
        self.app.unblock.set()
        for each in busy:
            self.assertEqual(200, self.answer(each)[0])
        self.assertEqual(200, self.get()[0])

    def test_disconnects_client_that_does_not_read_response(self):
        self.set('SEND_SECONDS', 0.2)
        sock = self.ask('/large')
        self.wait_for(lambda: self.server.connections == 1)
        self.wait_for(lambda: self.server.connections == 0)
        sock.close()

    def test_unread_known_responses_are_not_piled_up(self):
        known = http_case.cached_response(b'x' * 100000)
        looked = []

        def find(digest):
            looked.append(digest)
            return known

        self.server.find = find
        sock = self.connect()
        sent = 1
        sock.sendall(http_case.GET)
        self.wait_for(lambda: looked)
        [connection] = self.server._connections
        while not connection.flow.write_paused:
            sent += 1
            sock.sendall(http_case.GET)
            self.wait_for(lambda: len(looked) == sent
                          or connection.flow.write_paused)
        before = len(looked)
        size = connection.transport.get_write_buffer_size()
        self.assertLess(size, 2 ** 20)
        # The server reads no further requests.
        sock.settimeout(1)
        self.assertRaises(TimeoutError, sock.sendall, http_case.GET * 1000000)
        self.assertEqual(size, connection.transport.get_write_buffer_size())
        self.assertEqual(before, len(looked))

    def test_unread_responses_do_not_block_new_connections(self):
        self.set('MAX_CONNECTIONS', 2)
        for _ in range(5):
            sock = self.ask('/large')
            self.assertEqual(b'H', sock.recv(1))
        self.assertEqual(200, self.get()[0])

    def test_client_that_keeps_sending_is_closed(self):
        sock = self.send(b'GET /x HTTP/1.1\r\nHost: x\r\n\r\n', b'x' * 100)
        self.assertEqual(200, self.answer(sock)[0])
        self.wait_for(lambda: self.server.connections == 0)

    def test_many_idle_connections_do_not_block_requests(self):
        self.set('MAX_CONNECTIONS', 8)
        crowd = [self.connect() for _ in range(40)]
        self.assertEqual(200, self.get()[0])
        self.assert_closed(crowd[0])
