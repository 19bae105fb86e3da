# SPDX-License-Identifier: Apache-2.0
"""OpenShift's security context constraints, as far as ``restricted-v2``.

Without user namespaces, that is the only one that all accounts may use. It
assigns pods a user and an fsGroup from the range of their namespace, and
rejects others. Sysctls and the annotation ``required-scc`` are not checked.

Source: openshift/apiserver-library-go, pkg/securitycontextconstraints
(a8019f3, 2025), and its answers in an API server 1.35.4; namespaces:
openshift/cluster-policy-controller, pkg/security/controller (2026).
"""

import collections
import random

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import kinds

#: The name of the constraints.
RESTRICTED = 'restricted-v2'

#: Annotation of an admitted pod.
USED = 'openshift.io/scc'

#: Annotations of a namespace: ``first/number`` of uids and of gids, and the
#: SELinux categories.
UIDS = 'openshift.io/sa.scc.uid-range'
GIDS = 'openshift.io/sa.scc.supplemental-groups'
_CATEGORIES = 'openshift.io/sa.scc.mcs'

# Users of the namespaces' ranges.
_FIRST, _SIZE, _BLOCKS = 1000000000, 10000, 10000

_VOLUMES = {'configMap', 'csi', 'downwardAPI', 'emptyDir', 'ephemeral',
            'image', 'persistentVolumeClaim', 'projected', 'secret'}
_HOST = {'hostNetwork': 'network', 'hostPID': 'PID', 'hostIPC': 'IPC'}
_RUNTIME_DEFAULT = 'runtime/default'

_AT = f'provider {RESTRICTED}: '
_NOT_USABLE = 'Forbidden: not usable by user or serviceaccount'
# The constraints for pods with a user namespace, which all accounts may use.
_USER_NAMESPACES = (
    'provider restricted-v3: .spec.securityContext.hostUsers: Invalid value: '
    'null: Host Users must be set to false')
_OTHERS = ('restricted', 'nested-container', 'nonroot-v2', 'nonroot',
           'hostmount-anyuid', 'hostmount-anyuid-v2', 'hostnetwork-v2',
           'hostnetwork', 'hostaccess', 'privileged')

KIND = kinds.Kind(
    'security.openshift.io', 'v1', 'SecurityContextConstraints',
    'securitycontextconstraints', 'securitycontextconstraints',
    short_names=('scc',), namespaced=False,
    columns=(kinds.Column('Priv', 'boolean', '.allowPrivilegedContainer'),
             kinds.Column('RunAsUser', 'string', '.runAsUser.type'),
             kinds.Column('FSGroup', 'string', '.fsGroup.type')))

_OBJECT = {
    'metadata': {'name': RESTRICTED},
    'allowPrivilegedContainer': False, 'allowPrivilegeEscalation': False,
    'allowHostNetwork': False, 'allowHostPID': False, 'allowHostIPC': False,
    'allowedCapabilities': ['NET_BIND_SERVICE'],
    'requiredDropCapabilities': ['ALL'],
    'runAsUser': {'type': 'MustRunAsRange'}, 'fsGroup': {'type': 'MustRunAs'},
    'seLinuxContext': {'type': 'MustRunAs'},
    'supplementalGroups': {'type': 'RunAsAny'},
    'seccompProfiles': ['runtime/default'], 'volumes': sorted(_VOLUMES),
    'users': [], 'groups': [],
}


class Admission:
    """Ranges of namespaces, and the admission of pods: a gate of the store.

    :param server: the :class:`kubevirt_sandbox.api.server.Server`.
    """

    def __init__(self, server):
        self._free = random.sample(range(_BLOCKS), _BLOCKS)
        server.register_kind(KIND)
        server.store.create(KIND, _OBJECT, manager='cluster-version-operator')
        for one in server.store.list(core.NAMESPACE):
            server.store.change(core.NAMESPACE, '', one['metadata']['name'],
                                self._allocate)

    def __call__(self, kind, admission):
        if admission.operation != 'CREATE' or admission.subresource:
            return
        if kind is core.NAMESPACE:
            self._allocate(admission.new)
        elif kind is core.POD:
            meta = admission.new['metadata']
            namespace = admission.store.find(
                core.NAMESPACE, '', meta['namespace'])
            if namespace is not None:
                _admit(admission.new, namespace['metadata'].get(
                    'annotations') or {})

    def _allocate(self, namespace):
        annotations = namespace['metadata'].setdefault('annotations', {})
        block = self._free.pop()
        first = f'{_FIRST + _SIZE * block}/{_SIZE}'
        annotations.setdefault(UIDS, first)
        annotations.setdefault(GIDS, first)
        annotations.setdefault(
            _CATEGORIES, f's0:c{block // 1000 + 1},c{block % 1000}')


def _range(text):
    first, _, number = text.partition('/')
    return range(int(first), int(first) + int(number))


