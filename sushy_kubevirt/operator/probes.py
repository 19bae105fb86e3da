# SPDX-License-Identifier: Apache-2.0
"""The port where kubelet and Prometheus ask.

It answers from the event loop that does the work, so that a process whose
loop hangs is found dead. All of a cluster can reach it, so nobody may keep
it from answering: connections are few and short.
"""

import asyncio
import collections
import logging

from aiohttp import web

LOG = logging.getLogger(__name__)

#: Seconds that a connection lasts at most, and how many there are: one more
#: ends the oldest.
SECONDS = 10
CONNECTIONS = 64

#: Bytes of a line of a request, of which aiohttp takes some 128: with its
#: usual limits all connections together could have 64 MiB kept.
LONGEST_LINE = 2048

_TEXT = 'text/plain'


class Probes:
    """Serves /livez, /readyz and /metrics.

    :param metrics: function without arguments; bytes
    :param ready: function without arguments; a sentence if the process is
        not ready to work, else None or ''
    """

    def __init__(self, metrics, ready):
        self._metrics = metrics
        self._ready = ready
        self._runner = None
        self._server = None
        self._visitors = collections.deque()

    async def start(self, address, port):
        """Serve.

        :param address: IP address
        :param port: 0 chooses one that is free; the log tells which
        :raises: OSError
        """
        application = web.Application(client_max_size=1024)
        application.add_routes([
            web.get('/livez', self._livez), web.get('/readyz', self._readyz),
            web.get('/metrics', self._text)])
        self._runner = web.AppRunner(application, access_log=None,
                                     handle_signals=False,
                                     shutdown_timeout=1,
                                     max_line_size=LONGEST_LINE,
                                     max_field_size=LONGEST_LINE)
        await self._runner.setup()
        self._server = await asyncio.get_running_loop().create_server(
            self._visitor, address, port)
        LOG.info('Metrics and probes are at http://%s:%d',
                 f'[{address}]' if ':' in address else address, self.port)

    @property
    def port(self):
        """The TCP port that is served."""
        return self._server.sockets[0].getsockname()[1]

    async def close(self):
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _visitor(self):
        """What a new connection talks to."""
        made = self._runner.server()
        self._visitors.append(made)
        if len(self._visitors) > CONNECTIONS:
            self._leave(self._visitors[0])
        asyncio.get_running_loop().call_later(SECONDS, self._leave, made)
        return made

    def _leave(self, visitor):
        try:
            self._visitors.remove(visitor)
        except ValueError:
            return
        if visitor.transport is not None:
            visitor.transport.abort()

    async def _livez(self, request):
        return web.Response(text='ok\n', content_type=_TEXT)

    async def _readyz(self, request):
        problem = self._ready()
        return web.Response(text='%s\n' % (problem or 'ok'),
                            content_type=_TEXT, status=503 if problem else 200)

    async def _text(self, request):
        return web.Response(body=self._metrics(), headers={
            'Content-Type': 'text/plain; version=0.0.4; charset=utf-8'})
