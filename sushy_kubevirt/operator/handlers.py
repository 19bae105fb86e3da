# SPDX-License-Identifier: Apache-2.0
"""What happens when something happens: who is looked at then.

kopf tells of BMCs. What belongs to them is watched by label, VMs and Secrets
by their metadata alone: kopf would keep the whole of each. Nothing is done
here but taking note; `reconcile` does the work, one BMC at a time.
"""

import asyncio
import collections
import logging
import time

import kopf

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import api as api_
from sushy_kubevirt.operator import certificates
from sushy_kubevirt.operator import farewell
from sushy_kubevirt.operator import kinds
from sushy_kubevirt.operator import known
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import observed
from sushy_kubevirt.operator import orphans
from sushy_kubevirt.operator import reconcile
from sushy_kubevirt.operator import rollout
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import status
from sushy_kubevirt.operator import strangers
from sushy_kubevirt.operator import workqueue

LOG = logging.getLogger(__name__)

#: BMCs that are worked on at a time.
WORKERS = 8

#: Seconds that what is under way has at the end.
_LAST_SECONDS = 5

#: A BMC that has no status yet.
_NEW = 'New'


class Work:
    """The work of the replica that holds the Lease.

    :param options: `options.Options`
    :param api: an `api.Api`
    :param metrics: `metrics.Metrics`

    ``listed`` is set when all that there is is known.
    """

    def __init__(self, options, api, metrics):
        self._api = api
        self._metrics = metrics
        self._namespaces = options.namespaces or (None,)
        self._system = options.system_namespace
        self._known = known.Known(api)
        self._farewell = farewell.Farewell(api, self._known)
        self._orphans = orphans.Orphans(api, self._known, self._namespaces)
        self._certificates = certificates.Certificates(
            api, options.system_namespace)
        self._rollout = rollout.Rollout(options.max_unavailable, self._wake)
        self._strangers = strangers.Strangers(api, self._known, self._wake)
        self._reconciler = reconcile.Reconciler(
            options, api, self._known, self._certificates, self._rollout,
            self._strangers)
        self._queue = workqueue.Queue(self._reconcile, WORKERS)
        self._states = {}
        self._nameless = set()
        self._tasks = []
        self._missing = set()
        self._expected = None
        self.listed = asyncio.Event()

    def register(self, registry):
        """Have kopf tell of BMCs.

        :param registry: a `kopf.OperatorRegistry`
        """
        @kopf.on.event(kinds.BMC.group, kinds.BMC.version, kinds.BMC.plural,
                       registry=registry, id='bmc')
        async def bmc(event, namespace, name, **_):
            if event['type'] != 'DELETED':
                self._bmc(event['object'])

    async def start(self):
        """Begin to watch; work begins when all is listed."""
        for namespace in self._namespaces:
            for resource in kinds.OWNED:
                self._follow(self._owned, resource, namespace)
            self._follow(self._machines, kinds.VM, namespace)
            self._follow(self._secrets, kinds.SECRET, namespace)
            self._follow(self._existing, kinds.BMC, namespace)
            self._tasks.append(asyncio.create_task(
                self._farewell.follow(namespace)))
        self._tasks.append(asyncio.create_task(self._authority()))

    async def close(self):
        """Finish what is under way."""
        self._strangers.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._farewell.close()
        await self._orphans.close()
        await self._queue.close(_LAST_SECONDS)

    def ready(self):
        """:returns: a sentence if it does not work, or None"""
        if self._missing:
            return 'Not listed yet: %s' % ', '.join(sorted({
                str(resource) for resource, _ in self._missing}))
        if not self.listed.is_set():
            return 'Not told of all BMCs yet'
        return None

    @property
    def tasks(self):
        """What never ends by itself: without one of them it is blind."""
        return tuple(self._tasks)

    def _follow(self, take, resource, namespace):
        self._missing.add((resource, namespace))
        self._tasks.append(asyncio.create_task(take(resource, namespace)))

    def _is_listed(self, resource, namespace):
        self._missing.discard((resource, namespace))
        self._begin()

    def _begin(self):
        """Begin to work, as soon as all is known."""
        if self.listed.is_set() or self._missing:
            return
        if self._expected is not None:
            # kopf has not told of all of them yet.
            self._expected -= {*self._known.bmcs(), *self._nameless}
            if self._expected:
                return
        self.listed.set()
        for namespace, name in self._known.bmcs():
            self._rollout.mark(
                (namespace, name), rollout.is_stopped(self._known.objects.get(
                    kinds.DEPLOYMENT, namespace, naming.base(name))))
            self._queue.add((namespace, name))
        self._queue.start()
        self._farewell.begin()
        self._orphans.begin()

    # What happens

    def _bmc(self, body):
        metadata = body['metadata']
        key = metadata['namespace'], metadata['name']
        if spec.read(body).vm is None:
            if key not in self._nameless:
                self._nameless.add(key)
                LOG.warning('%s %s/%s names no VirtualMachine, and is left '
                            'as it is: delete it', kinds.BMC.kind, *key)
            self._begin()
            return
        if not self._known.put_bmc(dict(body)):
            return
        self._count(key)
        self._wake((key,))
        if not self.listed.is_set():
            self._begin()

    def _bmc_gone(self, key):
        body = self._known.bmc(key)
        self._known.drop_bmc(key)
        if body:
            bmc = spec.read(body)
            self._farewell.look(bmc.vm.namespace, bmc.vm.name)
            for resource, *at in observed.objects(bmc):
                if resource in orphans.KINDS:
                    self._orphans.look(*at)
        self._nameless.discard(key)
        self._queue.forget(key)
        self._states.pop(key, None)
        self._count(None)
        self._forget(key)

    def _forget(self, key):
        self._reconciler.forget(key)
        self._rollout.forget(key)
        self._strangers.forget(key)

    async def _existing(self, resource, namespace):
        """Who is there no more: kopf does not tell what vanished while it
        could not watch."""
        there = self._api.watch(resource, namespace, metadata_only=True)
        async for kind, found in there:
            if kind == api_.LISTED:
                for key in self._known.bmcs():
                    if key not in found and namespace in (None, key[0]):
                        # kopf may have told of one that is newer than the
                        # list.
                        await self._missed(key)
                # One that is on a list no more is not waited for.
                self._expected = found | {
                    key for key in self._expected or ()
                    if namespace not in (None, key[0])}
                if self.listed.is_set():
                    self._orphans.begin()
                self._is_listed(resource, namespace)
                continue
            metadata = found['metadata']
            key = metadata['namespace'], metadata['name']
            if kind == 'DELETED':
                (self._expected or set()).discard(key)
                body = self._known.bmc(key)
                if self.listed.is_set() and (body is None or body['metadata'][
                        'uid'] != metadata['uid']):
                    # It was noticed before, and which VM it had is forgotten.
                    self._farewell.begin()
                    self._orphans.begin()
                if body is None or body['metadata']['uid'] == metadata['uid']:
                    self._bmc_gone(key)
                    self._known.objects.gone(kinds.BMC, found)
                self._begin()

    async def _missed(self, key):
        try:
            await self._api.get(kinds.BMC, *key, metadata_only=True)
        except errors.ObjectNotFound:
            self._bmc_gone(key)
        except errors.MachineError as e:
            # Nothing is made for it without another look.
            LOG.info('%s', e)

    async def _owned(self, resource, namespace):
        objects = self._known.objects
        async for kind, found in self._api.watch(
                resource, namespace, label_selector=naming.OURS):
            if kind == api_.LISTED:
                self._vanished(resource, namespace, found,
                               objects.names(resource), objects.drop)
                if self.listed.is_set():
                    self._farewell.begin()
                self._is_listed(resource, namespace)
                continue
            if kind == 'DELETED':
                news = objects.gone(resource, found)
            else:
                news = objects.put(resource, found)
            if resource == kinds.ROLE and kind == 'DELETED':
                self._farewell.role_gone(found)
            if not news:
                continue
            if resource in orphans.KINDS and kind != 'DELETED':
                self._orphans.look(found['metadata']['namespace'],
                                   found['metadata']['name'])
            keys = self._minding(resource, found)
            if resource == kinds.DEPLOYMENT:
                for key in keys:
                    self._rollout.mark(key, rollout.is_stopped(
                        None if kind == 'DELETED' else found))
            self._wake(keys)

    async def _machines(self, resource, namespace):
        await self._metadata(resource, namespace, self._known.machines,
                             self._farewell.look)

    async def _secrets(self, resource, namespace):
        await self._own_secrets(resource, namespace)
        await self._metadata(resource, namespace, self._known.secrets)

    async def _metadata(self, resource, namespace, known, look=None):
        """Follow what belongs to users.

        :param known: one of `directory`
        :param look: who else is told of namespace and name
        """
        async for kind, found in self._api.watch(
                resource, namespace, metadata_only=True):
            if kind == api_.LISTED:
                self._vanished(resource, namespace, found, known.names(),
                               lambda _, *at: known.drop(*at))
                self._is_listed(resource, namespace)
                continue
            if look is not None:
                look(found['metadata']['namespace'],
                     found['metadata']['name'])
            news = (known.gone if kind == 'DELETED' else known.put)(found)
            if news:
                self._wake(self._minding(resource, found))

    async def _own_secrets(self, resource, namespace):
        """Look at those of all BMCs at once; later, one by one."""
        async for kind, found in self._api.watch(
                resource, namespace, label_selector=naming.OURS):
            if kind == api_.LISTED:
                return
            self._known.secrets.take(found)

    async def _authority(self):
        """Look again when somebody changes the authority."""
        first = True
        async for kind, _ in self._api.watch(
                kinds.SECRET, self._system, metadata_only=True,
                field_selector='metadata.name=' + naming.AUTHORITY):
            self._certificates.forget()
            if not first:
                # Also by a later list: it may have vanished in between.
                self._wake(self._known.bmcs())
            elif kind == api_.LISTED:
                first = False

    def _vanished(self, resource, namespace, there, known, drop):
        for at in known:
            if at not in there and namespace in (None, at[0]):
                drop(resource, *at)
                self._wake(self._known.minding(resource, *at))

    def _minding(self, resource, obj):
        metadata = obj['metadata']
        return self._known.minding(resource, metadata['namespace'],
                                   metadata['name'])

    def _wake(self, keys):
        if not self.listed.is_set():
            # All of them are looked at then.
            return
        for key in keys:
            self._queue.add(key)
        self._metrics.queue(len(self._queue))

    # What is done about it

    async def _reconcile(self, key):
        began, failed = time.monotonic(), True
        self._metrics.queue(len(self._queue))
        try:
            with logs.about(*key):
                later = await self._reconciler.reconcile(key)
            failed = False
            return later
        finally:
            self._metrics.reconciled(time.monotonic() - began, failed)
            self._count(key)
            if self._known.bmc(key) is None:
                # It went while it was worked on, which may have been noticed
                # here first, or have left something behind.
                self._forget(key)

    def _count(self, key):
        """Tell how many BMCs there are in each state."""
        if key is not None:
            body = self._known.bmc(key)
            if body is None:
                self._states.pop(key, None)
            else:
                self._states[key] = status.ready(
                    body.get('status') or {}) or _NEW
        self._metrics.states(collections.Counter(self._states.values()))
