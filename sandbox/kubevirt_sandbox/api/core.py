# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' core kinds that clients use.

Objects only: workloads are run by ``workloads``, claims are bound by
``volumes``, and quotas are enforced by ``quotas``.
"""
import base64
import binascii
import re

from kubevirt_sandbox.api import accounts
from kubevirt_sandbox.api import bootstrap_roles
from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import crds
from kubevirt_sandbox.api import discovery
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import escalation
from kubevirt_sandbox.api import event_columns
from kubevirt_sandbox.api import event_rules
from kubevirt_sandbox.api import field_rules
from kubevirt_sandbox.api import garbage
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.api import namespaces
from kubevirt_sandbox.api import pod_rules
from kubevirt_sandbox.api import pod_schemas
from kubevirt_sandbox.api import policy_admission
from kubevirt_sandbox.api import quotas
from kubevirt_sandbox.api import reviews
from kubevirt_sandbox.api import roles
from kubevirt_sandbox.api import secret_rules
from kubevirt_sandbox.api import services
from kubevirt_sandbox.api import tables
from kubevirt_sandbox.api import volumes

_AGE = kinds.Column('Age', 'date', '.metadata.creationTimestamp',
                    description=tables.AGE_TEXT)


def _kind(group, version, kind, plural, columns=(), **more):
    return kinds.Kind(group, version, kind, plural, kind.lower(),
                      unconditional_update=True, columns=(*columns, _AGE),
                      **{'generation': False, **more})


def _encode_secret(admission):
    """Move ``stringData`` into ``data``, base64-encoded."""
    new = admission.new
    if new is None:
        return
    _decode('Secret', 'data', new)
    texts = new.pop('stringData', None) or {}
    if texts:
        data = new.setdefault('data', {})
        for name, text in texts.items():
            data[name] = base64.b64encode(text.encode()).decode()
    new['type'] = new.get('type') or 'Opaque'


def _decode_config_map(admission):
    if admission.new is not None:
        _decode('ConfigMap', 'binaryData', admission.new)


def _decode(kind, field, obj):
    """Write base64 values as Go does: without their line breaks.

    :raises errors.ApiError: 400, a value is not base64.
    """
    values = obj.get(field) or {}
    for name, value in values.items():
        try:
            values[name] = base64.b64encode(base64.b64decode(
                re.sub('[\r\n]', '', value), validate=True)).decode()
        except (binascii.Error, ValueError, TypeError):
            raise errors.bad_request(
                f'{kind} in version "v1" cannot be handled as a {kind}: '
                f'illegal base64 data in {field}.{name}') from None


def _count(*names):
    return lambda obj: sum(len(obj.get(n) or {}) for n in names)


def _ready(obj):
    statuses = obj.get('status', {}).get('containerStatuses', [])
    total = len(obj.get('spec', {}).get('containers', []))
    return f'{sum(bool(s.get("ready")) for s in statuses)}/{total}'


def complete_containers(spec):
    """Set the default of ``imagePullPolicy``, in place."""
    for name in ('containers', 'initContainers'):
        for one in spec.get(name) or ():
            image = one.get('image', '').partition('@')
            tag = image[0].rpartition('/')[2].partition(':')[2]
            one.setdefault('imagePullPolicy', 'IfNotPresent'
                           if image[2] or tag not in ('', 'latest')
                           else 'Always')


def _complete_pod(admission):
    new = admission.new
    if new is None or admission.subresource:
        return
    spec = new.setdefault('spec', {})
    complete_containers(spec)
    if admission.operation == 'CREATE':
        spec.setdefault('enableServiceLinks', True)
        for one in (*(spec.get('containers') or ()),
                    *(spec.get('initContainers') or ())):
            resources = one.get('resources') or {}
            if resources.get('limits'):
                resources['requests'] = {
                    **resources['limits'], **(resources.get('requests') or {})}


def _pod_grace(pod, wanted):
    """Return a pod's grace period in seconds; 0 if it is on no node."""
    if not pod.get('spec', {}).get('nodeName') or pod.get(
            'status', {}).get('phase') in ('Succeeded', 'Failed'):
        return 0
    if wanted is None:
        wanted = pod['spec'].get('terminationGracePeriodSeconds', 30)
    return wanted if wanted >= 0 else 1


