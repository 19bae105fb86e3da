# SPDX-License-Identifier: Apache-2.0
"""The operator: of each VirtualMachineBMC it makes a pod with the emulators.

In three layers, each of which knows those before it; doc/source/internals.rst
says what each module is for.

What is to be, without a cluster in hand: `spec` reads a resource; `naming`,
`rbac`, `config_map`, `deployments`, `network`, `credentials`, `pki` and
`endpoints` make the objects, `desired_state` says which of them are to be there,
`conditions` and `status` what is said of it, and `plan` what is left to do.

What is done: `cache` has what was seen, `controller` says who is looked at when,
`reconcile` and `executor` carry out the plan. Beside them work `vm_cleanup`,
`orphaned_rbac` and `auto_create`.

The process: `cmd`, `command_line`, `process`, `leader_election`, and the ways in and out.
"""
