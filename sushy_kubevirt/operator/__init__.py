# SPDX-License-Identifier: Apache-2.0
"""The operator: runs a pod with the emulators for each VirtualMachineBMC.

Three layers, each of which imports only those before it;
doc/source/internals.rst describes each module.

Desired state, computed without a cluster: `spec` reads a resource; `naming`,
`rbac`, `config_map`, `deployments`, `network`, `credentials`, `pki` and
`endpoints` make objects, `desired_state` selects those that should exist,
`conditions` makes the status, and `plan` the steps to the desired state.

Control: `cache` stores the watched objects, `controller` queues the BMCs that
an event is about, `reconcile` and `executor` execute the plan. `vm_cleanup`,
`orphaned_rbac` and `auto_create` are separate controllers.

Process: `cmd`, `command_line`, `process`, `leader_election`, `api`, `metrics`
and `logs`.
"""
