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
import datetime
import logging
import time

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import events
from sushy_kubevirt.operator import informer
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator.metal3 import boot_macs
from sushy_kubevirt.operator.metal3 import claims
from sushy_kubevirt.operator.metal3 import fields
from sushy_kubevirt.operator.metal3 import host_state
from sushy_kubevirt.operator.metal3 import resources
from sushy_kubevirt.operator.metal3 import served
from sushy_kubevirt.operator.metal3 import templates
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import workqueue

LOG = logging.getLogger(__name__)

#: BMCs that are worked on at the same time.
WORKERS = 8

#: Seconds in which the status of a BMC tells no second refusal. Writing it
#: wakes the controller: with messages that differ, such as by the port of a
#: connection, it would try again without a pause.
TOLD_SECONDS = 30

# A webhook refuses, or is not there: baremetal-operator itself has one.
_REFUSALS = errors.Rejected, errors.AccessDenied, errors.ServerError


class HostController:
    """Creates, updates and deletes hosts.

    :param options: `command_line.Options`
    :param client: an `api.Api`
    """

    def __init__(self, options, client) -> None:
        self._api = client
        self._options = options.hosts
        namespaces = options.namespaces or (None,)
        made = self._informer = (
            lambda resource, changed, **more: informer.Informer(
                client, resource, namespaces, changed, **more))
        self._bmcs = made(bmc_resources.BMC, self._bmc_changed)
        # The API server evaluates the selector.
        self._selected = options.bare_metal_hosts and made(
            bmc_resources.BMC, self._changed,
            label_selector=options.bare_metal_hosts, metadata_only=True)
        self._vms = made(bmc_resources.VM, self._users_changed(
            bmc_resources.VM), metadata_only=True)
        self._secrets = made(bmc_resources.SECRET, self._users_changed(
            bmc_resources.SECRET), keep=_identity, metadata_only=True)
        self._hosts = made(resources.HOST, self._host_changed)
        self._informers = [one for one in (
            self._bmcs, self._selected, self._vms, self._secrets) if one]
        self._namespaces = namespaces
        self._served = None     # whether hosts can be listed
        self._problem_state = None
        self._refs = {}
        self._users = {}
        # host: uid of its BMC, and its own uid if it was paused when it was
        # seen last, or None
        self._paused = {}
        self._macs = boot_macs.BootMacs()
        self._told = {}     # BMC: when another refusal may be written
        self._queue = workqueue.Queue(self._reconcile, WORKERS)
        self._orphans = workqueue.Queue(self._release_orphan, 1)

    async def run(self) -> None:
        """Watch and work, without end."""
        try:
            async with asyncio.TaskGroup() as group:
                for one in self._informers:
                    group.create_task(one.run())
                group.create_task(self._watch_hosts())
                for one in self._informers:
                    await one.listed.wait()
                self._start()
        finally:
            await self._queue.close(0)
            await self._orphans.close(0)

    # Watches

    async def _watch_hosts(self) -> None:
        """Watch hosts whenever their definition exists."""
        while True:
            found = await self._problem()
            if not found[0]:
                if found != (self._served, self._problem_state):
                    self._served, self._problem_state = found
                    LOG.warning('%s', found[1].condition.message)
                    self._start()
                await asyncio.sleep(served.SECONDS)
                continue
            watching = asyncio.create_task(self._hosts.run())
            try:
                await self._hosts.listed.wait()
                LOG.info('BareMetalHosts are listed')
                # Not before: a host that is not listed yet would count as
                # gone.
                self._served, self._problem_state = True, None
                self._start()
                while found[0] is not False:
                    await self._hosts.failed.wait()
                    self._hosts.failed.clear()
                    found = await self._problem()
            finally:
                watching.cancel()
            # Nothing tells that the hosts are gone with their definition.
            self._macs = boot_macs.BootMacs()
            self._hosts = self._informer(
                resources.HOST, self._host_changed)

    async def _problem(self):
        """:returns: (whether hosts can be listed, None if that is not known;
            `host_state.State` that says why not)
        """
        try:
            if not await served.check(
                    self._api, (resources.HOST,), self._namespaces):
                return False, host_state.MISSING
        except errors.AccessDenied:
            return None, host_state.FORBIDDEN
        except errors.MachineError as e:
            return None, host_state.unlisted(e)
        return True, None

    def _start(self) -> None:
        """Work on all BMCs, if all that they depend on is known."""
        if not all(one.listed.is_set() for one in self._informers):
            return
        if self._served is None and self._problem_state is None:
            return
        if not self._queue.started:
            self._queue.start()
            self._orphans.start()
        for key in self._bmcs.keys():
            self._queue.add(key)
        for key in self._vms.keys():
            self._orphans.add(key)

    def _changed(self, key) -> None:
        if self._queue.started:
            self._queue.add(key)

    def _host_changed(self, key) -> None:
        """Note a pause at once: a host that is moved may be gone before its
        BMC is worked on.
        """
        host = self._hosts.get(key)
        for other in self._macs.put(key, host):
            self._changed(other)
        its = host and (host['metadata'].get('labels') or {}).get(
            fields.BMC_UID)
        if its:
            self._paused[key] = its, host['metadata']['uid'] if (
                host_state.is_paused(host)) else None
        self._changed(key)

    def _bmc_changed(self, key) -> None:
        for ref in self._refs.pop(key, ()):
            self._users[ref].discard(key)
            if not self._users[ref]:
                del self._users[ref]
        body = self._bmcs.get(key)
        if body is None:
            self._queue.forget(key)
            self._paused.pop(key, None)
            self._told.pop(key, None)
            if self._hosts.get(key) is None:
                self._want_no_mac(key)
            return
        bmc = spec.read(body)
        if bmc.vm.name:
            self._refs[key] = (
                (bmc_resources.VM, (bmc.vm.namespace, bmc.vm.name)),
                (bmc_resources.SECRET, (bmc.namespace,
                                        deployments.auth_secret(bmc))),
                (bmc_resources.SECRET, (bmc.namespace,
                                        fields.secret_name(bmc.name))))
            for ref in self._refs[key]:
                self._users.setdefault(ref, set()).add(key)
        self._changed(key)

    def _want_no_mac(self, key) -> None:
        for other in self._macs.drop(key):
            self._changed(other)

    def _users_changed(self, resource):
        def changed(key) -> None:
            users = self._users.get((resource, key), ())
            for one in users:
                self._changed(one)
            if not users and resource is bmc_resources.VM and (
                    self._orphans.started):
                self._orphans.add(key)
        return changed

    # Work on one BMC

    async def _reconcile(self, key):
        body = self._bmcs.get(key)
        bmc = body and spec.read(body)
        if not body or not bmc.vm.name:
            return
        with logs.about(*key):
            refused = None
            try:
                try:
                    state = await self._state(bmc, body)
                except _REFUSALS as e:
                    LOG.warning('%s', e)
                    refused, state = e, host_state.refused(e, body)
                if self._may_tell(key, refused):
                    await self._write_status(bmc, body, state)
            except errors.MachineError as e:
                LOG.log(logging.INFO if isinstance(
                    e, (errors.Conflict, errors.ObjectNotFound))
                    else logging.WARNING, '%s', e)
                raise workqueue.Failure(
                    getattr(e, 'retry_after', None)) from None
            finally:
                if self._bmcs.get(key) is None and (
                        self._hosts.get(key) is None):
                    # It was deleted meanwhile.
                    self._want_no_mac(key)
            if refused:
                raise workqueue.Failure(getattr(refused, 'retry_after', None))

    def _may_tell(self, key, refused) -> bool:
        now = time.monotonic()
        if refused is None:
            self._told.pop(key, None)
        elif now < self._told.get(key, 0):
            return False
        else:
            self._told[key] = now + TOLD_SECONDS
        return True

    async def _state(self, bmc, body):
        """Do what is to be done.

        :returns: `host_state.State`; None if the BMC has nothing to do with
            hosts
        """
        vm = self._vms.get((bmc.vm.namespace, bmc.vm.name))
        host = self._hosts.get((bmc.namespace, bmc.name))
        if host is not None and not fields.is_ours(bmc, host):
            found = host_state.taken(host)
            host = None
        else:
            found = None
        if vm is not None and not permissions.reference_permitted(
                bmc.namespace, vm):
            await self._let_vm_go(bmc, vm)
        if vm is None and not bmc.deleting and not {
                None, bmc.vm.namespace}.intersection(self._namespaces):
            # Whether the VM exists is not known.
            return host and host_state.unmanaged(host)
        if bmc.deleting or vm is None or 'deletionTimestamp' in vm['metadata']:
            if host is None and not _is_held(body):
                await self._let_go(bmc, body, vm)
                return None
            return await self._release(bmc, body, vm, host)
        if not self._is_wanted(bmc, vm):
            if host is not None:
                return host_state.unmanaged(host)
            if self._served is None and _is_held(body):
                return self._problem_state
            await self._let_go(bmc, body, vm)
            return None
        if not self._served:
            return self._problem_state
        before = (body.get('status') or {}).get(fields.STATUS) or {}
        owner, paused = self._paused.get((bmc.namespace, bmc.name), (
            None, None))
        if owner != bmc.uid:
            # This process has not seen the host.
            paused = before['uid'] if before.get('paused') else None
        if host is None and found is None and paused:
            # Nothing but a move, or force, removes a paused host.
            body = await self._annotate(bmc, naming.HOST_MOVED, paused)
        moved = naming.HOST_MOVED in (
            body['metadata'].get('annotations') or {})
        if host is not None:
            if moved:
                # It was moved back.
                body = await self._annotate(bmc, naming.HOST_MOVED, None)
            await self._hold(bmc, body, vm)
            return await self._update(bmc, vm, host)
        if moved:
            # The Secret was created again if clusterctl deleted it before the
            # host.
            await self._let_go(bmc, body, vm)
            return host_state.moved(bmc)
        return found or await self._create(bmc, body, vm)

    def _is_wanted(self, bmc, vm):
        return (self._selected is not None
                and self._selected.get((bmc.namespace, bmc.name)) is not None
                and bmc.host.enabled
                and permissions.reference_permitted(bmc.namespace, vm))

    async def _create(self, bmc, body, vm):
        status = body.get('status') or {}
        at = fields.address(bmc, status, self._options.external)
        if at is None or not _is_ready(status):
            return host_state.waiting_for_bmc(bmc, at, _is_ready(status))
        whole = await self._whole_vm(bmc.vm)
        mac = fields.boot_mac(whole)
        key = bmc.namespace, bmc.name
        if mac is None:
            self._want_no_mac(key)
            return host_state.needs_mac(whole)
        owner = self._macs.claim(key, mac)
        if owner != key:
            return host_state.mac_in_use(bmc, mac, owner)
        had_host = _is_held(vm)
        # Before the Secret, which nothing owns until the host does.
        await self._hold(bmc, body, vm)
        secret = await self._put_secret(bmc)
        if secret is not None:
            return secret
        made = fields.host(bmc, whole, at, mac, self._options)
        claim = templates.claim_of(whole)
        if claim and (bmc.namespace == bmc.vm.namespace
                      == self._options.claim_templates):
            # No other claim gets the VM, and baremetal-operator, which looks
            # for hosts each 30 s only, binds it at once.
            made['spec']['consumerRef'] = claims.consumer_ref(*claim[:2])
            if had_host:
                made['metadata']['annotations'] = {fields.HAD_HOST: 'true'}
        try:
            host = await self._api.create(
                resources.HOST, bmc.namespace, made)
        except errors.Conflict:
            host = await self._api.get(
                resources.HOST, bmc.namespace, bmc.name)
            if not fields.is_ours(bmc, host):
                return host_state.taken(host)
        else:
            LOG.info('BareMetalHost %s is created', bmc.name)
        self._hosts.put(host)
        return host_state.of(host)

    async def _whole_vm(self, ref):
        """Read a VM, with its instance type and its preference if it has some.
        """
        whole = await self._api.get(bmc_resources.VM, ref.namespace, ref.name)
        if whole['spec'].keys() & {'instancetype', 'preference'}:
            expanded = await self._api.expand_spec(ref.namespace, ref.name)
            whole = {**whole, 'spec': expanded['spec']}
        return whole

    async def _update(self, bmc, vm, host):
        """Write what has changed of the fields that the operator keeps."""
        at = fields.address(bmc, (self._bmcs.get((
            bmc.namespace, bmc.name)) or {}).get('status') or {},
            self._options.external)
        its = host['metadata'].get('labels') or {}
        wanted = fields.merged_labels(its, bmc, vm, self._options)
        if its != wanted:
            host = await self._patch(host, '/metadata/labels', wanted)
        its = (host.get('spec') or {}).get('bmc')
        if at and its and its['address'] != at:
            try:
                host = await self._patch(host, '/spec/bmc/address', at)
            except errors.Rejected as e:
                return host_state.address_refused(host, at, e)
        mac = (host.get('spec') or {}).get('bootMACAddress')
        owner = self._macs.owner(mac)
        if owner not in (None, (bmc.namespace, bmc.name)):
            return await self._put_secret(bmc) or host_state.mac_in_use(
                bmc, mac, owner, host)
        return await self._put_secret(bmc) or host_state.of(host)

    async def _patch(self, host, path, value):
        """:returns: the host after the change"""
        metadata = host['metadata']
        host = await self._api.patch(
            resources.HOST, metadata['namespace'], metadata['name'], [
                {'op': 'test', 'path': '/metadata/resourceVersion',
                 'value': metadata['resourceVersion']},
                {'op': 'add', 'path': path, 'value': value}])
        self._hosts.put(host)
        return host

    async def _put_secret(self, bmc):
        """Create the Secret of the host, or copy new credentials into it.

        :returns: a `host_state.State` if that cannot be done; else None
        """
        namespace, name = bmc.namespace, fields.secret_name(bmc.name)
        source = deployments.auth_secret(bmc)
        known = self._secrets.get((namespace, source))
        if known is None:
            return host_state.without_credentials(source)
        live = self._secrets.get((namespace, name))
        version = known['metadata']['resourceVersion']
        if live is not None and live['source'] == version:
            return None
        found = await self._api.get(bmc_resources.SECRET, namespace, source)
        made = fields.secret(bmc, found)
        if live is None:
            try:
                live = await self._api.create(
                    bmc_resources.SECRET, namespace, made)
                self._secrets.put(live)
                return None
            except errors.Conflict:
                pass
        live = await self._api.get(bmc_resources.SECRET, namespace, name)
        if not fields.is_ours(bmc, live):
            return host_state.secret_taken(live)
        self._secrets.put(await self._api.patch(
            bmc_resources.SECRET, namespace, name, {
                'metadata': {'uid': live['metadata']['uid'],
                             'annotations': made['metadata']['annotations']},
                'data': made['data']}))
        return None

    async def _release(self, bmc, body, vm, host):
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
                    self._hosts.drop((bmc.namespace, bmc.name))
                    host = None
            if host is not None and not host_state.is_detached(host):
                if not skips:
                    if self._secrets.get((bmc.namespace, fields.secret_name(
                            bmc.name))):
                        await self._put_secret(bmc)
                    return host_state.waiting_for_host(
                        bmc, host, _is_ready(body.get('status') or {}))
                # Ironic would try for long to reach a BMC that is gone.
                try:
                    await self._patch(host, '/metadata/annotations', {
                        **(host['metadata'].get('annotations') or {}),
                        host_state.DETACHED: ''})
                except _REFUSALS as e:
                    LOG.warning('BareMetalHost %s is not waited for, though '
                                'it could not be detached: %s', bmc.name, e)
                    # The VM, and its annotation, may be gone before the BMC.
                    body = await self._annotate(bmc, naming.SKIP_HOST, 'true')
        elif self._served is None and not skips:
            return host_state.release_unknown(bmc, self._problem_state)
        await self._let_go(bmc, body, vm)
        return None

    async def _delete_secret(self, bmc) -> None:
        name = fields.secret_name(bmc.name)
        if self._secrets.get((bmc.namespace, name)) is None:
            return
        try:
            live = await self._api.get(
                bmc_resources.SECRET, bmc.namespace, name)
            if fields.is_ours(bmc, live) and (
                    'deletionTimestamp' not in live['metadata']):
                await self._api.delete(bmc_resources.SECRET, bmc.namespace,
                                       name, live['metadata']['uid'])
        except errors.ObjectNotFound:
            self._secrets.drop((bmc.namespace, name))

    # The finalizer of the BMC is added first and removed last, so that there
    # is a BMC that removes that of the VM.

    async def _hold(self, bmc, body, vm) -> None:
        """Keep VM and BMC from being deleted before their host."""
        await self._set_finalizer(
            bmc_resources.BMC, self._bmcs, body, True)
        await self._set_finalizer(
            bmc_resources.VM, self._vms, vm, True)

    async def _let_go(self, bmc, body, vm) -> None:
        self._want_no_mac((bmc.namespace, bmc.name))
        await self._delete_secret(bmc)
        if vm is not None:
            await self._let_vm_go(bmc, vm)
        await self._set_finalizer(
            bmc_resources.BMC, self._bmcs, body, False)
        self._paused.pop((bmc.namespace, bmc.name), None)

    async def _let_vm_go(self, bmc, vm) -> None:
        """Let the VM be deleted, unless another BMC of it has a host."""
        for key in self._users.get((bmc_resources.VM, (
                bmc.vm.namespace, bmc.vm.name)), ()):
            other = self._bmcs.get(key)
            if (key != (bmc.namespace, bmc.name) and other and _is_held(other)
                    and permissions.reference_permitted(key[0], vm)):
                return
        await self._set_finalizer(bmc_resources.VM, self._vms, vm, False)

    async def _release_orphan(self, key):
        """Let a VM be deleted whose BMC was removed by force."""
        vm = self._vms.get(key)
        if vm is None or not _is_held(vm) or (
                'deletionTimestamp' not in vm['metadata']
                or self._users.get((bmc_resources.VM, key))):
            return
        with logs.about(*key):
            try:
                await self._set_finalizer(
                    bmc_resources.VM, self._vms, vm, False)
            except errors.ObjectNotFound:
                self._vms.drop(key)
            except errors.MachineError as e:
                LOG.warning('VM not released yet: %s', e)
                raise workqueue.Failure(
                    getattr(e, 'retry_after', None)) from None

    async def _set_finalizer(self, resource, cached, obj, on):
        metadata = obj['metadata']
        there = metadata.get('finalizers') or []
        if (naming.HOST_FINALIZER in there) == on or (
                on and 'deletionTimestamp' in metadata):
            return
        at = metadata['namespace'], metadata['name']
        live = await self._api.get(resource, *at, metadata_only=True)
        there = live['metadata'].get('finalizers') or []
        if live['metadata']['uid'] != metadata['uid']:
            raise errors.Conflict(f'{resource.kind} {at[1]} was recreated')
        wanted = [one for one in there if one != naming.HOST_FINALIZER]
        if on:
            wanted.append(naming.HOST_FINALIZER)
        answer = await self._api.patch(resource, *at, {'metadata': {
            'resourceVersion': live['metadata']['resourceVersion'],
            'finalizers': wanted or None}})
        cached.put(answer)

    async def _annotate(self, bmc, name, value):
        """:returns: the BMC after the change"""
        body = await self._api.patch(
            bmc_resources.BMC, bmc.namespace, bmc.name, {'metadata': {
                'uid': bmc.uid, 'annotations': {name: value}}})
        self._bmcs.put(body)
        return body

    # Status

    async def _write_status(self, bmc, body, state) -> None:
        body = self._bmcs.get((bmc.namespace, bmc.name))
        if body is None or body['metadata']['uid'] != bmc.uid:
            return
        old = body.get('status') or {}
        now = datetime.datetime.now(datetime.UTC).strftime(
            '%Y-%m-%dT%H:%M:%SZ')
        new = host_state.merged(old, state, bmc.generation, now)
        if new == old:
            return
        for type_, reason, message in events.of_change(
                old.get('conditions'), new.get('conditions') or ()):
            try:
                await events.record(self._api, events.manifest(
                    bmc, type_, reason, message, now))
            except errors.MachineError as e:
                LOG.info('Event not written: %s', e)
        try:
            self._bmcs.put(await self._api.patch(
                bmc_resources.BMC, bmc.namespace, bmc.name, [
                    {'op': 'test', 'path': '/metadata/resourceVersion',
                     'value': body['metadata']['resourceVersion']},
                    {'op': 'add', 'path': '/status', 'value': new}],
                'status'))
        except errors.ObjectNotFound:
            self._bmcs.drop((bmc.namespace, bmc.name))


def _identity(secret):
    """:returns: what of a Secret is kept"""
    metadata = secret['metadata']
    return {
        'metadata': {key: metadata[key] for key in (
            'namespace', 'name', 'uid', 'resourceVersion')},
        'source': (metadata.get('annotations') or {}).get(fields.SOURCE)}


def _is_held(obj) -> bool:
    return naming.HOST_FINALIZER in (
        obj['metadata'].get('finalizers') or ())


def _is_ready(status):
    return any(one['type'] == conditions.EMULATOR and one['status'] == 'True'
               for one in status.get('conditions') or ())


def _is_overridden(body, vm):
    """Tell whether a user wants no wait for the host."""
    return any(
        (one['metadata'].get('annotations') or {}).get(naming.SKIP_HOST)
        == 'true' for one in (body, vm) if one)
