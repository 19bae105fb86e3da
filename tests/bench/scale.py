# SPDX-License-Identifier: Apache-2.0
"""One emulator for thousands of VMs, in a cluster that is otherwise idle."""

import time

import fixtures

from tests.bench import load
from tests.bench import memory
from tests.bench import report
from tests.fixtures import emulator
from tests.fixtures import sandbox

SYSTEMS = '/redfish/v1/Systems'

#: Members of the pages that are requested.
PAGE = 500

_SETTING = 'SUSHY_EMULATOR_KUBEVIRT_NAMESPACES'


def measure(sizes, say):
    """Measure ``sizes.vms`` numbers of VMs, each in a sandbox of its own.

    :returns: iterator of `report.Row`
    """
    for count in sizes.vms:
        say(f'an emulator of {count} VMs')
        with fixtures.CompoundFixture([]) as holder:
            cluster = holder.useFixture(sandbox.Sandbox(
                vms=count, boot_seconds=0))
            yield from _measure(holder, cluster, sizes)


def _measure(holder, cluster, sizes):
    ours, empty = (holder.useFixture(emulator.Emulator(
        cluster.kubeconfig, {_SETTING: [namespace]}, 'gunicorn'))
        for namespace in ('default', 'kube-public'))
    began = time.perf_counter()
    paths = ours.systems()
    first = time.perf_counter() - began
    began = time.perf_counter()
    cluster.list('virtualmachines')
    listed = time.perf_counter() - began
    if len(paths) != cluster.vms or empty.systems():
        raise RuntimeError(f'{len(paths)} systems, not {cluster.vms}')
    with load.Client(ours.url) as client:
        whole, page = (
            load.median_ms(lambda: client.ask('GET', where), sizes.get)
            for where in (SYSTEMS, f'{SYSTEMS}?$top={PAGE}'))
    extra = sum(memory.tree(ours.process.pid)) - sum(
        memory.tree(empty.process.pid))
    vms = f'{cluster.vms} VMs'
    yield report.Row('first collection, ' + vms, 's', first,
                     'list of the API', listed, first / listed)
    yield report.Row('GET Systems, ' + vms, 'ms, median', whole)
    yield report.Row('a page of it, ' + vms, 'ms, median', page)
    yield report.Row('memory of a VM, ' + vms, 'KiB of PSS',
                     1024 * extra / cluster.vms)
