# SPDX-License-Identifier: Apache-2.0
"""Executes the steps of a plan, with one or a few requests each.

Responses are put into the store at once, before the watches report them.
"""

from __future__ import annotations

from collections import abc
import logging
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import drift
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator import secret_summary

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import api
    from sushy_kubevirt.operator import facts
    from sushy_kubevirt.operator import spec
    from sushy_kubevirt.operator import store

LOG = logging.getLogger(__name__)


def subject(step: plan.Step, bmc: spec.Bmc) -> str:
    """Name the object of a step, as 'Kind name'."""
    if isinstance(step, plan.Change):
        return _object(step)
    match step:
        case plan.Generate() | plan.Adopt() | plan.Copy():
            return 'Secret ' + naming.auth(bmc.name)
        case plan.Issue():
            return 'Secret ' + naming.tls(bmc.name)
        case plan.EndUpgrade():
            return 'Deployment ' + naming.base(bmc.name)
    return f'{naming.KIND} {bmc.name}'


def _object(step: plan.Change) -> str:
    return str(step.ref if isinstance(step, plan.Delete)
               else bmc_resources.ref(step.body))


class PlanOutdated(Exception):
    """The state has changed since the plan was made: the remaining steps may
    be wrong, and a new plan is needed."""


class Closed(errors.Rejected):
    """The API server rejects a NetworkPolicy. One that admits no clients is in
    its place, so that the remaining steps are safe."""


class Slots(typing.Protocol):
    """Gives BMCs slots of shared pods: `shards.Shards`, which imports this
    module."""

    def claim(self, bmc: spec.Bmc) -> None:
        """Give a BMC a slot."""

    def enter(self, bmc: spec.Bmc, text: str) -> None:
        """Set the entry of a BMC."""

    def revoke(self, bmc: spec.Bmc) -> None:
        """Take the rights to the VM of a BMC from its pod."""

    def release(self, key: objects.ObjectKey) -> None:
        """Free the slot of a BMC."""


