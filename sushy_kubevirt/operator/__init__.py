# SPDX-License-Identifier: Apache-2.0
"""The operator: of each VirtualMachineBMC it makes a pod with the emulators.

In three layers, each of which knows those before it; doc/source/internals.rst
says what each module is for.

What is to be, without a cluster in hand: `spec` reads a resource; `naming`,
`rights`, `configuration`, `pods`, `network`, `credentials`, `authority` and
`endpoints` make the objects, `wanted` says which of them are to be there,
`conditions` and `status` what is said of it, and `plan` what is left to do.

What is done: `known` has what was seen, `handlers` says who is looked at when,
`reconcile` and `acting` carry out the plan. Beside them work `farewell`,
`orphans` and `automatic`.

The process: `cmd`, `options`, `running`, `leading`, and the ways in and out.
"""
