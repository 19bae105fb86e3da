# SPDX-License-Identifier: Apache-2.0
"""OpenShift's security context constraints, as far as ``restricted-v2``.

That is the only one that all accounts may use. It assigns pods a user and an
fsGroup from the range of their namespace, and rejects others.

Source: openshift/apiserver-library-go, pkg/securitycontextconstraints
(2026); namespaces: openshift/cluster-policy-controller,
pkg/security/controller.
"""

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
            'persistentVolumeClaim', 'projected', 'secret'}
_HOST = 'hostNetwork', 'hostPID', 'hostIPC'

_NOT_USABLE = 'Forbidden: not usable by user or serviceaccount'
_OTHERS = ('restricted', 'nonroot-v2', 'nonroot', 'hostmount-anyuid',
           'hostnetwork-v2', 'hostnetwork', 'hostaccess', 'privileged')

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
    spec, wrong = pod['spec'], []
    # This admission changes pods, so it comes before they get names.
    name = pod['metadata'].get('generateName') or pod['metadata'].get(
        'name', '')
    for what, one in (('uid', UIDS), ('mcs', _CATEGORIES)):
        if not annotations.get(one):
            raise errors.forbidden(core.POD, name, (
                f'unable to find pre-allocated {what} annotation for namespace'
                f" {pod['metadata'].get('namespace')} while trying to "
                f'configure SCC {RESTRICTED}: unable to find annotation '
                f'{one}'))
    users = _range(annotations[UIDS])
    group = _range(annotations.get(GIDS) or annotations[UIDS])[0]
    context = spec.setdefault('securityContext', {})
    if context.setdefault('fsGroup', group) != group:
        wrong.append('.spec.securityContext.fsGroup: Invalid value: []int64{%d'
                     '}: %d is not an allowed group' % (
                         (context['fsGroup'],) * 2))
    context.setdefault('seLinuxOptions', {'level': annotations[_CATEGORIES]})
    context.setdefault('seccompProfile', {'type': 'RuntimeDefault'})
    wrong += [f'.spec.securityContext.{name}: Invalid value: true: Host '
              f'{name[4:]} is not allowed to be used'
              for name in _HOST if spec.get(name)]
    wrong += [f'.spec.volumes[{at}]: Invalid value: "{kind}": {kind} volumes '
              'are not allowed to be used'
              for at, volume in enumerate(spec.get('volumes') or ())
              for kind in volume.keys() - {'name'} - _VOLUMES]
    for field in 'initContainers', 'containers':
        for at, container in enumerate(spec.get(field) or ()):
            wrong += [f'.{field}[{at}].{text}' for text in _complete(
                container.setdefault('securityContext', {}), context, users)]
    if wrong:
        raise errors.forbidden(
            core.POD, name,
            'unable to validate against any security context constraint: ['
            + ', '.join((f'provider "anyuid": {_NOT_USABLE}', *(
                f'provider {RESTRICTED}: {one}' for one in wrong), *(
                    f'provider "{one}": {_NOT_USABLE}' for one in _OTHERS)))
            + ']')
    pod['metadata'].setdefault('annotations', {})[USED] = RESTRICTED


def _complete(context, pod_context, users):
    """Fill in a container's security context.

    :returns: list of what is wrong with it
    """
    wrong = []
    user = context.get('runAsUser', pod_context.get('runAsUser'))
    if user is None:
        context['runAsUser'] = users[0]
    elif user not in users:
        wrong.append(f'runAsUser: Invalid value: {user}: must be in the '
                     f'ranges: [{users[0]}, {users[-1]}]')
    context.setdefault('runAsNonRoot', True)
    if context.get('privileged'):
        wrong.append('privileged: Invalid value: true: Privileged containers '
                     'are not allowed')
    if context.setdefault('allowPrivilegeEscalation', False):
        wrong.append('allowPrivilegeEscalation: Invalid value: true: Allowing '
                     'privilege escalation for containers is not allowed')
    capabilities = context.setdefault('capabilities', {})
    wrong += [f'capabilities.add: Invalid value: "{one}": capability may not '
              'be added' for one in capabilities.get('add') or ()
              if one != 'NET_BIND_SERVICE']
    if 'ALL' not in capabilities.setdefault('drop', []):
        capabilities['drop'].append('ALL')
    return wrong


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
