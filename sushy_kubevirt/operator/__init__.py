# SPDX-License-Identifier: Apache-2.0
"""The operator: of each VirtualMachineBMC it makes a pod with the emulators.

What there is needs no cluster in hand. `spec` reads a resource; `naming`,
`rights`, `configuration`, `pods` and `network` say what objects are made of
it, `wanted` which of them at a moment; `permission`, `images`,
`credentials`, `authority`, `conditions` and `endpoints` what follows from
what there is.
"""
