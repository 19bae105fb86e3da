# SPDX-License-Identifier: Apache-2.0
"""Executes the steps of a plan, with one or a few requests each.

Responses are put into the cache at once, before the watches report them.
"""

from __future__ import annotations

import logging

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import drift
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import observed_state
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator import secret_summary

LOG = logging.getLogger(__name__)


def subject(step, bmc):
    """Name the object of a step.

    :param step: one of `plan`
    :param bmc: a `spec.Bmc`
    :returns: 'Kind name'
    """
    body = getattr(step, 'body', None)
    if body is not None:
        return f"{body['kind']} {body['metadata']['name']}"
    if isinstance(step, plan.Delete):
        return f'{step.resource.kind} {step.target.name}'
    if isinstance(step, (plan.Generate, plan.Adopt, plan.Copy)):
        return 'Secret ' + naming.auth(bmc.name)
    if isinstance(step, plan.Issue):
        return 'Secret ' + naming.tls(bmc.name)
    if isinstance(step, plan.EndUpgrade):
        return 'Deployment ' + naming.base(bmc.name)
    return f'{naming.KIND} {bmc.name}'


class PlanOutdated(Exception):
    """The state has changed since the plan was made: the remaining steps may
    be wrong, and a new plan is needed."""


class Closed(errors.Rejected):
    """The API server rejects a NetworkPolicy. One that admits no clients is in
    its place, so that the remaining steps are safe."""


