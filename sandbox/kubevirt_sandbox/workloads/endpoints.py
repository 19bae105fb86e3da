# SPDX-License-Identifier: Apache-2.0
"""Endpoints and EndpointSlices: the pods behind a service.

Source: kubernetes/pkg/controller/{endpoint,endpointslice} (1.36).
"""

from kubevirt_sandbox.api import core
from kubevirt_sandbox.kubevirt import workqueue
from kubevirt_sandbox.workloads import index
from kubevirt_sandbox.workloads import owner_references
from kubevirt_sandbox.workloads import podstate
from kubevirt_sandbox.workloads import probes
from kubevirt_sandbox.workloads import workload_kinds

SERVICE_NAME = 'kubernetes.io/service-name'

_MANAGER = 'kube-controller-manager'
_MANAGED_BY = 'endpointslice.kubernetes.io/managed-by'


def selected(service, pod):
    """Tell whether a service selects a pod."""
    selector = service['spec'].get('selector')
    return bool(selector) and selector.items() <= (
        pod['metadata'].get('labels') or {}).items()


def _first(service):
    """Return one label of a service's selector, as an index key.

    The last one: labels of applications, which many pods have, begin with an
    "a".
    """
    return (service['metadata']['namespace'],
            *max(service['spec']['selector'].items()))


def target(port, pod):
    """Return the port number of a pod for a port of a service.

    :param port: one of ``spec.ports`` of the service.
    :returns: the number, or None.
    """
    wanted = port.get('targetPort', port['port'])
    for container in pod['spec'].get('containers') or ():
        number = probes.port_of(wanted, container)
        if number is not None:
            return number
    return None


def subsets(service, pods):
    """List the endpoints of a service.

    :param pods: the selected pods that have an address.
    :returns: list of (ports, pods), each group of pods with the same ports;
        a port is a dict as in an EndpointSlice.
    """
    groups = {}
    for pod in pods:
        ports = []
        for port in service['spec'].get('ports') or ():
            number = target(port, pod)
            if number is not None:
                ports.append((port.get('name', ''), number,
                              port.get('protocol', 'TCP')))
        groups.setdefault(tuple(ports), []).append(pod)
    return [([{'name': name, 'port': number, 'protocol': protocol}
              for name, number, protocol in ports], members)
            for ports, members in sorted(groups.items())]


class Controller:
    """Writes the EndpointSlices of services.

    :param store: the store.
    :param loop: the asyncio loop.
    :param lag: maximum delay of each reconciliation in seconds.
    """

    def __init__(self, store, loop, lag=0):
        self._store = store
        self._queue = workqueue.WorkQueue(loop, self._sync, 'endpoints', lag)
        self._pods = index.by_labels(store, core.POD)
        self._services = index.Index(
            store, core.SERVICE, lambda service: (_first(service),)
            if service['spec'].get('selector') else ())
        self._ends = [self._pods.close, self._services.close,
                      store.subscribe(core.SERVICE, self._on_event),
                      store.subscribe(core.POD, self._on_pod)]

    def close(self):
        """Stop the controller."""
        for end in self._ends:
            end()
        self._queue.close()

    def _on_event(self, type_, service, old):
        self._queue.add((service['metadata']['namespace'],
                         service['metadata']['name']))

    def _on_pod(self, type_, pod, old):
        pairs = {
            (pod['metadata']['namespace'], *pair) for one in (pod, old) if one
            for pair in (one['metadata'].get('labels') or {}).items()}
        for service in self._services.get(*pairs):
            if selected(service, pod) or (old and selected(service, old)):
                self._on_event(type_, service, None)

    def _sync(self, key):
        service = self._store.find(core.SERVICE, *key)
        if service is None:
            # The slices have it as their owner.
            if self._store.find(workload_kinds.ENDPOINTS, *key):
                self._store.delete(workload_kinds.ENDPOINTS, *key)
            return
        if not service['spec'].get(
                'selector') or owner_references.ends(service):
            return
        pods = [p for p in self._pods.get(_first(service))
                if selected(service, p) and not podstate.has_ended(p)
                and (p.get('status') or {}).get('podIP')]
        found = subsets(service, pods)
        self._write_slices(service, key, found)
        self._write_endpoints(service, key, found)

    def _write_slices(self, service, key, found):
        for number, (ports, pods) in enumerate(found or [([], [])]):
            content = {
                'addressType': 'IPv4',
                'ports': ports,
                'endpoints': [
                    {
                        'addresses': [p['status']['podIP']],
                        'nodeName': p['spec'].get('nodeName', ''),
                        'conditions': {
                            'ready': podstate.ready(p)
                            and not owner_references.ends(p),
                            'serving': podstate.ready(p),
                            'terminating': owner_references.ends(p),
                        },
                        'targetRef': _reference(p),
                    }
                    for p in pods
                ],
            }
            name = _slice_name(key, number)
            if self._store.find(
                    workload_kinds.ENDPOINT_SLICE, key[0], name) is None:
                self._store.create(
                    workload_kinds.ENDPOINT_SLICE,
                    {
                        'metadata': {
                            'name': name,
                            'namespace': key[0],
                            'labels': {
                                SERVICE_NAME: key[1],
                                _MANAGED_BY: 'endpointslice-controller.k8s.io',
                            },
                            'ownerReferences': [
                                owner_references.reference(service)
                            ],
                        },
                        **content,
                    },
                    manager=_MANAGER,
                )
            else:
                self._store.change(
                    workload_kinds.ENDPOINT_SLICE, key[0], name,
                    lambda one, content=content: one.update(content),
                    manager=_MANAGER)
        number = max(len(found), 1)
        while self._store.find(workload_kinds.ENDPOINT_SLICE, key[0],
                               _slice_name(key, number)):
            self._store.delete(workload_kinds.ENDPOINT_SLICE, key[0],
                               _slice_name(key, number))
            number += 1

    def _write_endpoints(self, service, key, found):
        content = []
        for ports, pods in found:
            subset = {'ports': [
                {k: v for k, v in port.items() if v != ''}
                for port in ports]}
            for name, ready in (('addresses', True),
                                ('notReadyAddresses', False)):
                addresses = [
                    {
                        'ip': p['status']['podIP'],
                        'nodeName': p['spec'].get('nodeName', ''),
                        'targetRef': _reference(p),
                    }
                    for p in pods
                    if podstate.ready(p) == ready
                    and not owner_references.ends(p)
                ]
                if addresses:
                    subset[name] = addresses
            if len(subset) > 1:
                content.append(subset)
        if self._store.find(workload_kinds.ENDPOINTS, *key) is None:
            self._store.create(workload_kinds.ENDPOINTS, {
                'metadata': {
                    'name': key[1], 'namespace': key[0], 'labels': dict(
                        service['metadata'].get('labels') or {})},
                'subsets': content}, manager=_MANAGER)
        else:
            self._store.change(
                workload_kinds.ENDPOINTS, *key,
                lambda one: one.update(subsets=content), manager=_MANAGER)


def _reference(pod):
    meta = pod['metadata']
    return {'kind': 'Pod', 'namespace': meta['namespace'],
            'name': meta['name'], 'uid': meta['uid']}


def _slice_name(key, number):
    return f'{key[1]}-{number}'
