# SPDX-License-Identifier: Apache-2.0
"""Reconciles one BMC: observe, plan, execute, write the status.

The process may be killed between any two requests: each round begins with the
observed state, and the next process needs nothing of this one.
"""

import dataclasses
import datetime
import logging

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import events
from sushy_kubevirt.operator import executor
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import observed_state
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator import rollout
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import workqueue

LOG = logging.getLogger(__name__)

#: After so many rounds with steps, another client must be changing the objects
#: back, and the BMC has to pause.
_ROUNDS = 8

#: Longest text of the API server that is repeated in a condition.
_LONGEST = 1024


class Reconciler:
    """Reconciles BMCs.

    :param options: `command_line.Options`
    :param api: an `api.Api`
    :param cache: a `cache.Cache`
    :param authority: a `certificate_authority.CertificateAuthority`
    :param upgrade_slots: a `rollout.Rollout`
    :param foreign_objects: a `foreign_objects.ForeignObjects`
    """

    def __init__(self, options, api, cache, authority, upgrade_slots,
                 foreign_objects):
        self._api = api
        self._cache = cache
        self._authority = authority
        self._upgrade_slots = upgrade_slots
        self._foreign_objects = foreign_objects
        self._allowed = options.allowed_images
        self._defaults = deployments.Defaults(
            options.image, pull_policy=options.pull_policy,
            proxy=options.upload_proxy_url and config_map.Proxy(
                options.upload_proxy_url, options.upload_proxy_ca))
        self._executor = executor.Executor(api, cache)
        self._tried = {}

    async def reconcile(self, key):
        """Reconcile one BMC.

        :param key: (namespace, name)
        :returns: seconds after which to reconcile again if nothing happens;
            None if nothing changes by time
        :raises: `workqueue.Failure`
        """
        body = self._cache.bmc(key)
        if body is None:
            return None
        try:
            return await self._reconcile(key, body)
        except errors.Unavailable as e:
            LOG.log(logging.INFO if isinstance(e, errors.Conflict)
                    else logging.WARNING, '%s', e)
            raise workqueue.Failure(e.retry_after) from None
        except errors.MachineError as e:
            if _is_passing(e):
                LOG.info('%s', e)
                raise workqueue.Failure from None
            LOG.warning('%s', e)
            raise workqueue.Failure from None

    def forget(self, key):
        """Drop a BMC that was deleted."""
        self._tried.pop(key, None)

    async def _reconcile(self, key, body):
        tried, looked = self._tried.setdefault(key, {}), False
        for _ in range(_ROUNDS):
            bmc = spec.read(body)
            seen = await self._look(bmc, body)
            steps = plan.steps(bmc, seen, self._defaults, tried)
            steps, waiting = self._turn(key, steps)
            if not steps:
                self._foreign_objects.watch(key, [
                    ref for ref, obj in seen.live.items()
                    if not naming.is_ours(bmc, obj)])
                break
            if not looked:
                # The watch may lag behind: nothing is created for a BMC that
                # is gone.
                body = await self._fresh(key)
                if body is None:
                    return None
                looked = True
                if spec.read(body) != bmc:
                    continue
            try:
                await self._take(bmc, body, steps, seen, tried)
            finally:
                self._upgrade_slots.update(key, rollout.is_stopped(
                    self._cache.objects.get(
                        bmc_resources.DEPLOYMENT, key[0],
                        naming.base(key[1]))))
                self._upgrade_slots.release(key)
            body = self._cache.bmc(key)
            if body is None:
                return None
        else:
            LOG.warning('Another client changes the objects of this BMC back '
                        'again and again: find it by their managedFields; '
                        'next try in %d s', workqueue.LONGEST_PAUSE / 4)
            raise workqueue.Failure(workqueue.LONGEST_PAUSE / 4)
        if bmc.deleting:
            return None
        await self._tell(bmc, body, dataclasses.replace(
            seen.world, waiting=waiting))
        return _next_look(seen)

    async def _take(self, bmc, body, steps, seen, tried):
        for step in steps:
            try:
                await self._executor.execute(bmc, step, seen, tried)
            except executor.PlanOutdated:
                return
            except (errors.Rejected, errors.AccessDenied) as e:
                if not _is_passing(e):
                    await self._refused(bmc, body, step, e)
                raise

    async def _look(self, bmc, body):
        cache, named = self._cache, observed_state.names(bmc)
        seen = {at: await cache.secrets.get(at) for at in named.all()}
        parts = (bmc, body, cache.objects_of(bmc), cache.machines.get(bmc.vm),
                 seen)
        images = self._allowed, self._defaults.image
        if bmc.deleting or not observed_state.needs_authority(bmc):
            return observed_state.assemble(*parts, None, *images)
        try:
            issuer = await self._authority.get()
        except (errors.Rejected, errors.AccessDenied) as e:
            # Nothing is planned without it, but the status tells it.
            if not _is_passing(e):
                await self._tell(bmc, body, observed_state.assemble(
                    *parts, None, *images, [(
                        'Secret ' + naming.AUTHORITY,
                        str(e)[:_LONGEST])]).world)
            raise
        return observed_state.assemble(*parts, issuer, *images)

    async def _fresh(self, key):
        """Read a BMC.

        :returns: dict; None if it is gone
        """
        known = self._cache.bmc(key)
        try:
            body = await self._api.get(bmc_resources.BMC, *key)
        except errors.ObjectNotFound:
            self._cache.drop_bmc(key)
            return None
        self._cache.put_bmc(body)
        if known and body['metadata']['uid'] != known['metadata']['uid']:
            # The cache has another BMC of that name.
            raise workqueue.Failure
        return body

    def _turn(self, key, steps):
        """Leave out the steps that have to wait for a slot of the rollout.

        :returns: the steps, and whether some are left out
        """
        upgrades = [step for step in steps if getattr(
            step, 'upgrade', False)]
        if not upgrades:
            self._upgrade_slots.withdraw(key)
            return steps, False
        if not self._upgrade_slots.acquire(key):
            return [step for step in steps if step not in upgrades], True
        return [_marked(step) if step in upgrades else step
                for step in steps], False

    async def _refused(self, bmc, body, step, error):
        """Write into the status what the API server has refused."""
        what = executor.subject(step, bmc)
        seen = await self._look(bmc, body)
        await self._tell(bmc, body, dataclasses.replace(
            seen.world, refused=((what, str(error)[:_LONGEST]),)))

    async def _tell(self, bmc, body, world):
        """Write status and Events, if they have changed."""
        old = body.get('status') or {}
        now = _now()
        new = conditions.status(bmc, world, old, now)
        if new == old:
            return
        # Before the status: an Event that is repeated is counted, one that
        # was never written is lost.
        for type_, reason, message in events.of_change(
                old.get('conditions'), new['conditions']):
            await self._event(bmc, type_, reason, message, now)
        try:
            # Not by a merge patch, of which the API server reads the status
            # alone: it could change another BMC of that name.
            answer = await self._api.patch(
                bmc_resources.BMC, bmc.namespace, bmc.name, [
                    {'op': 'test', 'path': '/metadata/uid',
                     'value': bmc.uid},
                    {'op': 'add', 'path': '/status', 'value': new}],
                'status')
        except errors.ObjectNotFound:
            self._cache.drop_bmc((bmc.namespace, bmc.name))
            return
        if _asked(answer) == _asked(body):
            # Else a user has changed the BMC meanwhile, which the watch has
            # to show: an object that is cached already wakes nothing.
            self._cache.put_bmc(answer)
        before = conditions.ready_reason(old)
        after = conditions.ready_reason(new)
        if before != after:
            LOG.info('%s: %s', after, new['conditions'][-1]['message'])

    async def _event(self, bmc, *what):
        try:
            await events.record(self._api, events.manifest(bmc, *what))
        except errors.MachineError as e:
            # Nothing depends on it.
            LOG.info('Event not written: %s', e)


def _asked(body):
    """:returns: the parts of a BMC that the plan depends on"""
    return spec.read(body), body['metadata'].get('finalizers') or []


def _is_passing(error):
    """Tell whether an object was deleted meanwhile, or its namespace is."""
    return isinstance(error, (errors.ObjectNotFound,
                              errors.NamespaceTerminating))


def _marked(step):
    """Annotate a Deployment that an upgrade stops; see `rollout`."""
    if step.body['kind'] != 'Deployment':
        return step
    metadata = step.body['metadata']
    return dataclasses.replace(step, body={**step.body, 'metadata': {
        **metadata, 'annotations': {**metadata.get('annotations', {}),
                                    naming.UPGRADING: 'true'}}})


def _next_look(seen):
    """:returns: seconds until the certificate has to be renewed, or a user's
        own becomes valid or expires; None if nothing changes by time
    """
    at = None
    if seen.world.validity:
        at = next((each for each in seen.world.validity
                   if each > seen.world.now), None)
    elif seen.authority and seen.tls and seen.tls.certificate:
        at = pki.renewal(seen.tls.certificate)
    if at is None:
        return None
    return max((at - datetime.datetime.now(datetime.UTC)).total_seconds(), 1)


def _now():
    return datetime.datetime.now(datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')
