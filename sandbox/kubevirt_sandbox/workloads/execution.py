# SPDX-License-Identifier: Apache-2.0
"""``kubectl exec``: runs a command beside a container's process.

Uses a WebSocket whose messages begin with a channel number; SPDY is not
supported. With a terminal there is no error channel, as in a cluster.

Source: kubernetes/staging/src/k8s.io/apimachinery/pkg/util/remotecommand and
k8s.io/kubelet/pkg/cri/streaming/remotecommand/websocket.go (1.36).
"""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import struct
import termios

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import query_parameters
from kubevirt_sandbox.api import websocket
from kubevirt_sandbox.workloads import logs
from kubevirt_sandbox.workloads import processes

#: The newest first; ``v5`` can end the standard input.
PROTOCOLS = ('v5.channel.k8s.io', 'v4.channel.k8s.io')

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_CHUNK = 32768


def result(code):
    """Return the ``metav1.Status`` for the exit code of a command."""
    if code == 0:
        return {'metadata': {}, 'status': 'Success'}
    return {'metadata': {}, 'status': 'Failure',
            'message': 'command terminated with non-zero exit code: exit '
                       f'status {code}',
            'reason': 'NonZeroExitCode', 'details': {'causes': [
                {'reason': 'ExitCode', 'message': str(code)}]}}


class Route:
    """The subresource ``exec`` of pods.

    :param find: function (uid of a pod, container's name) that returns a
        :class:`containers.Container` or None.
    """

    def __init__(self, find):
        self._find = find

    async def answer(self, request):
        """Answer ``GET …/pods/NAME/exec``, a WebSocket."""
        pod = request.store.get(core.POD, request.namespace, request.name)
        query = request.query
        name = query.get('container') or logs.only_container(
            pod, request.name)
        command = query.getall('command', [])
        if not command:
            raise errors.bad_request('you must specify at least one command '
                                     'for the container')
        if request.http.headers.get('Upgrade', '').lower() != 'websocket':
            raise errors.bad_request(
                'the sandbox has no SPDY: exec needs a client that uses '
                'WebSockets')
        container = self._find(pod['metadata']['uid'], name)
        if container is None or not container.running:
            raise errors.internal_error(f'container not found ("{name}")')
        wanted = {flag: query_parameters.flag(query, flag)
                  for flag in ('stdin', 'stdout', 'stderr', 'tty')}
        socket = websocket.WebSocket(PROTOCOLS)
        await socket.prepare(request.http)
        try:
            status = await self._run(container, command, wanted, socket)
        except (processes.NotStarted, OSError) as exc:
            status = {'metadata': {}, 'status': 'Failure', 'reason':
                      'InternalError', 'code': 500, 'message':
                      f'error executing command in container: {exc}'}
        with contextlib.suppress(ConnectionError):
            await socket.send_bytes(
                bytes([_ERROR]) + json.dumps(status).encode())
            await socket.close()
        return socket

    async def _run(self, container, command, wanted, socket):
        words, env, folder = container.prepare_exec(command)
        ours = theirs = None
        pipe = asyncio.subprocess.PIPE
        null = asyncio.subprocess.DEVNULL
        if wanted['tty']:
            ours, theirs = pty.openpty()
            ends = dict.fromkeys(('stdin', 'stdout', 'stderr'), theirs)
        else:
            ends = {name: pipe if wanted[name] else null
                    for name in ('stdin', 'stdout', 'stderr')}
        try:
            process = await asyncio.create_subprocess_exec(
                *words, env=env, cwd=folder, start_new_session=True,
                preexec_fn=_take_terminal if wanted['tty'] else None, **ends)
        except OSError:
            if ours is not None:
                os.close(ours)
            raise
        finally:
            if theirs is not None:
                os.close(theirs)
        if wanted['tty']:
            terminal = Terminal(ours)
            readers = [asyncio.create_task(
                _pass(terminal.read, _STDOUT, socket))]
        else:
            terminal = None
            readers = [
                asyncio.create_task(_pass(stream.read, channel, socket))
                for stream, channel in ((process.stdout, _STDOUT),
                                        (process.stderr, _STDERR))
                if stream is not None]
        hearing = asyncio.create_task(
            _read_input(socket, process, terminal, wanted['stdin']))
        try:
            ended = asyncio.create_task(process.wait())
            await asyncio.wait([ended, hearing],
                               return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                process.kill()  # the client has gone
            code = await ended
            # What it started in the background may hold its output open.
            if readers:
                await asyncio.wait(readers, timeout=1)
        finally:
            if process.returncode is None:
                process.kill()
            for task in (hearing, *readers):
                task.cancel()
            await asyncio.gather(hearing, *readers, return_exceptions=True)
            if terminal is not None:
                terminal.close()
        return result(code if code >= 0 else 128 - code)


def _take_terminal():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """The sandbox's end of a terminal.

    :param number: file descriptor, closed by :meth:`close`.
    """

    def __init__(self, number):
        self._number = number
        os.set_blocking(number, False)

    async def read(self, size):
        """Read output; empty at the end."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return os.read(self._number, size)
            except BlockingIOError:
                ready = loop.create_future()
                loop.add_reader(self._number, lambda: ready.done()
                                or ready.set_result(None))
                try:
                    await ready
                finally:
                    loop.remove_reader(self._number)
            except OSError:
                return b''  # the other end is closed

    def write(self, data):
        """Write input; what exceeds the terminal's buffer is lost."""
        with contextlib.suppress(OSError):
            os.write(self._number, data)

    def resize(self, width, height):
        """Set the size of the terminal."""
        with contextlib.suppress(OSError, struct.error):
            fcntl.ioctl(self._number, termios.TIOCSWINSZ,
                        struct.pack('HHHH', height, width, 0, 0))

    def close(self):
        """Close the terminal."""
        os.close(self._number)


async def _pass(read, channel, socket):
    while data := await read(_CHUNK):
        await socket.send_bytes(bytes([channel]) + data)


async def _read_input(socket, process, terminal, wanted):
    """Pass on the client's input until the client disconnects."""
    async for message in socket:
        if not message:
            continue
        channel, data = message[0], message[1:]
        if channel == _RESIZE and terminal:
            with contextlib.suppress(ValueError, AttributeError, TypeError):
                size = json.loads(data)
                terminal.resize(size.get('Width'), size.get('Height'))
        elif channel == _STDIN and terminal and wanted:
            terminal.write(data)
        elif channel == _STDIN and process.stdin:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(data)
                await process.stdin.drain()
        elif channel == _CLOSE and data[:1] == b'\0' and process.stdin:
            process.stdin.close()
