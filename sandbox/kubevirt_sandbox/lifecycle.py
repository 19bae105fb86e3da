# SPDX-License-Identifier: Apache-2.0
"""Start the parts of the sandbox in order and stop them in reverse order."""
import asyncio
import contextlib
import gc
import signal

from kubevirt_sandbox.api import certificates
from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import server
from kubevirt_sandbox import cdi
from kubevirt_sandbox.cdi import storage
from kubevirt_sandbox import control
from kubevirt_sandbox import kubeconfig
from kubevirt_sandbox import kubevirt
from kubevirt_sandbox import workloads

#: Allocations after which cyclic garbage is searched for.
_GC_ALLOCATIONS = 50_000


def run(options):
    """Serve until SIGTERM or Ctrl-C.

    :param options: those of :mod:`cmd`.
    :raises OSError: the address or the storage folder cannot be used.
    """
    with contextlib.closing(
            storage.Storage(options.storage)) as claim_storage:
        asyncio.run(_serve(options, claim_storage))


def _inside(store):
    """List the addresses and names of the API server inside the cluster."""
    service = store.get(core.SERVICE, 'default', 'kubernetes')
    name = 'kubernetes.default.svc.cluster.local'.split('.')
    return [service['spec']['clusterIP'],
            *('.'.join(name[:length]) for length in (1, 2, 3, 5))]


async def _serve(options, claim_storage):
    host, port = options.listen
    authority = certificates.Authority()
    api_server = server.Server(ca=authority.certificate, lag=options.lag,
                               streaming_lists=options.streaming_lists)
    core.install(api_server, claim_storage, options.nodes)
    control.install(api_server)
    parts = [cdi.install(api_server, claim_storage, options, not options.cdi),
             kubevirt.install(api_server, options, claim_storage),
             workloads.install(api_server, options)]
    if options.harvester:
        from kubevirt_sandbox import harvester
        parts.append(harvester.Harvester(
            api_server, parts[1].kinds, options.lag))
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    identity = authority.issue([
        host, 'localhost', '127.0.0.1', '::1', *_inside(api_server.store)])
    await api_server.start(host, port, identity.context())
    try:
        for part in parts:
            await part.start()
        kubeconfig.write(options.kubeconfig, api_server.url, identity.ca,
                         api_server.token)
        # Objects of the API are trees, in which there is no garbage to find:
        # the search for it took a tenth of the processor time.
        gc.freeze()
        gc.set_threshold(_GC_ALLOCATIONS)
        gc.enable()
        print(f'ready {api_server.url}', flush=True)
        await stopping.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            # Ignore further signals while it stops.
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        for part in reversed(parts):
            await part.stop()
        await api_server.stop()
