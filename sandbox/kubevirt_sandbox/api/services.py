# SPDX-License-Identifier: Apache-2.0
"""Services as objects: schema, defaults and validation.

:mod:`workloads.services` assigns addresses and ports.

Source: kubernetes/pkg/apis/core/v1/defaults.go, pkg/apis/core/validation and
pkg/registry/core/service/strategy.go (1.37).
"""
import itertools
import json

from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import field_rules
from kubevirt_sandbox.api import metadata

_TYPES = ('ClusterIP', 'ExternalName', 'LoadBalancer', 'NodePort')
_PROTOCOLS = ('SCTP', 'TCP', 'UDP')
_POLICIES = {
    'sessionAffinity': ('ClientIP', 'None'),
    'externalTrafficPolicy': ('Cluster', 'Local'),
    'internalTrafficPolicy': ('Cluster', 'Local'),
    'ipFamilyPolicy': ('PreferDualStack', 'RequireDualStack', 'SingleStack'),
    'trafficDistribution': ('PreferClose', 'PreferSameNode',
                            'PreferSameZone')}

#: Annotation in place of ``loadBalancerSourceRanges``.
_RANGES = 'service.beta.kubernetes.io/load-balancer-source-ranges'

#: Two names of one annotation, the second of which is deprecated.
_MODE = 'service.kubernetes.io/topology-mode'
_HINTS = 'service.kubernetes.io/topology-aware-hints'

_ATOMIC = {'type': 'array', 'items': core_schemas.STRING,
           'x-kubernetes-list-type': 'atomic'}

_BALANCER = {**core_schemas.strict(ingress={
    'type': 'array', 'items': core_schemas.strict(
        ip=core_schemas.STRING, hostname=core_schemas.STRING,
        ipMode=core_schemas.STRING,
        ports={'type': 'array', 'items': core_schemas.ANYTHING}),
    'x-kubernetes-list-type': 'atomic'}), 'default': {}}

SCHEMA = core_schemas.about(core_schemas.strict(
    spec=core_schemas.about(core_schemas.strict(
        ports=core_schemas.about(core_schemas.keyed(core_schemas.strict(
            name=core_schemas.STRING,
            protocol={**core_schemas.STRING, 'default': 'TCP'},
            port=core_schemas.about(core_schemas.INTEGER,
                                    'Port of the Service.'),
            targetPort=core_schemas.about(
                {'x-kubernetes-int-or-string': True},
                'Number or name of the port of the pods.'),
            nodePort={**core_schemas.INTEGER, core_schemas.OMITTED: True},
            appProtocol=core_schemas.STRING),
            'port', 'protocol', patch='port'), 'Ports of the Service.'),
        selector={**core_schemas.TEXTS, 'x-kubernetes-map-type': 'atomic',
                  'description': 'Labels of the pods behind the Service.'},
        type=core_schemas.about({**core_schemas.STRING,
                                 'default': 'ClusterIP'},
                                'How the Service is exposed.'),
        clusterIP=core_schemas.STRING, clusterIPs=_ATOMIC, externalIPs=_ATOMIC,
        externalName=core_schemas.STRING,
        externalTrafficPolicy=core_schemas.STRING,
        internalTrafficPolicy=core_schemas.STRING,
        healthCheckNodePort={**core_schemas.INTEGER,
                             core_schemas.OMITTED: True},
        ipFamilies=_ATOMIC, ipFamilyPolicy=core_schemas.STRING,
        allocateLoadBalancerNodePorts=core_schemas.BOOLEAN,
        loadBalancerClass=core_schemas.STRING,
        loadBalancerIP=core_schemas.STRING,
        loadBalancerSourceRanges=_ATOMIC,
        publishNotReadyAddresses={**core_schemas.BOOLEAN,
                                  core_schemas.OMITTED: True},
        sessionAffinity={**core_schemas.STRING, 'default': 'None'},
        sessionAffinityConfig=core_schemas.strict(
            clientIP=core_schemas.strict(timeoutSeconds=core_schemas.INTEGER)),
        trafficDistribution=core_schemas.STRING),
        'Desired behavior of the Service.'),
    status={**core_schemas.strict(
        conditions=core_schemas.CONDITIONS, loadBalancer=_BALANCER),
        'default': {}}),
    'Service is a named abstraction of software service consisting of local '
    'port that the proxy listens on, and the selector that determines which '
    'pods will answer requests sent through the proxy.')

