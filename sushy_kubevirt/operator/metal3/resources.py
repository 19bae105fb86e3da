# SPDX-License-Identifier: Apache-2.0
"""The API resources of Metal3 that the operator reads and writes."""

from sushy_kubevirt.kube import api_resources

GROUP, VERSION = 'metal3.io', 'v1alpha1'

HOST = api_resources.Resource(
    GROUP, VERSION, 'baremetalhosts', 'BareMetalHost')
CLAIM = api_resources.Resource(GROUP, VERSION, 'hostclaims', 'HostClaim')
POLICY = api_resources.Resource(
    GROUP, VERSION, 'hostdeploypolicies', 'HostDeployPolicy')
