# SPDX-License-Identifier: Apache-2.0
"""The port where kubelet and Prometheus ask.

It answers from the event loop that does the work, so that a process whose
loop hangs is found dead.
"""

import logging

from aiohttp import web

LOG = logging.getLogger(__name__)

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
                                     shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, address, port)
        await site.start()
        port = self._runner.addresses[0][1]
        LOG.info('Metrics and probes are at http://%s:%d',
                 '[%s]' % address if ':' in address else address, port)

    async def close(self):
        if self._runner is not None:
            await self._runner.cleanup()

    async def _livez(self, request):
        return web.Response(text='ok\n', content_type=_TEXT)

    async def _readyz(self, request):
        problem = self._ready()
        return web.Response(text='%s\n' % (problem or 'ok'),
                            content_type=_TEXT, status=503 if problem else 200)

    async def _text(self, request):
        return web.Response(body=self._metrics(), headers={
            'Content-Type': 'text/plain; version=0.0.4; charset=utf-8'})
