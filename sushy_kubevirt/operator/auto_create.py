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
import dataclasses
import logging

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator.metal3 import templates
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import workqueue

LOG = logging.getLogger(__name__)

#: Label of the BMCs that are created here, with the value ``true``.
LABEL = naming.GROUP + '/auto-created'


@dataclasses.dataclass(frozen=True)
class SelectedVm:
    """A VM whose labels match.

    :param namespace: of the VM
    :param name: of the VM
    :param uid: of the VM
    :param deleting: whether it is being deleted
    :param allowed: its annotation `permissions.ANNOTATION`, or None
    :param labels: tuple of (name, value) of the labels that its BMC gets
    """

    namespace: str
    name: str
    uid: str
    deleting: bool = False
    allowed: str | None = None
    labels: tuple = ()

    def permits(self, namespace):
        """Tell whether BMCs of a namespace may name it."""
        return permissions.reference_permitted(namespace, {'metadata': {
            'namespace': self.namespace,
            'annotations': {permissions.ANNOTATION: self.allowed}}})


@dataclasses.dataclass(frozen=True)
class ExistingBmc:
    """A BMC.

    :param namespace: of the BMC
    :param name: of the BMC
    :param uid: of the BMC
    :param vm: (namespace, name) of the VM that it names; None if it names
        none, see `spec.Bmc`
    :param auto_created: whether it was created here
    :param labels: tuple of all its labels, as (name, value)
    """

    namespace: str
    name: str
    uid: str
    vm: tuple
    auto_created: bool = False
    labels: tuple = ()


def is_auto_created(body):
    """Tell whether a BMC was created here, by its label and its owner.

    :param body: dict
    """
    meta = body['metadata']
    return (meta.get('labels') or {}).get(LABEL) == 'true' and any(
        reference.get('kind') == bmc_resources.VM.kind
        and reference.get('name') == meta['name']
        for reference in meta.get('ownerReferences') or ())


def manifest(vm):
    """Make the BMC of a VM.

    :param vm: a `SelectedVm`
    :returns: dict
    """
    return {
        'apiVersion': naming.API_VERSION, 'kind': naming.KIND,
        'metadata': {
            'name': vm.name, 'namespace': vm.namespace,
            'labels': {**dict(vm.labels), LABEL: 'true',
                       naming.MANAGED_BY: naming.OPERATOR},
            'ownerReferences': [{
                'apiVersion': bmc_resources.VM.api_version,
                'kind': bmc_resources.VM.kind,
                'name': vm.name, 'uid': vm.uid}]},
        'spec': {'virtualMachine': {'name': vm.name}}}


def decide(vm, referring, namesake):
    """Decide whether to create or delete BMCs of a VM.

    :param vm: a `SelectedVm`; None if there is none whose labels match
    :param referring: list of `ExistingBmc` whose spec refers to the VM
    :param namesake: the `ExistingBmc` that has the VM's namespace and name,
        or None
    :returns: (whether to create one, list of `ExistingBmc` to delete)
    """
    ours = [one for one in referring if one.auto_created]
    if vm is None:
        return False, ours
    if vm.deleting:
        # Kubernetes deletes what it owns.
        return False, []
    if any(not one.auto_created and vm.permits(one.namespace)
           for one in referring):
        return False, ours
    return namesake is None, []


