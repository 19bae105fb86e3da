# SPDX-License-Identifier: Apache-2.0
"""What the modules of this package need of a machine and its cluster.

`machine.Machine` and `cluster.Cluster` import those modules, which therefore
take these protocols. The classes document the methods.
"""

from __future__ import annotations

from collections import abc
import typing

if typing.TYPE_CHECKING:
    import threading

    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.kube import feature_gates
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import options
    from sushy_kubevirt.machine import vm_state

    # Members of the protocols have the names of modules.
    Client: typing.TypeAlias = client.Client
    Options: typing.TypeAlias = options.Options

ResultT = typing.TypeVar('ResultT')

#: Function of the state of a VM.
Step: typing.TypeAlias = 'abc.Callable[[vm_state.VmState], ResultT]'

#: Step that may not succeed: it returns a tuple with its result, or None.
Attempt: typing.TypeAlias = (
    'abc.Callable[[vm_state.VmState], tuple[ResultT] | None]')

#: Function of a machine and its state, None if its VM was deleted.
Subscriber: typing.TypeAlias = (
    'abc.Callable[[typing.Any, vm_state.VmState | None], None]')

#: Operations of a JSON patch (RFC 6902).
Operations: typing.TypeAlias = 'abc.Sequence[objects.Json]'


class Cluster(typing.Protocol):
    """Of `cluster.Cluster`."""

    closing: threading.Event
    options: Options
    gates: feature_gates.Gates

    @property
    def client(self) -> Client:
        ...

    @property
    def vm(self) -> objects.ObjectKey | None:
        ...

    def subscribe(self, callback: Subscriber) -> abc.Callable[[], None]:
        ...


class Machine(typing.Protocol):
    """Of `machine.Machine`: its identity, and access to the cluster."""

    key: objects.ObjectKey
    uid: str

    @property
    def namespace(self) -> str:
        ...

    @property
    def name(self) -> str:
        ...

    @property
    def cluster(self) -> Cluster:
        ...

    @property
    def qualified_name(self) -> str:
        ...

    @property
    def options(self) -> Options:
        ...

    @property
    def gates(self) -> feature_gates.Gates:
        ...

    def state(self) -> vm_state.VmState:
        ...

    def cached_state(self) -> vm_state.VmState | None:
        ...

    def fetch(self) -> vm_state.VmState:
        ...

    def fetch_vm(self) -> objects.VirtualMachine:
        ...

    def sizes(self, vm: objects.VirtualMachine) -> objects.Json:
        ...

    def write(self, step: Step[ResultT],
              from_cache: Attempt[ResultT] | None = None) -> ResultT:
        ...

    def patch(self, operations: Operations, subresource: str | None = None
              ) -> objects.VirtualMachine:
        ...

    def patch_status(self, operations: Operations,
                     guard: objects.VirtualMachine
                     ) -> objects.VirtualMachine:
        ...

    def patch_vmi(self, vmi: objects.VirtualMachineInstance,
                  operations: Operations) -> None:
        ...

    def delete_vmi(self, uid: str) -> None:
        ...

    def wait(self, ready: Step[bool], timeout: float) -> bool:
        ...

    def call(self, action: str, body: objects.Json | None = None,
             resource: api_resources.Resource[typing.Any] = ...
             ) -> None:
        ...
