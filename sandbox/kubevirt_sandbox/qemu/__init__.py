# SPDX-License-Identifier: Apache-2.0
"""QEMU guests: one QEMU process for each running VMI.

:class:`guests.Guests` has the methods of the simulated guests
(:mod:`kubevirt_sandbox.kubevirt.guests`), so that the controllers can use
either. :mod:`command` and :mod:`drives` translate a VMI to QEMU's command
line, as KubeVirt does with libvirt; :mod:`machine` runs one process, and
:mod:`qmp` is the client of its monitor protocol.
"""

#: Accelerators that can be chosen.
ACCELERATORS = ('auto', 'kvm', 'tcg')

#: Maximum memory of a guest in MiB, unless another is chosen.
DEFAULT_MEMORY = 1024


class SettingsError(Exception):
    """Guests cannot run on this host; the message has what is missing."""
