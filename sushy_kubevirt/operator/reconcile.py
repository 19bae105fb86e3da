# SPDX-License-Identifier: Apache-2.0
"""Reconciles one BMC: facts, verdict, plan, its execution, status.

The process may be killed between any two requests: each round begins with the
facts, and the next process needs no state of this one.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import logging
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import feature_gates
from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import desired_state
from sushy_kubevirt.operator import events
from sushy_kubevirt.operator import executor
from sushy_kubevirt.operator import facts
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator import rollout
from sushy_kubevirt.operator import routes
from sushy_kubevirt.operator.shared import shards
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import verdict
from sushy_kubevirt.operator import workqueue

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import api
    from sushy_kubevirt.operator import certificate_authority
    from sushy_kubevirt.operator import command_line
    from sushy_kubevirt.operator import foreign_objects
    from sushy_kubevirt.operator import store

LOG = logging.getLogger(__name__)

#: Maximum number of steps for one object. After that, another client must be
#: reverting the changes, and the BMC is retried later.
_MAX_STEPS = 8

#: Finalizer of an object until the garbage collector has deleted what it owns.
_FOREGROUND = 'foregroundDeletion'

#: Maximum length of a message of the API server in a condition.
_MAX_MESSAGE_LENGTH = 1024


class Reconciler:
    """Reconciles BMCs."""

    def __init__(self, options: command_line.Options, api: api.Api,
                 store: store.Store,
                 authority: certificate_authority.CertificateAuthority,
                 upgrade_slots: rollout.Rollout,
                 foreign_objects: foreign_objects.ForeignObjects,
                 all_shards: shards.Shards) -> None:
        self._api = api
        self._store = store
        self._authority = authority
        self._upgrade_slots = upgrade_slots
        self._foreign_objects = foreign_objects
        self._defaults = options.pod_defaults()
        self._shards = all_shards
        self._executor = executor.Executor(api, store, all_shards)
        self._tried: dict[objects.ObjectKey, plan.Tried] = {}
        # What BMCs will be like after a write of their status that is sent.
        self._writing: dict[objects.ObjectKey, list[typing.Any]] = {}

    async def reconcile(self, key: objects.ObjectKey) -> float | None:
        """Reconcile one BMC.

        :returns: seconds after which to reconcile again without an event;
            None for never
        :raises: `workqueue.Failure`
        """
        body = self._store.bmc(key)
        if body is None or self._must_wait(body):
            return None
        tried = self._tried.pop(key, None) or plan.Tried()
        try:
            with workqueue.retried():
                return await self._reconcile(key, body, tried)
        finally:
            if tried != plan.Tried():
                self._tried[key] = tried

    def deny(self, hosts: tuple[str, ...]) -> None:
        """Replace the cluster's hosts, which BMCs may not reach.

        :param hosts: see `config_map.Denied`
        """
        self._defaults = deployments.with_cluster_hosts(self._defaults, hosts)

    def is_writing(self, body: objects.VirtualMachineBMC) -> bool:
        """Tell whether a BMC is as a write of its status makes it whose answer
        has not arrived: nothing is left to reconcile.
        """
        return self._writing.get(object_cache.object_key(body)) == (
            _outcome(body, body.get('status')))

    def forget(self, key: objects.ObjectKey) -> None:
        """Drop a BMC that was deleted."""
        self._tried.pop(key, None)

    def _must_wait(self, body: objects.VirtualMachineBMC) -> bool:
        """Tell whether a BMC waits for the list of Routes."""
        if self._store.route_problem(
                body['metadata']['namespace']) != routes.UNLISTED:
            return False
        bmc = spec.read(body)
        return bmc.route is not None and not bmc.deleting

    async def _reconcile(self, key: objects.ObjectKey,
                         body: objects.VirtualMachineBMC,
                         tried: plan.Tried) -> float | None:
        confirmed = False
        # Steps of each object.
        done: collections.Counter[str] = collections.Counter()
        given = _read(body)
        while True:
            known = await self._observe(given, body, tried)
            bmc = verdict.served(given, known)
            judged = verdict.judge(bmc, known, self._defaults)
            desired = desired_state.of(bmc, known, judged, self._defaults)
            steps, waiting = self._limit_upgrades(key, plan.steps(
                bmc, known, judged, desired, tried))
            if not steps:
                break
            if any(number >= _MAX_STEPS for number in done.values()):
                LOG.warning(
                    "Another client repeatedly reverts changes of this BMC's "
                    'objects: find it by their managedFields; next attempt in '
                    '%d s', workqueue.LONGEST_PAUSE / 4)
                raise workqueue.Failure(workqueue.LONGEST_PAUSE / 4)
            if not confirmed and (known.observed_generation is not None
                                  or not all(map(_is_creation, steps))):
                # The watch may lag: change nothing for a deleted BMC, and
                # create nothing again. What is created for a new one that is
                # deleted already is removed as usual after a deletion.
                latest = await self._read_bmc(key)
                if latest is None:
                    return None
                body, confirmed, before = latest, True, given
                given = _read(body)
                if given != before:
                    continue
            try:
                await self._execute(bmc, body, steps, known, tried, done)
            finally:
                self._upgrade_slots.update(key, rollout.is_stopped(
                    self._store.get(
                        bmc_resources.DEPLOYMENT, bmc.namespace,
                        naming.base(bmc.name))))
                self._upgrade_slots.release(key)
            if all(isinstance(step, (plan.Claim, plan.Enter))
                   for step in steps):
                # The shared pod follows, and then another reconcile.
                return shards.RECENT_SECONDS
            latest = self._store.bmc(key)
            if latest is None:
                return None
            if latest != body:
                body, given = latest, _read(latest)
        # Objects of other BMCs are watched by their label.
        self._foreign_objects.watch(key, [
            ref for ref in verdict.foreign_refs(bmc, known.live)
            if not naming.made_by_us(known.live[ref])])
        if bmc.deleting:
            return None
        if (known.placed.recent and not known.placed.problem
                and judged.starting):
            # The shared pod is about to serve it: one status instead of two.
            return shards.RECENT_SECONDS
        await self._write_status(
            bmc, body, known, judged.while_upgrade_waits() if waiting
            else judged)
        return _seconds_to_next(known, judged)

    async def _execute(self, bmc: spec.Bmc, body: objects.VirtualMachineBMC,
                       steps: list[plan.Step], known: facts.Facts,
                       tried: plan.Tried, done: collections.Counter[str]
                       ) -> None:
        rejection = None
        for step in steps:
            done[executor.subject(step, bmc)] += 1
            try:
                await self._executor.execute(bmc, step, known, tried)
            except executor.PlanOutdated:
                break
            except (errors.Rejected, errors.AccessDenied) as e:
                rejection = executor.subject(step, bmc), e
                if not isinstance(e, executor.Closed):
                    break
        if rejection is not None:
            if not _is_temporary(rejection[1]):
                await self._report_rejection(
                    bmc, body, await self._observe(bmc, body, tried),
                    *rejection)
            raise rejection[1]

    async def _observe(self, bmc: spec.Bmc, body: objects.VirtualMachineBMC,
                       tried: plan.Tried) -> facts.Facts:
        store = self._store
        auth, source, tls, user_tls, state = [
            await store.secrets.get(reference) if reference else None
            for reference in facts.secret_refs(bmc)]
        digits = not naming.begins_with_digit(
            naming.vm_service(bmc)) or await self._has_digits()
        # Nothing is awaited from here on: all is of one moment.
        live = store.objects_of(bmc)
        known = facts.Facts(
            live, store.machines.last(bmc.vm), auth, source, tls, user_tls,
            state, boot_override=store.machines.boot_override(bmc.vm),
            placed=self._shards.placement_of(bmc),
            finalizers=tuple(body['metadata'].get('finalizers') or ()),
            observed_generation=(body.get('status') or {}).get(
                'observedGeneration'),
            reserved=store.reserves_vm_service(bmc), digits=digits,
            route_problem=store.route_problem(bmc.namespace),
            route_conflict=plan.has_route_conflict(
                live.get(bmc_resources.ObjectRef(
                    bmc_resources.ROUTE.kind, bmc.namespace,
                    naming.route(bmc))), tried))
        if bmc.deleting or not deployments.is_issued(bmc):
            return known
        try:
            return dataclasses.replace(
                known, authority=await self._authority.get())
        except (errors.Rejected, errors.AccessDenied) as e:
            # Without it no plan is made, but the status is written.
            if not _is_temporary(e):
                await self._report_rejection(
                    bmc, body, known, 'Secret ' + naming.AUTHORITY, e)
            raise

    async def _has_digits(self) -> bool:
        """Tell whether names of Services may begin with a digit."""
        version = feature_gates.number(await self._api.version())
        return version is None or version >= naming.DIGITS_SINCE

    async def _read_bmc(
            self, key: objects.ObjectKey) -> objects.VirtualMachineBMC | None:
        """Read a BMC; None if it is gone."""
        known = self._store.bmc(key)
        try:
            body = await self._api.get(bmc_resources.BMC, *key)
        except errors.ObjectNotFound:
            self._store.drop_bmc(key)
            return None
        self._store.put_bmc(body)
        if known and body['metadata']['uid'] != known['metadata']['uid']:
            # The store has another BMC of that name.
            raise workqueue.Failure
        return body

    def _limit_upgrades(
            self, key: objects.ObjectKey,
            steps: list[plan.Step]) -> tuple[list[plan.Step], bool]:
        """Remove the steps that must wait for a slot of the rollout.

        :returns: the remaining steps, and whether some were removed
        """
        if not any(map(_is_upgrade, steps)):
            self._upgrade_slots.withdraw(key)
            return steps, False
        if not self._upgrade_slots.acquire(key):
            return [step for step in steps if not _is_upgrade(step)], True
        return [rollout.annotated(step) if _is_upgrade(step) else step
                for step in steps], False

    async def _report_rejection(self, bmc: spec.Bmc,
                                body: objects.VirtualMachineBMC,
                                known: facts.Facts, subject: str,
                                error: Exception) -> None:
        """Report in the status what the API server has rejected."""
        bmc = verdict.served(bmc, known)
        known = dataclasses.replace(known, refused=facts.Refusal(
            subject, str(error)[:_MAX_MESSAGE_LENGTH]))
        await self._write_status(bmc, body, known, verdict.judge(
            bmc, known, self._defaults))

    async def _write_status(self, bmc: spec.Bmc,
                            body: objects.VirtualMachineBMC,
                            known: facts.Facts, judged: verdict.Verdict
                            ) -> None:
        """Write the status, and its Events, if it has changed."""
        old = body.get('status') or {}
        now = events.now()
        new = conditions.status(bmc, known, judged, old, now)
        if new == old:
            return
        # Before the status: a repeated Event is only counted, but one that was
        # not written before a crash would be lost.
        for event in events.of_change(
                old.get('conditions'), new['conditions']):
            await events.record(self._api, bmc, event, now)
        self._writing[bmc.key] = _outcome(body, new)
        try:
            # Not a merge patch, of which the API server reads the status only:
            # it could change another BMC of that name.
            answer = await self._api.patch(
                bmc_resources.BMC, bmc.namespace, bmc.name, [
                    {'op': 'test', 'path': '/metadata/uid',
                     'value': bmc.uid},
                    *_kept_by_others(old),
                    {'op': 'add', 'path': '/status', 'value': new}],
                'status')
        except errors.ObjectNotFound:
            self._store.drop_bmc(bmc.key)
            return
        finally:
            del self._writing[bmc.key]
        if _planned_fields(answer) == _planned_fields(body):
            # Otherwise a user has changed the BMC meanwhile: leave it to the
            # watch, as an object that is stored already is not reconciled.
            self._store.put_bmc(answer)
        before = conditions.ready_reason(old)
        after = conditions.ready_reason(new)
        if before != after:
            LOG.info('%s: %s', after, new['conditions'][-1]['message'])


def _is_creation(step: plan.Step) -> bool:
    """Tell whether a step creates an object, or enters the shared pod."""
    match step:
        case plan.Create() | plan.Claim() | plan.Enter():
            return True
        case plan.Generate() | plan.Copy() | plan.Issue():
            return step.uid is None
    return False


def _is_upgrade(step: plan.Step) -> typing.TypeGuard[plan.Apply]:
    return isinstance(step, plan.Apply) and step.upgrade


def _read(body: objects.VirtualMachineBMC) -> spec.Bmc:
    """Read a BMC; one that its BareMetalHost still needs is not deleted yet.

    A deletion in the foreground deletes its objects first. They are created
    again when the garbage collector has finished.
    """
    bmc = spec.read(body)
    finalizers = body['metadata'].get('finalizers') or ()
    if (stored_names.HOST_FINALIZER in finalizers
            and _FOREGROUND not in finalizers):
        return dataclasses.replace(bmc, deleting=False)
    return bmc


def _kept_by_others(
        status: objects.VirtualMachineBMCStatus) -> list[objects.Json]:
    """Make operations of a JSON patch: what `metal3.host_controller` has
    written is what the new status repeats."""
    return [{'op': 'test', 'path': '/status/bareMetalHost', 'value': host}
            for host in [status.get('bareMetalHost')] if host]


def _planned_fields(body: objects.VirtualMachineBMC) -> list[typing.Any]:
    """Return the parts of a BMC that the plan depends on."""
    # Not all annotations: the store leaves one of kubectl out.
    return [body.get('spec'),
            objects.annotations_of(body).get(stored_names.SIZE_MARGIN),
            *map(body['metadata'].get, (
                'uid', 'generation', 'finalizers', 'deletionTimestamp'))]


def _outcome(body: objects.VirtualMachineBMC,
             status: objects.VirtualMachineBMCStatus | None
             ) -> list[typing.Any]:
    """Return what a BMC is compared by after a write of its status.

    :param status: the written one
    """
    return [*_planned_fields(body), status]


def _is_temporary(error: Exception) -> bool:
    """Tell whether an error is temporary: its object or namespace was deleted.
    """
    return isinstance(error, (errors.ObjectNotFound,
                              errors.NamespaceTerminating))


def _seconds_to_next(known: facts.Facts, judged: verdict.Verdict
                     ) -> float | None:
    """Return seconds until the certificate must be renewed, or a user's
    certificate becomes valid or expires; None without such a time.
    """
    due = None
    if judged.validity:
        due = next((time for time in judged.validity if time > known.now),
                   None)
    elif known.authority and known.tls and known.tls.certificate:
        due = pki.renewal(known.tls.certificate)
    if due is None:
        return None
    return max((due - datetime.datetime.now(datetime.UTC)).total_seconds(), 1)