def _lease_faults(new, old):
    """List what is wrong with a Lease (pkg/apis/coordination/validation)."""
    found, spec = [], new.get('spec') or {}
    for name, least, why in (
            ('leaseDurationSeconds', 1, 'must be greater than 0'),
            ('leaseTransitions', 0, 'must be greater than or equal to 0')):
        if spec.get(name) is not None and spec[name] < least:
            field_rules.invalid(found, f'spec.{name}', spec[name], why)
    return found


def _pod_status(pod):
    """Return the text of column STATUS, in the format of ``kubectl``."""
    if 'deletionTimestamp' in pod['metadata']:
        return 'Terminating'
    status = pod.get('status', {})
    word = status.get('phase', 'Pending')
    for one in status.get('containerStatuses') or ():
        state = one.get('state') or {}
        for kind in ('waiting', 'terminated'):
            word = (state.get(kind) or {}).get('reason') or word
    return word


def _external(obj):
    ingress = obj.get('status', {}).get('loadBalancer', {}).get('ingress')
    if ingress:
        return ','.join(i.get('ip') or i.get('hostname') for i in ingress)
    return '<pending>' if obj['spec'].get(
        'type') == 'LoadBalancer' else '<none>'


def _node_status(obj):
    ready = [c.get('status') for c in obj.get('status', {}).get(
        'conditions', []) if c.get('type') == 'Ready']
    text = 'Ready' if ready == ['True'] else (
        'NotReady' if ready else 'Unknown')
    if obj.get('spec', {}).get('unschedulable'):
        text += ',SchedulingDisabled'
    return text


def _roles(obj):
    prefix = 'node-role.kubernetes.io/'
    return ','.join(sorted(
        label[len(prefix):] for label in obj['metadata'].get('labels', {})
        if label.startswith(prefix))) or '<none>'


def _ports(obj):
    return ','.join(
        f'{p.get("port")}'
        + (f':{p["nodePort"]}' if p.get('nodePort') else '')
        + f'/{p.get("protocol", "TCP")}'
        for p in obj.get('spec', {}).get('ports', [])) or '<none>'


def _text(name, path, priority=0):
    return kinds.Column(name, 'string', path, priority)


NAMESPACE = _kind(
    '', 'v1', 'Namespace', 'namespaces', (_text('Status', '.status.phase'),),
    namespaced=False, short_names=('ns',), status=True,
    schema=core_schemas.NAMESPACE, selectable_fields=('status.phase',),
    mutate=namespaces.activate, validate=namespaces.refuse,
    terminate=namespaces.terminate)
SECRET = _kind(
    '', 'v1', 'Secret', 'secrets', (
        _text('Type', '.type'),
        kinds.Column('Data', 'integer', value=_count('data'))),
    schema=core_schemas.SECRET, mutate=_encode_secret,
    validate=secret_rules.checker(lambda: SECRET),
    selectable_fields=('type',))
CONFIG_MAP = _kind(
    '', 'v1', 'ConfigMap', 'configmaps',
    (kinds.Column('Data', 'integer', value=_count('data', 'binaryData')),),
    short_names=('cm',), schema=core_schemas.CONFIG_MAP,
    mutate=_decode_config_map,
    validate=secret_rules.checker(lambda: CONFIG_MAP))
SERVICE_ACCOUNT = _kind(
    '', 'v1', 'ServiceAccount', 'serviceaccounts',
    (kinds.Column('Secrets', 'integer', value=_count('secrets')),),
    short_names=('sa',), schema=core_schemas.SERVICE_ACCOUNT)
SERVICE = _kind(
    '', 'v1', 'Service', 'services', (
        _text('Type', '.spec.type'),
        _text('Cluster-IP', '.spec.clusterIP'),
        kinds.Column('External-IP', value=_external),
        kinds.Column('Port(s)', value=_ports)),
    short_names=('svc',), categories=('all',), status=True,
    schema=services.SCHEMA, omits=True, default=services.default,
    mutate=services.complete,
    validate=field_rules.checker(lambda: SERVICE, services.faults),
    selectable_fields=('spec.clusterIP', 'spec.type'))
POD = _kind(
    '', 'v1', 'Pod', 'pods', (
        kinds.Column('Ready', value=_ready),
        kinds.Column('Status', value=_pod_status),
        kinds.Column('Restarts', 'integer', value=lambda obj: sum(
            s.get('restartCount', 0) for s in obj.get('status', {}).get(
                'containerStatuses', [])))),
    short_names=('po',), categories=('all',), status=True,
    generation=True, schema=pod_schemas.POD, omits=True, grace=_pod_grace,
    mutate=_complete_pod,
    validate=field_rules.checker(lambda: POD, pod_rules.pod_faults),
    selectable_fields=('spec.nodeName', 'spec.restartPolicy',
                       'spec.schedulerName', 'spec.serviceAccountName',
                       'status.phase', 'status.podIP'))