class Executor:
    """Executes the steps of a BMC's plan."""

    def __init__(self, api: api.Api, store: store.Store,
                 slots: Slots) -> None:
        self._api = api
        self._store = store
        self._slots = slots
        self._writer = Writer(api, store)

    async def execute(self, bmc: spec.Bmc, step: plan.Step,
                      facts: facts.Facts, tried: plan.Tried) -> None:
        """Execute a step.

        :param tried: steps that did not have the desired effect are added
        :raises: `PlanOutdated`, `Closed`, `errors.MachineError`
        """
        if isinstance(step, plan.Change):
            await self._writer.change(step, tried)
            return
        LOG.debug('%s: %s', type(step).__name__, subject(step, bmc))
        match step:
            case plan.Generate():
                await self._generate(bmc, step)
            case plan.Adopt():
                await self._adopt(bmc, step)
            case plan.Copy():
                await self._copy(bmc, step)
            case plan.Issue():
                await self._issue(bmc, step, facts)
            case plan.EndUpgrade():
                await self._end_upgrade(bmc, step)
            case plan.Finalizer():
                await self._set_finalizer(bmc, step)
            case plan.Claim():
                self._slots.claim(bmc)
            case plan.Enter():
                self._slots.enter(bmc, step.text)
            case plan.Revoke():
                self._slots.revoke(bmc)
            case plan.Leave():
                self._slots.release(bmc.key)

    async def _generate(self, bmc: spec.Bmc, step: plan.Generate) -> None:
        secret = credentials.generated(bmc)
        if step.uid is None:
            await self._writer.create(secret)
            return
        await self._patch_data(secret, step.uid, {
            key: secret['data'][key] for key in step.missing_keys})

    async def _adopt(self, bmc: spec.Bmc, step: plan.Adopt) -> None:
        name = naming.auth(bmc.name)
        live = await self._api.get(bmc_resources.SECRET, bmc.namespace, name)
        if (live['metadata']['uid'] != step.uid
                or not credentials.is_left_over(bmc, live)):
            self._store.put(live)
            raise PlanOutdated
        self._store.put(await self._api.patch(
            bmc_resources.SECRET, bmc.namespace, name, [
                {'op': 'test', 'path': '/metadata/resourceVersion',
                 'value': live['metadata']['resourceVersion']},
                {'op': 'add', 'path': '/metadata/ownerReferences',
                 'value': credentials.adopted_owners(bmc, live)}]))
        LOG.info('Secret %s of a deleted BMC of this name is adopted, as a '
                 'BareMetalHost uses it', name)

    async def _copy(self, bmc: spec.Bmc, step: plan.Copy) -> None:
        assert bmc.auth is not None
        source = await self._api.get(
            bmc_resources.SECRET, bmc.auth.namespace, bmc.auth.name)
        summary = self._store.secrets.take(source)
        if summary.missing_keys or not permissions.reference_permitted(
                bmc.namespace, summary.obj):
            raise PlanOutdated
        secret = credentials.copied(bmc, source)
        if step.uid is None:
            await self._writer.create(secret)
            return
        await self._patch_data(secret, step.uid, {
            key: secret['data'].get(key) for key in credentials.KEYS})

    async def _issue(self, bmc: spec.Bmc, step: plan.Issue,
                     facts: facts.Facts) -> None:
        assert facts.authority is not None
        names = step.names
        if step.for_new_service:
            service = self._store.get(bmc_resources.SERVICE, bmc.namespace,
                                      naming.base(bmc.name))
            address = (service and naming.is_ours(bmc, service)
                       and endpoints.cluster_ip(service))
            if not address:
                raise PlanOutdated
            names += address,
        pair = pki.issue(facts.authority.pair, names)
        secret: objects.Json = {
            'apiVersion': 'v1', 'kind': 'Secret',
            'type': 'kubernetes.io/tls',
            'metadata': naming.metadata(bmc, naming.tls(bmc.name)),
            'data': secret_summary.data(pair)}
        if step.uid is None:
            await self._writer.create(secret)
            return
        await self._patch_data(secret, step.uid, secret['data'])

    async def _end_upgrade(self, bmc: spec.Bmc, step: plan.EndUpgrade) -> None:
        resource = bmc_resources.DEPLOYMENT
        self._store.put(await self._api.patch(
            resource, bmc.namespace, naming.base(bmc.name), {'metadata': {
                'uid': step.uid,
                'annotations': {stored_names.UPGRADING: None}}}))

    async def _set_finalizer(self, bmc: spec.Bmc, step: plan.Finalizer
                             ) -> None:
        body = await self._api.get(bmc_resources.BMC, bmc.namespace, bmc.name)
        metadata = body['metadata']
        present = metadata.get('finalizers') or []
        wanted = [finalizer for finalizer in present
                  if finalizer != stored_names.ELSEWHERE]
        if step.on:
            wanted.append(stored_names.ELSEWHERE)
        if metadata['uid'] != bmc.uid or wanted == present:
            self._store.put_bmc(body)
            raise PlanOutdated
        body = await self._api.patch(
            bmc_resources.BMC, bmc.namespace, bmc.name, {'metadata': {
                'resourceVersion': metadata['resourceVersion'],
                'finalizers': wanted or None}})
        if not step.on and not wanted:
            # Without finalizers the BMC is deleted.
            self._store.drop_bmc(bmc.key)
            return
        self._store.put_bmc(body)

    async def _patch_data(self, secret: objects.Json, uid: str,
                          data: abc.Mapping[str, str | None]) -> None:
        metadata = secret['metadata']
        self._store.put(await self._api.patch(
            bmc_resources.SECRET, metadata['namespace'], metadata['name'],
            {'metadata': {'uid': uid, 'labels': metadata['labels']},
             'data': data}))


