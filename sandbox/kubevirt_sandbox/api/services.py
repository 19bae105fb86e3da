# SPDX-License-Identifier: Apache-2.0
"""Services as objects: schema, defaults and validation.

:mod:`workloads.services` assigns addresses and ports.

Source: kubernetes/pkg/apis/core/v1/defaults.go, pkg/apis/core/validation and
pkg/registry/core/service/strategy.go (1.36).
"""
import itertools
import re

from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import errors

_TYPES = ('ClusterIP', 'ExternalName', 'LoadBalancer', 'NodePort')
_PROTOCOLS = ('SCTP', 'TCP', 'UDP')
_LABEL = re.compile(r'[a-z]([-a-z0-9]*[a-z0-9])?')

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
    kind = spec.get('type', 'ClusterIP')
    for port in spec.get('ports') or ():
        if isinstance(port, dict) and 'port' in port:
            port.setdefault('targetPort', port['port'])
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


def _drop(field, spec, old):
    """Drop a field of the former type, unless the update changed it."""
    if field in spec and spec[field] == old.get(field):
        del spec[field]


def _fault(found, field, value, why, reason='FieldValueInvalid'):
    shown = f'"{value}"' if isinstance(value, str) else value
    found.append(errors.Cause(reason, f'Invalid value: {shown}: {why}',
                              field))


def validator(kind):
    """Make the hook that refuses invalid Services.

    :param kind: function that returns the Kind.
    """
    def check(admission):
        new = admission.new
        if new is None or admission.subresource:
            return
        found = faults(new, admission.old)
        if found:
            raise errors.invalid(kind(), new['metadata'].get('name'), found)
    return check


def faults(new, old):
    """List what is wrong with a Service, as :class:`errors.Cause`."""
    found, spec, name = [], new['spec'], new['metadata'].get('name', '')
    before = (old or {}).get('spec', {})
    if not _LABEL.fullmatch(name) or len(name) > 63:
        _fault(found, 'metadata.name', name, 'a DNS-1035 label must consist '
               'of lower case alphanumeric characters or \'-\', start with '
               'an alphabetic character, and end with an alphanumeric '
               'character (e.g. \'my-name\',  or \'abc-123\', regex used for '
               'validation is \'[a-z]([-a-z0-9]*[a-z0-9])?\')')
    kind, ports = spec.get('type'), spec.get('ports') or []
    if kind not in _TYPES:
        found.append(errors.Cause(
            'FieldValueNotSupported', f'Unsupported value: "{kind}": '
            'supported values: ' + ', '.join(f'"{t}"' for t in _TYPES),
            'spec.type'))
    if not ports and kind != 'ExternalName' and (
            spec.get('clusterIP') != 'None'):
        found.append(errors.Cause('FieldValueRequired', 'Required value',
                                  'spec.ports'))
    names = set()
    for index, port in enumerate(ports):
        where = f'spec.ports[{index}]'
        called = port.get('name', '')
        if not called and len(ports) > 1:
            found.append(errors.Cause('FieldValueRequired', 'Required value',
                                      where + '.name'))
        elif called and called in names:
            found.append(errors.Cause(
                'FieldValueDuplicate', f'Duplicate value: "{called}"',
                where + '.name'))
        names.add(called)
        for field in ('port', 'targetPort'):
            value = port.get(field, 0)
            if isinstance(value, int) and not 0 < value < 65536:
                _fault(found, f'{where}.{field}', value,
                       'must be between 1 and 65535, inclusive')
        if port.get('protocol') not in _PROTOCOLS:
            found.append(errors.Cause(
                'FieldValueNotSupported', 'Unsupported value: '
                f'"{port.get("protocol")}": supported values: '
                + ', '.join(f'"{p}"' for p in _PROTOCOLS),
                where + '.protocol'))
    chosen = spec.get('loadBalancerClass')
    if chosen and kind != 'LoadBalancer':
        found.append(errors.Cause(
            'FieldValueForbidden', 'Forbidden: may only be used when `type` '
            'is \'LoadBalancer\'', 'spec.loadBalancerClass'))
    if kind == before.get('type') == 'LoadBalancer' and (
            chosen != before.get('loadBalancerClass')):
        _fault(found, 'spec.loadBalancerClass', chosen or '',
               'may not change once set')
    return found