_addresses = itertools.count(1)


def default(new):
    """Fill in what a Service does not say."""
    spec = new.setdefault('spec', {})
    spec['type'] = kind = spec.get('type') or 'ClusterIP'
    for port in spec.get('ports') or ():
        if isinstance(port, dict):
            port['protocol'] = port.get('protocol') or 'TCP'
            if 'port' in port:
                port['targetPort'] = port.get('targetPort') or port['port']
    spec['sessionAffinity'] = spec.get('sessionAffinity') or 'None'
    if kind != 'ExternalName':
        spec.setdefault('internalTrafficPolicy', 'Cluster')
    if kind in ('NodePort', 'LoadBalancer'):
        spec.setdefault('externalTrafficPolicy', 'Cluster')
    if kind == 'LoadBalancer':
        spec.setdefault('allocateLoadBalancerNodePorts', True)


def complete(admission):
    """Fill in the fields that the control plane sets, such as addresses.

    Fields that are dropped with a changed type stay in managedFields.
    """
    new = admission.new
    if new is None or admission.subresource:
        return
    spec = new.setdefault('spec', {})
    if spec.get('type') == 'ExternalName':
        return
    old = (admission.old or {}).get('spec', {})
    if not spec.get('clusterIP'):
        number = 0 if old.get('clusterIP') else next(_addresses)
        spec['clusterIP'] = old.get('clusterIP') or (
            f'10.96.{number // 250 % 256}.{number % 250 + 1}')
    spec['clusterIPs'] = [spec['clusterIP']]
    spec.setdefault('ipFamilies', ['IPv4'])
    spec.setdefault('ipFamilyPolicy', 'SingleStack')
    kind = spec.get('type', 'ClusterIP')
    if kind not in ('NodePort', 'LoadBalancer'):
        _drop('externalTrafficPolicy', spec, old)
    if kind != 'LoadBalancer':
        _drop('allocateLoadBalancerNodePorts', spec, old)
        _drop('loadBalancerClass', spec, old)
        _drop('healthCheckNodePort', spec, old)


def _drop(field, spec, old):
    """Drop a field of the former type, unless the update changed it."""
    if field in spec and spec[field] == old.get(field):
        del spec[field]


def faults(new, old):
    """List what is wrong with a Service, as :class:`errors.Cause`."""
    found, spec = [], new['spec']
    before = (old or {}).get('spec', {})
    kind, ports = spec.get('type'), spec.get('ports') or []
    field_rules.check(found, 'metadata.name', new['metadata'].get('name', ''),
                      field_rules.label)
    if kind not in _TYPES:
        field_rules.unsupported(found, 'spec.type', kind, _TYPES)
    if not ports and kind != 'ExternalName' and (
            spec.get('clusterIP') != 'None'):
        field_rules.required(found, 'spec.ports')
    names = set()
    for index, port in enumerate(ports):
        _port(found, f'spec.ports[{index}]', port, names, len(ports) > 1)
        if kind == 'ClusterIP' and port.get('nodePort'):
            field_rules.forbidden(
                found, f'spec.ports[{index}].nodePort',
                "may not be used when `type` is 'ClusterIP'")
    for field, where in ('nodePort', '.nodePort'), ('port', ''):
        _duplicates(found, ports, field, where)
    field_rules.labels(found, 'spec.selector', spec.get('selector'))
    for field, supported in _POLICIES.items():
        value = spec.get(field)
        if value is not None and value not in supported:
            field_rules.unsupported(found, f'spec.{field}', value, supported)
    for index, address in enumerate(spec.get('externalIPs') or ()):
        if address not in (before.get('externalIPs') or ()):
            field_rules.check(found, f'spec.externalIPs[{index}]', address,
                              field_rules.external_ip)
    if spec.get('externalTrafficPolicy') in (
            'Cluster', 'Local') and kind == 'ClusterIP' and not spec.get(
                'externalIPs'):
        field_rules.invalid(
            found, 'spec.externalTrafficPolicy',
            spec['externalTrafficPolicy'],
            'may only be set for externally-accessible services')
    if spec.get('allocateLoadBalancerNodePorts') is not None and (
            kind != 'LoadBalancer'):
        field_rules.forbidden(
            found, 'spec.allocateLoadBalancerNodePorts',
            "may only be used when `type` is 'LoadBalancer'")
    if spec.get('healthCheckNodePort') and not (
            kind == 'LoadBalancer'
            and spec.get('externalTrafficPolicy') == 'Local'):
        field_rules.invalid(
            found, 'spec.healthCheckNodePort', spec['healthCheckNodePort'],
            "may only be set when `type` is 'LoadBalancer' and "
            "`externalTrafficPolicy` is 'Local'")
    _source_ranges(found, new, before)
    _topology(found, new['metadata'].get('annotations') or {})
    _class(found, spec, before)
    return found


