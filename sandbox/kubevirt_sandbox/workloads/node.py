# SPDX-License-Identifier: Apache-2.0
"""The nodes, which all run on this host.

Every pod of the API is bound to a node by the scheduler and runs as processes.
(The launcher pods of virtual machines are not objects of the API.)
"""

import asyncio

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.kubevirt import events
from kubevirt_sandbox.kubevirt import workqueue
from kubevirt_sandbox.scheduling import scheduler
from kubevirt_sandbox.workloads import owner_references
from kubevirt_sandbox.workloads import pods
from kubevirt_sandbox.workloads import podstate
from kubevirt_sandbox.workloads import processes
from kubevirt_sandbox.workloads import simulated_pods
from kubevirt_sandbox.workloads import start_limiter


class Node:
    """All nodes, with all pods.

    :param server: the :class:`sandbox.api.server.Server`.
    :param recorder: an :class:`events.Recorder`.
    :param addresses: the :class:`addresses.Pool` of pods.
    :param token: function (pod, audiences, seconds) that returns a token of
        the pod's account.
    :param hosts: function of a node's name that returns its address.
    :param back_off: seconds before a container is started again that
        failed twice.
    :param lag: maximum delay of the scheduler in seconds.
    :param token_seconds: lifetime of mounted tokens; None: as requested.
    :param pretended: pods have no processes, see :mod:`simulated_pods`.
    :param has_identities: containers run as the user that their pod names.
    :param programs: path of a folder in which their programs are looked up
        first, or None.
    """

    def __init__(self, server, recorder, addresses, token, hosts, back_off,
                 lag=0, token_seconds=None, pretended=False,
                 has_identities=False, programs=None):
        self.store = server.store
        self.recorder = recorder
        self.addresses = addresses
        self.token = token
        self.token_seconds = token_seconds
        self.back_off = back_off
        self.has_identities = has_identities
        self.programs = programs
        self.processes = processes.Processes(has_identities)
        self.turns = start_limiter.Turns()
        self._begun = False
        self._make = simulated_pods.Pod if pretended else pods.Pod
        self._hosts = hosts
        self._server = server
        self.scheduler = scheduler.of(server)
        self._pods = {}
        loop = asyncio.get_running_loop()
        self._queue = workqueue.WorkQueue(loop, self._schedule, 'scheduler',
                                          lag)
        self._ends = [
            self.store.subscribe(core.POD, self._on_event),
            self.scheduler.call_when_changed(self._schedule_all)]
        for kind in (core.SECRET, core.CONFIG_MAP):
            self._ends.append(self.store.subscribe(
                kind, lambda type_, obj, old, kind=kind: self._renew(
                    kind, obj)))

    @property
    def api(self):
        """Return (address, port) of the API server."""
        return self._server.address

    async def start(self):
        """Start to run pods."""
        self._begun = True
        for pod in self.store.list(core.POD):
            self._on_event('ADDED', pod, None)

    async def stop(self):
        """End all pods."""
        for end in self._ends:
            end()
        self._queue.close()
        for pod in list(self._pods.values()):
            await pod.close()
        self.processes.close()

    def host(self, pod):
        """Return the address of a pod's node."""
        return self._hosts(pod['spec'].get('nodeName'))

    def log(self, uid, name, previous):
        """Return the log of a container, or None."""
        one = self.container(uid, name)
        return one and (one.previous if previous else one.log)

    def container(self, uid, name):
        """Return a :class:`containers.Container`, or None.

        :param uid: the pod's uid.
        """
        pod = self._pods.get(uid)
        for one in (*pod.init, *pod.containers) if pod else ():
            if one.name == name:
                return one
        return None

    def address(self, uid):
        """Return the address of a pod that runs, or None."""
        pod = self._pods.get(uid)
        return pod and pod.address

    def forget(self, pod):
        """Forget a pod that has ended."""
        self._pods.pop(pod.uid, None)

    # -- events -----------------------------------------------------------

    def _on_event(self, type_, pod, old):
        if not self._begun:
            return
        uid = pod['metadata']['uid']
        known = self._pods.get(uid)
        if type_ == 'DELETED':
            if known:
                known.kill()
        elif known:
            known.on_change(pod)
        elif not pod['spec'].get('nodeName'):
            self._queue.add((pod['metadata']['namespace'],
                             pod['metadata']['name']))
        elif not podstate.has_ended(pod):
            made = self._pods[uid] = self._make(self, pod)
            made.on_change(pod)

    def _schedule_all(self):
        for pod in self.store.list(core.POD):
            if not pod['spec'].get('nodeName'):
                self._queue.add((pod['metadata']['namespace'],
                                 pod['metadata']['name']))

    def _renew(self, kind, obj):
        for pod in self._pods.values():
            if pod.key[0] == obj['metadata']['namespace'] and pod.uses(
                    kind, obj['metadata']['name']):
                pod.renew()

    def _schedule(self, key):
        pod = self.store.find(core.POD, *key)
        if pod is None or owner_references.ends(
                pod) or pod['spec'].get('nodeName'):
            return
        name, text = self.scheduler.find(pod)
        if name:
            def bind(new):
                new['spec']['nodeName'] = name
            self.store.change(core.POD, *key, lambda new: podstate.put(
                new, 'PodScheduled', True), subresource='status',
                manager='kube-scheduler')
            bound = self.store.change(core.POD, *key, bind,
                                      manager='kube-scheduler')
            self.recorder.event(
                bound, events.NORMAL, 'Scheduled', 'Successfully assigned '
                f'{key[0]}/{key[1]} to {name}', scheduler.COMPONENT)
            return

        def report(new):
            new.setdefault('status', {}).setdefault('phase', 'Pending')
            podstate.put(new, 'PodScheduled', False, 'Unschedulable', text)
        self.store.change(core.POD, *key, report, subresource='status',
                          manager='kube-scheduler')
        self.recorder.event(pod, events.WARNING, 'FailedScheduling', text,
                            scheduler.COMPONENT)


