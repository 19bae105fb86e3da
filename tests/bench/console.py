# SPDX-License-Identifier: Apache-2.0
"""Serial over LAN: throughput, round trip of a key, and memory.

The client is ``ipmitool sol activate`` in a terminal, the BMC the process of a
pod, with both protocols, the guest the sandbox's shell, which echoes at once.
The round trip includes everything from the terminal to the guest and back.
"""

import statistics
import time

from kubevirt_sandbox.testing import console
from kubevirt_sandbox.testing import process
from tests.bench import load
from tests.bench import memory
from tests.bench import report
from tests.fixtures import bmc_pod
from tests.fixtures import redfish_pod
from tests.fixtures import terminal


def measure(ours, sizes):
    """Measure a console, a key at KubeVirt's WebSocket, and the memory.

    :returns: iterator of `report.Row`
    """
    name = ours.sandbox.list('virtualmachines')[0]['metadata']['name']
    if ours.sandbox.vmi(name) is None:
        ours.sandbox.do(name, 'start')
    ours.sandbox.wait_running(name)
    pod = ours.useFixture(bmc_pod.BmcPod(ours.sandbox, name))
    pod.ipmi('power', 'status')
    sizes_of_bmc = [memory.pss(pod.process.pid)]
    client = ours.useFixture(terminal.Terminal(
        ['ipmitool', '-I', 'lanplus', '-H', '127.0.0.1',
         '-p', str(pod.ipmi_port), '-U', redfish_pod.USER, '-E', 'sol',
         'activate'],
        process.environment(process.NO_HOME, {
            'IPMI_PASSWORD': pod.password, 'TERM': 'dumb'})))
    client.wait(b'SOL Session operational')
    client.say(b'', b'# ')
    sizes_of_bmc.append(memory.pss(pod.process.pid))
    times = load.times(lambda: _key(client), sizes.keys)
    client.say(b'', b'# ')
    command = b'print %d\r' % sizes.console_bytes
    mark = client.mark()
    begin = time.perf_counter()
    client.send(command)
    while client.mark() < mark + len(command) + sizes.console_bytes:
        if not client.read(time.monotonic() + 60):
            raise RuntimeError('the console prints nothing')
    yield report.Row('serial console, output', 'KiB a second',
                     sizes.console_bytes / 1024
                     / (time.perf_counter() - begin))
    sizes_of_bmc.append(memory.pss(pod.process.pid))
    client.send(b'\r~.')
    client.wait_end()
    what = 'serial console, key and echo'
    yield report.Row(what, 'ms, median', 1000 * statistics.median(times))
    yield report.Row(what, 'ms, p95', 1000 * load.percentile(times, 95))
    yield report.Row('the same without the BMC', 'ms, median',
                     _kubevirt(ours, name, sizes))
    for what, size in zip(('BMC, no console', 'BMC, open console',
                           'the same after the output'), sizes_of_bmc):
        yield report.Row(what, 'MiB of PSS', size)


def _key(client):
    mark = client.mark()
    client.send(b'x')
    while client.mark() == mark:
        client.read(time.monotonic() + 10)


def _kubevirt(ours, name, sizes):
    socket = console.connect(ours.sandbox, console.url(ours.sandbox, name))
    try:
        return load.median_ms(
            lambda: (socket.send_binary(b'x'), socket.recv()), sizes.keys)
    finally:
        socket.shutdown()
