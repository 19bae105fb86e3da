# SPDX-License-Identifier: Apache-2.0
"""Pod Security admission, level ``restricted`` in mode ``enforce`` only.

A Pod in a namespace with ``pod-security.kubernetes.io/enforce: restricted``
is refused if it violates a control of that level, which includes the controls
of level ``baseline``. Other levels and modes are ignored. The exceptions for
Pods with ``hostUsers: false`` and for Windows are not made, so such a Pod may
be refused here that Kubernetes accepts.

Source: kubernetes/staging/src/k8s.io/pod-security-admission (1.36): policy/
and admission/admission.go.
"""

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors

_LABEL = 'pod-security.kubernetes.io/enforce'

_APPARMOR_ANNOTATION = 'container.apparmor.security.beta.kubernetes.io/'
#: Profile types allowed for AppArmor and for seccomp.
_PROFILES = ('RuntimeDefault', 'Localhost')
_SELINUX_TYPES = ('', 'container_t', 'container_init_t', 'container_kvm_t',
                  'container_engine_t')
_SYSCTLS = frozenset((
    'kernel.shm_rmid_forced', 'net.ipv4.ip_local_port_range',
    'net.ipv4.tcp_syncookies', 'net.ipv4.ping_group_range',
    'net.ipv4.ip_unprivileged_port_start',
    'net.ipv4.ip_local_reserved_ports', 'net.ipv4.tcp_keepalive_time',
    'net.ipv4.tcp_fin_timeout', 'net.ipv4.tcp_keepalive_intvl',
    'net.ipv4.tcp_keepalive_probes', 'net.ipv4.tcp_rmem',
    'net.ipv4.tcp_wmem'))
_VOLUMES = frozenset((
    'configMap', 'csi', 'downwardAPI', 'emptyDir', 'ephemeral', 'image',
    'persistentVolumeClaim', 'projected', 'secret'))


def _quoted(values):
    return ', '.join(f'"{value}"' for value in values)


def _names(containers):
    return (f'container{"s" if len(containers) > 1 else ""} '
            + _quoted(one['name'] for one in containers))


def _context(one):
    return one.get('securityContext') or {}


def _capabilities(one, way):
    return (_context(one).get('capabilities') or {}).get(way) or ()


def _setters(spec, containers, is_forbidden):
    """Name the pod and containers with a forbidden ``securityContext``.

    :param is_forbidden: function of a ``securityContext``.
    :returns: text such as ``pod and container "c"``; '' if there are none.
    """
    bad = [one for one in containers if is_forbidden(_context(one))]
    return ' and '.join((['pod'] if is_forbidden(_context(spec)) else [])
                        + ([_names(bad)] if bad else []))


def _bad_profiles(spec, containers, field):
    """Find forbidden AppArmor or seccomp profiles.

    :param field: ``appArmorProfile`` or ``seccompProfile``.
    :returns: their setters, see :func:`_setters`, and a list of their types.
    """
    def bad_type(context):
        name = (context.get(field) or {}).get('type')
        return name if name not in _PROFILES else None

    return _setters(spec, containers, bad_type), sorted({
        bad_type(_context(one)) for one in (spec, *containers)} - {None})


def violations(spec, annotations=None):
    """Find what level ``restricted`` forbids of a pod.

    :param spec: the pod's ``spec``.
    :param annotations: dict, the pod's annotations.
    :returns: list of sentences, as Kubernetes words them.
    """
    containers = [one for field in (
        'initContainers', 'containers', 'ephemeralContainers')
        for one in spec.get(field) or ()]
    return (_host_access(spec, containers)
            + _kernel_settings(spec, containers, annotations or {})
            + _restricted(spec, containers))


def _host_access(spec, containers):
    """Check the controls of level ``baseline`` on access to the node."""
    found = []
    shared = [f'{name}=true' for name in ('hostNetwork', 'hostPID', 'hostIPC')
              if spec.get(name)]
    if shared:
        found.append(f'host namespaces ({", ".join(shared)})')
    for what, values_of, show in (
            ('hostPort', _host_ports, ', '.join),
            ('probe or lifecycle host', _probe_hosts, _quoted)):
        bad = [one for one in containers if values_of(one)]
        if bad:
            values = sorted({v for one in bad for v in values_of(one)})
            found.append(f'{what} ({_names(bad)} '
                         f'use{"s" if len(bad) == 1 else ""} {what}'
                         f'{"s" if len(values) > 1 else ""} {show(values)})')
    bad = [one for one in containers if _context(one).get('privileged')]
    if bad:
        found.append(f'privileged ({_names(bad)} must not set '
                     'securityContext.privileged=true)')
    bad = _setters(spec, containers, lambda context: (
        context.get('windowsOptions') or {}).get('hostProcess'))
    if bad:
        found.append(f'hostProcess ({bad} must not set '
                     'securityContext.windowsOptions.hostProcess=true)')
    return found