class Writer:
    """Executes the steps on objects of BMCs and of shards."""

    def __init__(self, api: api.Api, store: store.Store) -> None:
        self._api = api
        self._store = store

    async def change(self, step: plan.Change, tried: plan.Tried) -> None:
        """Execute a step; see `Executor.execute`."""
        LOG.debug('%s: %s', type(step).__name__, _object(step))
        if isinstance(step, plan.Delete):
            await self._delete(step, tried)
            return
        try:
            match step:
                case plan.Create():
                    await self.create(step.body)
                case plan.Apply():
                    await self._apply(step, tried)
                case plan.Replace():
                    await self._replace(step, tried)
        except errors.NamespaceTerminating:
            raise
        except errors.Rejected as e:
            if step.body['kind'] != 'NetworkPolicy':
                raise
            await self._close(step)
            raise Closed(str(e)) from None

    async def create(self, body: objects.Json) -> None:
        """Create an object.

        :raises: `PlanOutdated` if it exists
        """
        ref = bmc_resources.ref(body)
        try:
            self._store.put(await self._api.create(
                ref.resource, ref.namespace, body))
        except errors.Conflict:
            # Created by the previous leader, or foreign.
            await self._read(ref)
            raise PlanOutdated from None

    async def _close(self, step: plan.Create | plan.Apply | plan.Replace
                     ) -> None:
        """Admit no clients in place of a NetworkPolicy that was rejected.

        The former one, or none, may admit more than its author now wants.
        """
        ref = bmc_resources.ref(step.body)
        body = {**step.body, 'spec': {**step.body['spec'], 'ingress': []}}
        if isinstance(step, plan.Create):
            closed = await self._api.create(ref.resource, ref.namespace, body)
        else:
            closed = await self._api.apply(*ref.target, body)
        self._store.put(closed)
        LOG.warning('NetworkPolicy %s/%s admits no clients, as the API server '
                    'rejects the one that is wanted', ref.namespace, ref.name)

    async def _apply(self, step: plan.Apply, tried: plan.Tried) -> None:
        body, live = step.body, await self._read_target(step)
        ref = bmc_resources.ref(body)
        entries = _adopted_fields(live['metadata'].get('managedFields') or ())
        if entries:
            # Apply would never remove fields that a POST has set.
            live = await self._api.patch(*ref.target, [
                {'op': 'test', 'path': '/metadata/resourceVersion',
                 'value': live['metadata']['resourceVersion']},
                {'op': 'replace', 'path': '/metadata/managedFields',
                 'value': entries}])
            # `attempt` below depends on its version.
            self._store.put(live)
        try:
            applied = await self._api.apply(*ref.target, {
                **body, 'metadata': {**body['metadata'], 'uid': step.uid}})
        except errors.Rejected:
            # Fields of other clients may be incompatible with the desired
            # ones, such as rollingUpdate with strategy Recreate.
            attempt = plan.attempt(plan.Apply, body, live)
            if tried.attempts.get(ref) == attempt:
                raise
            tried.attempts[ref] = attempt
            raise PlanOutdated from None
        self._store.put(applied)
        if drift.differs(body, applied):
            tried.attempts[ref] = plan.attempt(plan.Apply, body, applied)

    async def _replace(self, step: plan.Replace, tried: plan.Tried) -> None:
        body, live = step.body, await self._read_target(step)
        ref = bmc_resources.ref(body)
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
        replaced = await self._api.patch(*ref.target, patch)
        self._store.put(replaced)
        if drift.differs(body, replaced):
            # As in `plan`: the desired object without fields that the cluster
            # has set.
            tried.attempts[ref] = plan.attempt(
                plan.Replace, step.body, replaced)

    async def _delete(self, step: plan.Delete, tried: plan.Tried) -> None:
        try:
            await self._api.delete(*step.ref.target, step.uid)
        except errors.ObjectNotFound:
            pass
        except errors.Conflict:
            # The object was replaced by another one of that name.
            await self._read(step.ref)
            raise PlanOutdated from None
        if step.conflict:
            tried.route_conflict = step.conflict
        self._store.drop(*step.ref.target)

    async def _read_target(self, step: plan.Apply | plan.Replace
                           ) -> objects.Json:
        """Read the object that a step is to change."""
        live = await self._read(bmc_resources.ref(step.body))
        if live is None or live['metadata']['uid'] != step.uid:
            raise PlanOutdated
        return live

    async def _read(self, ref: bmc_resources.ObjectRef
                    ) -> objects.Json | None:
        try:
            obj: objects.Json = await self._api.get(*ref.target)
        except errors.ObjectNotFound:
            if ref.resource != bmc_resources.SECRET:
                self._store.drop(*ref.target)
            # A Secret: the watch reports the deletion, or has reported
            # another one already.
            return None
        self._store.put(obj)
        return obj


def _adopted_fields(entries: abc.Sequence[objects.Json]
                    ) -> list[objects.Json] | None:
    """Transfer fields that the operator set otherwise to server-side apply.

    A POST or another patch has an entry of its own in managedFields, and its
    fields stay when an apply leaves them out. client-go has
    ``util/csaupgrade`` for the same.

    :param entries: managedFields
    :returns: the new entries; None if there is nothing to change
    """
    mine = [entry for entry in entries
            if entry.get('manager') == naming.OPERATOR
            and not entry.get('subresource')]
    if all(entry.get('operation') == 'Apply' for entry in mine):
        return None
    fields: objects.Json = {}
    for entry in mine:
        _merge(fields, entry.get('fieldsV1') or {})
    return [entry for entry in entries if entry not in mine] + [{
        **mine[0], 'operation': 'Apply', 'fieldsV1': fields}]


def _merge(into: objects.Json, other: objects.Json) -> None:
    for name, value in other.items():
        _merge(into.setdefault(name, {}), value)
