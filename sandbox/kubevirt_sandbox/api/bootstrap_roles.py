# SPDX-License-Identifier: Apache-2.0
"""The roles and bindings that exist in every new cluster.

Roles of the control plane's own components are left out, since the sandbox's
components need none.

Follows ``plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go`` of
Kubernetes 1.36.
"""
from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import roles

_LABELS = {'kubernetes.io/bootstrapping': 'rbac-defaults'}
_NOTES = {'rbac.authorization.kubernetes.io/autoupdate': 'true'}
_AGGREGATE = 'rbac.authorization.k8s.io/aggregate-to-'

READ = ('get', 'list', 'watch')
WRITE = ('create', 'delete', 'deletecollection', 'patch', 'update')
ALL = READ + WRITE

_HEALTH = ('/livez', '/readyz', '/healthz')
_VERSION = ('/version', '/version/')


def rule(verbs, group, *resources):
    """Make a rule for resources of a group."""
    return {'verbs': list(verbs), 'apiGroups': [group],
            'resources': list(resources)}


def _paths(*paths):
    return {'verbs': ['get'], 'nonResourceURLs': list(paths)}


_VIEWED = (
    rule(READ, '', 'configmaps', 'endpoints', 'persistentvolumeclaims',
         'persistentvolumeclaims/status', 'pods', 'replicationcontrollers',
         'replicationcontrollers/scale', 'serviceaccounts', 'services',
         'services/status'),
    rule(READ, '', 'bindings', 'events', 'limitranges', 'namespaces/status',
         'pods/log', 'pods/status', 'replicationcontrollers/status',
         'resourcequotas', 'resourcequotas/status'),
    rule(READ, '', 'namespaces'),
    rule(READ, 'discovery.k8s.io', 'endpointslices'),
    rule(READ, 'apps', 'controllerrevisions', 'daemonsets',
         'daemonsets/status', 'deployments', 'deployments/scale',
         'deployments/status', 'replicasets', 'replicasets/scale',
         'replicasets/status', 'statefulsets', 'statefulsets/scale',
         'statefulsets/status'),
    rule(READ, 'autoscaling', 'horizontalpodautoscalers',
         'horizontalpodautoscalers/status'),
    rule(READ, 'batch', 'cronjobs', 'cronjobs/status', 'jobs',
         'jobs/status'),
    rule(READ, 'policy', 'poddisruptionbudgets',
         'poddisruptionbudgets/status'),
    rule(READ, 'networking.k8s.io', 'ingresses', 'ingresses/status',
         'networkpolicies'))

_EDITED = (
    rule(READ, '', 'pods/attach', 'pods/exec', 'pods/portforward',
         'pods/proxy', 'secrets', 'services/proxy'),
    rule(['impersonate'], '', 'serviceaccounts'),
    rule(WRITE, '', 'pods', 'pods/attach', 'pods/exec', 'pods/portforward',
         'pods/proxy'),
    rule(['create'], '', 'pods/eviction'),
    rule(WRITE, '', 'configmaps', 'events', 'persistentvolumeclaims',
         'replicationcontrollers', 'replicationcontrollers/scale', 'secrets',
         'serviceaccounts', 'services', 'services/proxy'),
    rule(['create'], '', 'serviceaccounts/token'),
    rule(WRITE, 'apps', 'daemonsets', 'deployments', 'deployments/rollback',
         'deployments/scale', 'replicasets', 'replicasets/scale',
         'statefulsets', 'statefulsets/scale'),
    rule(WRITE, 'autoscaling', 'horizontalpodautoscalers'),
    rule(WRITE, 'batch', 'cronjobs', 'jobs'),
    rule(WRITE, 'policy', 'poddisruptionbudgets'),
    rule(WRITE, 'networking.k8s.io', 'ingresses', 'networkpolicies'),
    rule(ALL, 'coordination.k8s.io', 'leases'))