def _port(found, where, port, names, named):
    """Check a port of a Service.

    :param names: set of the names before it; the port's is added
    :param named: whether the port must have a name
    """
    name = port.get('name', '')
    if not name:
        if named:
            field_rules.required(found, where + '.name')
    else:
        field_rules.check(found, where + '.name', name, field_rules.label)
        if name in names:
            _duplicate(found, where + '.name', name)
    names.add(name)
    field_rules.check(found, where + '.port', port.get('port', 0),
                      field_rules.port)
    field_rules.check(found, where + '.targetPort', port.get('targetPort', 0),
                      field_rules.port_or_name)
    if port.get('protocol') not in _PROTOCOLS:
        field_rules.unsupported(found, where + '.protocol',
                                port.get('protocol'), _PROTOCOLS)
    if port.get('appProtocol') is not None:
        field_rules.check(found, where + '.appProtocol', port['appProtocol'],
                          metadata.key_fault)


def _duplicate(found, field, value):
    found.append(errors.Cause(
        'FieldValueDuplicate', f'Duplicate value: {json.dumps(value)}',
        field))


def _duplicates(found, ports, field, where):
    """Check that no two ports of a protocol have the same number."""
    known = set()
    for index, port in enumerate(ports):
        key = port.get(field), port.get('protocol')
        if key[0] and key in known:
            _duplicate(found, f'spec.ports[{index}]{where}', key[0])
        known.add(key)


def _source_ranges(found, new, before):
    """Check the clients of a load balancer, by field or annotation."""
    spec, field = new['spec'], 'spec.LoadBalancerSourceRanges'
    ranges = spec.get('loadBalancerSourceRanges') or []
    text = (new['metadata'].get('annotations') or {}).get(_RANGES)
    if not ranges:
        if text is None:
            return
        field = f'metadata.annotations[{_RANGES}]'
        ranges = text.split(',') if text.strip() else []
    if spec.get('type') != 'LoadBalancer':
        field_rules.forbidden(found, field, "may only be used when `type` is "
                              "'LoadBalancer'")
    for network in ranges:
        if network not in (before.get('loadBalancerSourceRanges') or ()):
            field_rules.check(found, field, network.strip(),
                              field_rules.cidr)


def _topology(found, annotations):
    """Check that the two names of an annotation have one value."""
    if annotations.get(_HINTS, annotations.get(_MODE)) != annotations.get(
            _MODE, annotations.get(_HINTS)):
        field_rules.invalid(
            found, f'metadata.annotations[{_MODE}]', annotations[_MODE],
            f'must match annotations[{_HINTS}] when both are specified')


def _class(found, spec, before):
    chosen, kind = spec.get('loadBalancerClass'), spec.get('type')
    if chosen and kind != 'LoadBalancer':
        field_rules.forbidden(
            found, 'spec.loadBalancerClass',
            "may only be used when `type` is 'LoadBalancer'")
    elif chosen:
        field_rules.check(found, 'spec.loadBalancerClass', chosen,
                          metadata.key_fault)
    if kind == before.get('type') == 'LoadBalancer' and (
            chosen != before.get('loadBalancerClass')):
        field_rules.invalid(found, 'spec.loadBalancerClass', chosen or '',
                            'may not change once set')
