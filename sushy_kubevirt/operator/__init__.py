# SPDX-License-Identifier: Apache-2.0
"""The operator: runs a pod with the emulators for each VirtualMachineBMC.

Three layers, each of which imports those before it only;
doc/source/internals.rst describes each module.

Desired state, computed without a cluster: `spec` reads a resource; `naming`,
`rbac`, `config_map`, `deployments`, `network`, `credentials`, `pki` and
`endpoints` make the objects, `desired_state` says which of them are to exist,
`conditions` makes the status, and `plan` the steps to get there.

Control: `cache` holds what the watches show, `controller` queues the BMCs that
an event is about, `reconcile` and `executor` carry out the plan. `vm_cleanup`,
`orphaned_rbac` and `auto_create` are controllers of their own.

Process: `cmd`, `command_line`, `process`, `leader_election`, `api`, `metrics`
and `logs`.
"""
