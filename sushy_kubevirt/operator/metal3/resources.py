# SPDX-License-Identifier: Apache-2.0
"""The API resources of Metal3 that the operator reads and writes."""

from __future__ import annotations

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import objects

GROUP, VERSION = 'metal3.io', 'v1alpha1'

_Resource = api_resources.Resource[objects.Json]

HOST = _Resource(GROUP, VERSION, 'baremetalhosts', 'BareMetalHost')
CLAIM = _Resource(GROUP, VERSION, 'hostclaims', 'HostClaim')
POLICY = _Resource(
    GROUP, VERSION, 'hostdeploypolicies', 'HostDeployPolicy')
