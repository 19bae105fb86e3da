# SPDX-License-Identifier: Apache-2.0
"""The API resources that the operator reads and writes."""

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

#: What the operator makes for BMCs and keeps as it is to be, watched by its
#: label. Secrets are not among them: see `secret_summary`.
OWNED = (DEPLOYMENT, SERVICE, ACCOUNT, ROLE, BINDING, POLICY, CONFIG_MAP)

_BY_KIND = {one.kind: one for one in (*OWNED, SECRET, VM, BMC)}


def of(obj):
    """:returns: the `resources.Resource` of an object"""
    return _BY_KIND[obj['kind']]


def of_kind(kind):
    """:returns: the `resources.Resource` of a kind"""
    return _BY_KIND[kind]