def _admit(pod, annotations):
    """Fill in a new pod's security context, or reject the pod."""
    spec = pod['spec']
    if (spec.get('os') or {}).get('name') == 'windows':
        return
    # This admission changes pods, so it comes before they get names.
    name = pod['metadata'].get('generateName') or pod['metadata'].get(
        'name', '')
    for one in UIDS, _CATEGORIES:
        # OpenShift waits for them for ten seconds.
        if not annotations.get(one):
            raise errors.forbidden(core.POD, name, (
                'error fetching namespace '
                f'"{pod["metadata"].get("namespace")}": unable to find '
                f'annotation {one}'))
    users = _range(annotations[UIDS])
    group = _range(annotations.get(GIDS) or annotations[UIDS])[0]
    level = annotations[_CATEGORIES]
    context = spec.setdefault('securityContext', {})
    context.setdefault('fsGroup', group)
    context.setdefault('seLinuxOptions', {'level': level})
    context.setdefault('seccompProfile', {'type': 'RuntimeDefault'})
    wrong = []
    if context['fsGroup'] != group:
        wrong.append(f'{_AT}.spec.securityContext.fsGroup: Invalid value: '
                     f'[{context["fsGroup"]}]: {context["fsGroup"]} is not an '
                     'allowed group')
    wrong += _seccomp('seccomp.security.alpha.kubernetes.io/pod', context)
    wrong += _selinux(f'{_AT}.spec.securityContext', context, level)
    wrong += _host(f'{_AT}.spec.securityContext', spec)
    wrong += [f'spec.volumes[{at}]: Invalid value: "{kind}": {kind} volumes '
              'are not allowed to be used'
              for at, volume in enumerate(spec.get('volumes') or ())
              for kind in volume.keys() - {'name'} - _VOLUMES]
    for path, container in _containers(spec):
        wrong += _complete(_AT + path, container, spec, users, level)
    if wrong:
        raise errors.forbidden(
            core.POD, name,
            'unable to validate against any security context constraint: ['
            + ', '.join((f'provider "anyuid": {_NOT_USABLE}', *wrong,
                         _USER_NAMESPACES, *(
                             f'provider "{one}": {_NOT_USABLE}'
                             for one in _OTHERS))) + ']')
    pod['metadata'].setdefault('annotations', {}).update({
        USED: RESTRICTED,
        # The constraints apply to system:authenticated, of which an account
        # is only a member when it makes the request.
        'security.openshift.io/validated-scc-subject-type': 'user',
        'seccomp.security.alpha.kubernetes.io/pod': _RUNTIME_DEFAULT})


def _containers(spec):
    return [(f'.{field}[{at}]', container)
            for field in ('initContainers', 'containers')
            for at, container in enumerate(spec.get(field) or ())]


def _complete(path, container, spec, users, level):
    """Fill in a container's security context.

    :returns: list of what is wrong with it
    """
    own = container.setdefault('securityContext', {})
    context = collections.ChainMap(own, spec['securityContext'])
    context.setdefault('runAsUser', users[0])
    if context['runAsUser']:
        context.setdefault('runAsNonRoot', True)
    own.setdefault('allowPrivilegeEscalation', False)
    capabilities = own.setdefault('capabilities', {})
    if 'ALL' not in capabilities.setdefault('drop', []):
        capabilities['drop'] = sorted({'ALL', *capabilities['drop']})
    wrong = []
    if context['runAsUser'] not in users:
        wrong.append(f'{path}.runAsUser: Invalid value: '
                     f'{context["runAsUser"]}: must be in the ranges: '
                     f'[{users[0]}, {users[-1]}]')
    wrong += _selinux(path, context, level)
    wrong += _seccomp('container.seccomp.security.alpha.kubernetes.io/'
                      + container['name'], context)
    if own.get('privileged'):
        wrong.append(f'{path}.privileged: Invalid value: true: Privileged '
                     'containers are not allowed')
    wrong += [f'{path}.capabilities.add: Invalid value: "{one}": capability '
              'may not be added' for one in capabilities.get('add') or ()
              if one != 'NET_BIND_SERVICE']
    wrong += _host(path, spec)
    # With each container, the ports of all.
    wrong += [f'{path}{each}.hostPort: Invalid value: {port["hostPort"]}: '
              'Host ports are not allowed to be used'
              for each, other in _containers(spec)
              for port in other.get('ports') or () if port.get('hostPort')]
    if own['allowPrivilegeEscalation']:
        wrong.append(f'{path}.allowPrivilegeEscalation: Invalid value: true: '
                     'Allowing privilege escalation for containers is not '
                     'allowed')
    return wrong


def _host(path, spec):
    return [f'{path}.{name}: Invalid value: true: Host {text} is not allowed '
            'to be used' for name, text in _HOST.items() if spec.get(name)]


def _seccomp(annotation, context):
    profile = context['seccompProfile']
    name = {'RuntimeDefault': _RUNTIME_DEFAULT,
            'Unconfined': 'unconfined'}.get(
                profile['type'],
                f"localhost/{profile.get('localhostProfile')}")
    if name == _RUNTIME_DEFAULT:
        return []
    return [f'pod.metadata.annotations[{annotation}]: Forbidden: {name} is '
            'not an allowed seccomp profile. Valid values are '
            f'[{_RUNTIME_DEFAULT}]']


def _selinux(path, context, level):
    def same(one):
        sensitivity, _, categories = one.partition(':')
        return sensitivity, sorted(categories.split(','))

    found = context['seLinuxOptions']
    wrong = []
    if same(found.get('level', '')) != same(level):
        wrong.append(('level', level))
    wrong += [(name, '') for name in ('role', 'type', 'user')
              if found.get(name)]
    return [f'{path}.seLinuxOptions.{name}: Invalid value: '
            f'"{found.get(name, "")}": must be {wanted}'
            for name, wanted in wrong]


def identity(pod, container):
    """Find the user and groups that a container runs as.

    :param pod: the pod's spec.
    :param container: its spec.
    :returns: (uid, gid, fsGroup); a container without a gid has that of a
        user that the image does not know, 0. None without a uid.
    """
    both = {**(pod.get('securityContext') or {}),
            **(container.get('securityContext') or {})}
    if 'runAsUser' not in both:
        return None
    return (both['runAsUser'], both.get('runAsGroup', 0),
            both.get('fsGroup'))