_ADMINISTERED = (
    rule(['create'], 'authorization.k8s.io', 'localsubjectaccessreviews'),
    rule(ALL, roles.GROUP, 'rolebindings', 'roles'))

#: {name: rules}
_ROLES = {
    'cluster-admin': (
        {'verbs': ['*'], 'apiGroups': ['*'], 'resources': ['*']},
        {'verbs': ['*'], 'nonResourceURLs': ['*']}),
    'system:discovery': (
        _paths('/api', '/api/*', '/apis', '/apis/*', '/healthz', '/livez',
               '/openapi', '/openapi/*', '/readyz', *_VERSION),),
    'system:public-info-viewer': (_paths(*_HEALTH, *_VERSION),),
    'system:monitoring': (
        _paths(*(h + end for h in _HEALTH for end in ('', '/*')),
               '/metrics', '/metrics/slis'),),
    'system:basic-user': (
        rule(['create'], 'authorization.k8s.io', 'selfsubjectaccessreviews',
             'selfsubjectrulesreviews'),
        rule(['create'], 'authentication.k8s.io', 'selfsubjectreviews')),
    'system:auth-delegator': (
        rule(['create'], 'authentication.k8s.io', 'tokenreviews'),
        rule(['create'], 'authorization.k8s.io', 'subjectaccessreviews'))}

#: {name: (rules, names of what it becomes a part of)}
_PARTS = {
    'system:aggregate-to-admin': (_ADMINISTERED, ('admin',)),
    'system:aggregate-to-edit': (_EDITED, ('edit',)),
    'system:aggregate-to-view': (_VIEWED, ('view',))}

#: name: what it is made of, beside its own parts
_AGGREGATED = {'admin': None, 'edit': 'admin', 'view': 'edit'}

_BOUND = {
    'cluster-admin': (auth.MASTERS,),
    'system:discovery': (auth.AUTHENTICATED,),
    'system:basic-user': (auth.AUTHENTICATED,),
    'system:public-info-viewer': (auth.AUTHENTICATED, auth.UNAUTHENTICATED),
    'system:monitoring': ('system:monitoring',)}


def role(name, rules, labels=None, **more):
    """Make a cluster role."""
    return {'metadata': {'name': name, 'labels': dict(labels or {}),
                         'annotations': dict(_NOTES)},
            'rules': [dict(r) for r in rules], **more}


def part(name, rules, *wholes, labels=None):
    """Make a cluster role that is aggregated to others, e.g. ``view``."""
    return role(name, rules, {**(labels or {}), **{
        _AGGREGATE + whole: 'true' for whole in wholes}})


def binding(name, *groups, labels=None):
    """Make a binding of the cluster role of the same name to groups."""
    return {'metadata': {'name': name, 'labels': dict(labels or {}),
                         'annotations': dict(_NOTES)},
            'roleRef': {'apiGroup': roles.GROUP, 'kind': 'ClusterRole',
                        'name': name},
            'subjects': [{'apiGroup': roles.GROUP, 'kind': 'Group',
                          'name': group} for group in groups]}


def install(store):
    """Create the roles and bindings."""
    for name, rules in _ROLES.items():
        store.create(roles.CLUSTER_ROLE, role(name, rules, _LABELS))
    for name, (rules, wholes) in _PARTS.items():
        store.create(roles.CLUSTER_ROLE,
                     part(name, rules, *wholes, labels=_LABELS))
    for name, above in _AGGREGATED.items():
        labels = dict(_LABELS)
        if above:
            labels[_AGGREGATE + above] = 'true'
        store.create(roles.CLUSTER_ROLE, role(
            name, (), labels, aggregationRule={'clusterRoleSelectors': [
                {'matchLabels': {_AGGREGATE + name: 'true'}}]}))
    for name, groups in _BOUND.items():
        store.create(roles.CLUSTER_ROLE_BINDING,
                     binding(name, *groups, labels=_LABELS))
