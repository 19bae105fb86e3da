# SPDX-License-Identifier: Apache-2.0
"""Pod Security admission, level ``restricted`` in mode ``enforce`` only.

A Pod in a namespace with ``pod-security.kubernetes.io/enforce: restricted``
is refused unless it meets those of the level's controls that manifests for
unprivileged Pods get wrong: privilege escalation, capabilities, volume types,
user and seccomp profile. Other levels, other modes and the controls of level
``baseline`` (host namespaces, ports, sysctls) are ignored.

Source: kubernetes/staging/src/k8s.io/pod-security-admission (1.36): policy/
and admission/admission.go.
"""

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors

_LABEL = 'pod-security.kubernetes.io/enforce'

_VOLUMES = frozenset((
    'configMap', 'csi', 'downwardAPI', 'emptyDir', 'ephemeral', 'image',
    'persistentVolumeClaim', 'projected', 'secret'))
_SECCOMP = ('RuntimeDefault', 'Localhost')


def _names(containers):
    names = ', '.join(f'"{one["name"]}"' for one in containers)
    return f'container{"s" if len(containers) > 1 else ""} {names}'


def _context(one):
    return one.get('securityContext') or {}


def _capabilities(one, way):
    return (_context(one).get('capabilities') or {}).get(way) or ()


def violations(spec):
    """Find what level ``restricted`` forbids of a pod.

    :param spec: the pod's ``spec``.
    :returns: list of sentences, as Kubernetes words them.
    """
    containers = [one for field in (
        'initContainers', 'containers', 'ephemeralContainers')
        for one in spec.get(field) or ()]
    found = []
    bad = [one for one in containers if _context(one).get(
        'allowPrivilegeEscalation') is not False]
    if bad:
        found.append(
            f'allowPrivilegeEscalation != false ({_names(bad)} must set '
            'securityContext.allowPrivilegeEscalation=false)')
    bad = [one for one in containers
           if 'ALL' not in _capabilities(one, 'drop')]
    more = [one for one in containers
            if set(_capabilities(one, 'add')) - {'NET_BIND_SERVICE'}]
    if bad or more:
        why = []
        if bad:
            why.append(f'{_names(bad)} must set '
                       'securityContext.capabilities.drop=["ALL"]')
        if more:
            names = sorted({name for one in more for name in _capabilities(
                one, 'add')} - {'NET_BIND_SERVICE'})
            why.append(f'{_names(more)} must not include '
                       + ', '.join(f'"{name}"' for name in names)
                       + ' in securityContext.capabilities.add')
        found.append(f'unrestricted capabilities ({"; ".join(why)})')
    for volume in spec.get('volumes') or ():
        for kind in volume.keys() - {'name'} - _VOLUMES:
            found.append(f'restricted volume types (volume '
                         f'"{volume["name"]}" uses restricted volume type '
                         f'"{kind}")')
    whole = _context(spec).get('runAsNonRoot')
    bad = [one for one in containers
           if not _context(one).get('runAsNonRoot', whole)]
    if bad:
        found.append(f'runAsNonRoot != true (pod or {_names(bad)} must set '
                     'securityContext.runAsNonRoot=true)')
    bad = [one for one in containers if _context(one).get('runAsUser') == 0]
    if bad or _context(spec).get('runAsUser') == 0:
        found.append(f'runAsUser=0 ({_names(bad) if bad else "pod"} must not '
                     'set runAsUser=0)')
    whole = (_context(spec).get('seccompProfile') or {}).get('type')
    bad = [one for one in containers if (_context(one).get(
        'seccompProfile') or {}).get('type', whole) not in _SECCOMP]
    if bad:
        found.append(
            f'seccompProfile (pod or {_names(bad)} must set '
            'securityContext.seccompProfile.type to "RuntimeDefault" or '
            '"Localhost")')
    return found


class Admission:
    """Check pods at their creation; one of the store's gates.

    :param namespaces: the Kind of namespaces.
    """

    def __init__(self, namespaces):
        self._namespaces = namespaces

    def __call__(self, kind, admission):
        if kind is not core.POD or admission.operation != 'CREATE' or (
                admission.subresource):
            return
        new = admission.new
        meta = new['metadata']
        namespace = admission.store.find(
            self._namespaces, '', meta['namespace']) or {}
        labels = namespace.get('metadata', {}).get('labels') or {}
        if labels.get(_LABEL) != 'restricted':
            return
        wrong = violations(new.get('spec') or {})
        if wrong:
            version = labels.get(f'{_LABEL}-version', 'latest')
            raise errors.forbidden(
                core.POD, meta.get('name', ''), 'violates PodSecurity '
                f'"restricted:{version}": {", ".join(wrong)}')
