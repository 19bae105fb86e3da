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
import dataclasses
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


@dataclasses.dataclass(frozen=True)
class SelectedVm:
    """A VM whose labels match.

    :param namespace: of the VM
    :param name: of the VM
    :param uid: of the VM
    :param deleting: whether it is being deleted
    :param allowed: its annotation `stored_names.ALLOW_FROM`
    :param labels: names and values of the labels that its BMC gets
    """

    namespace: str
    name: str
    uid: str
    deleting: bool = False
    allowed: str | None = None
    labels: tuple[tuple[str, str], ...] = ()

    def permits(self, namespace: str) -> bool:
        """Tell whether BMCs of a namespace may name it."""
        return permissions.reference_permitted(namespace, {'metadata': {
            'namespace': self.namespace,
            'annotations': {stored_names.ALLOW_FROM: self.allowed}}})


@dataclasses.dataclass(frozen=True)
class ExistingBmc:
    """A BMC.

    :param namespace: of the BMC
    :param name: of the BMC
    :param uid: of the BMC
    :param vm: the VM that it names; None if it names none, see `spec.Bmc`
    :param auto_created: whether it was created here
    :param labels: names and values of all its labels
    """

    namespace: str
    name: str
    uid: str
    vm: objects.ObjectKey | None
    auto_created: bool = False
    labels: tuple[tuple[str, str], ...] = ()


def is_auto_created(body: objects.AnyObject) -> bool:
    """Tell whether a BMC was created here, by its label and its owner."""
    meta = body['metadata']
    return (meta.get('labels') or {}).get(
        stored_names.AUTO_CREATED) == 'true' and any(
        reference.get('kind') == bmc_resources.VM.kind
        and reference.get('name') == meta['name']
        for reference in meta.get('ownerReferences') or ())


def manifest(vm: SelectedVm) -> objects.VirtualMachineBMC:
    """Make the BMC of a VM."""
    return {
        'apiVersion': naming.API_VERSION, 'kind': naming.KIND,
        'metadata': {
            'name': vm.name, 'namespace': vm.namespace,
            'labels': {**dict(vm.labels), stored_names.AUTO_CREATED: 'true',
                       naming.MANAGED_BY: naming.OPERATOR},
            'ownerReferences': [{
                'apiVersion': bmc_resources.VM.api_version,
                'kind': bmc_resources.VM.kind,
                'name': vm.name, 'uid': vm.uid}]},
        'spec': {'virtualMachine': {'name': vm.name}}}


def decide(vm: SelectedVm | None, referring: abc.Collection[ExistingBmc],
           namesake: ExistingBmc | None) -> tuple[bool, list[ExistingBmc]]:
    """Decide whether to create or delete BMCs of a VM.

    :param vm: None if there is none whose labels match
    :param referring: BMCs whose spec refers to the VM
    :param namesake: the BMC that has the VM's namespace and name
    :returns: whether to create a BMC; and the BMCs to delete
    """
    ours = [bmc for bmc in referring if bmc.auto_created]
    if vm is None:
        return False, ours
    if vm.deleting:
        # Kubernetes deletes what it owns.
        return False, []
    if any(not bmc.auto_created and vm.permits(bmc.namespace)
           for bmc in referring):
        return False, ours
    return namesake is None, []


def _existing(body: objects.VirtualMachineBMC) -> ExistingBmc:
    bmc = spec.read(body)
    return ExistingBmc(
        bmc.namespace, bmc.name, bmc.uid,
        bmc.vm
        if bmc.vm.name else None, is_auto_created(body),
        tuple((body['metadata'].get('labels') or {}).items()))


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
        vm = None if change.gone else _existing(change.obj).vm
        if vm is not None:
            self._vm_of[change.key] = vm
            self._queue.add(vm)
        if change.gone:
            # A VM of the BMC's name may have waited for the name.
            self._queue.add(change.key)

    def _vm(self, key: objects.ObjectKey) -> SelectedVm | None:
        vm = self._vms.get(key)
        # `ClaimController` makes and deletes the BMCs of the VMs it makes.
        # While it does not run, they must not become hosts for others.
        if (vm is None or not command_line.matches(self._selector, vm)
                or templates.is_template(vm) or templates.claim_of(vm)):
            return None
        meta = vm['metadata']
        return SelectedVm(
            *key, meta['uid'], 'deletionTimestamp' in meta,
            (meta.get('annotations') or {}).get(stored_names.ALLOW_FROM),
            tuple((name, value) for name, value in (
                meta.get('labels') or {}).items() if name in self._labels))

    def _bmc(self, key: objects.ObjectKey) -> ExistingBmc | None:
        body = self._bmcs.get(key)
        return None if body is None else _existing(body)

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
        vm, namesake = self._vm(key), self._bmc(key)
        referring = [bmc for bmc in map(self._bmc, self._store.users_of(
            bmc_resources.VM, *key)) if bmc is not None]
        create, surplus = decide(vm, referring, namesake)
        for bmc in surplus:
            LOG.info('BMC %s/%s is deleted: its VM does not match '
                     '--auto-create any more, or has a BMC of a user',
                     bmc.namespace, bmc.name)
            try:
                await self._api.delete(bmc_resources.BMC, bmc.namespace,
                                       bmc.name, bmc.uid)
            except (errors.ObjectNotFound, errors.Conflict):
                # Deleted already, or another one: the watch shows it.
                pass
        if vm is None or vm.deleting:
            return
        if create:
            await self._api.create(bmc_resources.BMC, vm.namespace,
                                   manifest(vm))
            LOG.info('BMC %s/%s is created: the labels of its VM match '
                     '--auto-create', *key)
        elif namesake and namesake in referring and (
                namesake.auto_created and namesake not in surplus
                and not {*vm.labels} <= {*namesake.labels}):
            await self._api.patch(
                bmc_resources.BMC, vm.namespace, vm.name, {'metadata': {
                    'uid': namesake.uid, 'labels': dict(vm.labels)}})
        elif not referring:
            LOG.info('VM %s/%s gets no BMC: the BMC of its name is for '
                     'another VM', *key)
