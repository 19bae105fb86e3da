# SPDX-License-Identifier: Apache-2.0
"""Rate of events to a hundred subscribers that all receive them.

There are two measurements. Latency: events are sent one after the other, each
when all subscribers have the previous one. Throughput: clients send as many
as they can (with SubmitTestEvent), and the events that reach all subscribers
are counted per second. The subscribers are one thread of this program, on the
same processors as the emulator.
"""

import asyncio
import re
import threading
import time

import fixtures

from tests.bench import load
from tests.bench import report
from tests.fixtures import emulator

_SERVICE = '/redfish/v1/EventService'
_TEST = _SERVICE + '/Actions/EventService.SubmitTestEvent'

_LENGTH = re.compile(rb'content-length: (\d+)', re.IGNORECASE)
_ANSWER = b'HTTP/1.1 204 No Content\r\n\r\n'


class _Listeners(fixtures.Fixture):
    """Receives POSTs and counts the events in them."""

    def _setUp(self):
        self._news = threading.Condition()
        self.events = 0
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(
            self._serve, '127.0.0.1', 0, backlog=256))
        port = self._server.sockets[0].getsockname()[1]
        self.url = f'http://127.0.0.1:{port}'
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()

        def stop():
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(5)

        self.addCleanup(stop)

    async def _serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b'\r\n\r\n')
                body = await reader.readexactly(
                    int(_LENGTH.search(head)[1]))
                writer.write(_ANSWER)
                with self._news:
                    self.events += body.count(b'"MemberId"')
                    self._news.notify_all()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    def wait(self, events, timeout=120):
        deadline = time.monotonic() + timeout
        with self._news:
            while self.events < events:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise RuntimeError(
                        f'{self.events} events of {events} in {timeout:g} s')
                self._news.wait(left)


def measure(ours, sizes):
    """Measure latency and throughput.

    :returns: iterator of `report.Row`: milliseconds for one event to reach
        all, and the rate of events that reach all when clients send many
    """
    with fixtures.CompoundFixture([]) as holder:
        listeners = holder.useFixture(_Listeners())
        server = holder.useFixture(emulator.Emulator(
            ours.sandbox.kubeconfig, {
                'SUSHY_EMULATOR_KUBEVIRT_EVENT_ALLOW_LOOPBACK': True,
                'SUSHY_EMULATOR_KUBEVIRT_STATE_SECRET': 'default/bench'},
            server='gunicorn'))
        with load.Client(server.url) as client:
            for number in range(sizes.subscribers):
                client.ask('POST', _SERVICE + '/Subscriptions', {
                    'Destination': f'{listeners.url}/{number}',
                    'Protocol': 'Redfish', 'MessageIds': [
                        'ResourceEvent.TestMessage']})
            yield from _measure(client, listeners, sizes)


def _measure(client, listeners, sizes):
    expected = 0

    def send():
        nonlocal expected
        expected += sizes.subscribers
        client.ask('POST', _TEST, {})

    what = f'event to {sizes.subscribers} subscribers'
    yield report.Row(what, 'ms, median', load.median_ms(
        lambda: (send(), listeners.wait(expected)), sizes.events))
    begin = time.perf_counter()
    for _ in range(sizes.events):
        send()
    listeners.wait(expected)
    yield report.Row(what, 'a second',
                     sizes.events / (time.perf_counter() - begin))
