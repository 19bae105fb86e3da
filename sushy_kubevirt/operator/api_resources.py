# SPDX-License-Identifier: Apache-2.0
"""The kinds of Kubernetes' API that a BMC is made of, and their paths."""

from sushy_kubevirt.kubevirt import resources
from sushy_kubevirt.operator import naming

BMC = resources.Resource(naming.GROUP, naming.VERSION, naming.PLURAL,
                         naming.KIND)
DEPLOYMENT = resources.Resource('apps', 'v1', 'deployments', 'Deployment')
SERVICE = resources.Resource('', 'v1', 'services', 'Service')
ACCOUNT = resources.Resource('', 'v1', 'serviceaccounts', 'ServiceAccount')
ROLE = resources.Resource('rbac.authorization.k8s.io', 'v1', 'roles', 'Role')
BINDING = resources.Resource('rbac.authorization.k8s.io', 'v1',
                             'rolebindings', 'RoleBinding')
POLICY = resources.Resource('networking.k8s.io', 'v1', 'networkpolicies',
                            'NetworkPolicy')
LEASE = resources.Resource('coordination.k8s.io', 'v1', 'leases', 'Lease')
CONFIG_MAP, SECRET, VM, EVENT = (
    resources.CONFIG_MAP, resources.SECRET, resources.VM, resources.EVENT)

#: What the operator makes and puts right, found by the label of all of it.
#: Secrets are not among them: see `secret_summary`.
OWNED = (DEPLOYMENT, SERVICE, ACCOUNT, ROLE, BINDING, POLICY, CONFIG_MAP)

_BY_KIND = {one.kind: one for one in (*OWNED, SECRET, VM, BMC)}


def of(obj):
    """The kind of an object of ours.

    :param obj: dict
    :returns: `resources.Resource`
    """
    return _BY_KIND[obj['kind']]


def called(kind):
    """:returns: the `resources.Resource` of a kind of ours"""
    return _BY_KIND[kind]
