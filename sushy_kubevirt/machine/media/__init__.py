# SPDX-License-Identifier: Apache-2.0
"""Virtual media: CDI DataVolumes in drives of a VM.

An inserted image is a CDI DataVolume owned by the VM, referenced by a drive
of the VM's template. This package exports the types that clients of a machine
need; the operations are methods of `machine.Machine`. `insert` describes the
steps of an insert, `manager` holds the state of a process, `reconciler`
cleans up after interrupted operations.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.machine.media import model

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine.media import manager
    from sushy_kubevirt.machine.media import protocols

CD = model.CD
DEVICES = model.DEVICES
HTTP_BOOT = model.HTTP_BOOT
USB_STICK = model.USB_STICK

Certificate = model.Certificate
ClientImage = model.ClientImage
Device = model.Device
Kind = model.Kind
Medium = model.Medium
Source = model.Source
State = model.State


class _Cluster(typing.Protocol):

    @property
    def media(self) -> manager.Manager:
        ...


def subscribe(cluster: _Cluster, callback: protocols.Subscriber) -> None:
    """Call a function on each change of a medium, in this process.

    A medium that was inserted before this process started is reported once,
    with old equal to new.

    :param callback: called one at a time in the thread of a watch, so it must
        not block
    """
    cluster.media.subscribe(callback)
