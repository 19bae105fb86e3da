# SPDX-License-Identifier: Apache-2.0

import json
import threading

import fixtures

from sushy_kubevirt.pod import fairness
from sushy_kubevirt.pod import http_server
from sushy_kubevirt.redfish.protocol import response_cache
from tests.unit.pod import http_case


class FairnessTestCase(http_case.HttpServerTestCase):
    """Two servers of one process; one is flooded."""

    def setUp(self):
        super().setUp()
        self.end()
        self.app.unblock.clear()
        self.order = []
        self.servers = [http_server.Server(
            '127.0.0.1', 0, self.app, fairness=fairness.Fairness(),
            find=lambda digest, number=number: self.order.append(number))
            for number in range(2)]
        self.server = self.servers[0]
        self.thread = threading.Thread(target=http_case.run,
                                       args=self.servers)
        self.thread.start()

    def end(self):
        for one in getattr(self, 'servers', (self.server,)):
            one.stop()
        super().end()

    def test_requests_beyond_the_share_wait_and_are_answered(self):
        self.set('_SHARE_SECONDS', 1e-9)     # one at a time
        socks = [self.send(b'GET /%d HTTP/1.1\r\nHost: x\r\n\r\n' % number)
                 for number in range(20)]
        for number, sock in enumerate(socks):
            code, body = self.answer(sock)
            self.assertEqual((200, f'/{number}'),
                             (code, json.loads(body)['path']))

    def test_failure_of_one_request_does_not_delay_others(self):
        self.set('_SHARE_SECONDS', 1e-9)     # the others wait in a queue

        failing = response_cache.digest(
            'http', b'GET /fail HTTP/1.1\r\nHost: x\r\n\r\n')

        def find(digest):
            if digest == failing:
                raise OSError('Too many open files')

        self.server.find = find
        socks = [self.connect() for _ in range(5)]
        self.wait_for(lambda: self.server.connections == 5)
        sent = threading.Event()
        self.server._loop.call_soon_threadsafe(sent.wait, http_case.TIMEOUT)
        for path, sock in zip((b'x', b'fail', b'y', b'fail', b'z'), socks):
            sock.sendall(b'GET /%s HTTP/1.1\r\nHost: x\r\n\r\n' % path)
        sent.set()
        for path, sock in zip('x-y-z', socks):
            if path == '-':
                self.assert_closed(sock)
            else:
                self.assertEqual(200, self.answer(sock)[0])
        self.assertIn('Too many open files', self.log.output)

    def test_pauses_between_pieces_of_a_long_body(self):
        paused = self.useFixture(fixtures.MockPatch('asyncio.sleep')).mock
        sock = self.receiving(length=4)
        sock.sendall(b'abcd')
        self.assertEqual(200, self.answer(sock)[0])
        paused.assert_any_await(fairness.PAUSE_SECONDS)

    def test_one_call_at_a_time_unless_it_takes_long(self):
        self.set('_TURN_SECONDS', http_case.TIMEOUT)
        waiting = self.ask('/wait')
        self.called()
        second = self.ask('/second')
        self.wait_for(lambda: len(self.order) == 2)
        # Another server's clients are not concerned.
        self.server = self.servers[1]
        self.assertEqual(200, self.get('/other')[0])
        self.called()
        self.assertFalse(self.app.called.acquire(blocking=False))
        self.app.unblock.set()
        for sock in waiting, second:
            self.assertEqual(200, self.answer(sock)[0])

    def test_owners_take_turns(self):
        self.set('_TURN_SECONDS', http_case.TIMEOUT)
        self.ask('/wait')
        self.called()
        called = []
        self.app.observe = called.append
        socks = []
        for source, path in (*[('127.0.0.2', b'many')] * 5,
                             ('127.0.0.3', b'one')):
            socks.append(self.connect(source))
            socks[-1].sendall(
                b'GET /%s HTTP/1.1\r\nHost: x\r\n\r\n' % path)
            self.wait_for(lambda: len(self.order) == 1 + len(socks))
        self.app.unblock.set()
        for sock in socks:
            self.assertEqual(200, self.answer(sock)[0])
        self.assertEqual(['/many', '/one', '/many', '/many', '/many', '/many'],
                         called)

    def test_next_call_does_not_wait_for_a_slow_one(self):
        self.set('_TURN_SECONDS', 0.01)
        self.ask('/wait')
        self.called()
        self.assertEqual(200, self.get('/second')[0])
