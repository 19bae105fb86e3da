# SPDX-License-Identifier: Apache-2.0
"""Schemas of KubeVirt's objects, with descriptions of the sandbox's own.

Structural schemas as a CRD has them: they prune unknown fields, refuse
wrong types, and answer ``kubectl explain``. Fields that few people use are
left open (``x-kubernetes-preserve-unknown-fields``). The modules follow the
Go types of ``staging/src/kubevirt.io/api/core/v1`` (KubeVirt 1.9):

- :mod:`openapi` builds the pieces and remembers what Go makes of them,
- :mod:`domain` the virtual hardware,
- :mod:`volumes` where disks get their content,
- :mod:`machine` VMI, VM and KubeVirt as whole objects.
"""
