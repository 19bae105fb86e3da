# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies evaluated without a cluster, for unit tests."""
from collections.abc import Iterator

from kubevirt_sandbox.api import policy_admission


def failed_validations(spec: dict, inputs: dict) -> Iterator[tuple[str, str]]:
    """Yield message and reason of each validation of a policy that fails.

    :param spec: the policy's spec.
    :param inputs: see :class:`policy_admission.Inputs`.
    """
    return policy_admission.failed_validations(
        spec, policy_admission.Inputs(inputs))
