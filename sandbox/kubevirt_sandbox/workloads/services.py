# SPDX-License-Identifier: Apache-2.0
"""Services: opens addresses and ports that forward to ready pods.

A service has an address of 127.53.0.0/16; with NodePort its ports are open
on the nodes' addresses of 127.55.0.0/16, too, and with LoadBalancer on an
address of 127.56.0.0/16. A service with a ``loadBalancerClass`` gets no
address of a load balancer here. An event reports a port that cannot be opened,
for example for lack of privileges.

Source: kubernetes/pkg/registry/core/service (1.36).
"""

import asyncio
import logging

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.kubevirt import events
from kubevirt_sandbox.workloads import addresses
from kubevirt_sandbox.workloads import endpoints
from kubevirt_sandbox.workloads import forwarding
from kubevirt_sandbox.workloads import index
from kubevirt_sandbox.workloads import owner_references
from kubevirt_sandbox.workloads import workload_kinds

LOG = logging.getLogger(__name__)

NODE_PORTS = range(30000, 32768)

_MANAGER = 'kube-proxy'
_API = ('default', 'kubernetes')
_OPEN = {'TCP': forwarding.Tcp, 'UDP': forwarding.Udp}


def targets(slices):
    """Return the backends of each port of a service.

    :param slices: the service's EndpointSlices.
    :returns: ``{name of the port: [(address, port), …]}``
    """
    found = {}
    for one in slices:
        for port in one.get('ports') or ():
            for endpoint in one.get('endpoints') or ():
                if (endpoint.get('conditions') or {}).get('ready', True):
                    found.setdefault(port.get('name') or '', []).extend(
                        (address, port['port'])
                        for address in endpoint.get('addresses') or ())
    return found


def _keep_node_ports(ports, old):
    """Give ports without a node port what they had before, in place."""
    before = {(p.get('port'), p.get('protocol', 'TCP')): p.get('nodePort')
              for p in old.get('ports') or ()}
    taken = {port.get('nodePort') for port in ports}
    for port in ports:
        kept = before.get((port.get('port'), port.get('protocol', 'TCP')))
        if kept and not port.get('nodePort') and kept not in taken:
            port['nodePort'] = kept


def _check_node_port(service, index, number, used):
    """Refuse the node port of a Service's port if it cannot have it.

    :param used: the node ports of others
    :raises errors.ApiError: 422
    """
    if number in NODE_PORTS and number not in used:
        return
    why = ('provided port is already allocated' if number in NODE_PORTS
           else 'provided port is not in the valid range. The range of valid '
           f'ports is {NODE_PORTS.start}-{NODE_PORTS.stop - 1}')
    raise errors.invalid(
        core.SERVICE, service['metadata'].get('name', ''), [errors.Cause(
            'FieldValueInvalid', f'Invalid value: {number}: {why}',
            f'spec.ports[{index}].nodePort')])


