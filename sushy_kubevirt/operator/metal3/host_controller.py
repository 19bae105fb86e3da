# SPDX-License-Identifier: Apache-2.0
"""Creates BareMetalHosts for BMCs: ``--bare-metal-hosts SELECTOR``.

Each BMC whose labels match gets a host of its name and a Secret with its
credentials. A finalizer on the BMC and one on its VM keep both until the host
is deleted, as Metal3 needs the BMC to take an image off the VM.

A host that exists belongs to its users and to baremetal-operator: only its
address, its Secret and its copied labels are written again. The controller
adds its results to the status of the BMC, whose other parts `reconcile`
writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import events
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator.metal3 import boot_macs
from sushy_kubevirt.operator.metal3 import claims
from sushy_kubevirt.operator.metal3 import fields
from sushy_kubevirt.operator.metal3 import host_state
from sushy_kubevirt.operator.metal3 import resources
from sushy_kubevirt.operator.metal3 import templates
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import workqueue

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import api
    from sushy_kubevirt.operator import store as stores

LOG = logging.getLogger(__name__)

#: BMCs that are worked on at the same time.
WORKERS = 8

#: Seconds in which the status of a BMC tells no second refusal. Writing it
#: wakes the controller: with messages that differ, such as by the port of a
#: connection, it would try again without a pause.
TOLD_SECONDS = 30

# A webhook refuses, or is not there: baremetal-operator itself has one.
_REFUSALS = errors.Rejected, errors.AccessDenied, errors.ServerError


class _Listing(typing.NamedTuple):
    """Whether hosts can be listed.

    :param served: None if that is not known
    :param problem: why not; None if they can, or before the first attempt
    """

    served: bool | None = None
    problem: host_state.State | None = None


class _Seen(typing.NamedTuple):
    """What a host was when it was seen last.

    :param bmc: uid of its BMC
    :param paused: its own uid if it was paused
    """

    bmc: str | None = None
    paused: str | None = None


class HostController:
    """Creates, updates and deletes hosts."""

    def __init__(self, options: command_line.Options, client: api.Api,
                 store: stores.Store) -> None:
        self._api = client
        self._options = options
        self._selector = options.bare_metal_hosts
        self._store = store
        self._secrets = store.secrets
        self._bmcs, self._vms, self._secret_kind = self._required = [
            store.kind(resource) for resource in (
                bmc_resources.BMC, bmc_resources.VM, bmc_resources.SECRET)]
        self._hosts = store.add(resources.HOST)
        #: BMCs by the Secrets of their hosts.
        self._bmc_of: dict[objects.ObjectKey, objects.ObjectKey] = {}
        self._listing = _Listing()
        self._seen: dict[objects.ObjectKey, _Seen] = {}
        self._macs = boot_macs.BootMacs()
        #: When another refusal may be written, by BMC.
        self._told: dict[objects.ObjectKey, float] = {}
        self._queue = workqueue.Queue(self._reconcile, WORKERS)
        self._orphans = workqueue.Queue(self._release_orphan, 1)
        self._bmcs.subscribe(self._bmc_changed)
        # Their MAC addresses are not kept.
        self._vms.subscribe(self._vm_changed, all_events=True)
        self._secret_kind.subscribe(self._secret_changed)
        self._hosts.subscribe(self._host_changed)

    async def run(self) -> None:
        """Watch and work, without end."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch_hosts())
                for kind in self._required:
                    await kind.listed.wait()
                self._start()
        finally:
            await self._queue.close(0)
            await self._orphans.close(0)

    # Watches

    async def _watch_hosts(self) -> None:
        """Watch hosts whenever their definition exists."""
        while True:
            await self._hosts.wait_until_served(self._tell_unserved)
            watching = asyncio.create_task(self._hosts.run())
            try:
                await self._hosts.listed.wait()
                LOG.info('BareMetalHosts are listed')
                # Not before: a host that is not listed yet would count as
                # gone.
                self._listing = _Listing(True)
                self._start()
                is_served = True
                while is_served:
                    await self._hosts.failed.wait()
                    self._hosts.failed.clear()
                    with contextlib.suppress(errors.MachineError):
                        is_served = await self._hosts.is_served()
            finally:
                watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            # Nothing tells that the hosts are gone with their definition.
            self._macs = boot_macs.BootMacs()
            self._hosts.clear()

    async def _tell_unserved(self, problem: errors.MachineError | None
                             ) -> None:
        if problem is None:
            listing = _Listing(False, host_state.MISSING)
        elif isinstance(problem, errors.AccessDenied):
            listing = _Listing(None, host_state.FORBIDDEN)
        else:
            listing = _Listing(None, host_state.unlisted(problem))
        if listing.problem and listing != self._listing:
            self._listing = listing
            LOG.warning('%s', listing.problem.condition.message)
            self._start()

    def _start(self) -> None:
        """Work on all BMCs, if all that they depend on is known."""
        if not all(kind.listed.is_set() for kind in self._required):
            return
        if self._listing == _Listing():
            return
        if not self._queue.started:
            self._queue.start()
            self._orphans.start()
        for key in self._bmcs.keys():
            self._bmc_of[_secret_key(key)] = key
            self._queue.add(key)
        for key in self._vms.keys():
            self._orphans.add(key)

    def _changed(self, key: objects.ObjectKey) -> None:
        if self._queue.started:
            self._queue.add(key)

    def _host_changed(self, change: stores.Change) -> None:
        """Note a pause at once: a host that is moved may be gone before its
        BMC is worked on.
        """
        key, host = change.key, None if change.gone else change.obj
        for other in self._macs.put(key, host):
            self._changed(other)
        if host is not None:
            uid = objects.labels_of(host).get(stored_names.BMC_UID)
            if uid:
                self._seen[key] = _Seen(
                    uid, host['metadata']['uid']
                    if host_state.is_paused(host) else None)
        self._changed(key)

    def _bmc_changed(self, change: stores.Change) -> None:
        key = change.key
        if not change.gone:
            self._bmc_of[_secret_key(key)] = key
            self._changed(key)
            return
        self._bmc_of.pop(_secret_key(key), None)
        self._queue.forget(key)
        self._seen.pop(key, None)
        self._told.pop(key, None)
        if self._hosts.get(key) is None:
            self._want_no_mac(key)

    def _want_no_mac(self, key: objects.ObjectKey) -> None:
        for other in self._macs.drop(key):
            self._changed(other)

    def _vm_changed(self, change: stores.Change) -> None:
        users = self._store.users_of(bmc_resources.VM, *change.key)
        for bmc in users:
            self._changed(bmc)
        if not users and self._orphans.started:
            self._orphans.add(change.key)

    def _secret_changed(self, change: stores.Change) -> None:
        for bmc in self._store.users_of(bmc_resources.SECRET, *change.key):
            self._changed(bmc)
        if change.key in self._bmc_of:
            self._changed(self._bmc_of[change.key])

    # Work on one BMC

    async def _reconcile(self, key: objects.ObjectKey) -> None:
        body = self._bmcs.get(key)
        if not body:
            return
        bmc = spec.read(body)
        if not bmc.vm.name:
            return
        with logs.about(*key), workqueue.retried():
            refused: errors.MachineError | None = None
            try:
                try:
                    state = await self._state(bmc, body)
                except _REFUSALS as e:
                    LOG.warning('%s', e)
                    refused, state = e, host_state.refused(e, body)
                if self._may_tell(key, refused):
                    await self._write_status(bmc, state)
            finally:
                if self._bmcs.get(key) is None and (
                        self._hosts.get(key) is None):
                    # It was deleted meanwhile.
                    self._want_no_mac(key)
            if refused:
                raise workqueue.Failure(getattr(refused, 'retry_after', None))

    def _may_tell(self, key: objects.ObjectKey,
                  refused: errors.MachineError | None) -> bool:
        now = time.monotonic()
        if refused is None:
            self._told.pop(key, None)
        elif now < self._told.get(key, 0):
            return False
        else:
            self._told[key] = now + TOLD_SECONDS
        return True

    async def _state(self, bmc: spec.Bmc, body: objects.VirtualMachineBMC
                     ) -> host_state.State | None:
        """Do what is to be done.

        :returns: None if the BMC has nothing to do with hosts
        """
        key = bmc.key
        vm = self._vms.get(bmc.vm)
        host = self._hosts.get(key)
        taken: host_state.State | None = None
        if host is not None and not fields.is_ours(bmc, host):
            taken = host_state.taken(resources.HOST, host)
            host = None
        if vm is not None and not permissions.reference_permitted(
                bmc.namespace, vm):
            await self._let_vm_go(bmc, vm)
        if vm is None and not bmc.deleting and not {
                None, bmc.vm.namespace}.intersection(self._store.namespaces):
            # Whether the VM exists is not known.
            return None if host is None else host_state.unmanaged(host)
        if bmc.deleting or vm is None or 'deletionTimestamp' in vm['metadata']:
            if host is None and not _is_held(body):
                await self._let_go(bmc, body, vm)
                return None
            return await self._release(bmc, body, vm, host)
        if not self._is_wanted(bmc, body, vm):
            if host is not None:
                return host_state.unmanaged(host)
            if self._listing.served is None and _is_held(body):
                return self._listing.problem
            await self._let_go(bmc, body, vm)
            return None
        if not self._listing.served:
            return self._listing.problem
        before = (body.get('status') or {}).get('bareMetalHost') or {}
        seen = self._seen.get(key, _Seen())
        paused = seen.paused
        if seen.bmc != bmc.uid:
            # This process has not seen the host.
            paused = before['uid'] if before.get('paused') else None
        if host is None and taken is None and paused:
            # Nothing but a move, or force, removes a paused host.
            body = await self._annotate(bmc, stored_names.HOST_MOVED, paused)
        moved = stored_names.HOST_MOVED in objects.annotations_of(body)
        if host is not None:
            if moved:
                # It was moved back.
                body = await self._annotate(bmc, stored_names.HOST_MOVED, None)
            await self._hold(body, vm)
            return await self._update(bmc, vm, host)
        if moved:
            # The Secret was created again if clusterctl deleted it before the
            # host.
            await self._let_go(bmc, body, vm)
            return host_state.moved(bmc)
        return taken or await self._create(bmc, body, vm)

    def _is_wanted(self, bmc: spec.Bmc, body: objects.VirtualMachineBMC,
                   vm: objects.VirtualMachine) -> bool:
        return (self._selector is not None
                and command_line.matches(self._selector, body)
                and bmc.host.enabled
                and permissions.reference_permitted(bmc.namespace, vm))

    async def _create(self, bmc: spec.Bmc, body: objects.VirtualMachineBMC,
                      vm: objects.VirtualMachine) -> host_state.State:
        status = body.get('status') or {}
        address = fields.address(bmc, status, self._options.host_external)
        ready = objects.holds(body, conditions.EMULATOR)
        if address is None or not ready:
            return host_state.waiting_for_bmc(bmc, address, ready)
        whole = await self._whole_vm(bmc.vm)
        mac = fields.boot_mac(whole)
        key = bmc.key
        if mac is None:
            self._want_no_mac(key)
            return host_state.needs_mac(whole)
        owner = self._macs.claim(key, mac)
        if owner != key:
            return host_state.mac_in_use(bmc, mac, owner)
        had_host = _is_held(vm)
        # Before the Secret, which nothing owns until the host does.
        await self._hold(body, vm)
        problem = await self._put_secret(bmc)
        if problem is not None:
            return problem
        manifest = fields.host(bmc, whole, address, mac, self._options)
        claim = templates.claim_of(whole)
        if claim and (bmc.namespace == bmc.vm.namespace
                      == self._options.claim_templates):
            # No other claim gets the VM, and baremetal-operator, which looks
            # for hosts each 30 s only, binds it at once.
            manifest['spec']['consumerRef'] = claims.consumer_ref(*claim.key)
            if had_host:
                manifest['metadata']['annotations'] = {
                    stored_names.HAD_HOST: 'true'}
        try:
            host = await self._api.create(
                resources.HOST, bmc.namespace, manifest)
        except errors.Conflict:
            host = await self._api.get(
                resources.HOST, bmc.namespace, bmc.name)
            if not fields.is_ours(bmc, host):
                return host_state.taken(resources.HOST, host)
        else:
            LOG.info('BareMetalHost %s is created', bmc.name)
        self._hosts.put(host)
        return host_state.of(host)

    async def _whole_vm(self, reference: objects.ObjectKey
                        ) -> objects.VirtualMachine:
        """Read a VM, with its instance type and its preference if it has some.
        """
        vm = await self._api.get(
            bmc_resources.VM, reference.namespace, reference.name)
        if vm['spec'].keys() & {'instancetype', 'preference'}:
            expanded = await self._api.expand_spec(
                reference.namespace, reference.name)
            return {**vm, 'spec': expanded['spec']}
        return vm

    async def _update(self, bmc: spec.Bmc, vm: objects.VirtualMachine,
                      host: objects.Json) -> host_state.State:
        """Write what has changed of the fields that the operator keeps."""
        key = bmc.key
        body: objects.VirtualMachineBMC | None = self._bmcs.get(key)
        status = body.get('status') if body else None
        address = fields.address(
            bmc, status or {}, self._options.host_external)
        labels = objects.labels_of(host)
        wanted = fields.merged_labels(labels, bmc, vm, self._options)
        if labels != wanted:
            host = await self._patch(host, '/metadata/labels', wanted)
        link = (host.get('spec') or {}).get('bmc')
        if address and link and link['address'] != address:
            try:
                host = await self._patch(host, '/spec/bmc/address', address)
            except errors.Rejected as e:
                return host_state.address_refused(host, address, e)
        mac = (host.get('spec') or {}).get('bootMACAddress') or ''
        owner = self._macs.owner(mac)
        if owner is not None and owner != key:
            return await self._put_secret(bmc) or host_state.mac_in_use(
                bmc, mac, owner, host)
        return await self._put_secret(bmc) or host_state.of(host)

    async def _patch(self, host: objects.Json, path: str, value: typing.Any
                     ) -> objects.Json:
        """Change a host, and return it after the change."""
        metadata = host['metadata']
        host = await self._api.patch(
            resources.HOST, metadata['namespace'], metadata['name'], [
                {'op': 'test', 'path': '/metadata/resourceVersion',
                 'value': metadata['resourceVersion']},
                {'op': 'add', 'path': path, 'value': value}])
        self._hosts.put(host)
        return host

    async def _put_secret(self, bmc: spec.Bmc) -> host_state.State | None:
        """Create the Secret of the host, or copy new credentials into it.

        :returns: why that cannot be done, or None
        """
        key = _secret_key(bmc.key)
        namespace, name = key
        source = deployments.auth_secret(bmc)
        version = self._secrets.version(objects.ObjectKey(namespace, source))
        if version is None:
            return host_state.without_credentials(source)
        if self._secrets.sources.get(key) == version:
            return None
        secret = fields.secret(bmc, await self._api.get(
            bmc_resources.SECRET, namespace, source))
        if self._secrets.version(key) is None:
            try:
                self._secret_kind.put(await self._api.create(
                    bmc_resources.SECRET, namespace, secret))
                return None
            except errors.Conflict:
                pass
        live = await self._api.get(bmc_resources.SECRET, namespace, name)
        if not fields.is_ours(bmc, live):
            return host_state.taken(bmc_resources.SECRET, live)
        self._secret_kind.put(await self._api.patch(
            bmc_resources.SECRET, namespace, name, {
                'metadata': {'uid': live['metadata']['uid'],
                             'annotations': secret['metadata']['annotations']},
                'data': secret['data']}))
        return None

    async def _release(self, bmc: spec.Bmc, body: objects.VirtualMachineBMC,
                       vm: objects.VirtualMachine | None,
                       host: objects.Json | None) -> host_state.State | None:
        """Delete the host, and then let the BMC and the VM be deleted."""
        skips = _is_overridden(body, vm)
        if host is not None:
            metadata = host['metadata']
            if 'deletionTimestamp' not in metadata:
                try:
                    await self._api.delete(
                        resources.HOST, bmc.namespace, bmc.name,
                        metadata['uid'])
                    LOG.info('BareMetalHost %s is deleted, as its VM or its '
                             'BMC is', bmc.name)
                except errors.ObjectNotFound:
                    self._hosts.drop(bmc.key)
                    host = None
            if host is not None and (
                    host_state.DETACHED not in objects.annotations_of(host)):
                if not skips:
                    if self._secrets.version(_secret_key(bmc.key)) is not None:
                        await self._put_secret(bmc)
                    return host_state.waiting_for_host(
                        bmc, host, objects.holds(body, conditions.EMULATOR))
                # Ironic would try for long to reach a BMC that is gone.
                try:
                    await self._patch(host, '/metadata/annotations', {
                        **objects.annotations_of(host),
                        host_state.DETACHED: ''})
                except _REFUSALS as e:
                    LOG.warning('BareMetalHost %s is not waited for, though '
                                'it could not be detached: %s', bmc.name, e)
                    # The VM, and its annotation, may be gone before the BMC.
                    body = await self._annotate(
                        bmc, stored_names.SKIP_HOST, 'true')
        elif self._listing.served is None and not skips and (
                problem := self._listing.problem):
            return host_state.release_unknown(bmc, problem)
        await self._let_go(bmc, body, vm)
        return None

    async def _delete_secret(self, bmc: spec.Bmc) -> None:
        key = _secret_key(bmc.key)
        if self._secrets.version(key) is None:
            return
        try:
            live = await self._api.get(bmc_resources.SECRET, *key)
            if fields.is_ours(bmc, live) and (
                    'deletionTimestamp' not in live['metadata']):
                await self._api.delete(bmc_resources.SECRET, *key,
                                       live['metadata']['uid'])
        except errors.ObjectNotFound:
            self._secret_kind.drop(key)

    # The finalizer of the BMC is added first and removed last, so that there
    # is a BMC that removes that of the VM.

    async def _hold(self, body: objects.VirtualMachineBMC,
                    vm: objects.VirtualMachine) -> None:
        """Keep VM and BMC from being deleted before their host."""
        await self._set_finalizer(self._bmcs, body, True)
        await self._set_finalizer(self._vms, vm, True)

    async def _let_go(self, bmc: spec.Bmc, body: objects.VirtualMachineBMC,
                      vm: objects.VirtualMachine | None) -> None:
        key = bmc.key
        self._want_no_mac(key)
        await self._delete_secret(bmc)
        if vm is not None:
            await self._let_vm_go(bmc, vm)
        await self._set_finalizer(self._bmcs, body, False)
        self._seen.pop(key, None)

    async def _let_vm_go(self, bmc: spec.Bmc, vm: objects.VirtualMachine
                         ) -> None:
        """Let the VM be deleted, unless another BMC of it has a host."""
        for key in self._store.users_of(
                bmc_resources.VM, bmc.vm.namespace, bmc.vm.name):
            other = self._bmcs.get(key)
            if (key != (bmc.namespace, bmc.name) and other and _is_held(other)
                    and permissions.reference_permitted(key.namespace, vm)):
                return
        await self._set_finalizer(self._vms, vm, False)

    async def _release_orphan(self, key: objects.ObjectKey) -> None:
        """Let a VM be deleted whose BMC was removed by force."""
        vm = self._vms.get(key)
        if vm is None or not _is_held(vm) or (
                'deletionTimestamp' not in vm['metadata']
                or self._store.users_of(bmc_resources.VM, *key)):
            return
        with logs.about(*key), workqueue.retried('VM not released yet: %s'):
            try:
                await self._set_finalizer(self._vms, vm, False)
            except errors.ObjectNotFound:
                self._vms.drop(key)

    async def _set_finalizer(self, kind: stores.Kind, obj: objects.AnyObject,
                             on: bool) -> None:
        resource, metadata = kind.resource, obj['metadata']
        if _is_held(obj) == on or on and 'deletionTimestamp' in metadata:
            return
        namespace, name = metadata['namespace'], metadata['name']
        live = await self._api.get(
            resource, namespace, name, metadata_only=True)
        if live['metadata']['uid'] != metadata['uid']:
            raise errors.Conflict(f'{resource.kind} {name} was recreated')
        wanted = [finalizer for finalizer
                  in live['metadata'].get('finalizers') or ()
                  if finalizer != stored_names.HOST_FINALIZER]
        if on:
            wanted.append(stored_names.HOST_FINALIZER)
        answer = await self._api.patch(resource, namespace, name, {
            'metadata': {
                'resourceVersion': live['metadata']['resourceVersion'],
                'finalizers': wanted or None}})
        kind.put(answer)

    async def _annotate(self, bmc: spec.Bmc, name: str, value: str | None
                        ) -> objects.VirtualMachineBMC:
        """Change an annotation of a BMC, and return it after the change."""
        body = await self._api.patch(
            bmc_resources.BMC, bmc.namespace, bmc.name, {'metadata': {
                'uid': bmc.uid, 'annotations': {name: value}}})
        self._bmcs.put(body)
        return body

    # Status

    async def _write_status(self, bmc: spec.Bmc,
                            state: host_state.State | None) -> None:
        key = bmc.key
        body: objects.VirtualMachineBMC | None = self._bmcs.get(key)
        if body is None or body['metadata']['uid'] != bmc.uid:
            return
        old = body.get('status') or {}
        now = events.now()
        new = host_state.merged(old, state, bmc.generation, now)
        if new == old:
            return
        for event in events.of_change(
                old.get('conditions'), new.get('conditions') or ()):
            await events.record(self._api, bmc, event, now)
        try:
            self._bmcs.put(await self._api.patch(
                bmc_resources.BMC, bmc.namespace, bmc.name, [
                    {'op': 'test', 'path': '/metadata/resourceVersion',
                     'value': body['metadata']['resourceVersion']},
                    {'op': 'add', 'path': '/status', 'value': new}],
                'status'))
        except errors.ObjectNotFound:
            self._bmcs.drop(key)


def _secret_key(bmc: objects.ObjectKey) -> objects.ObjectKey:
    """Return the key of the Secret of a BMC's host."""
    return objects.ObjectKey(bmc.namespace, fields.secret_name(bmc.name))


def _is_held(obj: objects.AnyObject) -> bool:
    return stored_names.HOST_FINALIZER in (
        obj['metadata'].get('finalizers') or ())


def _is_overridden(*subjects: objects.AnyObject | None) -> bool:
    """Tell whether a user wants no wait for the host of a BMC and a VM."""
    return any(
        objects.annotations_of(obj).get(stored_names.SKIP_HOST) == 'true'
        for obj in subjects if obj)
