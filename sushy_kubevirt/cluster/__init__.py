# SPDX-License-Identifier: Apache-2.0
"""Clusters of virtual bare metal, declared in a file.

A file in the configuration format of Tenks, with keys of this project's own,
becomes VMs with BMCs, Ironic nodes and Nova flavors. `config` reads the file
into a `model.Cluster`; `objects` makes Kubernetes objects of it; `plan`
compares them with those that exist, and `apply` makes the difference; `ironic`
and `nova` do so in OpenStack. No state is kept: objects carry the name of
their cluster and a hash of what they were made from, and Ironic nodes are
found by name and by the UUID of their VM.
"""