class Services:
    """Assigns addresses and opens ports.

    :param store: the store.
    :param recorder: an :class:`events.Recorder`.
    :param hosts: function that returns the addresses of all nodes.
    :param closed: addresses are given, no ports opened.
    """

    def __init__(self, store, recorder, hosts, closed=False):
        self._store = store
        self._recorder = recorder
        self._hosts = hosts
        self._closed = closed
        self._services = addresses.Pool(addresses.SERVICES)
        self._balancers = addresses.Pool(addresses.BALANCERS)
        self._given = {}
        self._ports = {}
        self._dirty = {}
        self._refused = set()
        self._wake = asyncio.Event()
        self._task = None
        store.gates.append(self._gate)
        self._slices = index.by_labels(store, workload_kinds.ENDPOINT_SLICE)
        self._ends = [
            self._slices.close,
            store.subscribe(core.SERVICE, self._on_event),
            store.subscribe(workload_kinds.ENDPOINT_SLICE, self._on_slice),
        ]
        for service in store.list(core.SERVICE):
            self._replace_address(service)

    async def start(self):
        """Start to open ports."""
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def stop(self):
        """Close all ports."""
        for end in self._ends:
            end()
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for port in self._ports.values():
            await port.close()
        self._services.close()
        self._balancers.close()

    def _replace_address(self, service):
        """Replace the address of a service created before the controller."""
        meta = service['metadata']

        def change(new):
            new['spec']['clusterIP'] = self._services.peek()
        if service['spec'].get('clusterIP') not in (None, 'None'):
            self._on_event('ADDED', self._store.change(
                core.SERVICE, meta['namespace'], meta['name'], change), None)

    # -- admission --------------------------------------------------------

    def _gate(self, kind, admission):
        """Assign an address and node ports to a service that is written."""
        new = admission.new
        if kind is not core.SERVICE or new is None or admission.subresource:
            return
        spec = new.setdefault('spec', {})
        old = (admission.old or {}).get('spec', {})
        if spec.get('type') == 'ExternalName':
            return
        name = new['metadata'].get('name', '')
        address, before = spec.get('clusterIP'), old.get('clusterIP')
        if not address:
            spec['clusterIP'] = before or self._services.peek()
        elif address not in (before, 'None'):
            why = self._unfit(address, before)
            if why:
                raise errors.invalid(core.SERVICE, name, [errors.Cause(
                    'FieldValueInvalid', f'Invalid value: "{address}": '
                    f'{why}', 'spec.clusterIP')])
        self._assign_node_ports(new, old)

    def _unfit(self, address, before):
        """Describe why a service cannot have an address, or return ''."""
        if before and self._services.belongs(before):
            return 'field is immutable'
        if address in self._services:
            return 'provided IP is already allocated'
        if not self._services.belongs(address):
            return 'the provided network is not 127.53.0.0/16'
        return ''

    def _assign_node_ports(self, new, old):
        spec = new['spec']
        if spec.get('type') not in ('NodePort', 'LoadBalancer'):
            # Those of the former type; validation refuses others.
            former = {p.get('nodePort') for p in old.get('ports') or ()}
            for port in spec.get('ports') or ():
                if isinstance(port, dict) and port.get('nodePort') in former:
                    port.pop('nodePort', None)
            return
        if spec['type'] == 'LoadBalancer' and spec.get(
                'allocateLoadBalancerNodePorts') is False:
            return
        uid = new['metadata'].get('uid')
        used = {p.get('nodePort') for s in self._store.list(core.SERVICE)
                if s['metadata']['uid'] != uid
                for p in s['spec'].get('ports') or ()}
        ports = [port for port in spec.get('ports') or ()
                 if isinstance(port, dict)]
        _keep_node_ports(ports, old)
        before = {p.get('nodePort') for p in old.get('ports') or ()}
        taken, by_port = set(), {}
        for at, port in enumerate(ports):
            # Two protocols of a port share its node port if one is to be
            # chosen; an update may say so of any two ports.
            same = [p['nodePort'] for p in ports if p.get('nodePort')
                    and p.get('port') == port.get('port')]
            wanted = port.get('nodePort') or (same[0] if same else None)
            shared = taken if old else {by_port.get(port.get('port'))}
            if wanted and wanted not in before | shared:
                _check_node_port(new, at, wanted, used | taken)
            port['nodePort'] = wanted or next(
                n for n in NODE_PORTS if n not in used | before | taken)
            taken.add(port['nodePort'])
            by_port.setdefault(port.get('port'), port['nodePort'])

    # -- open ports -------------------------------------------------------

    def _on_event(self, type_, service, old):
        uid = service['metadata']['uid']
        key = (service['metadata']['namespace'], service['metadata']['name'])
        if type_ == 'DELETED':
            for pool, address in self._given.pop(uid, {}).values():
                pool.release(address)
        else:
            given = self._given.setdefault(uid, {})
            address = service['spec'].get('clusterIP')
            if address not in (None, '', 'None') and (
                    self._services.belongs(address)):
                self._services.take(address)
                given['service'] = (self._services, address)
        self._dirty[key] = None
        self._wake.set()

    def _on_slice(self, type_, one, old):
        name = (one['metadata'].get('labels') or {}).get(
            endpoints.SERVICE_NAME)
        if name:
            self._dirty[(one['metadata']['namespace'], name)] = None
            self._wake.set()

    async def _work(self):
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._dirty:
                key = next(iter(self._dirty))
                del self._dirty[key]
                try:
                    await self._sync(key)
                except Exception:
                    # Continue with the other services.
                    LOG.exception('Reconciling service %s/%s failed', *key)

    async def _sync(self, key):
        service = self._store.find(core.SERVICE, *key)
        wanted = {}
        if service is not None and not owner_references.ends(service):
            wanted = self._wanted(service, key)
            self._balance(service, key)
        if self._closed and key != _API:
            wanted = {}
        for port in [p for p in self._ports if p[0] == key
                     and p[1:] not in wanted]:
            await self._ports.pop(port).close()
            self._refused.discard(port)
        for place, backends in wanted.items():
            port = (key, *place)
            address, number, protocol = place
            if port not in self._ports:
                self._ports[port] = _OPEN[protocol](address, number)
            try:
                await self._ports[port].serve(backends)
            except OSError as exc:
                if port not in self._refused:
                    self._refused.add(port)
                    self._recorder.event(
                        service, events.WARNING, 'PortNotOpened',
                        f'{address}:{number}/{protocol} cannot be opened: '
                        f'{exc.strerror or exc}', _MANAGER)

    def _wanted(self, service, key):
        """Return ``{(address, port, protocol): backends}``."""
        spec, found = service['spec'], {}
        slices = self._slices.get((key[0], endpoints.SERVICE_NAME, key[1]))
        behind = targets(slices)
        given = self._given.get(service['metadata']['uid'], {})
        if self._balanced(service) and 'balancer' not in given:
            given['balancer'] = (self._balancers, self._balancers.take())
        elif not self._balanced(service) and 'balancer' in given:
            pool, address = given.pop('balancer')
            pool.release(address)
        for port in spec.get('ports') or ():
            protocol = port.get('protocol', 'TCP')
            if protocol not in _OPEN:
                continue
            backends = behind.get(port.get('name') or '', [])
            for _, address in given.values():
                found[(address, port['port'], protocol)] = backends
            if port.get('nodePort'):
                for address in self._hosts():
                    found[(address, port['nodePort'], protocol)] = backends
        return found

    @staticmethod
    def _balanced(service):
        spec = service['spec']
        return spec.get('type') == 'LoadBalancer' and not spec.get(
            'loadBalancerClass')

    def _balance(self, service, key):
        given = self._given.get(service['metadata']['uid'], {})
        ingress = ([{'ip': given['balancer'][1], 'ipMode': 'VIP'}]
                   if 'balancer' in given else None)

        def change(new):
            status = new.setdefault('status', {}).setdefault(
                'loadBalancer', {})
            if ingress:
                status['ingress'] = ingress
            else:
                status.pop('ingress', None)
        if ingress or (service.get('status') or {}).get(
                'loadBalancer', {}).get('ingress'):
            self._store.change(core.SERVICE, *key, change,
                               subresource='status', manager=_MANAGER)
