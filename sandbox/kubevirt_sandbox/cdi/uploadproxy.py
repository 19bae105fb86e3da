# SPDX-License-Identifier: Apache-2.0
"""CDI's upload proxy: receives disks over HTTPS and writes them.

Serves on its own port, with its own certificate, in its own thread, so that
uploads do not delay the API.
"""
import asyncio
import socket
import threading

from kubevirt_sandbox.api import certificates

_NAMES = ('cdi-uploadproxy', 'cdi-uploadproxy.cdi', 'cdi-uploadproxy.cdi.svc',
          'localhost', '127.0.0.1', '::1')


class Proxy:
    """The upload proxy.

    :param pods: the :class:`uploads.Uploads`, which live in ``loop``.
    :param storage: the :class:`storage.Storage`.
    :param accepted: the :class:`tokens.Tokens`.
    :param loop: the asyncio loop of the API server.
    :param host: address to serve on.
    """

    def __init__(self, pods, storage, accepted, loop, host='127.0.0.1'):
        self._pods = pods
        self._storage = storage
        self._tokens = accepted
        self._main = loop
        self._host = host
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, daemon=True, name='upload-proxy')
        self._identity = certificates.make([host, *_NAMES])
        #: The CA's certificate, PEM, bytes.
        self.ca = self._identity.ca
        self._socket = None
        self._runner = None
        self.url = None

    # -- in the API server's loop -----------------------------------------

    async def start(self):
        """Listen and set :attr:`url`; the first client starts the proxy."""
        self._socket = socket.create_server(
            (self._host, 0), family=socket.AF_INET6 if ':' in self._host
            else socket.AF_INET)
        self._socket.setblocking(False)
        self._main.add_reader(self._socket, self._begin)
        port = self._socket.getsockname()[1]
        host = f'[{self._host}]' if ':' in self._host else self._host
        self.url = f'https://{host}:{port}'

    def _begin(self):
        self._main.remove_reader(self._socket)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop)

    async def stop(self):
        """End uploads and serve no more."""
        if self._socket is not None:
            self._main.remove_reader(self._socket)
        if self._runner is not None:
            await self._run_in_proxy(self._runner.cleanup())
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(2)
        self._loop.close()
        if self._socket is not None:
            self._socket.close()

    def _run_in_proxy(self, work):
        return asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(work, self._loop))

    # -- in the proxy's loop ----------------------------------------------

    async def _serve(self):
        # Imported for the first client: aiohttp takes 0.15 s of processor
        # time.
        from kubevirt_sandbox.cdi import upload_handlers
        handlers = upload_handlers.Handlers(self._pods, self._storage,
                                            self._tokens, self._main)
        self._runner = await handlers.serve(self._socket,
                                            self._identity.context())
