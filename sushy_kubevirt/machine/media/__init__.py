# SPDX-License-Identifier: Apache-2.0
"""Virtual media: CDI DataVolumes in drives of a VM.

An inserted image is a CDI DataVolume owned by the VM, referenced by a drive
of the VM's template. This package exports the types that clients of a machine
need; the operations are methods of `machine.Machine`. `insert` describes the
steps of an insert, `manager` holds the state of a process and cleans up after
interrupted operations.
"""

from __future__ import annotations

from sushy_kubevirt.machine.media import model

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
