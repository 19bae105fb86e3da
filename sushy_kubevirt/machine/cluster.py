# SPDX-License-Identifier: Apache-2.0
"""The machines of one cluster: find, read and change them.

A `Cluster` combines the client, the cache, the one-time boot reconciler and
the media manager. Threads start with `Cluster.start` or the first read, so
that a cluster can be created before a process forks.
"""

from __future__ import annotations

from collections import abc
import copy
import dataclasses
import logging
import threading
import time
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import feature_gates
from sushy_kubevirt.kube import objects
from sushy_kubevirt.machine import inventory
from sushy_kubevirt.machine import machine
from sushy_kubevirt.machine.media import manager
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import protocols
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_cache

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import connection
    from sushy_kubevirt.machine import shared_cluster
    from sushy_kubevirt.machine import vm_view

    # Members of `Cluster` have the names of modules.
    CallKey: typing.TypeAlias = client.CallKey
    Client: typing.TypeAlias = client.Client
    Json: typing.TypeAlias = objects.Json
    JsonPatch: typing.TypeAlias = objects.JsonPatch
    Machine: typing.TypeAlias = machine.Machine
    ObjectKey: typing.TypeAlias = objects.ObjectKey
    Vm: typing.TypeAlias = objects.VirtualMachine
    Vmi: typing.TypeAlias = objects.VirtualMachineInstance

LOG = logging.getLogger(__name__)

#: The watch may not have reported a new VM yet: seconds to wait before a VM
#: counts as not found, and how many requests wait at the same time. The limit
#: keeps a client that guesses names from blocking the others.
NEW_VM_WAIT_SECONDS = 0.5
NEW_VM_WAITERS = 2

#: While the cache is stale, fetched objects serve reads for this many seconds:
#: a Redfish or IPMI request reads a dozen times and fetches once.
FETCHED_SECONDS = 0.5

#: Longest wait, in seconds, until the watches show the effect of an action of
#: KubeVirt's, which is usually a few milliseconds. Then the VM is read.
EFFECT_SECONDS = 1.0


