# SPDX-License-Identifier: Apache-2.0
"""The scheduler: finds nodes for pods and for launchers of VMs.

:mod:`scheduler` knows which pod is on which node, and filters and ranks nodes
by the rules of :mod:`node_rules` (selectors, affinity, taints),
:mod:`demand` (resources) and :mod:`pod_rules` (spreading, affinity between
pods). The names of reasons, their order and the weights are those of
``pkg/scheduler`` of Kubernetes 1.36. Pods have no priorities here, so nothing
is preempted.
"""
