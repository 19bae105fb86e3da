# SPDX-License-Identifier: Apache-2.0
"""Runs one pod on its node: volumes, address, containers and status.

Source: kubernetes/pkg/kubelet (1.36).
"""

import asyncio
import contextlib
import functools
import json
import logging
import shutil

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.kubevirt import events
from kubevirt_sandbox.workloads import containers
from kubevirt_sandbox.workloads import environment
from kubevirt_sandbox.workloads import fields
from kubevirt_sandbox.workloads import mountedtokens
from kubevirt_sandbox.workloads import mounts
from kubevirt_sandbox.workloads import podstate
from kubevirt_sandbox.workloads import security_constraints

LOG = logging.getLogger(__name__)

ACCOUNT_PATH = '/var/run/secrets/kubernetes.io/serviceaccount'

_MANAGER = 'kubelet'


class Pod:
    """A pod on a node.

    :param node: the :class:`node.Node`, which has the store, processes,
        addresses and so on for all its pods.
    :param obj: the pod.
    """

    def __init__(self, node, obj):
        meta = obj['metadata']
        self.key = (meta['namespace'], meta['name'])
        self.uid = meta['uid']
        self.title = f'{meta["name"]}_{meta["namespace"]}({meta["uid"]})'
        self.back_off = node.back_off
        self.processes = node.processes
        self.turns = node.turns
        #: Time of the event loop when the node started the pod.
        self.began = asyncio.get_running_loop().time()
        self.address = None
        self._node = node
        self._obj = obj
        self._spec = spec = obj['spec']
        self.grace = spec.get('terminationGracePeriodSeconds', 30)
        self.folder = node.processes.folder / self.uid
        self._tokens = mountedtokens.Tokens(
            lambda audiences, seconds: node.token(
                self._obj, audiences, seconds), node.token_seconds)
        self.fields = fields.Fields(node.store, lambda: self._obj)
        self._volumes = mounts.Volumes(
            self.folder / 'volumes', spec, self.fields, self._tokens.get,
            (spec.get('securityContext') or {}).get('fsGroup')
            if node.has_identities else None)
        policy = spec.get('restartPolicy', 'Always')
        self.init = [containers.Container(
            self, one, 'Never' if policy == 'Never' else 'OnFailure')
            for one in spec.get('initContainers') or ()]
        self.containers = [containers.Container(self, one, policy)
                           for one in spec.get('containers') or ()]
        self._initialized = not self.init
        self._since = None
        self._news = asyncio.Event()
        self._ending = asyncio.Event()
        self._killed = False
        self._status_handle = None
        self._tasks = set()
        self._main = self.spawn(self._run())

    # -- for its containers -----------------------------------------------

    def identity(self, spec):
        """Return the user and groups of a container; None: the sandbox's."""
        return (security_constraints.identity(self._spec, spec)
                if self._node.has_identities else None)

    def places(self, spec):
        """Return the folders of a container's mounts."""
        return self._volumes.places(spec)

    def home(self, spec):
        """Return the working directory of a container."""
        wanted = spec.get('workingDir')
        if wanted:
            real = environment.Places(self.places(spec), '').real(wanted)
            if real != wanted:
                return real
        return self.folder / 'home' / spec['name']

    def base(self, places):
        """Return the environment variables that every container gets.

        :param places: folders of the container's mounts, by mount path.
        """
        env = environment.base(self.folder / 'home', self.key[1],
                               self._node.api, self._node.programs)
        for path, place in places.items():
            path = path.rstrip('/')
            if path == '/tmp':  # noqa: S108 - a name, not used
                env['TMPDIR'] = str(place)
            elif path == ACCOUNT_PATH:
                env['KUBECONFIG'] = str(self._kubeconfig(place))
                # Saves the project's own programs from reading the
                # kubeconfig, which takes a third of a second.
                env['SUSHY_KUBEVIRT_ACCOUNT'] = str(place)
        return env

    def _kubeconfig(self, place):
        """Write a kubeconfig with the token of the pod's account.

        It is for programs that do not look for the token at its mounted path.

        :param place: folder of the mounted token.
        :returns: path of the kubeconfig.
        """
        path = self.folder / 'kubeconfig'
        host, port = self._node.api
        host = f'[{host}]' if ':' in host else host
        path.write_text(json.dumps({
            'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'pod',
            'clusters': [{'name': 'pod', 'cluster': {
                'server': f'https://{host}:{port}',
                'certificate-authority': str(place / 'ca.crt')}}],
            'users': [{'name': 'pod', 'user': {
                'tokenFile': str(place / 'token')}}],
            'contexts': [{'name': 'pod', 'context': {
                'cluster': 'pod', 'user': 'pod',
                'namespace': self.key[0]}}]}))
        # It has no secrets.
        path.chmod(0o644)
        return path

    def event(self, kind, reason, message):
        """Record an event of the pod."""
        self._node.recorder.event(self._obj, kind, reason, message, _MANAGER)

    def spawn(self, coroutine):
        """Run a coroutine as a task that is cancelled with the pod."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task):
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            LOG.error('A task of pod %s/%s failed', *self.key,
                      exc_info=task.exception())

    async def wait_change(self, *others):
        """Wait for a change of the pod's inputs, or for one of the events."""
        waits = [asyncio.ensure_future(e.wait())
                 for e in (self._news, *others)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    # -- notifications from the node --------------------------------------

    def uses(self, kind, name):
        """Tell whether the pod uses a Secret or a ConfigMap."""
        return (kind.kind, name) in self._names

    @functools.cached_property
    def _names(self):
        found = set()
        for volume in self._spec.get('volumes') or ():
            sources = (volume.get('projected') or {}).get('sources') or ()
            for one in (volume, *sources):
                for key, kind in (('secret', 'Secret'),
                                  ('configMap', 'ConfigMap')):
                    if key in one:
                        found.add((kind, one[key].get('secretName')
                                   or one[key].get('name')))
        for container in (*self.init, *self.containers):
            for source in container.spec.get('envFrom') or ():
                for key, kind in (('secretRef', 'Secret'),
                                  ('configMapRef', 'ConfigMap')):
                    if key in source:
                        found.add((kind, source[key].get('name')))
            for entry in container.spec.get('env') or ():
                source = entry.get('valueFrom') or {}
                for key, kind in (('secretKeyRef', 'Secret'),
                                  ('configMapKeyRef', 'ConfigMap')):
                    if key in source:
                        found.add((kind, source[key].get('name')))
        return found

    def renew(self):
        """Handle a change of an object that the pod uses."""
        self._news.set()

    def on_change(self, obj):
        """Handle a change of the pod's object."""
        old, self._obj = self._obj, obj
        meta = obj['metadata']
        if 'deletionTimestamp' in meta:
            self.grace = meta.get('deletionGracePeriodSeconds', self.grace)
            self._ending.set()
        elif any(meta.get(name) != old['metadata'].get(name)
                 for name in ('labels', 'annotations')):
            self._news.set()

    def kill(self):
        """Handle the removal of the pod's object."""
        self._killed = True
        self._ending.set()
        for one in (*self.init, *self.containers):
            one.kill()

    async def close(self):
        """Stop the pod when the sandbox ends."""
        for one in (*self.init, *self.containers):
            one.kill()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- life cycle -------------------------------------------------------

    async def _run(self):
        self._since = metadata.now()
        self.address = self._node.addresses.take()
        work = self.spawn(self._live())
        try:
            await self._ending.wait()
            work.cancel()
            running = [c for c in (*self.init, *self.containers)
                       if c.running]
            if not self._killed:
                for one in running:
                    self.event(events.NORMAL, 'Killing',
                               f'Stopping container {one.name}')
            await asyncio.gather(*(
                one.stop(0 if self._killed else self.grace)
                for one in (*self.init, *self.containers)))
        finally:
            if self._status_handle:
                self._status_handle.cancel()
            gone, self._killed = self._killed, True
            self._node.addresses.release(self.address)
            shutil.rmtree(self.folder, ignore_errors=True)
        self._node.forget(self)
        if not gone:
            with contextlib.suppress(errors.ApiError):
                self._node.store.delete(core.POD, *self.key, grace=0,
                                        uid=self.uid)

    async def _live(self):
        # Its containers may run as another user, who cannot write there.
        mode = 0o755 if self._node.has_identities else 0o700
        homes = self.folder / 'home'
        for folder in (self.folder, self.folder / 'volumes', homes,
                       *(homes / one.name
                         for one in (*self.init, *self.containers))):
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)
        # Write it immediately: containers may read the status.
        self._write_status()
        while not self._fill():
            await self.wait_change()
            self._news.clear()
        self.spawn(self._keep_volumes())
        for one in self.init:
            await one.run()
            if one.code != 0:
                return
        self._initialized = True
        self.schedule_status()
        for one in self.containers:
            self.spawn(one.run())

    def _fill(self):
        try:
            self._volumes.write()
        except (fields.Missing, mounts.Unknown, errors.ApiError) as exc:
            self.event(events.WARNING, 'FailedMount',
                       f'MountVolume.SetUp failed: {exc}')
            return False
        return True

    async def _keep_volumes(self):
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._tokens.due()):
                    await self.wait_change(self._ending)
            self._news.clear()
            with contextlib.suppress(fields.Missing, errors.ApiError):
                # The content of a deleted object stays mounted.
                self._volumes.write()

    # -- status -----------------------------------------------------------

    def schedule_status(self):
        """Schedule a write of the status."""
        if self._status_handle is None:
            self._status_handle = asyncio.get_running_loop().call_soon(
                self._write_status)

    def _phase(self):
        policy = self._spec.get('restartPolicy', 'Always')
        if not self._initialized:
            failed = policy == 'Never' and any(
                c.code for c in self.init)
            return 'Failed' if failed else 'Pending'
        if self.containers and all(c.has_ended for c in self.containers):
            codes = [c.code for c in self.containers]
            if all(code == 0 for code in codes):
                return 'Succeeded'
            if None not in codes:
                return 'Failed'
        if any(c.running or c.last or c.code is not None
               for c in self.containers):
            return 'Running'
        return 'Pending'

    def _write_status(self):
        self._status_handle = None
        if self._killed:
            return
        ready = self._initialized and bool(self.containers) and all(
            c.ready for c in self.containers)
        unready = [c.name for c in self.containers if not c.ready]
        why = {} if ready else {
            'reason': 'ContainersNotReady', 'message':
                f'containers with unready status: [{" ".join(unready)}]'}
        phase = self._phase()
        if phase == 'Succeeded':
            why = {'reason': 'PodCompleted'}

        def change(pod):
            if pod['metadata']['uid'] != self.uid:
                return  # another pod has this name now
            status = pod.setdefault('status', {})
            host = self._node.host(pod)
            status.update(
                phase=phase, startTime=self._since,
                hostIP=host, hostIPs=[{'ip': host}],
                podIP=self.address, podIPs=[{'ip': self.address}],
                qosClass='Burstable' if any(
                    c.spec.get('resources') for c in self.containers)
                else 'BestEffort',
                containerStatuses=[c.status() for c in self.containers])
            if self.init:
                status['initContainerStatuses'] = [
                    {**c.status(), 'ready': c.code == 0} for c in self.init]
            for kind, value, more in (
                    ('PodReadyToStartContainers', True, {}),
                    ('Initialized', self._initialized, {}),
                    ('Ready', ready, why), ('ContainersReady', ready, why)):
                podstate.put(pod, kind, value, **more)
        with contextlib.suppress(errors.ApiError):
            self._node.store.change(
                core.POD, *self.key, change, subresource='status',
                manager=_MANAGER)
        for one in self.containers:
            one.look()
