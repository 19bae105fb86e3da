# SPDX-License-Identifier: Apache-2.0
"""The API resources of Metal3 that the operator reads and writes."""

from __future__ import annotations

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import objects

GROUP, VERSION = 'metal3.io', 'v1alpha1'

HOST: api_resources.Resource[objects.Json] = api_resources.Resource(
    GROUP, VERSION, 'baremetalhosts', 'BareMetalHost')
CLAIM: api_resources.Resource[objects.Json] = api_resources.Resource(
    GROUP, VERSION, 'hostclaims', 'HostClaim')
POLICY: api_resources.Resource[objects.Json] = api_resources.Resource(
    GROUP, VERSION, 'hostdeploypolicies', 'HostDeployPolicy')