def _host_ports(container):
    return [str(port['hostPort']) for port in container.get('ports') or ()
            if port.get('hostPort')]


def _probe_hosts(container):
    lifecycle = container.get('lifecycle') or {}
    handlers = [container.get(name) or {} for name in (
        'livenessProbe', 'readinessProbe', 'startupProbe')] + [
        lifecycle.get(name) or {} for name in ('postStart', 'preStop')]
    hosts = [(handler.get(action) or {}).get('host') for handler in handlers
             for action in ('httpGet', 'tcpSocket')]
    return [host for host in hosts if host]


def _kernel_settings(spec, containers, annotations):
    """Check ``baseline`` on AppArmor, /proc, SELinux and sysctls."""
    found = []
    bad, values = _bad_profiles(spec, containers, 'appArmorProfile')
    if bad:
        found.append(f'forbidden AppArmor profile ({bad} must not set '
                     f'AppArmor profile type to {_quoted(values)})')
    bad = sorted(
        f'{name}="{value}"' for name, value in annotations.items()
        if name.startswith(_APPARMOR_ANNOTATION) and value not in (
            '', 'runtime/default') and not value.startswith('localhost/'))
    if bad:
        found.append('forbidden AppArmor profile (annotation must not set '
                     f'AppArmor profile type to {_quoted(bad)})')
    bad = [one for one in containers if _context(one).get(
        'procMount', 'Default') != 'Default']
    if bad:
        values = sorted({_context(one)['procMount'] for one in bad})
        found.append(f'procMount ({_names(bad)} must not set '
                     f'securityContext.procMount to {_quoted(values)})')

    def selinux(context):
        options = context.get('seLinuxOptions') or {}
        return {name: options[name] for name in ('type', 'user', 'role')
                if options.get(name) and (
                    name != 'type' or options[name] not in _SELINUX_TYPES)}

    bad = _setters(spec, containers, selinux)
    if bad:
        options = [selinux(_context(one)) for one in (spec, *containers)]
        types = sorted({one['type'] for one in options if 'type' in one})
        why = [f'type{"s" if len(types) > 1 else ""} {_quoted(types)}'
               ] if types else []
        why += [f'{name} may not be set' for name in ('user', 'role')
                if any(name in one for one in options)]
        found.append(f'seLinuxOptions ({bad} set forbidden securityContext.'
                     f'seLinuxOptions: {"; ".join(why)})')
    bad = [one.get('name', '') for one in _context(spec).get('sysctls') or ()
           if one.get('name') not in _SYSCTLS]
    if bad:
        found.append(f'forbidden sysctls ({", ".join(bad)})')
    return found


def _restricted(spec, containers):
    """Check the controls that level ``restricted`` adds to ``baseline``."""
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
    bad = _setters(spec, containers,
                   lambda context: context.get('runAsNonRoot') is False)
    if bad:
        found.append(f'runAsNonRoot != true ({bad} must not set '
                     'securityContext.runAsNonRoot=false)')
    elif not _context(spec).get('runAsNonRoot'):
        bad = [one for one in containers
               if not _context(one).get('runAsNonRoot')]
        if bad:
            found.append(f'runAsNonRoot != true (pod or {_names(bad)} must '
                         'set securityContext.runAsNonRoot=true)')
    bad = _setters(spec, containers,
                   lambda context: context.get('runAsUser') == 0)
    if bad:
        found.append(f'runAsUser=0 ({bad} must not set runAsUser=0)')
    bad, values = _bad_profiles(spec, containers, 'seccompProfile')
    if bad:
        found.append(f'seccompProfile ({bad} must not set securityContext.'
                     f'seccompProfile.type to {_quoted(values)})')
    elif not _context(spec).get('seccompProfile'):
        bad = [one for one in containers
               if not _context(one).get('seccompProfile')]
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
        wrong = violations(new.get('spec') or {}, meta.get('annotations'))
        if wrong:
            version = labels.get(f'{_LABEL}-version', 'latest')
            raise errors.forbidden(
                core.POD, meta.get('name', ''), 'violates PodSecurity '
                f'"restricted:{version}": {", ".join(wrong)}')
