# SPDX-License-Identifier: Apache-2.0
"""``console`` and ``vnc``: the serial port and the display of a machine.

A WebSocket of the protocol ``plain.kubevirt.io`` whose binary frames are the
bytes, in both directions. A new connection replaces the previous one. When the
machine ends the connection is cut without a closing frame, as in KubeVirt.

Source: pkg/virt-api/rest/console.go, vnc.go, streamer.go,
pkg/virt-handler/rest/console.go (KubeVirt 1.9).
"""

import asyncio
import contextlib

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import websocket
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt import vm_subresources
from kubevirt_sandbox.kubevirt import vmi_status

PROTOCOL = 'plain.kubevirt.io'

_KIND = 'virtualmachineinstance'
_NOT_RUNNING = 'VMI is not running'
_CHUNK = 65536
_TRUE = ('1', 't', 'T', 'true', 'TRUE', 'True')


class Consoles:
    """The handlers of consoles.

    :param kinds: the :class:`kubevirt_kinds.Kinds` of the cluster.
    :param machines: the VMIs' controller, whose guests have the ports.
    """

    def __init__(self, kinds, machines):
        self._kinds = kinds
        self._guests = machines.guests
        self._displays = {}

    def handlers(self):
        """Return ``{subresource: (method, handler)}``."""
        return {'console': ('GET', self.console), 'vnc': ('GET', self.vnc)}

    def _find(self, request):
        vmi = request.store.find(self._kinds.vmi, request.namespace,
                                 request.name)
        if vmi is None:
            raise vm_subresources.not_found(_KIND, request.name)
        return vmi

    async def console(self, request):
        """Connect to the serial console."""
        vmi = self._find(request)
        devices = paths.at(vmi, 'spec', 'domain', 'devices') or {}
        if devices.get('autoattachSerialConsole') is False:
            raise errors.bad_request('No serial consoles are present.')
        if vmi_status.phase(vmi) == vmi_status.FAILED:
            raise vm_subresources.conflict(
                _KIND, request.name, 'VMI is in failed status')
        if vmi_status.phase(vmi) != vmi_status.RUNNING:
            raise errors.bad_request(_NOT_RUNNING)
        _check(request.http)
        port = self._guests.serial(vmi['metadata']['uid'])
        if port is None:
            raise errors.internal_error(
                'Failed finding unix socket for serial console')
        listener = port.listen()
        try:
            return await _connect(request.http, listener.next, port.send)
        finally:
            port.leave(listener)

    async def vnc(self, request):
        """Connect to the display."""
        vmi = self._find(request)
        devices = paths.at(vmi, 'spec', 'domain', 'devices') or {}
        if devices.get('autoattachGraphicsDevice') is False:
            raise errors.bad_request('No graphics devices are present.')
        if vmi_status.phase(vmi) != vmi_status.RUNNING:
            raise errors.bad_request(_NOT_RUNNING)
        uid = vmi['metadata']['uid']
        if not self._guests.HAS_DISPLAY:
            raise errors.ApiError(
                501, 'NotImplemented', 'the machines of this sandbox have no '
                'display: they are simulated; those of --guests qemu have '
                'one')
        if (request.query.get('preserveSession') in _TRUE
                and uid in self._displays):
            raise errors.internal_error(
                'websocket: bad handshake: Active VNC connection. Request '
                'denied.')
        _check(request.http)
        path = await self._guests.display(uid)
        if path is None:
            raise errors.internal_error(
                'Failed finding unix socket for VNC console')
        try:
            reader, writer = await asyncio.open_unix_connection(path)
        except OSError as exc:
            raise errors.internal_error(
                f'Failed to dial connection: {exc.strerror}') from None

        async def send(data):
            writer.write(data)
            await writer.drain()

        if uid in self._displays:
            self._displays[uid].abort()
        self._displays[uid] = writer.transport
        try:
            return await _connect(request.http,
                                  lambda: reader.read(_CHUNK), send)
        finally:
            if self._displays.get(uid) is writer.transport:
                del self._displays[uid]
            writer.close()


def _check(http):
    """Refuse clients without WebSocket before disconnecting another."""
    if http.headers.get('Upgrade', '').lower() != 'websocket':
        raise errors.bad_request(
            'websocket: the client is not using the websocket protocol: '
            "'upgrade' token not found in 'Connection' header")


async def _connect(http, receive, send):
    """Forward bytes in both directions until one side ends.

    :param receive: coroutine function that returns the machine's next bytes,
        empty at the end of its output.
    :param send: coroutine function that sends bytes to the machine.
    """
    socket = websocket.WebSocket((PROTOCOL,))
    await socket.prepare(http)

    async def to_client():
        with contextlib.suppress(ConnectionError):
            while chunk := await receive():
                await socket.send_bytes(chunk)

    async def to_machine():
        with contextlib.suppress(ConnectionError):
            # Text messages are not part of the protocol; KubeVirt ignores
            # them.
            async for message in socket:
                await send(message)

    tasks = [asyncio.ensure_future(one()) for one in (to_client, to_machine)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if http.transport is not None:
            http.transport.close()
    return socket
