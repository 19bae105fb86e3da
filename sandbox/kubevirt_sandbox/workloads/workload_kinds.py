# SPDX-License-Identifier: Apache-2.0
"""The kinds of workloads: Deployments, ReplicaSets, endpoints.

Pods and Services are core kinds. Validation and defaults follow
kubernetes/pkg/apis/apps (1.36).
"""

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import field_rules
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import labels
from kubevirt_sandbox.api import network_rules
from kubevirt_sandbox.api import pod_rules
from kubevirt_sandbox.api import pod_schemas

_AGE = kinds.Column('Age', 'date', '.metadata.creationTimestamp')
_NUMBER_OR_SHARE = {'x-kubernetes-int-or-string': True}


def _number(*path):
    def value(obj):
        for name in path:
            obj = (obj or {}).get(name)
        return obj or 0
    return value


def _column(name, *path, priority=0):
    return kinds.Column(name, 'integer', value=_number(*path),
                        priority=priority)


def _containers(obj):
    return ','.join(c['name'] for c in obj['spec']['template']['spec'].get(
        'containers', ()))


def _images(obj):
    return ','.join(c.get('image', '') for c in obj['spec']['template'][
        'spec'].get('containers', ()))


def _selector(obj):
    return labels.text(obj['spec'].get('selector'))


_WIDE = (kinds.Column('Containers', value=_containers, priority=1),
         kinds.Column('Images', value=_images, priority=1),
         kinds.Column('Selector', value=_selector, priority=1))


def _ready(obj):
    return (f'{obj.get("status", {}).get("readyReplicas", 0)}/'
            f'{obj["spec"].get("replicas", 0)}')


def _complete_template(admission):
    new = admission.new
    if new is not None and not admission.subresource:
        template = (new.get('spec') or {}).get('template') or {}
        core.complete_containers(template.get('spec') or {})


def _default(new):
    """Fill in the defaults of a Deployment."""
    spec = new.setdefault('spec', {})
    strategy = spec.setdefault('strategy', {})
    strategy.setdefault('type', 'RollingUpdate')
    if strategy['type'] == 'RollingUpdate':
        rolling = strategy.setdefault('rollingUpdate', {})
        rolling.setdefault('maxUnavailable', '25%')
        rolling.setdefault('maxSurge', '25%')
    spec.setdefault('revisionHistoryLimit', 10)
    spec.setdefault('progressDeadlineSeconds', 600)


def _check(kind):
    def check(admission):
        new = admission.new
        if new is None or admission.subresource:
            return
        causes, spec = [], new.get('spec') or {}
        template = spec.get('template') or {}
        selector = spec.get('selector') or {}
        has = (template.get('metadata') or {}).get('labels') or {}
        if not labels.has_requirements(selector):
            causes.append(errors.Cause(
                'FieldValueRequired', 'Required value', 'spec.selector'))
        elif not labels.matches(selector, has):
            causes.append(errors.Cause(
                'FieldValueInvalid', f'Invalid value: {has}: `selector` '
                'does not match template `labels`',
                'spec.template.metadata.labels'))
        if admission.old and admission.old['spec'].get(
                'selector') != selector:
            causes.append(errors.Cause(
                'FieldValueInvalid', f'Invalid value: {selector}: field is '
                'immutable', 'spec.selector'))
        pod_rules.template(causes, 'spec.template', template)
        policy = (template.get('spec') or {}).get('restartPolicy')
        if policy not in (None, 'Always'):
            causes.append(errors.Cause(
                'FieldValueNotSupported', f'Unsupported value: "{policy}": '
                'supported values: "Always"',
                'spec.template.spec.restartPolicy'))
        if spec.get('replicas', 1) < 0:
            causes.append(errors.Cause(
                'FieldValueInvalid', f'Invalid value: {spec["replicas"]}: '
                'must be greater than or equal to 0', 'spec.replicas'))
        strategy = spec.get('strategy') or {}
        if strategy.get('type', 'RollingUpdate') not in (
                'Recreate', 'RollingUpdate'):
            causes.append(errors.Cause(
                'FieldValueNotSupported', 'Unsupported value: '
                f'"{strategy["type"]}": supported values: "Recreate", '
                '"RollingUpdate"', 'spec.strategy.type'))
        elif strategy.get('type') == 'Recreate' and strategy.get(
                'rollingUpdate') is not None:
            causes.append(errors.Cause(
                'FieldValueForbidden', 'Forbidden: may not be specified '
                'when strategy `type` is \'Recreate\'',
                'spec.strategy.rollingUpdate'))
        if causes:
            raise errors.invalid(kind(), new['metadata'].get('name'), causes)
    return check