class Executor:
    """Executes steps.

    :param api: an `api.Api`
    :param cache: a `cache.Cache`
    :param shards: a `shards.Shards`; None if no step is about a shared pod
    """

    def __init__(self, api, cache, shards=None) -> None:
        self._api = api
        self._cache = cache
        self._shards = shards
        self._handlers = {
            plan.Create: self._create, plan.Apply: self._apply,
            plan.Replace: self._replace, plan.Delete: self._delete,
            plan.Generate: self._generate, plan.Adopt: self._adopt,
            plan.Copy: self._copy,
            plan.Issue: self._issue, plan.EndUpgrade: self._end_upgrade,
            plan.Finalizer: self._finalizer, plan.Claim: self._claim,
            plan.Enter: self._enter, plan.Revoke: self._revoke,
            plan.Leave: self._leave}

    async def execute(self, bmc, step, seen, tried):
        """Execute a step.

        :param bmc: a `spec.Bmc`
        :param step: one of `plan`
        :param seen: `observed_state.ObservedState`
        :param tried: steps that did not have the desired effect are added
        :raises: `PlanOutdated`, `Closed`, `errors.MachineError`
        """
        LOG.debug('%s: %s', type(step).__name__, subject(step, bmc))
        try:
            await self._handlers[type(step)](bmc, step, seen, tried)
        except errors.NamespaceTerminating:
            raise
        except errors.Rejected as e:
            if getattr(step, 'body', {}).get('kind') != 'NetworkPolicy':
                raise
            await self._close(step)
            raise Closed(str(e)) from None

    async def _close(self, step) -> None:
        """Admit no clients in place of a NetworkPolicy that was rejected.

        The former one, or none, may admit more than its author now wants.
        """
        resource, *names = at = _ref(step.body)
        body = {**step.body, 'spec': {**step.body['spec'], 'ingress': []}}
        if isinstance(step, plan.Create):
            closed = await self._api.create(*at[:2], body)
        else:
            closed = await self._api.apply(*at, body)
        self._put_in_cache(resource, closed)
        LOG.warning('NetworkPolicy %s/%s admits no clients, as the API server '
                    'rejects the one that is wanted', *names)

    async def _create(self, bmc, step, seen, tried):
        resource, namespace, name = _ref(step.body)
        try:
            made = await self._api.create(resource, namespace, step.body)
        except errors.Conflict:
            # Created by the previous leader, or foreign.
            await self._read(resource, namespace, name)
            raise PlanOutdated from None
        self._put_in_cache(resource, made)

    async def _apply(self, bmc, step, seen, tried):
        body, live = step.body, await self._read_target(step)
        resource, *_ = at = _ref(body)
        entries = _adopted_fields(live['metadata'].get('managedFields') or ())
        if entries:
            # Apply would never remove fields that a POST has set.
            live = await self._api.patch(*at, [
                {'op': 'test', 'path': '/metadata/resourceVersion',
                 'value': live['metadata']['resourceVersion']},
                {'op': 'replace', 'path': '/metadata/managedFields',
                 'value': entries}])
            # `attempt` below depends on its version.
            self._put_in_cache(resource, live)
        ref = bmc_resources.ref(body)
        try:
            made = await self._api.apply(*at, {
                **body, 'metadata': {**body['metadata'], 'uid': step.uid}})
        except errors.Rejected:
            # Fields of other clients may be incompatible with the desired
            # ones, such as rollingUpdate with strategy Recreate.
            attempt = plan.attempt(plan.Apply, body, live)
            if tried.attempts.get(ref) == attempt:
                raise
            tried.attempts[ref] = attempt
            raise PlanOutdated from None
        self._put_in_cache(resource, made)
        if drift.differs(body, made):
            tried.attempts[ref] = plan.attempt(plan.Apply, body, made)

    async def _replace(self, bmc, step, seen, tried) -> None:
        body, live = step.body, await self._read_target(step)
        resource, *_ = at = _ref(body)
        patch = [{'op': 'test', 'path': '/metadata/resourceVersion',
                  'value': live['metadata']['resourceVersion']}]
        for part in ('labels', 'annotations'):
            patch.append({
                'op': 'add', 'path': '/metadata/' + part,
                'value': {**live['metadata'].get(part, {}),
                          **body['metadata'].get(part, {})}})
        if body['kind'] == 'Service':
            body = network.allocated(body, live)
        patch += [{'op': 'add', 'path': '/' + part, 'value': value}
                  for part, value in body.items() if part not in (
                      'apiVersion', 'kind', 'metadata', 'roleRef')]
        made = await self._api.patch(*at, patch)
        self._put_in_cache(resource, made)
        if drift.differs(body, made):
            # As in `plan`: the desired object without fields that the cluster
            # has set.
            tried.attempts[bmc_resources.ref(body)] = plan.attempt(
                plan.Replace, step.body, made)

    async def _delete(self, bmc, step, seen, tried):
        at = step.target
        try:
            await self._api.delete(step.resource, at.namespace, at.name,
                                   step.uid)
        except errors.ObjectNotFound:
            pass
        except errors.Conflict:
            # The object was replaced by another one of that name.
            await self._read(step.resource, at.namespace, at.name)
            raise PlanOutdated from None
        if step.conflict:
            tried.route_conflict = step.conflict
        if step.resource == bmc_resources.SECRET:
            self._cache.secrets.drop(at.namespace, at.name)
        else:
            self._cache.objects.drop(step.resource, at.namespace, at.name)

    async def _generate(self, bmc, step, seen, tried) -> None:
        made = credentials.generated(bmc)
        if step.uid is None:
            await self._create(bmc, plan.Create(made), seen, tried)
            return
        await self._patch_data(made, step.uid, {
            key: made['data'][key] for key in step.missing_keys})

    async def _adopt(self, bmc, step, seen, tried):
        at = (bmc_resources.SECRET, bmc.namespace, naming.auth(bmc.name))
        live = await self._api.get(*at)
        if (live['metadata']['uid'] != step.uid
                or not credentials.is_left_over(bmc, live)):
            self._cache.secrets.take(live)
            raise PlanOutdated
        self._put_in_cache(bmc_resources.SECRET, await self._api.patch(*at, [
            {'op': 'test', 'path': '/metadata/resourceVersion',
             'value': live['metadata']['resourceVersion']},
            {'op': 'add', 'path': '/metadata/ownerReferences',
             'value': credentials.adopted_owners(bmc, live)}]))
        LOG.info('Secret %s of a deleted BMC of this name is adopted, as a '
                 'BareMetalHost uses it', at[2])

    async def _copy(self, bmc, step, seen, tried):
        refs = observed_state.secret_refs(bmc)
        source = await self._api.get(
            bmc_resources.SECRET, refs.source.namespace, refs.source.name)
        found = self._cache.secrets.take(source)
        if found.missing_keys or not permissions.reference_permitted(
                bmc.namespace, found.obj):
            raise PlanOutdated
        made = credentials.copied(bmc, source)
        if step.uid is None:
            await self._create(bmc, plan.Create(made), seen, tried)
            return
        await self._patch_data(made, step.uid, {
            key: made['data'].get(key) for key in credentials.KEYS})

    async def _issue(self, bmc, step, seen, tried) -> None:
        pair = pki.issue(seen.authority.pair, step.names)
        made = {
            'apiVersion': 'v1', 'kind': 'Secret',
            'type': 'kubernetes.io/tls',
            'metadata': naming.metadata(bmc, naming.tls(bmc.name)),
            'data': secret_summary.data(pair)}
        if step.uid is None:
            await self._create(bmc, plan.Create(made), seen, tried)
            return
        await self._patch_data(made, step.uid, made['data'])

    async def _end_upgrade(self, bmc, step, seen, tried) -> None:
        name = naming.base(bmc.name)
        self._put_in_cache(bmc_resources.DEPLOYMENT, await self._api.patch(
            bmc_resources.DEPLOYMENT, bmc.namespace, name, {'metadata': {
                'uid': step.uid, 'annotations': {naming.UPGRADING: None}}}))

    async def _finalizer(self, bmc, step, seen, tried):
        body = await self._api.get(bmc_resources.BMC, bmc.namespace, bmc.name)
        metadata = body['metadata']
        there = metadata.get('finalizers') or []
        wanted = [one for one in there if one != naming.FINALIZER]
        if step.on:
            wanted.append(naming.FINALIZER)
        if metadata['uid'] != bmc.uid or wanted == there:
            self._cache.put_bmc(body)
            raise PlanOutdated
        body = await self._api.patch(
            bmc_resources.BMC, bmc.namespace, bmc.name, {'metadata': {
                'resourceVersion': metadata['resourceVersion'],
                'finalizers': wanted or None}})
        if not step.on and not wanted:
            # Without finalizers the BMC is deleted.
            self._cache.drop_bmc((bmc.namespace, bmc.name))
            return
        self._cache.put_bmc(body)

    async def _claim(self, bmc, step, seen, tried) -> None:
        self._shards.claim(bmc)

    async def _enter(self, bmc, step, seen, tried) -> None:
        self._shards.enter(bmc, step.text)

    async def _revoke(self, bmc, step, seen, tried) -> None:
        self._shards.revoke(bmc)

    async def _leave(self, bmc, step, seen, tried) -> None:
        self._shards.release((bmc.namespace, bmc.name))

    async def _patch_data(self, made, uid, data) -> None:
        metadata = made['metadata']
        self._put_in_cache(bmc_resources.SECRET, await self._api.patch(
            bmc_resources.SECRET, metadata['namespace'], metadata['name'],
            {'metadata': {'uid': uid, 'labels': metadata['labels']},
             'data': data}))

    async def _read_target(self, step):
        """Read the object that a step is to change."""
        live = await self._read(*_ref(step.body))
        if live is None or live['metadata']['uid'] != step.uid:
            raise PlanOutdated
        return live

    async def _read(self, resource, namespace, name):
        try:
            obj = await self._api.get(resource, namespace, name)
        except errors.ObjectNotFound:
            self._cache.objects.drop(resource, namespace, name)
            return None
        self._put_in_cache(resource, obj)
        return obj

    def _put_in_cache(self, resource, obj) -> None:
        if resource == bmc_resources.SECRET:
            self._cache.secrets.take(obj)
        else:
            self._cache.objects.put(resource, obj)


def _ref(body):
    metadata = body['metadata']
    return bmc_resources.of(body), metadata['namespace'], metadata['name']


def _adopted_fields(entries):
    """Transfer fields that the operator set otherwise to server-side apply.

    A POST or another patch has an entry of its own in managedFields, and its
    fields stay when an apply leaves them out. client-go has
    ``util/csaupgrade`` for the same.

    :param entries: list of dicts, managedFields
    :returns: list of the new entries; None if there is nothing to change
    """
    mine = [one for one in entries if one.get('manager') == naming.OPERATOR
            and not one.get('subresource')]
    if all(one.get('operation') == 'Apply' for one in mine):
        return None
    fields = {}
    for one in mine:
        _merge(fields, one.get('fieldsV1') or {})
    return [one for one in entries if one not in mine] + [{
        **mine[0], 'operation': 'Apply', 'fieldsV1': fields}]


def _merge(into, other) -> None:
    for name, value in other.items():
        _merge(into.setdefault(name, {}), value)
