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
from tests.bench import memory
from tests.fixtures import bmc_pod
from tests.fixtures import redfish_pod
from tests.fixtures import terminal


def measure(ours, sizes):
    """Open a console and measure it.

    :param ours: :class:`tests.bench.subjects.Ours`
    :param sizes: :class:`tests.bench.plan.Sizes`
    :returns: dictionary: ``bytes_per_second``; ``key_median_ms``,
        ``key_p95_ms``; ``kubevirt_median_ms``, the round trip of a key at
        KubeVirt's WebSocket; ``idle``, ``open`` and ``after``, MiB of PSS
        of the BMC before, with the console, and after the output
    """
    name = ours.sandbox.list('virtualmachines')[0]['metadata']['name']
    if ours.sandbox.vmi(name) is None:
        ours.sandbox.do(name, 'start')
    ours.sandbox.wait_running(name)
    pod = ours.useFixture(bmc_pod.BmcPod(ours.sandbox, name))
    pod.ipmi('power', 'status')
    result = {'idle': _pss(pod.process)}
    client = ours.useFixture(terminal.Terminal(
        ['ipmitool', '-I', 'lanplus', '-H', '127.0.0.1',
         '-p', str(pod.ipmi_port), '-U', redfish_pod.USER, '-E', 'sol',
         'activate'],
        process.environment(process.NO_HOME, {
            'IPMI_PASSWORD': pod.password, 'TERM': 'dumb'})))
    client.wait(b'SOL Session operational')
    client.say(b'', b'# ')
    result['open'] = _pss(pod.process)
    times = sorted(_key(client) for _ in range(sizes.keys))
    result['key_median_ms'] = 1000 * statistics.median(times)
    result['key_p95_ms'] = 1000 * times[int(0.95 * len(times))]
    client.say(b'', b'# ')
    command = b'print %d\r' % sizes.console_bytes
    mark = client.mark()
    begin = time.perf_counter()
    client.send(command)
    while client.mark() < mark + len(command) + sizes.console_bytes:
        if not client.read(time.monotonic() + 60):
            raise RuntimeError('the console prints nothing')
    result['bytes_per_second'] = sizes.console_bytes / (
        time.perf_counter() - begin)
    result['after'] = _pss(pod.process)
    client.send(b'\r~.')
    client.wait_end()
    result['kubevirt_median_ms'] = _kubevirt(ours, name, sizes)
    return result


def _pss(process_):
    return memory.pss(process_.pid) / 2 ** 20


def _key(client):
    begin = time.perf_counter()
    mark = client.mark()
    client.send(b'x')
    while client.mark() == mark:
        client.read(time.monotonic() + 10)
    return time.perf_counter() - begin


def _kubevirt(ours, name, sizes):
    socket = console.connect(ours.sandbox, console.url(ours.sandbox, name))
    try:
        times = []
        for _ in range(sizes.keys):
            begin = time.perf_counter()
            socket.send_binary(b'x')
            socket.recv()
            times.append(time.perf_counter() - begin)
        return 1000 * statistics.median(times)
    finally:
        socket.shutdown()
