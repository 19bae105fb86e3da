# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies evaluated without a cluster, for unit tests."""
from collections.abc import Iterator

from kubevirt_sandbox.api import policy_admission
from kubevirt_sandbox import harvester


def failed_validations(spec: dict, inputs: dict) -> Iterator[tuple[str, str]]:
    """Yield message and reason of each validation of a policy that fails.

    :param spec: the policy's spec.
    :param inputs: see :class:`policy_admission.Inputs`.
    """
    return policy_admission.failed_validations(
        spec, policy_admission.Inputs(inputs))


def complete_by_harvester(vm: dict, old: dict) -> None:
    """Do to a VM that is changed what Harvester's webhook does.

    :param vm: the new VM, changed in place.
    :param old: the VM before.
    """
    harvester.mutate(vm, old)
