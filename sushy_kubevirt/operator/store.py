# SPDX-License-Identifier: Apache-2.0
"""The objects that the operator watches: one watch per kind and namespace.

A `Kind` lists and watches the objects of one kind, has a `cache.Kept` of them,
and tells its subscribers of changes. Controllers subscribe and
read; none has a watch of its own. The `Store` has the kinds, and an index of
the BMCs that use an object. It is empty when the operator starts.

Answers to requests are stored, too: the event of such a write, which comes
later, then changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import abc
import itertools
import logging
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import retry
from sushy_kubevirt.kube import watcher
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import cache
from sushy_kubevirt.operator import facts
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import spec

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.operator import command_line

LOG = logging.getLogger(__name__)

#: Seconds between attempts to list a kind that a cluster may get later; the
#: longest pause before Secrets are listed again.
SERVED_SECONDS = 10

_OWNED = *bmc_resources.OWNED, bmc_resources.ROUTE

#: Kinds whose objects are named after their BMC alone. The index has one entry
#: for all of a name: one for each would take a tenth of the memory of a BMC.
_NAMESAKES = {resource.kind: resource for resource in _OWNED
              if resource != bmc_resources.SERVICE}

#: Kind of these entries.
_ANY = ''


class Change(typing.NamedTuple):
    """An event of a watch, or an answer that was stored.

    :param obj: the object as it arrived; as it was kept if a list lacks it,
        and None if nothing of it was kept
    :param gone: whether it was deleted, or does not match the selector now
    :param changed: whether what is kept of it has changed
    """

    key: objects.ObjectKey
    obj: typing.Any
    gone: bool
    changed: bool


class _Subscriber(typing.NamedTuple):
    changed: abc.Callable[[Change], object]
    listed: abc.Callable[[str | None], object]
    all_events: bool
    writer: object


class Kind:
    """The objects of one kind, their watch, and its subscribers.

    :param namespaces: (None,) for all
    :param confirms: whether an object that a list lacks is read before it is
        removed, as the answer that is kept may be newer than the list
    :param prepare: called before a namespace is listed first

    ``listed`` is set when all namespaces were listed once; ``failed`` when a
    watch does not work.
    """

    def __init__(
            self, client: api.Api, resource: api_resources.AnyResource,
            namespaces: abc.Iterable[str | None], kept: cache.Kept,
            label_selector: str = '', field_selector: str = '',
            metadata_only: bool = False, confirms: bool = False,
            prepare: abc.Callable[[str | None], abc.Awaitable[None]]
            | None = None) -> None:
        self.resource = resource
        self.kept = kept
        self.listed = asyncio.Event()
        self.failed = asyncio.Event()
        self._api = client
        self._namespaces = tuple(namespaces)
        self._selectors = label_selector, field_selector, metadata_only
        self._confirms = confirms
        self._prepare = prepare
        self._unlisted = set(self._namespaces)
        self._subscribers: list[_Subscriber] = []

    def subscribe(
            self, changed: abc.Callable[[Change], object],
            listed: abc.Callable[[str | None], object]
            = lambda namespace: None, all_events: bool = False,
            writer: object = None) -> None:
        """Be told of changes, after those who have subscribed before.

        :param changed: called after each change
        :param listed: called with a namespace after each complete list
        :param all_events: whether to call ``changed`` also for events that
            have changed nothing that is kept
        :param writer: see `put`
        """
        self._subscribers.append(_Subscriber(
            changed, listed, all_events, writer))

    async def run(self) -> None:
        """Watch, without end."""
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                group.create_task(self.watch(namespace))

    async def is_served(self, namespaces: abc.Collection[str | None] = ()
                        ) -> bool:
        """Ask whether the API server has the kind, and may be asked for lists.

        :param namespaces: () for all that are watched
        :raises: `errors.AccessDenied`, and other `errors.MachineError` if the
            server does not answer
        """
        if not await self._api.serves(self.resource):
            return False
        for namespace in namespaces or self._namespaces:
            await self._api.check_readable(self.resource, namespace)
        return True

    async def wait_until_served(
            self, tell: abc.Callable[[errors.MachineError | None],
                                     abc.Awaitable[None]],
            namespaces: abc.Collection[str | None] = ()) -> None:
        """Wait for a kind that a cluster may get later than the operator.

        :param tell: called before each pause with what `is_served` raised;
            None if the server does not have the kind
        :param namespaces: as in `is_served`
        """
        while True:
            problem = None
            try:
                if await self.is_served(namespaces):
                    return
            except errors.MachineError as e:
                problem = e
            await tell(problem)
            await asyncio.sleep(SERVED_SECONDS)

    async def watch(self, namespace: str | None) -> None:
        """Watch one of the namespaces, without end."""
        if self._prepare is not None:
            await self._prepare(namespace)
        async for kind, content in self._api.watch(
                self.resource, namespace, *self._selectors,
                failed=self.failed.set):
            if kind == api.LISTED:
                await self._take_list(namespace, content)
                continue
            gone = kind == 'DELETED'
            changed = (self.kept.remove if gone else self.kept.put)(content)
            self._tell(Change(object_cache.object_key(content), content, gone,
                              bool(changed)))

    def put(self, obj: typing.Any, writer: object = None) -> bool:
        """Store the answer to a request.

        :param writer: the subscriber of this writer is not told
        :returns: whether this has changed what is kept
        """
        changed = self.kept.put(obj)
        if changed:
            self._tell(Change(object_cache.object_key(obj), obj, False, True),
                       writer)
        return changed

    def drop(self, key: objects.ObjectKey, writer: object = None) -> bool:
        """Remove an object that does not exist any more.

        :param writer: see `put`
        :returns: whether it was kept
        """
        last = self.kept.last(key)
        changed = self.kept.discard(key)
        if changed:
            self._tell(Change(key, last, True, True), writer)
        return changed

    def clear(self) -> None:
        """Forget all objects, and that they were listed."""
        for key in self.kept.keys():
            self.kept.discard(key)
        self.listed.clear()
        self._unlisted = set(self._namespaces)

    def get(self, key: tuple[str, str]) -> typing.Any:
        """Return what is kept of an object, the caller's own, or None."""
        return self.kept.last(objects.ObjectKey(*key))

    def keys(self) -> list[objects.ObjectKey]:
        """Return the keys of all objects."""
        return self.kept.keys()

    async def _take_list(self, namespace: str | None,
                         listed: set[objects.ObjectKey]) -> None:
        for key in self.kept.keys():
            if key not in listed and namespace in (None, key.namespace) and (
                    not self._confirms or await self._is_gone(key)):
                self.drop(key)
        self._unlisted.discard(namespace)
        if not self._unlisted:
            self.listed.set()
        for subscriber in self._subscribers:
            subscriber.listed(namespace)

    async def _is_gone(self, key: objects.ObjectKey) -> bool:
        try:
            await self._api.get(self.resource, *key, metadata_only=True)
        except errors.ObjectNotFound:
            return True
        except errors.MachineError as e:
            # A reconcile reads it before it writes anything.
            LOG.info('%s %s/%s was not listed and could not be read: %s',
                     self.resource.kind, *key, e)
        return False

    def _tell(self, change: Change, writer: object = None) -> None:
        for subscriber in self._subscribers:
            if (change.changed or subscriber.all_events) and (
                    writer is None or subscriber.writer is not writer):
                subscriber.changed(change)


