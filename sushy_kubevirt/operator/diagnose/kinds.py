# SPDX-License-Identifier: Apache-2.0
"""API resources that only the checks read."""

from __future__ import annotations

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import objects

_Resource = api_resources.Resource[objects.Json]

DEFINITION = _Resource(
    'apiextensions.k8s.io', 'v1', 'customresourcedefinitions',
    'CustomResourceDefinition')
POLICY = _Resource(
    'admissionregistration.k8s.io', 'v1', 'validatingadmissionpolicies',
    'ValidatingAdmissionPolicy')
POLICY_BINDING = _Resource(
    'admissionregistration.k8s.io', 'v1', 'validatingadmissionpolicybindings',
    'ValidatingAdmissionPolicyBinding')
STORAGE_CLASS = _Resource(
    'storage.k8s.io', 'v1', 'storageclasses', 'StorageClass')
STORAGE_PROFILE = _Resource(
    'cdi.kubevirt.io', 'v1beta1', 'storageprofiles', 'StorageProfile')
CDI = _Resource('cdi.kubevirt.io', 'v1beta1', 'cdis', 'CDI')
ENDPOINT_SLICE = _Resource(
    'discovery.k8s.io', 'v1', 'endpointslices', 'EndpointSlice')
NODE = _Resource('', 'v1', 'nodes', 'Node')

ACCESS_REVIEW = _Resource(
    'authorization.k8s.io', 'v1', 'subjectaccessreviews',
    'SubjectAccessReview')
SELF_ACCESS_REVIEW = _Resource(
    'authorization.k8s.io', 'v1', 'selfsubjectaccessreviews',
    'SelfSubjectAccessReview')
SELF_REVIEW = _Resource(
    'authentication.k8s.io', 'v1', 'selfsubjectreviews', 'SelfSubjectReview')