_COUNTS = {name: core_schemas.INTEGER for name in (
    'replicas', 'updatedReplicas', 'readyReplicas', 'availableReplicas',
    'unavailableReplicas', 'fullyLabeledReplicas', 'terminatingReplicas',
    'observedGeneration', 'collisionCount')}

DEPLOYMENT = kinds.Kind(
    'apps', 'v1', 'Deployment', 'deployments', 'deployment', ('deploy',),
    ('all',), status=True, unconditional_update=True, omits=True,
    columns=(kinds.Column('Ready', value=_ready),
             _column('Up-to-date', 'status', 'updatedReplicas'),
             _column('Available', 'status', 'availableReplicas'), _AGE,
             *_WIDE),
    schema=core_schemas.about(core_schemas.strict(
        spec=core_schemas.strict(
            replicas={**core_schemas.INTEGER, 'default': 1},
            selector=core_schemas.SELECTOR, template=pod_schemas.TEMPLATE,
            strategy=core_schemas.strict(
                type=core_schemas.STRING, rollingUpdate=core_schemas.strict(
                    maxSurge=_NUMBER_OR_SHARE,
                    maxUnavailable=_NUMBER_OR_SHARE)),
            minReadySeconds=pod_schemas.NUMBER, paused=pod_schemas.FLAG,
            revisionHistoryLimit=core_schemas.INTEGER,
            progressDeadlineSeconds=core_schemas.INTEGER),
        status=core_schemas.thing(conditions=core_schemas.CONDITIONS,
                                  **_COUNTS)),
        'Deployment enables declarative updates for Pods and ReplicaSets.'),
    default=_default, mutate=_complete_template,
    validate=_check(lambda: DEPLOYMENT))

REPLICA_SET = kinds.Kind(
    'apps', 'v1', 'ReplicaSet', 'replicasets', 'replicaset', ('rs',),
    ('all',), status=True, unconditional_update=True, omits=True,
    columns=(_column('Desired', 'spec', 'replicas'),
             _column('Current', 'status', 'replicas'),
             _column('Ready', 'status', 'readyReplicas'), _AGE, *_WIDE),
    selectable_fields=('status.replicas',),
    schema=core_schemas.about(core_schemas.strict(
        spec=core_schemas.strict(
            replicas={**core_schemas.INTEGER, 'default': 1},
            selector=core_schemas.SELECTOR, template=pod_schemas.TEMPLATE,
            minReadySeconds=pod_schemas.NUMBER),
        status=core_schemas.thing(conditions=core_schemas.CONDITIONS,
                                  **_COUNTS)),
        'ReplicaSet ensures that a specified number of pod replicas are '
        'running at any given time.'),
    mutate=_complete_template, validate=_check(lambda: REPLICA_SET))


def _slice_ports(obj):
    return ','.join(str(p.get('port')) for p in obj.get('ports') or ()) or (
        '<unset>')


def _slice_addresses(obj):
    return ','.join(a for e in obj.get('endpoints') or ()
                    for a in e.get('addresses') or ()) or '<unset>'


def _endpoints_text(obj):
    return ','.join(
        f'{a.get("ip")}:{p.get("port")}' for s in obj.get('subsets') or ()
        for a in s.get('addresses') or ()
        for p in s.get('ports') or ()) or '<none>'


_ANY_LIST = {'type': 'array', 'items': core_schemas.ANYTHING,
             'x-kubernetes-list-type': 'atomic'}

ENDPOINTS = kinds.Kind(
    '', 'v1', 'Endpoints', 'endpoints', 'endpoints', ('ep',),
    generation=False, unconditional_update=True,
    columns=(kinds.Column('Endpoints', value=_endpoints_text), _AGE),
    schema=core_schemas.about(
        core_schemas.strict(subsets=_ANY_LIST),
        'Endpoints is a collection of endpoints that implement the actual '
        'service.'))

ENDPOINT_SLICE = kinds.Kind(
    'discovery.k8s.io', 'v1', 'EndpointSlice', 'endpointslices',
    'endpointslice', unconditional_update=True,
    columns=(kinds.Column('AddressType', 'string', '.addressType'),
             kinds.Column('Ports', value=_slice_ports),
             kinds.Column('Endpoints', value=_slice_addresses), _AGE),
    schema=core_schemas.about(
        core_schemas.strict(addressType=core_schemas.STRING,
                            endpoints=_ANY_LIST,
                            ports=_ANY_LIST),
        'EndpointSlice represents a set of service endpoints.'))

