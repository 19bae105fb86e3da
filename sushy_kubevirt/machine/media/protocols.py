# SPDX-License-Identifier: Apache-2.0
"""What the modules of this package need of a machine with virtual media.

`manager.Manager` imports some of them, and `machine.Machine` all. The classes
document the methods.
"""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.machine import protocols

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine.media import import_watcher
    from sushy_kubevirt.machine.media import media_annotation
    from sushy_kubevirt.machine.media import model


#: Function of a machine, the id of a device, and the medium in it before and
#: after a change, None for none.
Subscriber: typing.TypeAlias = (
    'abc.Callable[[typing.Any, str, model.Medium | None, '
    'model.Medium | None], None]')


class Upload(typing.Protocol):
    """Of `upload.Upload`."""

    @property
    def machine(self) -> protocols.Machine:
        ...

    def stop(self) -> None:
        ...


class Media(typing.Protocol):
    """Of `manager.Manager`."""

    certificates: dict[str, str]
    inserting: set[str]
    uploads: dict[str, Upload]
    volumes: import_watcher.ImportWatcher

    @property
    def cluster(self) -> protocols.Cluster:
        ...

    def medium(self, machine: protocols.Machine, device: model.Device
               ) -> model.Medium | None:
        ...

    def observed_volume(self, vm: objects.VirtualMachine,
                        entry: media_annotation.Entry | None
                        ) -> import_watcher.ObservedVolume | None:
        ...

    def require_cdi(self) -> None:
        ...

    def age(self, uid: str, what: abc.Hashable) -> float:
        ...

    def searched_names(self, uid: str) -> set[str]:
        ...

    def wait(self, ready: abc.Callable[[], bool], timeout: float) -> bool:
        ...

    def refresh(self, machine: protocols.Machine) -> None:
        ...

    def delete_obsolete(self, machine: protocols.Machine) -> None:
        ...


class Cluster(protocols.Cluster, typing.Protocol):
    """Of `cluster.Cluster`."""

    @property
    def media(self) -> Media:
        ...


class Machine(protocols.Machine, typing.Protocol):
    """Of `machine.Machine`."""

    @property
    def cluster(self) -> Cluster:
        ...