class Store:
    """All kinds, and the BMCs by what they use.

    ``route_problems`` has what `route_problem` returns, by namespace; under
    None, for all namespaces.
    """

    def __init__(self, client: api.Api, options: command_line.Options
                 ) -> None:
        self._api = client
        self.namespaces: tuple[str | None, ...] = (
            options.namespaces or (None,))
        self.machines = cache.VirtualMachines(options)
        self.secrets = cache.Secrets(client)
        self.route_problems: dict[str | None, str | None] = {}
        self._users: dict[bmc_resources.ObjectRef,
                          tuple[objects.ObjectKey, ...]] = {}
        self._refs: dict[objects.ObjectKey,
                         tuple[bmc_resources.ObjectRef, ...]] = {}
        bmcs = self._kind(bmc_resources.BMC, confirms=True)
        bmcs.subscribe(self._index)
        self._kinds = {kind.resource: kind for kind in (
            *(self._kind(resource, label_selector=naming.OURS)
              for resource in _OWNED),
            # Templates of VMs are kept completely.
            self._kind(bmc_resources.VM, self.machines,
                       metadata_only=not options.claim_templates),
            self._kind(bmc_resources.SECRET, self.secrets, metadata_only=True,
                       prepare=self._read_own_secrets), bmcs)}

    def kind(self, resource: api_resources.AnyResource) -> Kind:
        """Look up a kind."""
        return self._kinds[resource]

    def add(self, resource: api_resources.AnyResource,
            namespaces: abc.Iterable[str | None] | None = None,
            keep: abc.Callable[[typing.Any], typing.Any]
            = cache.without_managed_fields) -> Kind:
        """Look up a kind that not every operator needs; add it if need be.

        :param namespaces: None for those of the operator
        :param keep: returns what of an object is kept
        """
        if resource not in self._kinds:
            self._kinds[resource] = Kind(
                self._api, resource, namespaces or self.namespaces,
                cache.Compressed(keep))
        return self._kinds[resource]

    def _kind(self, resource: api_resources.AnyResource,
              kept: cache.Kept | None = None, **more: typing.Any) -> Kind:
        return Kind(self._api, resource, self.namespaces,
                    kept or cache.Compressed(cache.trimmed), **more)

    async def _read_own_secrets(self, namespace: str | None) -> None:
        """Read the Secrets that were created for BMCs with one list; later,
        each is read by name."""
        page_size, told = api.CLIENT_OPTIONS.page_size, ''
        for failures in itertools.count():
            try:
                async for secret in self._api.read_all(
                        bmc_resources.SECRET, namespace, naming.OURS,
                        page_size):
                    self.secrets.take(secret)
                return
            except errors.MachineError as e:
                if isinstance(e, errors.WatchExpired):
                    # The next list takes less time.
                    page_size *= watcher.PAGE_GROWTH
                if str(e) != told:
                    told = str(e)
                    LOG.warning('The Secrets of BMCs cannot be listed yet, '
                                'trying again: %s', e)
                await asyncio.sleep(retry.pause(
                    failures, watcher.FIRST_PAUSE, SERVED_SECONDS,
                    getattr(e, 'retry_after', None)))

    def get(self, resource: api_resources.AnyResource, namespace: str,
            name: str) -> typing.Any:
        """Return what is kept of an object, the caller's own, or None."""
        return self._kinds[resource].get((namespace, name))

    def put(self, obj: typing.Any) -> None:
        """Store the answer to a request without telling subscribers."""
        if obj['kind'] == bmc_resources.SECRET.kind:
            self.secrets.take(obj)
        else:
            self._kinds[bmc_resources.of(obj)].kept.put(obj)

    def drop(self, resource: api_resources.AnyResource, namespace: str,
             name: str) -> None:
        """Remove an object that is gone without telling subscribers."""
        self._kinds[resource].kept.discard(objects.ObjectKey(namespace, name))

    def route_problem(self, namespace: str) -> str | None:
        """Tell why BMCs of a namespace cannot have Routes.

        :returns: `routes.MISSING`, `routes.FORBIDDEN` or `routes.UNLISTED`;
            None if they can
        """
        return self.route_problems.get(
            namespace, self.route_problems.get(None))

    # BMCs. One that names no VM counts as missing.

    def bmc(self, key: objects.ObjectKey) -> objects.VirtualMachineBMC | None:
        """Look up a BMC."""
        return (self.get(bmc_resources.BMC, *key)
                if self.has_bmc(key) else None)

    def has_bmc(self, key: objects.ObjectKey) -> bool:
        """Tell whether there is a BMC."""
        return key in self._refs

    def bmcs(self) -> list[objects.ObjectKey]:
        """Return the keys of all BMCs."""
        return list(self._refs)

    def put_bmc(self, body: objects.VirtualMachineBMC) -> bool:
        """Store a BMC from the answer to a request of the main controller.

        :returns: whether it is newer than what was kept
        """
        return self.kind(bmc_resources.BMC).put(body, self)

    def drop_bmc(self, key: objects.ObjectKey) -> bool:
        """Remove a BMC that the main controller has found to be gone.

        :returns: whether there was one
        """
        return self.kind(bmc_resources.BMC).drop(key, self)

    def users_of(self, resource: api_resources.AnyResource,
                 namespace: str, name: str) -> tuple[objects.ObjectKey, ...]:
        """Return the keys of the BMCs that have or name an object."""
        return self._users.get(bmc_resources.ObjectRef(
            _ANY if resource.kind in _NAMESAKES else resource.kind,
            namespace, name), ())

    def reserves_vm_service(self, bmc: spec.Bmc) -> bool:
        """Tell whether another BMC needs the name of `naming.vm_service`."""
        second = naming.vm_service(bmc)
        return (second is not None and second == naming.base(bmc.vm.name)
                and self.has_bmc(objects.ObjectKey(
                    bmc.namespace, bmc.vm.name)))

    def objects_of(self, bmc: spec.Bmc
                   ) -> dict[bmc_resources.ObjectRef, objects.Json]:
        """Look up the objects of a BMC that exist."""
        live = {ref: self.get(*ref.target) for ref in facts.object_refs(bmc)}
        return {ref: obj for ref, obj in live.items() if obj is not None}

    def _index(self, change: Change) -> None:
        bmc = None if change.gone else spec.read(change.obj)
        refs = tuple(dict.fromkeys(_refs(bmc) if bmc and bmc.vm.name else ()))
        if self._refs.get(change.key, ()) == refs:
            return
        self._drop_refs(change.key)
        if refs:
            self._refs[change.key] = refs
        alone = (change.key,)
        for ref in refs:
            others = self._users.get(ref)
            self._users[ref] = (*others, change.key) if others else alone

    def _drop_refs(self, key: objects.ObjectKey) -> None:
        for ref in self._refs.pop(key, ()):
            users = tuple(user for user in self._users[ref] if user != key)
            if users:
                self._users[ref] = users
                continue
            del self._users[ref]
            if ref.kind == bmc_resources.SECRET.kind:
                self.secrets.drop_summary(
                    objects.ObjectKey(ref.namespace, ref.name))
            for resource in _owned(ref):
                obj = self.get(resource, ref.namespace, ref.name)
                # No watch would report the deletion of a foreign object.
                if obj is not None and not naming.made_by_us(obj):
                    self.drop(resource, ref.namespace, ref.name)


def _owned(ref: bmc_resources.ObjectRef
           ) -> abc.Collection[api_resources.AnyResource]:
    """List the kinds of BMCs' own objects that an entry stands for."""
    if ref.kind == _ANY:
        return _NAMESAKES.values()
    return (ref.resource,) if ref.resource in _OWNED else ()


def _refs(bmc: spec.Bmc) -> abc.Iterator[bmc_resources.ObjectRef]:
    """List the entries of a BMC's objects and of those it refers to."""
    for ref in facts.object_refs(bmc):
        yield (bmc_resources.ObjectRef(_ANY, ref.namespace, ref.name)
               if ref.kind in _NAMESAKES else ref)
    yield bmc_resources.ObjectRef(
        bmc_resources.VM.kind, bmc.vm.namespace, bmc.vm.name)
    if naming.vm_service(bmc):
        # A BMC of this name needs the name of that Service.
        yield bmc_resources.ObjectRef(
            bmc_resources.BMC.kind, bmc.namespace, bmc.vm.name)
    for secret in dict.fromkeys(filter(None, facts.secret_refs(bmc))):
        yield bmc_resources.ObjectRef(
            bmc_resources.SECRET.kind, secret.namespace, secret.name)
