# SPDX-License-Identifier: Apache-2.0
"""The kinds of Kubernetes' API that a BMC is made of, and their paths."""

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.operator import naming

BMC = api_resources.Resource(naming.GROUP, naming.VERSION, naming.PLURAL,
                             naming.KIND)
DEPLOYMENT = api_resources.Resource('apps', 'v1', 'deployments', 'Deployment')
SERVICE = api_resources.Resource('', 'v1', 'services', 'Service')
ACCOUNT = api_resources.Resource('', 'v1', 'serviceaccounts', 'ServiceAccount')
ROLE = api_resources.Resource(
    'rbac.authorization.k8s.io',
    'v1',
    'roles',
    'Role')
BINDING = api_resources.Resource('rbac.authorization.k8s.io', 'v1',
                                 'rolebindings', 'RoleBinding')
POLICY = api_resources.Resource('networking.k8s.io', 'v1', 'networkpolicies',
                                'NetworkPolicy')
LEASE = api_resources.Resource('coordination.k8s.io', 'v1', 'leases', 'Lease')
CONFIG_MAP, SECRET, VM, EVENT = (
    api_resources.CONFIG_MAP,
    api_resources.SECRET,
    api_resources.VM,
    api_resources.EVENT,
)

#: What the operator makes and puts right, found by the label of all of it.
#: Secrets are not among them: see `secrets`.
OWNED = (DEPLOYMENT, SERVICE, ACCOUNT, ROLE, BINDING, POLICY, CONFIG_MAP)

_BY_KIND = {one.kind: one for one in (*OWNED, SECRET, VM, BMC)}


def of(obj):
    """The kind of an object of ours.

    :param obj: dict
    :returns: `api_resources.Resource`
    """
    return _BY_KIND[obj['kind']]


def called(kind):
    """:returns: the `api_resources.Resource` of a kind of ours"""
    return _BY_KIND[kind]
