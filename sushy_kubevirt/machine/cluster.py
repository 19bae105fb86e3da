# SPDX-License-Identifier: Apache-2.0
"""The machines of one cluster: find, read and change them.

A `Cluster` combines the client, the cache, the one-time boot reconciler and
the media manager. Threads start with `Cluster.start` or the first read; a
process that forks afterwards has none of them.

BMCs that share a pod each have a `Cluster` of their VM, with options of their
own, over one `SharedCluster`.
"""

from __future__ import annotations

from collections import abc
import contextlib
import copy
import logging
import threading
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import delaying_queue
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import feature_gates
from sushy_kubevirt.kube import objects
from sushy_kubevirt.machine import machine
from sushy_kubevirt.machine.media import cdi
from sushy_kubevirt.machine.media import manager
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import protocols
from sushy_kubevirt.machine import vm_cache

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import connection
    from sushy_kubevirt.machine import vm_state

    # Members of `Cluster` have the names of modules.
    CallKey: typing.TypeAlias = client.CallKey
    Json: typing.TypeAlias = objects.Json
    Machine: typing.TypeAlias = machine.Machine
    ObjectKey: typing.TypeAlias = objects.ObjectKey

LOG = logging.getLogger(__name__)

#: The watch may not have reported a new VM yet: seconds to wait before a VM
#: counts as not found, and how many requests wait at the same time. The limit
#: keeps a client that guesses names from blocking the others.
NEW_VM_WAIT_SECONDS = 0.5
NEW_VM_WAITERS = 2


class SharedCluster:
    """Connections, caches, threads, and what is known of KubeVirt and CDI.

    Thread-safe.

    :param options: of the watches
    :param namespaces: whose VMs are watched all together; VMs of other
        namespaces are watched one by one, by their names
    :param label_selector: only VMs with these labels
    :param vm: only this VM, regardless of its labels
    """

    def __init__(self, connection: connection.Connection,
                 options: options.Options, namespaces: abc.Sequence[str] = (),
                 label_selector: str = '', vm: ObjectKey | None = None
                 ) -> None:
        self.connection = connection
        self.options = options
        self.namespaces = namespaces
        self.client = client.Client(connection, options)
        self.gates = feature_gates.Gates(self.client,
                                         options.gates_seconds)
        self.cdi = cdi.Cdi(self.client)
        #: Threads of the reconcilers.
        self.boot_worker = delaying_queue.Worker('one-time-boot')
        self.media_worker = delaying_queue.Worker('media')
        self.cache = vm_cache.VmCache(self.client, options, namespaces,
                                      label_selector, vm)

    def start(self) -> None:
        """Start the watches and threads; call it once."""
        if self.options.reconcile:
            self.boot_worker.start()
            self.media_worker.start()
        self.cache.start()
        self.gates.refresh_in_background()
        self.cdi.check_in_background()

    def close(self) -> None:
        """Stop the watches and threads."""
        self.boot_worker.close()
        self.media_worker.close()
        self.cache.close()
        self.client.close()


