# SPDX-License-Identifier: Apache-2.0
"""Time to list sensors and a long event log by ``ipmitool``."""

import time

from tests.bench import load
from tests.bench import report
from tests.fixtures import vbmcd

#: An Event of KubeVirt about the VM.
_EVENT = {
    'reason': 'Started', 'message': 'VirtualMachineInstance started.',
    'type': 'Normal', 'source': {'component': 'virt-handler'}, 'count': 1}


def measure(ours, sizes):
    """List the SDR repository, and the SEL with ``sizes.entries`` records.

    Each time is that of a whole command, including its start.

    :returns: iterator of `report.Row`
    """
    vm = ours.sandbox.vm(ours.bmc.name.rpartition('/')[2])
    about = {'apiVersion': vm['apiVersion'], 'kind': vm['kind'],
             'namespace': 'default', 'name': vm['metadata']['name'],
             'uid': vm['metadata']['uid']}
    # Of the events of other measurements.
    _run(ours.bmc, 'sel', 'clear')
    for number in range(sizes.entries):
        when = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())
        ours.sandbox.create('events', {
            **_EVENT, 'metadata': {'name': f'bench.{number}'},
            'involvedObject': about, 'firstTimestamp': when,
            'lastTimestamp': when})
    yield report.Row('ipmitool sdr list', 'ms, median',
                     _median(ours.bmc, sizes, 'sdr', 'list'))
    yield report.Row(
        f'ipmitool sel list, {sizes.entries} records', 'ms, median',
        _median(ours.bmc, sizes, 'sel', 'list', lines=sizes.entries))


def _median(bmc, sizes, *words, lines=None):
    def run():
        found = len(_run(bmc, *words).splitlines())
        if lines is not None and found != lines:
            raise RuntimeError(f'{found} records, not {lines}')

    return load.median_ms(run, sizes.listings)


def _run(bmc, *words):
    done = vbmcd.ipmitool(bmc, *words)
    if done.returncode != 0:
        raise RuntimeError(done.stdout)
    return done.stdout