def faults(pod):
    """List what is wrong with a new pod.

    Names of volumes and containers become names of folders here.

    :returns: a list of :class:`errors.Cause`.
    """
    spec, found = pod.get('spec') or {}, []
    if not spec.get('containers'):
        found.append(errors.Cause('FieldValueRequired', 'Required value',
                                  'spec.containers'))
    volumes = {v.get('name') for v in spec.get('volumes') or ()}
    for field in ('volumes', 'initContainers', 'containers'):
        names = set()
        for index, one in enumerate(spec.get(field) or ()):
            where, name = f'spec.{field}[{index}]', one.get('name') or ''
            why = metadata.name_fault(name, label=True)
            if why:
                found.append(errors.Cause(
                    'FieldValueInvalid', f'Invalid value: "{name}": {why}',
                    where + '.name'))
            if name in names:
                found.append(errors.Cause(
                    'FieldValueDuplicate', f'Duplicate value: "{name}"',
                    where + '.name'))
            names.add(name)
            found += [errors.Cause(
                'FieldValueNotFound', f'Not found: "{mount.get("name")}"',
                f'{where}.volumeMounts[{at}].name')
                for at, mount in enumerate(one.get('volumeMounts') or ())
                if mount.get('name') not in volumes]
    return found


def service_account(admission):
    """Add the service account and its token volume to a new pod.

    Source: kubernetes/plugin/pkg/admission/serviceaccount (1.36).

    :param admission: the :class:`kinds.Admission` of the pod.
    :raises errors.ApiError: 403 when there is no such account.
    """
    pod, store = admission.new, admission.store
    spec = pod.setdefault('spec', {})
    name = spec.setdefault('serviceAccountName', 'default')
    spec.setdefault('serviceAccount', name)
    namespace = pod['metadata']['namespace']
    account = store.find(core.SERVICE_ACCOUNT, namespace, name)
    if account is None:
        raise errors.forbidden(
            core.POD, pod['metadata'].get('name', ''), 'error looking up '
            f'service account {namespace}/{name}: serviceaccount "{name}" '
            'not found')
    if not spec.get('automountServiceAccountToken', account.get(
            'automountServiceAccountToken', True)):
        return
    volume = 'kube-api-access'
    for container in (*(spec.get('containers') or ()),
                      *(spec.get('initContainers') or ())):
        has = container.setdefault('volumeMounts', [])
        if not any(m.get('mountPath') == pods.ACCOUNT_PATH for m in has):
            has.append({'name': volume, 'readOnly': True,
                        'mountPath': pods.ACCOUNT_PATH})
    volumes = spec.setdefault('volumes', [])
    if not any(v.get('name') == volume for v in volumes):
        volumes.append({'name': volume, 'projected': {
            'defaultMode': 0o644, 'sources': [
                {'serviceAccountToken': {'expirationSeconds': 3607,
                                         'path': 'token'}},
                {'configMap': {'name': 'kube-root-ca.crt', 'items': [
                    {'key': 'ca.crt', 'path': 'ca.crt'}]}},
                {'downwardAPI': {'items': [{
                    'path': 'namespace', 'fieldRef': {
                        'apiVersion': 'v1',
                        'fieldPath': 'metadata.namespace'}}]}}]}})
