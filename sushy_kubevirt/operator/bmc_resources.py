# SPDX-License-Identifier: Apache-2.0
"""The API resources that the operator reads and writes."""

from __future__ import annotations

import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import naming

BMC: api_resources.Resource[objects.VirtualMachineBMC] = (
    api_resources.Resource(
        naming.GROUP, naming.VERSION, naming.PLURAL, naming.KIND))
DEPLOYMENT: api_resources.Resource[objects.Json] = api_resources.Resource(
    'apps', 'v1', 'deployments', 'Deployment')
SERVICE: api_resources.Resource[objects.Json] = api_resources.Resource(
    '', 'v1', 'services', 'Service')
ACCOUNT: api_resources.Resource[objects.Json] = api_resources.Resource(
    '', 'v1', 'serviceaccounts', 'ServiceAccount')
ROLE: api_resources.Resource[objects.Json] = api_resources.Resource(
    'rbac.authorization.k8s.io', 'v1', 'roles', 'Role')
BINDING: api_resources.Resource[objects.Json] = api_resources.Resource(
    'rbac.authorization.k8s.io', 'v1', 'rolebindings', 'RoleBinding')
POLICY: api_resources.Resource[objects.Json] = api_resources.Resource(
    'networking.k8s.io', 'v1', 'networkpolicies', 'NetworkPolicy')
#: Only on OpenShift, and watched only where it is served.
ROUTE: api_resources.Resource[objects.Json] = api_resources.Resource(
    'route.openshift.io', 'v1', 'routes', 'Route')
LEASE: api_resources.Resource[objects.Json] = api_resources.Resource(
    'coordination.k8s.io', 'v1', 'leases', 'Lease')
CONFIG_MAP, SECRET, VM, EVENT = (
    api_resources.CONFIG_MAP, api_resources.SECRET, api_resources.VM,
    api_resources.EVENT)

#: Kinds of objects that the operator creates for BMCs and keeps in their
#: desired state; watched by label. Secrets are separate: see `secret_summary`.
OWNED = (DEPLOYMENT, SERVICE, ACCOUNT, ROLE, BINDING, POLICY, CONFIG_MAP)

_BY_KIND: dict[str, api_resources.AnyResource] = {
    resource.kind: resource for resource in (*OWNED, ROUTE, SECRET, VM, BMC)}


class ObjectRef(typing.NamedTuple):
    """Identifies an object of a kind of this module."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f'{self.kind} {self.name}'

    @property
    def resource(self) -> api_resources.AnyResource:
        """Of its kind."""
        return _BY_KIND[self.kind]

    @property
    def target(self) -> tuple[api_resources.AnyResource, str, str]:
        """First parameters of requests about it."""
        return self.resource, self.namespace, self.name


def of(obj: objects.AnyObject) -> api_resources.AnyResource:
    """Return the resource of an object."""
    return _BY_KIND[obj['kind']]


def ref(obj: objects.AnyObject) -> ObjectRef:
    """Return the reference to an object of a namespace."""
    metadata = obj['metadata']
    return ObjectRef(obj['kind'], metadata['namespace'], metadata['name'])
