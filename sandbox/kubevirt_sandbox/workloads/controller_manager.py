# SPDX-License-Identifier: Apache-2.0
"""Workloads as a whole: kinds, controllers, nodes, services."""

import asyncio
import dataclasses

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.kubevirt import events
from kubevirt_sandbox.workloads import addresses
from kubevirt_sandbox.workloads import deployments
from kubevirt_sandbox.workloads import disruption_budgets
from kubevirt_sandbox.workloads import endpoints
from kubevirt_sandbox.workloads import execution
from kubevirt_sandbox.workloads import logs
from kubevirt_sandbox.workloads import node
from kubevirt_sandbox.workloads import podsecurity
from kubevirt_sandbox.workloads import port_forward
from kubevirt_sandbox.workloads import replicasets
from kubevirt_sandbox.workloads import router
from kubevirt_sandbox.workloads import scale
from kubevirt_sandbox.workloads import security_constraints
from kubevirt_sandbox.workloads import services
from kubevirt_sandbox.workloads import workload_kinds


# Enough for tests with thousands of pods. A test that needs a smaller node
# changes the status of the node.
_SIZE = {'cpu': '4096', 'memory': '64Ti', 'ephemeral-storage': '64Ti',
         'hugepages-1Gi': '0', 'hugepages-2Mi': '0', 'pods': '20k'}


@dataclasses.dataclass
class Options:
    """Options of workloads.

    :param crash_back_off: seconds before a container is started again that
        failed twice, doubled with each further time (a real cluster: 10).
    :param lag: maximum delay of each reconciliation in seconds.
    :param pods: ``processes``, or ``pretended``: without processes.
    :param token_seconds: lifetime of mounted tokens; None: as requested.
    :param programs: path of a folder in which programs of containers are
        looked up first; None: no such folder.
    :param openshift: whether security context constraints hold, containers
        run as the user that they assign, and there are routes.
    """

    crash_back_off: float = 0.5
    lag: float = 0
    pods: str = 'processes'
    token_seconds: float | None = None
    programs: str | None = None
    openshift: bool = False


