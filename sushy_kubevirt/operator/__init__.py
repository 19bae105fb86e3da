# SPDX-License-Identifier: Apache-2.0
"""The operator: of each VirtualMachineBMC it makes a pod with the emulators.

What is in this package without a cluster in hand: `spec` reads a resource,
`naming`, `rights`, `configuration`, `pods` and `network` say what is to be
there for it, `permission`, `credentials`, `authority`, `conditions` and
`endpoints` what follows from what there is.
"""
