# SPDX-License-Identifier: Apache-2.0
"""Creates BMCs for VMs by a label selector: ``--auto-create SELECTOR``.

Each VM whose labels match gets a VirtualMachineBMC of its name, which the VM
owns. It is deleted with the VM, when the labels do not match any more, and
when a user creates a BMC for that VM. BMCs of users (those for which
`is_auto_created` is false) are never changed, and the spec of one that was
created here is not restored when a user changes it.
"""

from __future__ import annotations

import asyncio
from collections import abc
import logging
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator.metal3 import templates
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import workqueue

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import api
    from sushy_kubevirt.operator import store as stores

LOG = logging.getLogger(__name__)


def is_auto_created(body: objects.AnyObject) -> bool:
    """Tell whether a BMC was created here, by its label and its owner."""
    meta = body['metadata']
    return (meta.get('labels') or {}).get(
        stored_names.AUTO_CREATED) == 'true' and any(
        reference.get('kind') == bmc_resources.VM.kind
        and reference.get('name') == meta['name']
        for reference in meta.get('ownerReferences') or ())


def manifest(vm: objects.AnyObject, labels: abc.Mapping[str, str]
             ) -> objects.VirtualMachineBMC:
    """Make the BMC of a VM.

    :param labels: of the VM that its BMC gets
    """
    metadata = vm['metadata']
    return {
        'apiVersion': naming.API_VERSION, 'kind': naming.KIND,
        'metadata': {
            'name': metadata['name'], 'namespace': metadata['namespace'],
            'labels': {**labels, stored_names.AUTO_CREATED: 'true',
                       naming.MANAGED_BY: naming.OPERATOR},
            'ownerReferences': [{
                'apiVersion': bmc_resources.VM.api_version,
                'kind': bmc_resources.VM.kind,
                'name': metadata['name'], 'uid': metadata['uid']}]},
        'spec': {'virtualMachine': {'name': metadata['name']}}}


def decide(vm: objects.AnyObject | None,
           referring: abc.Collection[objects.VirtualMachineBMC],
           namesake: objects.VirtualMachineBMC | None
           ) -> tuple[bool, list[objects.VirtualMachineBMC]]:
    """Decide whether to create or delete BMCs of a VM.

    :param vm: None if there is none whose labels match
    :param referring: BMCs whose spec refers to the VM
    :param namesake: the BMC that has the VM's namespace and name
    :returns: whether to create a BMC; and the BMCs to delete
    """
    ours = [bmc for bmc in referring if is_auto_created(bmc)]
    if vm is None:
        return False, ours
    if 'deletionTimestamp' in vm['metadata']:
        # Kubernetes deletes what it owns.
        return False, []
    if any(not is_auto_created(bmc) and permissions.reference_permitted(
            bmc['metadata']['namespace'], vm) for bmc in referring):
        return False, ours
    return namesake is None, []


class AutoCreator:
    """Creates and deletes BMCs.

    :param options: with a selector
    """

    def __init__(self, options: command_line.Options, client: api.Api,
                 store: stores.Store) -> None:
        self._selector = options.auto_create or ''
        # One label of a VM is enough for a BMC with a BareMetalHost.
        self._labels = command_line.selector_labels(
            options.bare_metal_hosts or '')
        self._api = client
        self._store = store
        self._vms = store.kind(bmc_resources.VM)
        self._bmcs = store.kind(bmc_resources.BMC)
        #: The VMs that BMCs name.
        self._vm_of: dict[objects.ObjectKey, objects.ObjectKey] = {}
        self._queue = workqueue.Queue(self._reconcile, 1)
        self._vms.subscribe(self._vm_changed)
        self._bmcs.subscribe(self._bmc_changed)

    async def run(self) -> None:
        """Work, without end."""
        try:
            await self._vms.listed.wait()
            await self._bmcs.listed.wait()
            self._queue.start()
            await asyncio.Event().wait()
        finally:
            await self._queue.close(0)

    def _vm_changed(self, change: stores.Change) -> None:
        self._queue.add(change.key)

    def _bmc_changed(self, change: stores.Change) -> None:
        before = self._vm_of.pop(change.key, None)
        if before is not None:
            self._queue.add(before)
        vm = None if change.gone else spec.read(change.obj).vm
        if vm is not None and vm.name:
            self._vm_of[change.key] = vm
            self._queue.add(vm)
        if change.gone:
            # A VM of the BMC's name may have waited for the name.
            self._queue.add(change.key)

    def _vm(self, key: objects.ObjectKey) -> objects.VirtualMachine | None:
        """Look up a VM whose labels match."""
        vm: objects.VirtualMachine | None = self._vms.get(key)
        # `ClaimController` makes and deletes the BMCs of the VMs it makes.
        # While it does not run, they must not become hosts for others.
        if (vm is None or not command_line.matches(self._selector, vm)
                or templates.is_template(vm) or templates.claim_of(vm)):
            return None
        return vm

    async def _reconcile(self, key: objects.ObjectKey) -> None:
        with logs.about(*key):
            try:
                await self._create_or_delete(key)
            except errors.Conflict:
                # A BMC that the watch has not shown yet.
                raise workqueue.Failure from None
            except errors.MachineError as e:
                passing = isinstance(e, errors.NamespaceTerminating)
                LOG.log(logging.INFO if passing else logging.WARNING,
                        'BMC for VM %s/%s not created or deleted yet: %s',
                        *key, e)
                raise workqueue.Failure(
                    getattr(e, 'retry_after', None)) from None

    async def _create_or_delete(self, key: objects.ObjectKey) -> None:
        vm, namesake = self._vm(key), self._bmcs.get(key)
        referring = list(filter(None, map(
            self._bmcs.get, self._store.users_of(bmc_resources.VM, *key))))
        create, surplus = decide(vm, referring, namesake)
        for bmc in surplus:
            metadata = bmc['metadata']
            LOG.info('BMC %s/%s is deleted: its VM does not match '
                     '--auto-create any more, or has a BMC of a user',
                     metadata['namespace'], metadata['name'])
            try:
                await self._api.delete(
                    bmc_resources.BMC, metadata['namespace'],
                    metadata['name'], metadata['uid'],
                    metadata['resourceVersion'])
            except (errors.ObjectNotFound, errors.Conflict):
                # The BMC is gone, or a user who keeps it may have changed it:
                # the watch shows that.
                pass
        if vm is None or 'deletionTimestamp' in vm['metadata']:
            return
        labels = {name: value for name, value in (
            vm['metadata'].get('labels') or {}).items()
            if name in self._labels}
        if create:
            await self._api.create(bmc_resources.BMC, key.namespace,
                                   manifest(vm, labels))
            LOG.info('BMC %s/%s is created: the labels of its VM match '
                     '--auto-create', *key)
        elif namesake and namesake in referring and (
                is_auto_created(namesake) and namesake not in surplus
                and not labels.items() <= (
                    namesake['metadata'].get('labels') or {}).items()):
            await self._api.patch(bmc_resources.BMC, *key, {'metadata': {
                'uid': namesake['metadata']['uid'], 'labels': labels}})
        elif not referring:
            LOG.info('VM %s/%s gets no BMC: the BMC of its name is for '
                     'another VM', *key)
