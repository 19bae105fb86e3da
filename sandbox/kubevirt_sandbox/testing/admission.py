# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies evaluated without a cluster, for unit tests."""

from kubevirt_sandbox.api import policy_admission

#: Messages of the policies that deny a request; see
#: `policy_admission.failed_validations`.
failed_validations = policy_admission.failed_validations