class Cluster:
    """The machines of a scope: some namespaces, all of them, or one VM.

    :param namespaces: names; empty for all namespaces
    :param label_selector: only VMs with these labels
    :param vm: 'namespace/name': only this VM, regardless of its labels
    :param shared: for one VM: what it shares with others; None for one of
        its own
    :raises: `errors.ConfigError` if ``vm`` has another form
    """

    def __init__(self, connection: connection.Connection,
                 namespaces: abc.Iterable[str] = (), label_selector: str = '',
                 options: options.Options = options.Options(),
                 vm: str | None = None,
                 shared: SharedCluster | None = None) -> None:
        if vm and '/' not in vm:
            raise errors.ConfigError(
                f'The VM {vm!r} has to be given as namespace/name')
        self.options = options
        #: The VM if the scope is one VM, else None.
        self.vm = objects.ObjectKey(*vm.split('/', 1)) if vm else None
        namespaces = tuple(namespaces)
        self._owned = None
        if shared is None:
            shared = self._owned = SharedCluster(
                connection, options, namespaces, label_selector, self.vm)
        #: For this package, and for objects other than machines.
        self.client = shared.client.with_options(options)
        #: The cluster's feature gates.
        self.gates = shared.gates
        #: The VMs and VMIs; may have those of other clusters, too.
        self.cache = shared.cache
        if (self._owned is None and self.vm is not None
                and self.vm.namespace not in shared.namespaces):
            self.cache = vm_cache.VmCache(shared.client, shared.options,
                                          vm=self.vm)
        self._owns_cache = (self._owned is not None
                            or self.cache is not shared.cache)
        #: Namespace of objects that belong to no VM.
        self.default_namespace = (
            *namespaces, connection.namespace or 'default')[0]
        self._origin: Cluster | None = None
        #: Set by `close`; ends all waiting.
        self.closing = threading.Event()
        self._lock = threading.RLock()
        self._new_vm_waiters = threading.BoundedSemaphore(NEW_VM_WAITERS)
        #: `time.monotonic` of the last `machine.Machine.fetch` of a VM.
        self.fetched: dict[ObjectKey, float] = {}
        #: uid: (generation, sizes), see `machine.Machine.sizes`.
        self.known_sizes: dict[str, tuple[int | None, Json]] = {}
        # VmCache.membership, the machines
        self._machines: tuple[int, tuple[Machine, ...]] | None = None
        self._boot_reconciler = None
        if self.options.reconcile:
            self._boot_reconciler = one_time_boot.OneTimeBootReconciler(
                self, shared.boot_worker)
        self._started = False
        self._subscribers: set[vm_cache.Subscriber] = set()
        #: Virtual media of the machines.
        self.media = manager.Manager(self, namespaces, shared.cdi,
                                     shared.media_worker)

    def with_options(self, **changes: typing.Any) -> Cluster:
        """Return this cluster with other options, such as deadlines.

        It shares everything else: connections, cache, threads, media. It ends
        when this cluster is closed.

        :param changes: fields of `options.Options`
        """
        cluster = copy.copy(self)
        cluster.options = self.options._replace(**changes)
        cluster.client = self.client.with_options(cluster.options)
        cluster._machines = None    # they refer to this cluster
        cluster._origin = self
        return cluster

    # Finding

    def machines(self) -> tuple[Machine, ...]:
        """Return all machines, by namespace and name.

        :returns: the same tuple until a VM is added or removed, or its
            identity changes
        """
        self.wait_ready()
        if self.cache.stale:
            self._relist()
        membership, known = self.cache.membership, self._machines
        if known is None or known[0] != membership:
            machines = (self._machine(key) for key in (
                [self.vm] if self.vm else self.cache.keys()))
            known = self._machines = membership, tuple(
                machine for machine in machines if machine is not None)
        return known[1]

    def machine(self, identity: str, wait: bool = True) -> Machine:
        """Find one machine.

        :param identity: UUID (of the firmware, else the VM's uid), name, or
            namespace/name
        :param wait: True to wait `NEW_VM_WAIT_SECONDS` for a VM that is not
            found; the duration of a request then reveals whether a machine
            exists
        :raises: `errors.MachineNotFound`, `errors.AmbiguousName`
        """
        self.wait_ready()
        keys = self._find(identity)
        if not keys and self.cache.stale:
            self._relist()
            keys = self._find(identity)
        if not keys and wait:
            keys = self._wait_for_vm(identity)
        if len(keys) > 1:
            raise errors.AmbiguousName(
                identity,
                [f'{namespace}/{name}' for namespace, name in keys])
        machine = self._machine(keys[0]) if keys else None
        if machine is None:
            raise errors.MachineNotFound(identity)
        return machine

    def _wait_for_vm(self, identity: str) -> list[ObjectKey]:
        """Wait up to `NEW_VM_WAIT_SECONDS` for a VM and return its keys."""
        if not self._new_vm_waiters.acquire(blocking=False):
            return []
        try:
            return self.wait_until(lambda: self._find(identity),
                                   NEW_VM_WAIT_SECONDS)
        finally:
            self._new_vm_waiters.release()

    def _find(self, identity: str) -> list[ObjectKey]:
        if self.vm is None:
            return self.cache.find(identity)
        return [self.vm] if self.cache.has_identity(self.vm, identity) else []

    def _machine(self, key: ObjectKey) -> Machine | None:
        identity = self.cache.identity(key, self.vm is not None)
        if identity is None:
            return None
        return machine.Machine(self, key, *identity)

    def _relist(self) -> None:
        if self._owns_cache or self.vm is None:
            self.cache.relist()
            return
        with contextlib.suppress(errors.ObjectNotFound):
            self.cache.put_vm(self.client.get(api_resources.VM, *self.vm))
        with contextlib.suppress(errors.ObjectNotFound):
            self.cache.put_vmi(self.client.get(api_resources.VMI, *self.vm))

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until all VMs and VMIs of the scope are listed.

        :param timeout: seconds; None for Options.read_deadline
        :raises: `errors.Unavailable`, `errors.AccessDenied`, with the reason
        """
        self.start()
        if not self.cache.listed:
            self.cache.wait(self.options.read_deadline
                            if timeout is None else timeout)

    def wait_until(self, check: abc.Callable[[], protocols.ResultT],
                   timeout: float) -> protocols.ResultT:
        """Repeat a check, see `vm_cache.VmCache.wait_until`; until `close`."""
        return self.cache.wait_until(check, timeout, self.closing)

    def start(self) -> None:
        """Start the watches, the one-time boot reconciler and media manager.

        Returns at once. A BMC process calls it when it starts to serve, to
        complete a one-time boot that its predecessor left unfinished before
        a client sends a request. Otherwise the first read calls it.

        :raises: `errors.Unavailable` after `close`
        """
        if self._started:
            return
        blocking.check()
        if self._origin is not None:
            self._origin.start()
            self._started = True
            return
        with self._lock:
            if self._started:
                return
            if self.closing.is_set():
                raise errors.Unavailable('The connection is closed')
            if self._boot_reconciler is not None:
                self._boot_reconciler.start()
            self.media.start()
            if self._owned is not None:
                self._owned.start()
            elif self._owns_cache:
                self.cache.start()
            self._started = True

    def subscribe(self, callback: protocols.Subscriber
                  ) -> abc.Callable[[], None]:
        """Call a function for each machine, then for each change of one.

        See `vm_cache.VmCache.subscribe`; of no effect after `close`.

        :param callback: it must not block
        :returns: function that ends the subscription
        """
        machines: dict[ObjectKey, Machine] = {}

        def notify(key: ObjectKey, state: vm_state.VmState | None) -> None:
            if state is None:
                machine = machines.pop(key, None)
            else:
                uid = state.vm['metadata']['uid']
                machine = machines.get(key)
                if machine is None or machine.uid != uid:
                    machine = self._machine(key)
                    if machine is None or machine.uid != uid:
                        return      # replaced since; its successor follows
                    machines[key] = machine
            if machine is not None:
                callback(machine, state)

        with self._lock:
            if not self.closing.is_set():
                self._subscribers.add(notify)
                self.cache.subscribe(notify, self.vm)
        return lambda: self._unsubscribe(notify)

    def _unsubscribe(self, subscriber: vm_cache.Subscriber) -> None:
        self.cache.unsubscribe(subscriber, self.vm)
        self._subscribers.discard(subscriber)

    def refresh(self, machine: Machine) -> None:
        """Read a machine, KubeVirt's version and its feature gates again,
        and queue the machine for the one-time boot reconciler.

        :raises: `errors.Unavailable` if the API does not respond in time
        """
        self.known_sizes.pop(machine.uid, None)
        machine.write(lambda _state: None)
        self.gates.refresh_in_background()
        if self._boot_reconciler is not None:
            self._boot_reconciler.enqueue(machine)

    def close(self) -> None:
        """Stop the threads and close the connections."""
        with self._lock:
            self.closing.set()
        if self._boot_reconciler is not None:
            self._boot_reconciler.close()
        self.media.close()
        for subscriber in tuple(self._subscribers):
            self._unsubscribe(subscriber)
        if self._owned is not None:
            self._owned.close()
        elif self._owns_cache:
            self.cache.close()
