# SPDX-License-Identifier: Apache-2.0
"""The handlers of CDI's upload proxy.

Source: pkg/uploadproxy/uploadproxy.go, pkg/uploadserver/uploadserver.go
(CDI 1.65).
"""
import asyncio
import html
import logging
import re

from aiohttp import web

from kubevirt_sandbox.cdi import claim_annotations
from kubevirt_sandbox.cdi import images
from kubevirt_sandbox.cdi import tokens
from kubevirt_sandbox.cdi import uploads

LOG = logging.getLogger(__name__)

_BEARER = re.compile(r'Bearer\s+([A-Za-z0-9\-._~+/]+)', re.IGNORECASE)
_PIECE = 256 * 1024


class Handlers:
    """Receives disks; at most one piece of each is in memory.

    :param pods: the :class:`uploads.Uploads`, which live in ``main``.
    :param storage: the :class:`storage.Storage`.
    :param accepted: the :class:`tokens.Tokens`.
    :param main: the asyncio loop of the API server.
    """

    def __init__(self, pods, storage, accepted, main):
        self._pods = pods
        self._storage = storage
        self._tokens = accepted
        self._main = main
        self._loop = asyncio.get_running_loop()
        self._busy = {}

    async def serve(self, sock, ssl_context):
        """Serve on a listening socket.

        :returns: the :class:`aiohttp.web.AppRunner`, to clean up.
        """
        app = web.Application()
        app.router.add_get('/healthz', self._healthy)
        for version in ('v1beta1', 'v1alpha1'):
            for path in ('upload', 'upload-async', 'upload-form',
                         'upload-form-async'):
                app.router.add_route('*', f'/{version}/{path}', self._upload)
        runner = web.AppRunner(app, access_log=None,
                               handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        await web.SockSite(runner, sock, ssl_context=ssl_context).start()
        return runner

    def _run_in_server(self, work):
        """Run a coroutine in the API server's event loop."""
        return asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(work, self._main))

    async def _healthy(self, request):
        return web.Response(text='OK')

    async def _upload(self, request):
        match = _BEARER.fullmatch(request.headers.get('Authorization', ''))
        if match is None:
            return web.Response(status=400)
        try:
            namespace, name = self._tokens.claim(match[1])
        except tokens.TokenError:
            return web.Response(status=401)
        try:
            claim = await self._run_in_server(
                self._pods.ready(namespace, name))
        except uploads.NotReadyError as exc:
            return web.Response(status=503, text=html.escape(str(exc)))
        later = request.path.endswith('-async')
        if request.method == 'HEAD' and later:
            return web.Response()
        if request.method != 'POST':
            return web.Response(status=404)
        uid = claim['metadata']['uid']
        if uid in self._busy:
            return web.Response(status=503)
        self._busy[uid] = asyncio.current_task()
        try:
            return await self._receive(request, claim, later)
        finally:
            if self._busy.get(uid) is asyncio.current_task():
                del self._busy[uid]

    async def _receive(self, request, claim, later):
        task, loop = asyncio.current_task(), self._loop

        def stop():
            loop.call_soon_threadsafe(task.cancel)
        image, done, later_ends = None, False, False
        try:
            # A client that disconnects now cancels this call, possibly after
            # the upload was registered.
            if not await self._run_in_server(self._pods.begin(claim, stop)):
                return web.Response(status=503)
            image = self._image(claim)
            async for piece in _content(request):
                image.feed(piece)
            image.received()
            if later:
                self._finish_later(image, claim)
                later_ends = True
                return web.Response()
            await loop.run_in_executor(None, image.finish)
            done = True
            return web.Response()
        except (images.ImageError, OSError) as exc:
            return _failure(exc)
        finally:
            if not later_ends:
                if image is not None and not done:
                    image.discard()
                # Also when this task is cancelled.
                asyncio.run_coroutine_threadsafe(
                    self._pods.end(claim, done), self._main)

    def _image(self, claim):
        meta = claim['metadata']
        return images.Image(
            self._storage.path(meta['namespace'], meta['name']),
            self._pods.available(claim),
            archive=claim_annotations.of(claim).get(
                claim_annotations.CONTENT_TYPE
            )
            == 'archive',
        )

    def _finish_later(self, image, claim):
        """Convert a disk after the client got the response."""
        uid = claim['metadata']['uid']

        async def finish():
            done, failure = False, ''
            try:
                await self._loop.run_in_executor(None, image.finish)
                done = True
            except (images.ImageError, OSError) as exc:
                failure = str(exc)
                LOG.warning('Upload into %s: %s', claim['metadata']['name'],
                            exc)
            finally:
                if not done:
                    image.discard()
                self._busy.pop(uid, None)
                asyncio.run_coroutine_threadsafe(
                    self._pods.end(claim, done, failure), self._main)
        self._busy[uid] = self._loop.create_task(finish())


async def _content(request):
    """Yield the content of a disk, from the body or from a form's file."""
    if '-form' not in request.path:
        async for piece in request.content.iter_chunked(_PIECE):
            yield piece
        return
    form = await request.multipart()
    async for part in form:
        if getattr(part, 'name', None) == 'file':
            while piece := await part.read_chunk(_PIECE):
                yield piece
            return
    raise images.ImageError('no file in the form')


def _failure(exc):
    text = str(exc).replace('to scratch space', 'to target file')
    if isinstance(exc, images.TooLargeError):
        return web.Response(status=400, text=(
            'Saving stream failed: effective image size is larger than the '
            f'reported available storage: {text}'))
    return web.Response(status=500, text=f'Saving stream failed: {text}')
