# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies evaluated without a cluster, for unit tests."""

from kubevirt_sandbox.api import policy_admission

#: Messages of the policies that deny a request; see `policy_admission.said`.
said = policy_admission.said