NODE = _kind(
    '', 'v1', 'Node', 'nodes', (
        kinds.Column('Status', value=_node_status),
        kinds.Column('Roles', value=_roles)),
    namespaced=False, status=True, short_names=('no',),
    schema=core_schemas.NODE,
    selectable_fields=('spec.unschedulable',))
CLAIM = _kind(
    '', 'v1', 'PersistentVolumeClaim', 'persistentvolumeclaims', (
        _text('Status', '.status.phase'),
        _text('Volume', '.spec.volumeName'),
        _text('Capacity', '.status.capacity.storage'),
        _text('Access Modes', '.status.accessModes[*]'),
        _text('StorageClass', '.spec.storageClassName')),
    short_names=('pvc',), status=True, schema=core_schemas.CLAIM,
    mutate=volumes.complete, validate=volumes.refuse)
EVENT = _kind(
    '', 'v1', 'Event', 'events', short_names=('ev',), path_names=True,
    schema=core_schemas.EVENT, selectable_fields=event_columns.FIELDS,
    validate=event_rules.checker(lambda: EVENT))
EVENT.columns = event_columns.COLUMNS
LEASE = _kind(
    'coordination.k8s.io', 'v1', 'Lease', 'leases',
    (_text('Holder', '.spec.holderIdentity'),), schema=core_schemas.LEASE,
    validate=field_rules.checker(lambda: LEASE, _lease_faults))

KINDS = (NAMESPACE, SECRET, CONFIG_MAP, SERVICE_ACCOUNT, SERVICE, POD, NODE,
         CLAIM, volumes.STORAGE_CLASS, quotas.QUOTA, EVENT, LEASE,
         *roles.KINDS)


def _make_node(store, name):
    store.create(NODE, {'metadata': {'name': name, 'labels': {
        'kubernetes.io/hostname': name, 'kubernetes.io/os': 'linux',
        'kubernetes.io/arch': 'amd64'}}, 'spec': {}}, manager='kubelet')
    now = metadata.now()

    def be_ready(node):
        node['status'] = {
            'addresses': [{'type': 'Hostname', 'address': name}],
            'conditions': [{
                'type': 'Ready', 'status': 'True', 'reason': 'KubeletReady',
                'message': 'kubelet is posting ready status',
                'lastHeartbeatTime': now, 'lastTransitionTime': now}],
            'nodeInfo': {'architecture': 'amd64', 'operatingSystem': 'linux',
                         'kubeletVersion': discovery.VERSION[2]}}
    store.change(NODE, '', name, be_ready, subresource='status',
                 manager='kubelet')


def install(server, storage=None, nodes=1):
    """Register the core kinds and create the objects of every cluster.

    Garbage collection, the life of namespaces and CustomResourceDefinitions
    come with them.

    :param server: a :class:`server.Server`.
    :param storage: keeps what claims hold, see
        :class:`volumes.Provisioner`; or None.
    :param nodes: number of nodes, node-0, node-1, …
    """
    for kind in KINDS:
        server.register_kind(kind)
    store = server.store
    namespaces.Lifecycle(server, NAMESPACE, SERVICE_ACCOUNT, CONFIG_MAP)
    garbage.Collector(server)
    crds.Definitions(server)
    server.quotas = quotas.Quotas(server)
    server.provisioner = volumes.Provisioner(server, CLAIM, storage)
    server.accounts = accounts.Accounts(server, NAMESPACE, SERVICE_ACCOUNT,
                                        SECRET, POD, NODE)
    roles.Aggregation(server)
    bootstrap_roles.install(store)
    escalation.Check(server)
    policy_admission.PolicyAdmission(server, NAMESPACE)
    reviews.install(server)
    for name in namespaces.PERMANENT:
        store.create(NAMESPACE, {'metadata': {'name': name}})
    for number in range(nodes):
        _make_node(store, f'node-{number}')
    store.create(SERVICE, {
        'metadata': {'name': 'kubernetes', 'namespace': 'default', 'labels': {
            'component': 'apiserver', 'provider': 'kubernetes'}},
        'spec': {'ports': [{'name': 'https', 'port': 443,
                            'targetPort': 6443}]}})