class AutoCreator:
    """Creates and deletes BMCs.

    :param options: `command_line.Options`, with a selector
    :param client: an `api.Api`
    """

    def __init__(self, options, client) -> None:
        self._selector = options.auto_create
        # One label of a VM is enough for a BMC with a BareMetalHost.
        self._labels = command_line.selector_labels(
            options.bare_metal_hosts or '')
        self._namespaces = options.namespaces or (None,)
        self._api = client
        self._vms = {}
        self._bmcs = {}
        self._by_vm = {}
        self._unlisted = 2 * len(self._namespaces)
        self._queue = workqueue.Queue(self._reconcile, 1)

    async def run(self) -> None:
        """Watch and work, without end."""
        try:
            async with asyncio.TaskGroup() as group:
                for namespace in self._namespaces:
                    group.create_task(self._watch_vms(namespace))
                    group.create_task(self._watch_bmcs(namespace))
        finally:
            await self._queue.close(0)

    async def _watch_vms(self, namespace) -> None:
        first = True
        async for kind, found in self._api.watch(
                bmc_resources.VM, namespace, label_selector=self._selector,
                metadata_only=True):
            if kind == api.LISTED:
                for key in self._unlisted_keys(self._vms, found, namespace):
                    del self._vms[key]
                    self._queue.add(key)
                first = self._set_listed(first)
                continue
            meta = found['metadata']
            key = meta['namespace'], meta['name']
            # `ClaimController` makes and deletes the BMCs of the VMs it makes.
            # While it does not run, they must not become hosts for others.
            if (kind == 'DELETED' or templates.is_template(found)
                    or templates.is_made_here(found)):
                self._vms.pop(key, None)
            else:
                self._vms[key] = SelectedVm(
                    *key, meta['uid'], 'deletionTimestamp' in meta,
                    (meta.get('annotations') or {}).get(
                        permissions.ANNOTATION),
                    tuple((name, value) for name, value in (
                        meta.get('labels') or {}).items()
                        if name in self._labels))
            self._queue.add(key)

    async def _watch_bmcs(self, namespace) -> None:
        first = True
        async for kind, found in self._api.watch(
                bmc_resources.BMC, namespace):
            if kind == api.LISTED:
                for key in self._unlisted_keys(self._bmcs, found, namespace):
                    self._drop_bmc(key)
                first = self._set_listed(first)
                continue
            meta = found['metadata']
            self._drop_bmc((meta['namespace'], meta['name']))
            if kind != 'DELETED':
                self._put_bmc(found)

    def _put_bmc(self, found) -> None:
        bmc = spec.read(found)
        made = ExistingBmc(bmc.namespace, bmc.name, bmc.uid,
                           (bmc.vm.namespace, bmc.vm.name)
                           if bmc.vm.name else None,
                           is_auto_created(found),
                           tuple((found['metadata'].get('labels')
                                  or {}).items()))
        key = made.namespace, made.name
        self._bmcs[key] = made
        if made.vm is not None:
            self._by_vm.setdefault(made.vm, set()).add(key)
            self._queue.add(made.vm)

    def _drop_bmc(self, key) -> None:
        made = self._bmcs.pop(key, None)
        if made is None:
            return
        if made.vm is not None:
            keys = self._by_vm[made.vm]
            keys.discard(key)
            if not keys:
                del self._by_vm[made.vm]
            self._queue.add(made.vm)
        # A VM of the BMC's name may have waited for the name.
        self._queue.add(key)

    @staticmethod
    def _unlisted_keys(cached, listed, namespace):
        return [key for key in cached if key not in listed
                and namespace in (None, key[0])]

    def _set_listed(self, first) -> bool:
        if first:
            self._unlisted -= 1
            if not self._unlisted:
                self._queue.start()
        return False

    async def _reconcile(self, key):
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

    async def _create_or_delete(self, key) -> None:
        vm, namesake = self._vms.get(key), self._bmcs.get(key)
        referring = [self._bmcs[one] for one in self._by_vm.get(key, ())]
        create, surplus = decide(vm, referring, namesake)
        for one in surplus:
            LOG.info('BMC %s/%s is deleted: its VM does not match '
                     '--auto-create any more, or has a BMC of a user',
                     one.namespace, one.name)
            try:
                await self._api.delete(bmc_resources.BMC, one.namespace,
                                       one.name, one.uid)
            except (errors.ObjectNotFound, errors.Conflict):
                # Deleted already, or another one: the watch shows it.
                pass
        if create:
            await self._api.create(bmc_resources.BMC, vm.namespace,
                                   manifest(vm))
            LOG.info('BMC %s/%s is created: the labels of its VM match '
                     '--auto-create', *key)
        elif vm and not vm.deleting and namesake in referring and (
                namesake.auto_created and namesake not in surplus
                and not {*vm.labels} <= {*namesake.labels}):
            await self._api.patch(
                bmc_resources.BMC, vm.namespace, vm.name, {'metadata': {
                    'uid': namesake.uid, 'labels': dict(vm.labels)}})
        elif vm and not vm.deleting and not referring:
            LOG.info('VM %s/%s gets no BMC: the BMC of its name is for '
                     'another VM', *key)
