# SPDX-License-Identifier: Apache-2.0
"""Guests that are real: one QEMU process for each running VMI.

:class:`guests.Guests` has the methods of the simulated guests
(:mod:`kubevirt_sandbox.kubevirt.guests`), so that the controllers do
not know which they have. What KubeVirt has libvirt make of a VMI,
:mod:`command` and :mod:`drives` make of it; :mod:`machine` is one process,
:mod:`qmp` the language it is spoken to in.
"""
