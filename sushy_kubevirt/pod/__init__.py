# SPDX-License-Identifier: Apache-2.0
"""Redfish as a BMC's pod serves it, and the port for probes and metrics.

`vbmc_kubevirt.bmc_pod` makes a process of Redfish and IPMI. The operator
defines the environment of the pods.
"""
