# SPDX-License-Identifier: Apache-2.0
"""KubeVirt's admission webhooks.

The rules by which virt-api lets an object in or turns it away, and the
sentences it says, one module per subject; :mod:`vm`, :mod:`vmi` and
:mod:`kubevirt` put them together per kind, :mod:`spec` for what a VM's
template and a VMI have in common.

Source: pkg/virt-api/webhooks/validating-webhook/admitters, pkg/network/
admitter, pkg/storage/admitters (KubeVirt 1.9). Not covered, since it needs
hardware that a sandbox has not: host devices, GPUs, launch security, dynamic
resource allocation.
"""