class Cluster:
    """The machines of a scope: some namespaces, all of them, or one VM.

    :param namespaces: names; empty for all namespaces
    :param label_selector: only VMs with these labels
    :param vm: 'namespace/name': only this VM, regardless of its labels
    :param shared: for one VM: whose connections, caches and threads are used;
        None for those of its own
    :raises: `errors.ConfigError` if ``vm`` has another form
    """

    def __init__(self, connection: connection.Connection,
                 namespaces: abc.Iterable[str] = (), label_selector: str = '',
                 options: options.Options = options.Options(),
                 vm: str | None = None,
                 shared: shared_cluster.SharedCluster | None = None) -> None:
        if vm and '/' not in vm:
            raise errors.ConfigError(
                f'The VM {vm!r} has to be given as namespace/name')
        self.options = options
        self._shared = shared
        self._client = (shared.client.with_options(options) if shared
                        else client.Client(connection, self.options))
        #: The cluster's feature gates.
        self.gates = shared.gates if shared else feature_gates.Gates(
            self._client, self.options)
        self._namespaces = tuple(namespaces)
        self._label_selector = label_selector
        self._vm = objects.ObjectKey(*vm.split('/', 1)) if vm else None
        #: Namespace of objects that belong to no VM.
        self.default_namespace = (
            *self._namespaces, connection.namespace or 'default')[0]
        self._origin: Cluster | None = None
        #: Set by `close`; ends all waiting.
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._new_vm_waiters = threading.BoundedSemaphore(NEW_VM_WAITERS)
        self._fetched: dict[ObjectKey, float] = {}  # time.monotonic()
        # uid: (generation, sizes)
        self._sizes: dict[str, tuple[int | None, Json]] = {}
        # VmCache.membership, the machines
        self._machines: tuple[int, tuple[Machine, ...]] | None = None
        self._boot_reconciler = None
        if self.options.reconcile:
            self._boot_reconciler = one_time_boot.OneTimeBootReconciler(
                self, self._shared.boot_worker if self._shared else None)
        self._started = False
        self._cache: vm_cache.VmCache | vm_view.VmView = (
            self._shared.cache_of(self._vm) if self._shared and self._vm
            else vm_cache.VmCache(self._client, self.options,
                                  self._namespaces, self._label_selector,
                                  self._vm))
        #: Virtual media of the machines.
        self.media = manager.Manager(self, self._namespaces, self._shared)

    def with_options(self, **changes: typing.Any) -> Cluster:
        """Return this cluster with other options, such as deadlines.

        It shares everything else: connections, cache, threads, media. It ends
        when this cluster is closed.

        :param changes: fields of `options.Options`
        """
        cluster = copy.copy(self)
        cluster.options = dataclasses.replace(self.options, **changes)
        cluster._client = self._client.with_options(cluster.options)
        cluster._machines = None    # they refer to this cluster
        cluster._origin = self
        return cluster

    @property
    def client(self) -> Client:
        """The client, for objects other than machines."""
        return self._client

    @property
    def vm(self) -> ObjectKey | None:
        """The VM if the scope is one VM, else None."""
        return self._vm

    # Health, for probes and metrics

    @property
    def watch_problem(self) -> str:
        """Why the watches do not work (a sentence); '' while they do."""
        return self._cache.problem

    @property
    def cache_age(self) -> float | None:
        """Seconds since a watch stopped working; 0 while all of them work,
        None before the first list.
        """
        return self._cache.age

    @property
    def calls(self) -> dict[CallKey, int]:
        """API calls made, see `client.Client.calls`."""
        return self._client.calls

    # Finding

    def machines(self) -> tuple[Machine, ...]:
        """Return all machines, by namespace and name.

        :returns: the same tuple until a VM is added or removed, or its
            identity changes
        """
        self.wait_ready()
        if self._cache.stale:
            self._cache.relist()
        membership, known = self._cache.membership, self._machines
        if known is None or known[0] != membership:
            machines = (self._machine(key) for key in self._cache.keys())
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
        keys = self._cache.find(identity)
        if not keys and self._cache.stale:
            self._cache.relist()
            keys = self._cache.find(identity)
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
        keys: list[ObjectKey] = []
        if self._new_vm_waiters.acquire(blocking=False):
            try:
                deadline = time.monotonic() + NEW_VM_WAIT_SECONDS
                left = NEW_VM_WAIT_SECONDS
                while left > 0 and not keys:
                    seen = self._cache.changes
                    keys = self._cache.find(identity)
                    if not keys:
                        self._cache.wait_change(seen, left)
                        left = deadline - time.monotonic()
            finally:
                self._new_vm_waiters.release()
        return keys

    def _machine(self, key: ObjectKey) -> Machine | None:
        identity = self._cache.identity(key)
        if identity is None:
            return None
        return machine.Machine(self, *key, *identity)

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until all VMs and VMIs of the scope are listed.

        :param timeout: seconds; None for Options.read_deadline
        :raises: `errors.Unavailable`, `errors.AccessDenied`, with the reason
        """
        self.start()
        if not self._cache.listed:
            self._cache.wait(self.options.read_deadline
                             if timeout is None else timeout)

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
            self._cache.start()
            if self._shared is None:
                self.gates.refresh_in_background()
                self.media.check_cdi_in_background()
            self._started = True

    def subscribe(self, callback: protocols.Subscriber
                  ) -> abc.Callable[[], None]:
        """Call a function for each machine, then for each change of one.

        See `vm_cache.VmCache.subscribe`.

        :param callback: it must not block
        :returns: function that ends the subscription
        """
        machines: dict[ObjectKey, Machine] = {}

        def notify(key: ObjectKey, vm: Vm | None, vmi: Vmi | None) -> None:
            if vm is None:
                machine = machines.pop(key, None)
            else:
                machine = machines.get(key)
                if machine is None or machine.uid != vm['metadata']['uid']:
                    machine = self._machine(key)
                    if machine is None or machine.uid != vm['metadata']['uid']:
                        return      # replaced since; its successor follows
                    machines[key] = machine
            if machine is not None:
                callback(machine, vm, vmi)

        self._cache.subscribe(notify)
        return lambda: self._cache.unsubscribe(notify)

    # For `machine.Machine`

    def objects(self, machine: Machine) -> tuple[Vm, Vmi | None]:
        """See `machine.Machine.objects`."""
        self.wait_ready()
        key = objects.ObjectKey(machine.namespace, machine.name)
        if self._cache.stale and not self._recently_fetched(key):
            return self.fetch(machine)
        vm, vmi = self._cache.objects(key)
        if vm is None or vm['metadata']['uid'] != machine.uid:
            raise errors.MachineNotFound(machine.qualified_name)
        return vm, vmi

    def version(self, machine: Machine) -> tuple[object, ...] | None:
        """Return a value that changes when what is read of a machine does.

        That is its VM and VMI, whether a failed start, or an error of
        KubeVirt's controller, is a problem by now, its media, whether there
        is CDI, KubeVirt's version, and the sizes of its instance type.

        :returns: tuple to be compared; None while a read would call the API
        """
        key = objects.ObjectKey(machine.namespace, machine.name)
        if not self._cache.listed or self._cache.stale:
            return None
        version = self._cache.version(key)
        if version is None or version.identity != (machine.uid, machine.uuid):
            return None
        vm, vmi = self._cache.objects(key)
        if vm is None:
            return None
        sizes = None
        if inventory.needs_sizes(vm, vmi):
            sizes = self._sizes.get(machine.uid)
            if sizes is None or sizes[0] != vm['metadata'].get('generation'):
                return None
        return (version, power_state.problem(vm, vmi),
                power_state.reconcile_error(vm), self.gates.version,
                self.media.cdi_available, self.media.changes, sizes)

    def cached_objects(self, machine: protocols.Machine
                       ) -> tuple[Vm, Vmi | None] | tuple[None, None]:
        """Return a machine's VM and VMI from the cache, even if it is stale.

        :returns: (vm, vmi); (None, None) if the VM is not there or has
            another uid
        """
        vm, vmi = self._cache.objects(
            objects.ObjectKey(machine.namespace, machine.name))
        if vm is None or vm['metadata']['uid'] != machine.uid:
            return None, None
        return vm, vmi

    def current_objects(self, machine: Machine
                        ) -> tuple[Vm, Vmi | None] | tuple[None, None]:
        """Return a machine's VM and VMI from the cache.

        :returns: (vm, vmi); (None, None) if the cache is stale or has no such
            VM
        """
        self.wait_ready()
        if self._cache.stale:
            return None, None
        return self.cached_objects(machine)

    def fetch(self, machine: Machine) -> tuple[Vm, Vmi | None]:
        """See `machine.Machine.fetch`."""
        key = objects.ObjectKey(machine.namespace, machine.name)
        vm = self.fetch_vm(machine)
        known = self._cache.vmi_uid(key)
        owned = None
        try:
            vmi = self._client.get(api_resources.VMI, *key)
        except errors.ObjectNotFound:
            vm = run_strategy.without_vmi(vm)
            if known:
                self._cache.discard_vmi(key, known)
        else:
            self._cache.put_vmi(vmi)
            if vm_cache.owner_uid(vmi) == machine.uid:
                owned = vmi
        self._fetched[key] = time.monotonic()
        return vm, owned

    def refresh(self, machine: Machine) -> None:
        """Read a machine, KubeVirt's version and its feature gates again,
        and queue the machine for the one-time boot reconciler.

        :raises: `errors.Unavailable` if the API does not respond in time
        """
        self._sizes.pop(machine.uid, None)
        machine.write(lambda vm, vmi: None)
        self.gates.refresh_in_background()
        if self._boot_reconciler is not None:
            self._boot_reconciler.enqueue(machine)

    def sizes(self, machine: protocols.Machine, vm: Vm) -> Json:
        """Return the sizes that an instance type gives a VM that is off.

        No watched object has them, so this calls the API (expand-spec) once
        for each generation of the VM.

        :returns: those of ``cpu``, ``memory`` and ``resources``
            that the expanded domain has, and ``devices`` if it excludes the
            pod interface; empty if the call fails
        """
        generation = vm['metadata'].get('generation')
        known = self._sizes.get(machine.uid)
        if known is not None and known[0] == generation:
            return known[1]
        sizes: Json = {}
        try:
            expanded = self._client.expand_spec(
                machine.namespace, machine.name)
        except errors.Unavailable as e:
            LOG.info('%s: CPU and memory of its instance type could not be '
                     'read: %s', machine.qualified_name, e)
            return sizes
        except errors.MachineError as e:
            LOG.warning('%s: CPU and memory of its instance type are not '
                        'shown while it is off: %s',
                        machine.qualified_name, e)
        else:
            domain = expanded['spec']['template']['spec']['domain']
            sizes = {field: domain[field] for field in (
                'cpu', 'memory', 'resources') if field in domain}
            devices = domain.get('devices') or {}
            if devices.get('autoattachPodInterface') is False:
                sizes['devices'] = {
                    **vm['spec']['template']['spec']['domain']['devices'],
                    'autoattachPodInterface': False}
        self._sizes[machine.uid] = (generation, sizes)
        return sizes

    def patch_vm(self, machine: Machine, operations: protocols.Operations
                 ) -> Vm:
        """See `machine.Machine.patch`."""
        key = objects.ObjectKey(machine.namespace, machine.name)
        operations = [{'op': 'test', 'path': '/metadata/uid',
                       'value': machine.uid}, *operations]
        try:
            vm = self._client.patch(api_resources.VM, *key, operations)
        except errors.ObjectNotFound:
            self._cache.discard_vm(key, machine.uid)
            raise errors.MachineNotFound(machine.qualified_name) from None
        self._cache.put_vm(vm)
        return vm

    def patch_status(self, machine: Machine, operations: JsonPatch) -> Vm:
        """See `machine.Machine.patch_status`."""
        key = objects.ObjectKey(machine.namespace, machine.name)
        try:
            vm = self._client.patch(
                api_resources.VM, *key, operations, 'status')
        except errors.ObjectNotFound:
            self._cache.discard_vm(key, machine.uid)
            raise errors.MachineNotFound(machine.qualified_name) from None
        self._cache.put_vm(vm)
        return vm

    def patch_vmi(self, machine: Machine, vmi: Vmi,
                  operations: protocols.Operations) -> None:
        """See `machine.Machine.patch_vmi`."""
        key = objects.ObjectKey(machine.namespace, machine.name)
        try:
            self._cache.put_vmi(self._client.patch(api_resources.VMI, *key, [
                {'op': 'test', 'path': '/metadata/uid',
                 'value': vmi['metadata']['uid']}, *operations]))
        except errors.ObjectNotFound as e:
            raise errors.Conflict(str(e)) from None

    def delete_vmi(self, machine: Machine, uid: str) -> None:
        """See `machine.Machine.delete_vmi`."""
        key = objects.ObjectKey(machine.namespace, machine.name)
        try:
            self._client.delete(api_resources.VMI, *key,
                                {'preconditions': {'uid': uid}})
        except errors.ObjectNotFound:
            pass

    def wait(self, machine: Machine, ready: protocols.Step[bool],
             timeout: float) -> bool:
        """See `machine.Machine.wait`."""
        deadline = time.monotonic() + timeout
        while True:
            seen = self._cache.changes
            if ready(*self.objects(machine)):
                return True
            left = deadline - time.monotonic()
            if left <= 0 or self.closing.is_set():
                return False
            # At most 1 s, as `objects` calls the API while a watch is down.
            self._cache.wait_change(seen, min(left, 1.0))

    def shown(self, machine: Machine,
              step: protocols.Step[protocols.ResultT], seconds: float
              ) -> tuple[protocols.ResultT] | None:
        """Wait until the watches show that nothing is left for a step to do.

        The step has sent a request whose response was lost. The cache is not
        older than what it was computed from, so it shows the effect, or the
        step would have to send the request again. But its VMI may be newer
        than its VM: `power_action.run` waits for nothing that they show.

        :param step: see `machine.Machine.write`
        :param seconds: longest wait
        :returns: tuple with what the step returned; None if it has something
            left to do
        """
        deadline = time.monotonic() + seconds
        while True:
            seen = self._cache.changes
            vm, vmi = self.cached_objects(machine)
            try:
                if vm is not None:
                    return blocking.attempt(step, vm, vmi),
            except (blocking.WouldBlock, errors.MachineError):
                pass
            left = deadline - time.monotonic()
            if left <= 0 or self.closing.is_set():
                return None
            self._cache.wait_change(seen, left)

    def call(self, machine: Machine, action: str, body: Json | None,
             resource: api_resources.Resource[typing.Any]) -> None:
        """See `machine.Machine.call`."""
        key = objects.ObjectKey(machine.namespace, machine.name)
        vm_before, vmi_before = self.cached_objects(machine)
        uid = self._cache.vmi_uid(key)

        def shown(vm: Vm, vmi: Vmi | None) -> bool:
            # A VMI may be reported before its VM.
            return run_strategy.shows(action, vm, vmi, uid) and (
                vm_before is None or vm['metadata']['resourceVersion']
                != vm_before['metadata']['resourceVersion']
                or run_strategy.shows(action, vm_before, vmi_before, uid))

        try:
            self._client.action(resource, *key, action, body)
        except errors.ObjectNotFound as e:
            # The object was deleted since the step read it: let it retry.
            raise errors.Conflict(str(e)) from None
        if resource is not api_resources.VM:
            return      # does not change the VM
        # The response does not contain the changed VM. For the next read wait
        # until the watch has reported it.
        try:
            if self._cache.stale or not self.wait(
                    machine, shown, EFFECT_SECONDS):
                self.fetch_vm(machine)
        except errors.MachineError:
            pass    # the action succeeded; the watch will report the change

    def fetch_vm(self, machine: Machine) -> Vm:
        """See `machine.Machine.fetch_vm`."""
        key = objects.ObjectKey(machine.namespace, machine.name)
        try:
            vm = self._client.get(api_resources.VM, *key)
        except errors.ObjectNotFound:
            pass
        else:
            self._cache.put_vm(vm)
            if vm['metadata']['uid'] == machine.uid:
                return vm
        self._cache.discard_vm(key, machine.uid)
        raise errors.MachineNotFound(machine.qualified_name)

    def _recently_fetched(self, key: ObjectKey) -> bool:
        fetched = self._fetched.get(key)
        return (fetched is not None
                and time.monotonic() - fetched < FETCHED_SECONDS)

    def close(self) -> None:
        """Stop the threads and close the connections."""
        self.closing.set()
        if self._boot_reconciler is not None:
            self._boot_reconciler.close()
        self.media.close()
        self._cache.close()
        if self._shared is None:
            self._client.close()