SERVICE_CIDR = kinds.Kind(
    'networking.k8s.io', 'v1', 'ServiceCIDR', 'servicecidrs', 'servicecidr',
    namespaced=False, status=True,
    columns=(kinds.Column('CIDRs', value=lambda obj: ','.join(
        obj['spec'].get('cidrs') or ())), _AGE),
    schema=core_schemas.about(
        core_schemas.strict(
            spec=core_schemas.strict(cidrs={
                'type': 'array', 'items': core_schemas.STRING}),
            status=core_schemas.thing()),
        'ServiceCIDR defines a range of IP addresses using CIDR format (e.g. '
        '192.168.0.0/24 or 2001:db2::/64).'))

_POLICY_PORTS = {'type': 'array', 'items': core_schemas.strict(
    protocol={**core_schemas.STRING, 'default': 'TCP'},
    port=_NUMBER_OR_SHARE, endPort=core_schemas.INTEGER)}
_PEERS = {'type': 'array', 'items': core_schemas.strict(
    podSelector=core_schemas.SELECTOR,
    namespaceSelector=core_schemas.SELECTOR,
    ipBlock=core_schemas.strict(**{
        'cidr': core_schemas.STRING, 'except': core_schemas.STRINGS}))}


def _policy_rules(side):
    return {'type': 'array', 'x-kubernetes-list-type': 'atomic',
            'items': core_schemas.strict(
                **{'ports': _POLICY_PORTS, side: _PEERS})}


# An object only: nothing between processes of one machine is kept apart.
NETWORK_POLICY = kinds.Kind(
    'networking.k8s.io', 'v1', 'NetworkPolicy', 'networkpolicies',
    'networkpolicy', ('netpol',), unconditional_update=True,
    columns=(kinds.Column('Pod-Selector', value=lambda obj: labels.text(
        (obj.get('spec') or {}).get('podSelector'))), _AGE),
    schema=core_schemas.about(
        core_schemas.strict(spec=core_schemas.strict(
            podSelector=core_schemas.SELECTOR, ingress=_policy_rules('from'),
            egress=_policy_rules('to'), policyTypes={
                'type': 'array', 'items': core_schemas.STRING,
                'x-kubernetes-list-type': 'atomic'})),
        'NetworkPolicy describes what network traffic is allowed for a set '
        'of Pods'),
    default=network_rules.default_policy,
    validate=field_rules.checker(lambda: NETWORK_POLICY,
                                 network_rules.policy_faults))


def _hosts(obj):
    return ','.join(rule['host'] for rule in (obj.get('spec') or {}).get(
        'rules') or () if rule.get('host')) or '*'


# Stored only: there is no controller of Ingresses.
INGRESS = kinds.Kind(
    'networking.k8s.io', 'v1', 'Ingress', 'ingresses', 'ingress', ('ing',),
    status=True, unconditional_update=True,
    columns=(kinds.Column('Class', jsonPath='.spec.ingressClassName'),
             kinds.Column('Hosts', value=_hosts), _AGE),
    schema=core_schemas.about(
        core_schemas.strict(
            spec=core_schemas.strict(
                ingressClassName=core_schemas.STRING,
                defaultBackend=core_schemas.ANYTHING, rules=_ANY_LIST,
                tls=_ANY_LIST),
            status=core_schemas.thing()),
        'Ingress is a collection of rules that allow inbound connections to '
        'reach the endpoints defined by a backend.'),
    validate=field_rules.checker(lambda: INGRESS,
                                 network_rules.ingress_faults))


def _bound(name):
    return lambda obj: str((obj.get('spec') or {}).get(name, 'N/A'))


DISRUPTION_BUDGET = kinds.Kind(
    'policy', 'v1', 'PodDisruptionBudget', 'poddisruptionbudgets',
    'poddisruptionbudget', ('pdb',), status=True, unconditional_update=True,
    columns=(kinds.Column('Min Available', value=_bound('minAvailable')),
             kinds.Column('Max Unavailable', value=_bound('maxUnavailable')),
             _column('Allowed Disruptions', 'status', 'disruptionsAllowed'),
             _AGE),
    schema=core_schemas.about(
        core_schemas.strict(
            spec=core_schemas.strict(
                minAvailable=_NUMBER_OR_SHARE,
                maxUnavailable=_NUMBER_OR_SHARE,
                selector=core_schemas.SELECTOR,
                unhealthyPodEvictionPolicy=core_schemas.STRING),
            status=core_schemas.thing()),
        'PodDisruptionBudget is an object to define the max disruption that '
        'can be caused to a collection of pods'))

KINDS = (DEPLOYMENT, REPLICA_SET, ENDPOINTS, ENDPOINT_SLICE, NETWORK_POLICY,
         INGRESS, DISRUPTION_BUDGET, SERVICE_CIDR)
