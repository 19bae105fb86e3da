# SPDX-License-Identifier: Apache-2.0
"""Pod Security Standards: what labels of namespaces ask of pods.

``pod-security.kubernetes.io/enforce`` refuses pods; ``warn`` only warns,
also those who write Deployments, and is what is enforced if it is not set.

Source: kubernetes/staging/src/k8s.io/pod-security-admission (1.36): policy/
and admission/admission.go. What asks for kinds of volumes or Windows that
the sandbox knows nothing of is not looked at.
"""

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors

_LABEL = 'pod-security.kubernetes.io/'

_BASELINE_CAPABILITIES = frozenset((
    'AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL',
    'MKNOD', 'NET_BIND_SERVICE', 'SETFCAP', 'SETGID', 'SETPCAP', 'SETUID',
    'SYS_CHROOT'))
_VOLUMES = frozenset((
    'configMap', 'csi', 'downwardAPI', 'emptyDir', 'ephemeral', 'image',
    'persistentVolumeClaim', 'projected', 'secret'))
_SYSCTLS = frozenset((
    'kernel.shm_rmid_forced', 'net.ipv4.ip_local_port_range',
    'net.ipv4.tcp_syncookies', 'net.ipv4.ping_group_range',
    'net.ipv4.ip_unprivileged_port_start',
    'net.ipv4.ip_local_reserved_ports', 'net.ipv4.tcp_keepalive_time',
    'net.ipv4.tcp_fin_timeout', 'net.ipv4.tcp_keepalive_intvl',
    'net.ipv4.tcp_keepalive_probes', 'net.ipv4.tcp_rmem',
    'net.ipv4.tcp_wmem'))
_SECCOMP = ('RuntimeDefault', 'Localhost')


def _names(containers):
    names = ', '.join(f'"{one["name"]}"' for one in containers)
    return f'container{"s" if len(containers) > 1 else ""} {names}'


def _context(one):
    return one.get('securityContext') or {}


def _capabilities(one, way):
    return (_context(one).get('capabilities') or {}).get(way) or ()


def violations(spec, level):
    """What is not allowed of a pod.

    :param spec: of the pod.
    :param level: ``privileged``, ``baseline`` or ``restricted``.
    :returns: list of sentences.
    """
    if level not in ('baseline', 'restricted'):
        return []
    containers = [one for field in (
        'initContainers', 'containers', 'ephemeralContainers')
        for one in spec.get(field) or ()]
    found = _baseline(spec, containers, level == 'restricted')
    if level == 'restricted':
        found += _restricted(spec, containers)
    return found


def _baseline(spec, containers, stricter):
    """:param stricter: what ``restricted`` says better is left out."""
    found = []
    shared = [name for name in ('hostNetwork', 'hostPID', 'hostIPC')
              if spec.get(name)]
    if shared:
        found.append('host namespaces (' + ', '.join(
            f'{name}=true' for name in shared) + ')')
    bad = [one for one in containers if _context(one).get('privileged')]
    if bad:
        found.append(f'privileged ({_names(bad)} must not set '
                     'securityContext.privileged=true)')
    bad = [one for one in containers
           if set(_capabilities(one, 'add')) - _BASELINE_CAPABILITIES]
    if bad and not stricter:
        more = sorted({name for one in bad for name in _capabilities(
            one, 'add')} - _BASELINE_CAPABILITIES)
        found.append(
            f'non-default capabilities ({_names(bad)} must not include '
            + ', '.join(f'"{name}"' for name in more)
            + ' in securityContext.capabilities.add)')
    if not stricter:
        paths = [v['name'] for v in spec.get('volumes') or ()
                 if 'hostPath' in v]
        if paths:
            found.append(
                f'hostPath volumes (volume{"s" if len(paths) > 1 else ""} '
                + ', '.join(f'"{name}"' for name in paths) + ')')
    bad = [one for one in containers if any(
        port.get('hostPort') for port in one.get('ports') or ())]
    if bad:
        found.append('hostPort (%s uses hostPort %s)' % (
            _names(bad), ', '.join(sorted(
                str(port['hostPort']) for one in bad
                for port in one['ports'] if port.get('hostPort')))))
    bad = [one for one in containers if _context(one).get(
        'procMount', 'Default') != 'Default']
    if bad:
        found.append(f'procMount ({_names(bad)} must not set '
                     'securityContext.procMount)')
    wrong = [s['name'] for s in _context(spec).get('sysctls') or ()
             if s.get('name') not in _SYSCTLS]
    if wrong:
        found.append(f'forbidden sysctls ({", ".join(wrong)})')
    if not stricter:
        loose = [one for one in containers if (_context(one).get(
            'seccompProfile') or {}).get('type') == 'Unconfined']
        if loose or (_context(spec).get('seccompProfile') or {}).get(
                'type') == 'Unconfined':
            found.append(
                f'seccompProfile ({_names(loose) if loose else "pod"} must '
                'not set securityContext.seccompProfile.type to '
                '"Unconfined")')
    return found


def _restricted(spec, containers):
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
    """Looks at what is written; one of the store's gates.

    :param namespaces: the Kind of namespaces.
    :param templates: Kinds with a template of pods.
    """

    def __init__(self, namespaces, templates):
        self._namespaces = namespaces
        self._templates = templates

    def __call__(self, kind, admission):
        new = admission.new
        if new is None or admission.subresource or (
                kind is core.POD and admission.operation != 'CREATE'):
            return
        if kind is core.POD:
            spec = new.get('spec') or {}
        elif kind in self._templates:
            spec = ((new.get('spec') or {}).get('template') or {}).get(
                'spec') or {}
        else:
            return
        meta = new['metadata']
        space = admission.store.find(self._namespaces, '', meta['namespace'])
        labels = (space or {}).get('metadata', {}).get('labels') or {}
        if kind is core.POD:
            wrong = _look(labels, 'enforce', spec)
            if wrong:
                raise errors.forbidden(core.POD, meta.get('name', ''),
                                       f'violates {wrong}')
        # Who is not told what to warn of warns of what is enforced.
        wrong = _look(labels, 'warn' if _LABEL + 'warn' in labels
                      else 'enforce', spec)
        if wrong:
            admission.warnings.append(f'would violate {wrong}')


def _look(labels, mode, spec):
    """What a mode has against a pod, a text, or ''."""
    level = labels.get(_LABEL + mode, 'privileged')
    wrong = violations(spec, level)
    if not wrong:
        return ''
    version = labels.get(f'{_LABEL}{mode}-version', 'latest')
    return f'PodSecurity "{level}:{version}": ' + ', '.join(wrong)
