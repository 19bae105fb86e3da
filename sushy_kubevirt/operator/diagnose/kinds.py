# SPDX-License-Identifier: Apache-2.0
"""API resources that only the checks read."""

from __future__ import annotations

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import objects

DEFINITION: api_resources.Resource[objects.Json] = api_resources.Resource(
    'apiextensions.k8s.io', 'v1', 'customresourcedefinitions',
    'CustomResourceDefinition')
POLICY: api_resources.Resource[objects.Json] = api_resources.Resource(
    'admissionregistration.k8s.io', 'v1', 'validatingadmissionpolicies',
    'ValidatingAdmissionPolicy')
POLICY_BINDING: api_resources.Resource[objects.Json] = api_resources.Resource(
    'admissionregistration.k8s.io', 'v1', 'validatingadmissionpolicybindings',
    'ValidatingAdmissionPolicyBinding')
STORAGE_CLASS: api_resources.Resource[objects.Json] = api_resources.Resource(
    'storage.k8s.io', 'v1', 'storageclasses', 'StorageClass')
STORAGE_PROFILE: api_resources.Resource[objects.Json] = api_resources.Resource(
    'cdi.kubevirt.io', 'v1beta1', 'storageprofiles', 'StorageProfile')
CDI: api_resources.Resource[objects.Json] = api_resources.Resource(
    'cdi.kubevirt.io', 'v1beta1', 'cdis', 'CDI')
ENDPOINT_SLICE: api_resources.Resource[objects.Json] = api_resources.Resource(
    'discovery.k8s.io', 'v1', 'endpointslices', 'EndpointSlice')
NODE: api_resources.Resource[objects.Json] = api_resources.Resource(
    '', 'v1', 'nodes', 'Node')

ACCESS_REVIEW: api_resources.Resource[objects.Json] = api_resources.Resource(
    'authorization.k8s.io', 'v1', 'subjectaccessreviews',
    'SubjectAccessReview')
SELF_ACCESS_REVIEW: api_resources.Resource[objects.Json] = (
    api_resources.Resource(
        'authorization.k8s.io', 'v1', 'selfsubjectaccessreviews',
        'SelfSubjectAccessReview'))
SELF_REVIEW: api_resources.Resource[objects.Json] = api_resources.Resource(
    'authentication.k8s.io', 'v1', 'selfsubjectreviews', 'SelfSubjectReview')
