# SPDX-License-Identifier: Apache-2.0
"""The operator: runs a pod with the emulators for each VirtualMachineBMC.

Three layers, each of which imports only those before it;
doc/source/internals.rst describes each module.

Desired state, computed without a cluster: `spec` reads a resource; `naming`,
`rbac`, `config_map`, `deployments`, `network`, `credentials`, `pki` and
`endpoints` make objects. `facts` are what was read for one BMC, and `verdict`
what follows; of both, `desired_state` selects the objects that should exist,
`plan` makes the steps to them, and `conditions` the status.

Control: `cache` stores the watched objects, `controller` queues the BMCs that
an event is about, `reconcile` and `executor` execute the plan. `vm_cleanup`,
`orphaned_rbac` and `auto_create` are separate controllers.

Process: `cmd`, `command_line`, `process`, `leader_election`, `api`, `metrics`
and `logs`.
"""
