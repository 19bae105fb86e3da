# SPDX-License-Identifier: Apache-2.0
"""Metal3: BareMetalHosts for the VMs of BMCs.

The operator creates hosts; baremetal-operator reconciles them.
"""
