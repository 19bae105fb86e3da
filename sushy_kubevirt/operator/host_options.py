# SPDX-License-Identifier: Apache-2.0
"""Options of the operator for BareMetalHosts and HostClaims of Metal3."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class HostOptions:
    """
    :param labels: names of labels of VMs that hosts get; ``prefix/*`` for all
        of a prefix
    :param failure_domain: name of the label of VMs with the failure domain
    :param verify: whether Ironic verifies the BMC's certificate
    :param external: whether hosts have addresses outside of the cluster, for
        an Ironic there
    :param claim_templates: namespace of templates for HostClaims, or None
    :param claim_limit: number of VMs for the claims of a namespace
    """

    labels: tuple[str, ...] = ()
    failure_domain: str = 'topology.kubernetes.io/zone'
    verify: bool = True
    external: bool = False
    claim_templates: str | None = None
    claim_limit: int = 10
