# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies evaluated without a cluster, for unit tests."""

from kubevirt_sandbox.api import policing

#: Messages of the policies that deny a request; see `policing.said`.
said = policing.said
