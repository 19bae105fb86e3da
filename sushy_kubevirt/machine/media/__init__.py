# SPDX-License-Identifier: Apache-2.0
"""Virtual media in KubeVirt's words.

A medium is a CDI DataVolume owned by the VM, in a drive of the VM's template.
What a client of the machine needs is here; `machine.Machine` has the rest.
"""

from sushy_kubevirt.machine.media import model

CD = model.CD
DEVICES = model.DEVICES
HTTP_BOOT = model.HTTP_BOOT
USB_STICK = model.USB_STICK

Certificate = model.Certificate
Device = model.Device
Kind = model.Kind
Medium = model.Medium
Source = model.Source
State = model.State


def subscribe(cluster, callback):
    """Be told of each change of a medium, in every process.

    :param cluster: a `cluster.Cluster`
    :param callback: function of (machine, device_id, old, new), old and new
        each a `Medium` or None; called one at a time, in whatever thread
        brought the news: it must not block. What was there before this
        process is told once, with old the same as new. Forgotten in a child
        process.
    """
    cluster.media.subscribe(callback)
