# SPDX-License-Identifier: Apache-2.0
"""KubeVirt's admission webhooks.

The validation rules of virt-api with its messages, one module for each
subject. :mod:`vm`, :mod:`vmi` and :mod:`kubevirt` combine them for each kind,
:mod:`spec` those that VM templates and VMIs share.

Source: pkg/virt-api/webhooks/validating-webhook/admitters, pkg/network/
admitter, pkg/storage/admitters (KubeVirt 1.9). Not covered, since it needs
hardware that a sandbox has not: host devices, GPUs, launch security, dynamic
resource allocation.
"""
