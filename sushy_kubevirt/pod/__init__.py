# SPDX-License-Identifier: Apache-2.0
"""Parts shared by the containers of a BMC pod, one pod for each VM.

The Redfish server of the command ``sushy-kubevirt-redfish``, and the port for
probes and metrics that the IPMI container uses too (`health`, `prometheus`).
The operator defines the containers' environment.
"""