class ControllerManager:
    """Workloads in an API server.

    :param server: the :class:`sandbox.api.server.Server`; kinds and routes
        are registered at once.
    :param options: anything with the attributes of :class:`Options`; those
        that it lacks have their defaults.
    """

    def __init__(self, server, options=None):
        known = {f.name for f in dataclasses.fields(Options)}
        options = Options(**{
            name: getattr(options, name) for name in known
            if getattr(options, name, None) is not None})
        self._server = server
        self._store = server.store
        loop = asyncio.get_running_loop()
        recorder = events.Recorder(self._store)
        server.provisioner.report = recorder.event
        for kind in workload_kinds.KINDS:
            server.register_kind(kind)
        for kind in (workload_kinds.DEPLOYMENT, workload_kinds.REPLICA_SET):
            server.register_subresource(
                kind.group, kind.version, kind.plural, 'scale',
                scale.handler(kind), ('GET', 'PUT', 'PATCH'), kind='Scale',
                kind_of=('autoscaling', 'v1'))
        self._store.gates.append(self._gate)
        self._router = None
        if options.openshift:
            # Before Pod Security, which sees what they have filled in.
            self._store.gates.append(security_constraints.Admission(server))
            self._router = router.Router(server, loop, options.lag)
        self._store.gates.append(podsecurity.Admission(core.NAMESPACE))
        self._pods = addresses.Pool(addresses.PODS)
        self._nodes = addresses.Pool(addresses.NODES)
        self._hosts = {}
        self._end_nodes = self._store.subscribe(core.NODE, self._on_node)
        self._services = services.Services(
            self._store, recorder, lambda: list(self._hosts.values()),
            options.pods == 'pretended')
        self._node = node.Node(
            server, recorder, self._pods, self._token,
            lambda name: self._hosts.get(name, ''), options.crash_back_off,
            options.lag, options.token_seconds,
            options.pods == 'pretended', options.openshift,
            options.programs)
        server.register_subresource(
            '', 'v1', 'pods', 'log', logs.Route(self._node.log).answer,
            ('GET',), kind='Pod')
        server.register_subresource(
            '', 'v1', 'pods', 'exec',
            execution.Route(self._node.container).answer, ('GET', 'POST'),
            kind='PodExecOptions', needs='create')
        server.register_subresource(
            '', 'v1', 'pods', 'portforward',
            port_forward.Route(self._node.address).answer, ('GET', 'POST'),
            kind='PodPortForwardOptions', needs='create')
        budgets = disruption_budgets.Controller(self._store, loop, options.lag)
        server.register_subresource(
            '', 'v1', 'pods', 'eviction', budgets.evict, ('POST',),
            kind='Eviction', kind_of=('policy', 'v1'))
        self._controllers = [
            budgets,
            endpoints.Controller(self._store, loop, options.lag),
            replicasets.Controller(self._store, recorder, loop, options.lag),
            deployments.Controller(self._store, recorder, loop, options.lag)]

    async def start(self):
        """Start to run pods and to open ports."""
        for one in self._store.list(core.NODE):
            self._on_node('ADDED', one, None)
        self._show_api()
        await self._services.start()
        if self._router is not None:
            await self._router.start()
        await self._node.start()

    async def stop(self):
        """End all pods and close all ports."""
        for one in self._controllers:
            one.close()
        self._end_nodes()
        if self._router is not None:
            await self._router.stop()
        await self._services.stop()
        await self._node.stop()
        self._pods.close()
        self._nodes.close()

    def _gate(self, kind, admission):
        if kind is core.POD and admission.operation == 'CREATE':
            node.service_account(admission)
            wrong = node.faults(admission.new)
            if wrong:
                raise errors.invalid(
                    kind, admission.new['metadata'].get('name'), wrong)

    def _token(self, pod, audiences, seconds):
        """Issue a token of a pod's account, valid until the pod is deleted."""
        return self._server.accounts.issue(
            pod['metadata']['namespace'], pod['spec']['serviceAccountName'],
            audiences, seconds, pod)[0]

    def _on_node(self, type_, obj, old):
        name = obj['metadata']['name']
        if type_ == 'DELETED':
            self._nodes.release(self._hosts.pop(name, ''))
            return
        if name not in self._hosts:
            self._hosts[name] = self._nodes.take()

            def label(new):
                new['metadata']['labels'] = {
                    'kubernetes.io/hostname': name,
                    'kubernetes.io/os': 'linux', 'kubernetes.io/arch':
                    'amd64', **(new['metadata'].get('labels') or {})}
            self._store.change(core.NODE, '', name, label, manager='kubelet')
        address = {'type': 'InternalIP', 'address': self._hosts[name]}

        def change(new):
            has = new.setdefault('status', {}).setdefault('addresses', [])
            has[:] = [a for a in has if a.get('type') != 'InternalIP']
            has.insert(0, address)
            for key in ('capacity', 'allocatable'):
                new['status'][key] = {**_SIZE, **(
                    new['status'].get(key) or {})}
        self._store.change(core.NODE, '', name, change, subresource='status',
                           manager='kubelet')

    def _show_api(self):
        """Create the Service of the API server."""
        host, port = self._server.address
        if self._store.find(workload_kinds.ENDPOINT_SLICE,
                            'default', 'kubernetes'):
            return
        self._store.create(workload_kinds.ENDPOINT_SLICE, {
            'metadata': {'name': 'kubernetes', 'namespace': 'default',
                         'labels': {endpoints.SERVICE_NAME: 'kubernetes'}},
            'addressType': 'IPv6' if ':' in host else 'IPv4',
            'ports': [{'name': 'https', 'port': port, 'protocol': 'TCP'}],
            'endpoints': [{'addresses': [host],
                           'conditions': {'ready': True}}]},
            manager='kube-apiserver')
        self._store.create(workload_kinds.SERVICE_CIDR, {
            'metadata': {'name': 'kubernetes'},
            'spec': {'cidrs': [f'{addresses.SERVICES}.0.0/16']}},
            manager='kube-apiserver')
