# SPDX-License-Identifier: Apache-2.0
"""What runs in the pod of a BMC, of which there is one for each VM.

The command ``sushy-kubevirt-redfish``, and what its neighbour for IPMI needs
as well: the port for probes and metrics (`health`, `exposition`). What the
pod is given is said by `deployments` and `config_map` of
`sushy_kubevirt.operator`.
"""
