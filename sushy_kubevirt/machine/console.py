# SPDX-License-Identifier: Apache-2.0
"""The serial console and the display of a VM.

KubeVirt serves a VMI's first serial port and its VNC server as WebSockets, the
subresources ``console`` and ``vnc``, while the VMI is Running. A connection
survives what happens within the VMI, such as a reboot of the guest, and ends
with the VMI, with its migration to another node, and when another client
connects: KubeVirt serves one client of each at a time, the latest
(pkg/virt-handler/rest/console.go, newStopChan; KubeVirt 1.9; ``vnc`` refuses
the later one only if that asks for ``preserveSession``). It ends without a
reason.

Output of a guest from before the connection is lost: QEMU discards it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine import power_state

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.kube import websocket
    from sushy_kubevirt.machine import machine

LOG = logging.getLogger(__name__)

#: The WebSocket's subprotocol: binary messages with the bytes themselves
#: (staging/src/kubevirt.io/client-go/subresources).
PROTOCOL = 'plain.kubevirt.io'

#: Bytes of input that wait to be sent.
INPUT_MAX = 4096

#: Shortest and longest pause before the next attempt to connect, in seconds.
#: Successive connections are at least the shortest apart.
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 15.0

#: A connection counts as working after the first output, or after this number
#: of seconds.
WORKING_SECONDS = 2.0

#: Seconds to wait for a watch event that explains the end of a connection.
#: KubeVirt reports the end of a guest within a second or two.
REASON_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Port:
    """What to connect to.

    :param name: for the user
    :param subresource: of the VMI
    :param once: whether a connection cannot be continued by another one, as
        RFB begins with a greeting
    """

    name: str
    subresource: str
    once: bool = False


class _Instance(typing.NamedTuple):
    """What a connection belongs to: a VMI on a node."""

    uid: str
    node: str | None


SERIAL = Port('console', 'console')
DISPLAY = Port('display', 'vnc', once=True)


class Console:
    """A connection to a port, opened whenever a VMI is running.

    :param find: may block and raise `errors.MachineError`
    :param output: takes output of the guest, which waits while this waits
    :param notice: takes a sentence for the user about the state of the
        connection
    :param port: `SERIAL` or `DISPLAY`
    """

    def __init__(self, find: abc.Callable[[], machine.Machine],
                 output: abc.Callable[[bytes], abc.Awaitable[None]],
                 notice: abc.Callable[[str], None], port: Port = SERIAL
                 ) -> None:
        self._find = find
        self._output = output
        self._notice = notice
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._accepts_input = True
        self._input = bytearray()
        self._input_added = asyncio.Event()
        self._input_taken = asyncio.Event()
        # Set by watch events, and by a key that connects again.
        self._changed = asyncio.Event()
        self._unsubscribe: abc.Callable[[], None] | None = None
        self._key_connects = False
        self._told = ''
        # Failed attempts since a connection worked.
        self._tries = 0

    def write(self, data: bytes) -> int | None:
        """Send input to the guest.

        Without a connection input is not kept, except while the connection is
        being opened; it ends the wait after another client has taken the
        console.

        :returns: number of bytes accepted, fewer while the guest does not
            read its input; None without a connection
        """
        if not self._accepts_input:
            if self._key_connects:
                self._key_connects = False
                self._changed.set()
            return None
        accepted = data[:INPUT_MAX - len(self._input)]
        self._input += accepted
        self._input_added.set()
        return len(accepted)

    async def send(self, data: bytes) -> None:
        """Send input to the guest like `write`; wait until all is accepted."""
        while data:
            self._input_taken.clear()
            accepted = self.write(data)
            if accepted is None:
                return
            data = data[accepted:]
            if data:
                await self._input_taken.wait()

    def discard_input(self) -> None:
        """Discard input that has not been sent yet."""
        self._input.clear()
        self._input_taken.set()

    async def run(self) -> bool:
        """Connect whenever a VMI runs, until this task is cancelled.

        The display is connected once.

        :returns: after the end of the display's connection, whether another
            client has probably taken it
        """
        earliest = 0.0
        try:
            while True:
                self._changed.clear()
                try:
                    machine = await asyncio.to_thread(self._find)
                    if self._unsubscribe is None:
                        self._unsubscribe = machine.cluster.subscribe(
                            self._on_event)
                    instance, state = await asyncio.to_thread(
                        _look, machine, self._port)
                    if instance is None:
                        self._tries = 0
                        self._refuse_input()
                        self._tell(f'{machine.qualified_name} {state}')
                        await self._changed.wait()
                        continue
                    self._accepts_input = True
                    await asyncio.sleep(earliest - self._loop.time())
                    socket = await machine.cluster.client.websocket(
                        api_resources.VMI, machine.namespace, machine.name,
                        self._port.subresource, PROTOCOL)
                    earliest = self._loop.time() + FIRST_PAUSE
                    await self._serve(socket, machine)
                except errors.MachineError as e:
                    self._refuse_input()
                    self._tell(str(e))
                    await self._wait(retry.pause(
                        self._tries, FIRST_PAUSE, LONGEST_PAUSE))
                    self._tries += 1
                else:
                    ended = await self._wait_for_end(machine, instance)
                    if self._port.once:
                        return not ended
                    if not ended:
                        await self._wait_for_key(machine, instance)
        finally:
            if self._unsubscribe is not None:
                self._unsubscribe()

    def _on_event(self, *_machine: object) -> None:
        with contextlib.suppress(RuntimeError):     # the loop is closed
            self._loop.call_soon_threadsafe(self._changed.set)

    async def _wait(self, seconds: float) -> bool:
        """Wait for a change.

        :returns: True if there was one in time
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
                return True
        return False

    async def _wait_for_end(self, machine: machine.Machine,
                            instance: _Instance) -> bool:
        """Wait until the cache shows that an instance is gone.

        Other changes of the VM do not prolong the wait.

        :returns: False if it is not gone after `REASON_SECONDS`: the
            connection ended for another reason, another client
        """
        deadline = self._loop.time() + REASON_SECONDS
        while _is_current(machine, instance):
            self._changed.clear()
            if not await self._wait(deadline - self._loop.time()):
                self._tell(
                    f'The {self._port.name} of {machine.qualified_name} was '
                    'closed, probably because another client has connected '
                    'to it.' + ('' if self._port.once else
                                ' Press a key to connect again.'))
                return False
        return True

    async def _wait_for_key(self, machine: machine.Machine,
                            instance: _Instance) -> None:
        """Wait until input connects again, or the instance is gone."""
        self._key_connects = True
        while self._key_connects and _is_current(machine, instance):
            self._changed.clear()
            await self._changed.wait()

    async def _serve(self, socket: websocket.WebSocket,
                     machine: machine.Machine) -> None:
        """Forward both directions until the connection ends."""
        LOG.info('%s: %s connected', machine.qualified_name, self._port.name)
        sender = asyncio.create_task(self._send(socket))
        working = self._loop.call_later(WORKING_SECONDS, self._works, machine)
        try:
            while (data := await socket.receive()) is not None:
                self._works(machine)
                await self._output(data)
        except errors.ConnectionLost:
            if not self._port.once:
                raise
        finally:
            working.cancel()
            self._refuse_input()
            sender.cancel()
            await socket.close()
            LOG.info('%s: %s disconnected', machine.qualified_name,
                     self._port.name)

    def _works(self, machine: machine.Machine) -> None:
        self._tries = 0
        if self._told:
            self._tell(f'The {self._port.name} of '
                       f'{machine.qualified_name} is connected.')
            self._told = ''

    async def _send(self, socket: websocket.WebSocket) -> None:
        # If the connection is lost, `_serve` notices it, too.
        with contextlib.suppress(errors.ConnectionLost):
            while True:
                await self._input_added.wait()
                self._input_added.clear()
                if self._input:
                    data = bytes(self._input)
                    self.discard_input()
                    await socket.send(data)

    def _refuse_input(self) -> None:
        self._accepts_input = False
        self.discard_input()

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._notice(text)


def _look(machine: machine.Machine, port: Port
          ) -> tuple[_Instance | None, str]:
    """Tell what runs, and if nothing does, what is waited for. May block."""
    instance = _instance(machine.state().vmi)
    return instance, '' if instance else _state(machine, port)


def _is_current(machine: machine.Machine, instance: _Instance) -> bool:
    """Tell whether the cache shows an instance."""
    state = machine.cached_state()
    return instance == _instance(state.vmi if state else None)


def _instance(vmi: objects.VirtualMachineInstance | None) -> _Instance | None:
    """Identify a VMI whose phase is Running."""
    status = (vmi.get('status') if vmi else None) or {}
    if vmi is None or status.get('phase') != 'Running':
        return None
    return _Instance(vmi['metadata']['uid'], status.get('nodeName'))


def _state(machine: machine.Machine, port: Port) -> str:
    problem = machine.problem()
    if problem is not None:
        return f'cannot run: {problem.message}'
    if machine.power_state() is power_state.PowerState.OFF:
        return f'is off. The {port.name} connects when it starts.'
    return (f'is starting or stopping. The {port.name} connects when it '
            'runs.')
