# SPDX-License-Identifier: Apache-2.0
"""Kinds of objects that a cluster has, besides those of `api_resources`."""

from __future__ import annotations

import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources

#: Resource of objects of any kind.
AnyResource: typing.TypeAlias = api_resources.Resource[typing.Any]

BMC: api_resources.Resource[objects.VirtualMachineBMC] = bmc_resources.BMC
NAMESPACE: api_resources.Resource[objects.Json] = api_resources.Resource(
    '', 'v1', 'namespaces', 'Namespace')

#: A Multus network; https://github.com/k8snetworkplumbingwg/multi-net-spec
NETWORK: api_resources.Resource[objects.Json] = api_resources.Resource(
    'k8s.cni.cncf.io', 'v1', 'network-attachment-definitions',
    'NetworkAttachmentDefinition')

#: Kinds that belong to one node each, in the order of their creation.
OF_NODES: tuple[AnyResource, ...] = (
    api_resources.SECRET, api_resources.VM, BMC)
