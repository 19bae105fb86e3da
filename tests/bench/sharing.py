# SPDX-License-Identifier: Apache-2.0
"""One process with the BMCs of many VMs: memory, start, floods.

A flood is 32 clients, in a process of their own, of another BMC of the same
process. One floods nothing and computes, as the clients use processors too.
"""

import pathlib
import ssl
import statistics
import subprocess
import sys
import time

import fixtures

from tests.bench import load
from tests.bench import memory
from tests.bench import report
from tests.fixtures import sandbox
from tests.fixtures import shared_pod

_CACHED, _UNCACHED = '/redfish/v1/Systems/1', '/redfish/v1/Managers/1'

#: What a BMC is flooded with: its name, and the argument of `_FLOOD`.
FLOODS = {'cached GETs': _CACHED, 'uncached GETs': _UNCACHED,
          'TLS handshakes': 'tls', 'IPMI packets': 'udp',
          'nothing': 'none'}

#: Seconds until a list of BMCs has to be served.
_TIMEOUT = 120

_FLOOD = """
import http.client, socket, ssl, sys, threading, time
address, number, kind, user, password = sys.argv[1:]
context = ssl._create_unverified_context()
import base64
head = {'Authorization': 'Basic ' + base64.b64encode(
    f'{user}:{password}'.encode()).decode()}

def run():
    while True:
        try:
            one = http.client.HTTPSConnection(
                address, 10000 + int(number), context=context, timeout=30)
            one.connect()
            while kind != 'tls':
                one.request('GET', kind, headers=head)
                one.getresponse().read()
            one.close()
        except (OSError, http.client.HTTPException):
            pass

while kind == 'none':
    pass
if kind == 'udp':
    # Get Channel Authentication Capabilities.
    data = bytes.fromhex('0600ff07000000000000000000092018c88100388e04b5')
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.connect((address, 30000 + int(number)))
    while True:
        one.send(data)
for _ in range(32):
    threading.Thread(target=run, daemon=True).start()
time.sleep(3600)
"""


def measure(sizes, say):
    """Measure the process with ``sizes.shared`` BMCs.

    :returns: iterator of `report.Row`
    :raises: `RuntimeError` if BMCs are not served, or a flood ends
    """
    say(f'one process with {sizes.shared} BMCs')
    with fixtures.CompoundFixture([]) as holder:
        cluster = holder.useFixture(sandbox.Sandbox(
            vms=sizes.shared, boot_seconds=0))
        pod = holder.useFixture(shared_pod.SharedPod(cluster))
        empty = memory.pss(pod.process.pid)
        bmcs = [pod.bmc(f'vm-{number}', number)
                for number in range(sizes.shared)]
        _serve(pod, bmcs[:1])
        single = memory.pss(pod.process.pid)
        _serve(pod, bmcs)
        full = memory.pss(pod.process.pid)
        pod.process.send(15)
        pod.process.wait()
        cluster.patch('configmaps', shared_pod.REPORT, [
            {'op': 'add', 'path': '/data', 'value': {}}])
        # Not the reading of the kubeconfig, which a pod does not have.
        pod.start()
        began = time.perf_counter()
        _wait(pod, bmcs)
        started = time.perf_counter() - began
        yield report.Row('one process, no BMC', 'MiB of PSS', empty)
        yield report.Row(f'one process, {len(bmcs)} BMCs', 'MiB of PSS', full)
        yield report.Row('memory of a BMC in one process', 'KiB of PSS',
                         1024 * (full - single) / (len(bmcs) - 1))
        yield report.Row(f'start of {len(bmcs)} BMCs in one process', 's',
                         started)
        yield from _floods(*bmcs[:2], sizes)


def _floods(other, flooded, sizes):
    """Measure GETs of a BMC before and while another one is flooded."""
    idle = [[], []]
    for kind, argument in FLOODS.items():
        before = _latencies(other, sizes)
        with subprocess.Popen([
                sys.executable, '-c', _FLOOD, flooded.address,
                str(flooded.slot), argument, flooded.username,
                flooded.password]) as flood:
            try:
                time.sleep(1)
                during = _latencies(other, sizes)
                if flood.poll() is not None:
                    raise RuntimeError(f'the flood of {kind} has ended')
            finally:
                flood.kill()
        for index, what in enumerate(('cached', 'uncached')):
            idle[index].append(before[index])
            yield report.Row(f'GET, {what}, flood of {kind}',
                             'times without', during[index] / before[index])
    for what, values in zip(('cached', 'uncached'), idle):
        yield report.Row(f'GET, {what}, no flood', 'ms, median',
                         statistics.median(values))


def _serve(pod, bmcs):
    pod.list(*bmcs)
    _wait(pod, bmcs)
    time.sleep(1)


def _wait(pod, bmcs):
    wanted = {one.name: (one.digest, '') for one in bmcs}
    deadline = time.monotonic() + _TIMEOUT
    while (served := pod.served()) != wanted:
        if time.monotonic() > deadline:
            raise RuntimeError(
                f'{len(bmcs)} BMCs are not served after {_TIMEOUT} s, but '
                f'{served}')
        time.sleep(0.05)


def _latencies(bmc, sizes):
    """:returns: medians of cached and of uncached GETs, milliseconds"""
    context = ssl.create_default_context(
        cadata=pathlib.Path(bmc.ca).read_text())
    found = []
    for path in _CACHED, _UNCACHED:
        times = []
        with load.Client(f'https://{bmc.address}:{10000 + bmc.slot}',
                         bmc.authorization, context) as client:
            for _ in range(sizes.get):
                times += load.get(client, path, 1)
                time.sleep(0.005)
        found.append(1000 * statistics.median(times))
    return found
