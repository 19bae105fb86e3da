# SPDX-License-Identifier: Apache-2.0
"""Validation and defaults of NetworkPolicies and Ingresses.

Source: kubernetes/pkg/apis/networking, v1/defaults.go and
validation/validation.go (1.37).
"""
import ipaddress

from kubevirt_sandbox.api import field_rules

_PROTOCOLS = ('TCP', 'UDP', 'SCTP')
_TYPES = ('Ingress', 'Egress')
_PATH_TYPES = ('Exact', 'ImplementationSpecific', 'Prefix')
_DIRECTIONS = ('ingress', 'from'), ('egress', 'to')


def default_policy(new):
    """Fill in the directions that a NetworkPolicy restricts."""
    spec = new.setdefault('spec', {})
    if not spec.get('policyTypes'):
        spec['policyTypes'] = ['Ingress', 'Egress'][
            :2 if spec.get('egress') else 1]


def policy_faults(new, old):
    """List what is wrong with a NetworkPolicy.

    Networks that it had before need not be valid.
    """
    spec, found = new.get('spec') or {}, []
    known = set(_networks((old or {}).get('spec') or {}))
    field_rules.selector(found, 'spec.podSelector',
                         spec.get('podSelector') or {})
    for direction, side in _DIRECTIONS:
        for at, rule in enumerate(spec.get(direction) or ()):
            where = f'spec.{direction}[{at}]'
            for index, port in enumerate(rule.get('ports') or ()):
                _policy_port(found, f'{where}.ports[{index}]', port)
            for index, peer in enumerate(rule.get(side) or ()):
                _peer(found, f'{where}.{side}[{index}]', peer, known)
    types = spec.get('policyTypes') or []
    if len(types) > len(_TYPES):
        field_rules.invalid(found, 'spec.policyTypes', types,
                            'may not specify more than two policyTypes')
    else:
        for at, type_ in enumerate(types):
            if type_ not in _TYPES:
                field_rules.unsupported(found, f'spec.policyTypes[{at}]',
                                        type_, _TYPES)
    return found


def _networks(spec):
    """List the networks of a NetworkPolicy."""
    for direction, side in _DIRECTIONS:
        for rule in spec.get(direction) or ():
            for peer in rule.get(side) or ():
                block = peer.get('ipBlock') or {}
                yield block.get('cidr', '')
                yield from block.get('except') or ()


def _policy_port(found, where, port):
    protocol, number = port.get('protocol', 'TCP'), port.get('port')
    end = port.get('endPort')
    if protocol not in _PROTOCOLS:
        field_rules.unsupported(found, where + '.protocol', protocol,
                                _PROTOCOLS)
    if number is not None:
        field_rules.check(found, where + '.port', number,
                          field_rules.port_or_name)
    if end is None:
        return
    if not isinstance(number, int):
        field_rules.invalid(
            found, where + '.endPort', end, 'may not be specified when '
            '`port` is ' + ('not specified' if number is None
                            else 'non-numeric'))
        return
    if end < number:
        field_rules.invalid(found, where + '.endPort', end,
                            'must be greater than or equal to `port`')
    field_rules.check(found, where + '.endPort', end, field_rules.port)


def _peer(found, where, peer, known):
    selectors = [name for name in ('podSelector', 'namespaceSelector')
                 if peer.get(name) is not None]
    for name in selectors:
        field_rules.selector(found, f'{where}.{name}', peer[name])
    block = peer.get('ipBlock')
    if block is not None:
        _block(found, where + '.ipBlock', block, known)
        if selectors:
            field_rules.forbidden(found, where, 'may not specify both '
                                  'ipBlock and another peer')
    elif not selectors:
        field_rules.required(found, where, 'must specify a peer')


def _block(found, where, block, known):
    whole = block.get('cidr', '')
    if not whole:
        field_rules.required(found, where + '.cidr')
        return
    if whole not in known:
        field_rules.check(found, where + '.cidr', whole, field_rules.cidr)
    for at, part in enumerate(block.get('except') or ()):
        place = f'{where}.except[{at}]'
        if part not in known:
            field_rules.check(found, place, part, field_rules.cidr)
        try:
            outer, inner = (ipaddress.ip_network(text, strict=False)
                            for text in (whole, part))
        except ValueError:
            continue
        if (outer.version != inner.version or outer == inner
                or not inner.subnet_of(outer)):
            field_rules.invalid(found, place, part,
                                'must be a strict subset of `cidr`')


def ingress_faults(new, old):
    """List what is wrong with an Ingress."""
    spec, found = new.get('spec') or {}, []
    rules, backend = spec.get('rules') or [], spec.get('defaultBackend')
    if not rules and backend is None:
        field_rules.invalid(found, 'spec', [], 'either `defaultBackend` or '
                            '`rules` must be specified')
    if backend is not None:
        _backend(found, 'spec.defaultBackend', backend)
    for at, rule in enumerate(rules):
        _rule(found, f'spec.rules[{at}]', rule)
    for at, entry in enumerate(spec.get('tls') or ()):
        for index, host in enumerate(entry.get('hosts') or ()):
            field_rules.check(found, f'spec.tls[{at}].hosts[{index}]', host,
                              _host)
        if entry.get('secretName'):
            field_rules.check(found, f'spec.tls[{at}].secretName',
                              entry['secretName'], field_rules.subdomain)
    if spec.get('ingressClassName') is not None:
        field_rules.check(found, 'spec.ingressClassName',
                          spec['ingressClassName'], field_rules.subdomain)
    return found


def _host(value):
    """Rule for a name that may begin with ``*.``."""
    return field_rules.subdomain(value.removeprefix('*.'))


def _rule(found, where, rule):
    host = rule.get('host')
    if host:
        if field_rules.ip(host) is None:
            field_rules.invalid(found, where + '.host', host,
                                'must be a DNS name, not an IP address')
        field_rules.check(found, where + '.host', host, _host)
    http = rule.get('http')
    if http is None:
        return
    if not http.get('paths'):
        field_rules.required(found, where + '.http.paths')
    for at, path in enumerate(http.get('paths') or ()):
        place = f'{where}.http.paths[{at}]'
        type_, text = path.get('pathType'), path.get('path') or ''
        if type_ is None:
            field_rules.required(found, place + '.pathType',
                                 'pathType must be specified')
            continue
        if type_ not in _PATH_TYPES:
            field_rules.unsupported(found, place + '.pathType', type_,
                                    _PATH_TYPES)
        elif not text.startswith('/') and (
                text or type_ != 'ImplementationSpecific'):
            field_rules.invalid(found, place + '.path', text,
                                'must be an absolute path')
        _backend(found, place + '.backend', path.get('backend') or {})


def _backend(found, where, backend):
    service = backend.get('service')
    if (service is None) == (backend.get('resource') is None):
        field_rules.invalid(
            found, where, '', 'resource or service backend is required'
            if service is None
            else 'cannot set both resource and service backends')
        return
    if service is None:
        return
    if service.get('name'):
        field_rules.check(found, where + '.service.name', service['name'],
                          field_rules.label)
    else:
        field_rules.required(found, where + '.service.name')
    port = service.get('port') or {}
    given = [port[name] for name in ('name', 'number') if port.get(name)]
    if not given:
        field_rules.required(found, where, 'port name or number is required')
    elif len(given) > 1:
        field_rules.invalid(found, where, '',
                            'cannot set both port name & port number')
    else:
        field_rules.check(found, where + '.service.port', given[0],
                          field_rules.port_or_name)
