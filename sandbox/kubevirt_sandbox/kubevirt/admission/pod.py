# SPDX-License-Identifier: Apache-2.0
"""Admission of settings of the launcher pod and the guest.

Source: vmi-create-admitter.go (KubeVirt 1.9).
"""

import ipaddress

from kubevirt_sandbox.kubevirt.admission import causes
from kubevirt_sandbox.kubevirt import paths

_HANDLERS = ('httpGet', 'tcpSocket', 'exec', 'guestAgentPing')
_DNS_POLICIES = ('ClusterFirstWithHostNet', 'ClusterFirst', 'Default',
                 'None', '')


def check(field, spec):
    """List causes to refuse the fields of the launcher's pod.

    :param field: the path of the VMI's spec.
    """
    found = [*_check_names(field, spec), *_check_start(field, spec)]
    on_pod = any(n.get('pod') is not None for n in paths.networks(spec))
    for kind in ('readinessProbe', 'livenessProbe'):
        if spec.get(kind) is not None:
            found += _check_probe(f'{field}.{kind}', spec[kind], on_pod)
    found += _check_credentials(f'{field}.accessCredentials', spec)
    found += _check_dns(field, spec)
    strategy = spec.get('evictionStrategy')
    if strategy is not None and strategy not in (
            'None', 'LiveMigrate', 'LiveMigrateIfPossible', 'External'):
        where = f'{field}.evictionStrategy'
        found.append(causes.Cause(
            f'{where} is set with an unrecognized option: '
            f'{strategy}', where))
    return found


def _check_names(field, spec):
    for key, errors_of, rules in (
            ('hostname', causes.label_errors, 'DNS_LABEL'),
            ('subdomain', causes.subdomain_errors, 'DNS_SUBDOMAIN')):
        wrong = errors_of(spec[key]) if spec.get(key) else ()
        if wrong:
            where = f'{field}.{key}'
            yield causes.Cause(f'{where} does not conform to the kubernetes '
                               f'{rules} rules : {", ".join(wrong)}', where)
    account = spec.get('serviceAccountName')
    if account:
        where = f'{field}.serviceAccountName'
        wrong = causes.subdomain_errors(account)
        if wrong:
            yield causes.Cause(f'{where} is not a valid service account name: '
                               f'{"; ".join(wrong)}', where)


def _check_start(field, spec):
    strategy = spec.get('startStrategy')
    where = f'{field}.startStrategy'
    if strategy is None:
        return
    if strategy != 'Paused':
        yield causes.Cause(f'{where} is set with an unrecognized option: '
                           f'{strategy}', where)
    elif spec.get('livenessProbe') is not None:
        yield causes.Cause(
            f'either {where} or {field}.livenessProbe should be '
            'provided.Pausing VMI with LivenessProbe is not '
            'supported', where)


def _check_probe(field, probe, on_pod):
    number = sum(probe.get(h) is not None for h in _HANDLERS)
    if number > 1:
        yield causes.Cause(f'{field} must have exactly one probe type set',
                           field)
    if number < 1:
        yield causes.Cause(f'either {field}.tcpSocket, {field}.exec or '
                           f'{field}.httpGet must be set if a {field} is '
                           'specified', field, causes.REQUIRED)
    if on_pod:
        return
    for handler in ('httpGet', 'tcpSocket'):
        if probe.get(handler) is not None:
            yield causes.Cause(f'{field}.{handler} is only allowed if the Pod '
                               'Network is attached', f'{field}.{handler}')


def _check_credentials(field, spec):
    volumes = paths.volumes(spec)
    disks = {kind for kind in ('cloudInitNoCloud', 'cloudInitConfigDrive')
             if any(v.get(kind) is not None for v in volumes)}
    for index, credential in enumerate(spec.get('accessCredentials') or ()):
        where = f'{field}[{index}]'
        kinds = [k for k in ('sshPublicKey', 'userPassword')
                 if credential.get(k) is not None]
        for kind in kinds:
            yield from _check_credential(where, kind, credential[kind],
                                         disks)
        if len(kinds) != 1:
            yield causes.Cause(
                f'{where} must have exactly one access credential '
                'type set', where)


def _check_credential(where, kind, credential, disks):
    method = credential.get('propagationMethod') or {}
    field = f'{where}.{kind}.propagationMethod'
    methods = ['qemuGuestAgent']
    if kind == 'sshPublicKey':
        methods = ['noCloud', 'configDrive', 'qemuGuestAgent']
        for name, disk in (('noCloud', 'cloudInitNoCloud'),
                           ('configDrive', 'cloudInitConfigDrive')):
            if method.get(name) is not None and disk not in disks:
                yield causes.Cause(
                    f'{where} requires a {name} volume to exist '
                    f'when the {name} propagationMethod is in use.',
                    field)
        agent = method.get('qemuGuestAgent')
        if agent is not None and not agent.get('users'):
            yield causes.Cause(
                f'{where} requires at least one user to be present '
                'in the users list', f'{field}.qemuGuestAgent.users')
    if paths.at(credential, 'source', 'secret') is None:
        yield causes.Cause(f'{where} must have exactly one source set',
                           f'{where}.{kind}.source')
    if sum(method.get(m) is not None for m in methods) != 1:
        yield causes.Cause(
            f'{where} must have exactly one propagationMethod set',
            field)


def _check_dns(field, spec):
    policy, config = spec.get('dnsPolicy', ''), spec.get('dnsConfig')
    if policy not in _DNS_POLICIES:
        yield causes.Cause(
            f'DNSPolicy: {policy} is not supported, valid values: '
            f'[{" ".join(_DNS_POLICIES)}]', f'{field}.dnsPolicy',
            causes.NOT_SUPPORTED)
    servers = (config or {}).get('nameservers') or []
    if policy == 'None' and config is None:
        yield causes.Cause('must provide `dnsConfig` when `dnsPolicy` is None',
                           f'{field}.dnsConfig', causes.REQUIRED)
        return
    if policy == 'None' and not servers:
        yield causes.Cause('must provide at least one DNS nameserver when '
                           '`dnsPolicy` is None', 'nameservers',
                           causes.REQUIRED)
        return
    if len(servers) > 3:
        yield causes.Cause('must not have more than 3 nameservers: '
                           f'[{" ".join(servers)}]', 'nameservers')
    for server in servers:
        try:
            ipaddress.ip_address(server)
        except ValueError:
            yield causes.Cause(f'must be valid IP address: {server}',
                               'nameservers')
    searches = (config or {}).get('searches') or []
    if len(searches) > 6:
        yield causes.Cause('must not have more than 6 search paths',
                           'searchDomains')
    for search in searches:
        for message in causes.subdomain_errors(search):
            yield causes.Cause(message, 'searchDomains')
    for option in (config or {}).get('options') or ():
        if not option.get('name'):
            yield causes.Cause('Option.Name must not be empty', 'options')
