# SPDX-License-Identifier: Apache-2.0
"""Restores the boot settings of a VM whose last BMC was deleted.

A BMC's pod restores what a one-time boot changed. If the BMC is deleted before
that, the operator does, as no pod is left and the VM would keep booting from
that device. The Secret with the BMC's state, which the VM owns, shows that the
VM had a BMC. It is deleted last, so that an operator that is killed meanwhile,
or was down when the BMC was deleted, finds it again.
"""

from __future__ import annotations

import logging
import typing

from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator.shared import shard_manifests
from sushy_kubevirt.operator import workqueue

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import api
    from sushy_kubevirt.operator import store

LOG = logging.getLogger(__name__)

#: VMs that are cleaned up at a time.
WORKERS = 4


class _Uids(typing.NamedTuple):
    """Of a VM, and of the Secret with its BMC's state."""

    secret: str
    vm: str


class VmCleanup:
    """Controller of VMs that had a BMC."""

    def __init__(self, client: api.Api, store: store.Store) -> None:
        self._api = client
        self._store = store
        # By the VM's key.
        self._uids: dict[objects.ObjectKey, _Uids] = {}
        # VMs that a pod may still write.
        self._waiting: set[objects.ObjectKey] = set()
        self._queue = workqueue.Queue(self._clean_up, WORKERS)

    def see_secret(self, change: store.Change) -> None:
        """Note a change of any Secret."""
        owner = change.obj and _owner(change.obj)
        if owner is None:
            return
        metadata = change.obj['metadata']
        key = objects.ObjectKey(metadata['namespace'], owner['name'])
        if change.gone or not naming.made_by_us(change.obj):
            self._uids.pop(key, None)
        else:
            self._uids[key] = _Uids(metadata['uid'], owner['uid'])
        self.enqueue(*key)

    def forget_unlisted(self) -> None:
        """Forget the VMs whose Secrets a list lacks."""
        for key in list(self._uids):
            if self._store.secrets.version(objects.ObjectKey(
                    key.namespace, state_secret.name(key.name))) is None:
                del self._uids[key]

    def enqueue_all(self) -> None:
        """Check all VMs. The first call, which starts the work, is made when
        all BMCs are cached."""
        if not self._queue.started:
            self._queue.start()
        for key in list(self._uids):
            self.enqueue(*key)

    def enqueue(self, namespace: str, name: str) -> None:
        """Check a VM: it, one of its BMCs or a Role for it has changed.

        :param name: of the VM
        """
        key = objects.ObjectKey(namespace, name)
        if self._queue.started and self._has_no_bmc(key):
            self._queue.add(key)

    def role_changed(self, namespace: str) -> None:
        """Check the VMs that wait for a Role, as one was changed or deleted.

        :param namespace: of the Role
        """
        waiting = {key for key in self._waiting if key.namespace == namespace}
        self._waiting -= waiting
        for key in waiting:
            self.enqueue(*key)

    async def close(self) -> None:
        """Stop the workers."""
        await self._queue.close(0)

    def _has_no_bmc(self, key: objects.ObjectKey) -> bool:
        """Tell whether a VM had a BMC, and has none now."""
        return key in self._uids and not self._store.users_of(
            bmc_resources.VM, *key)

    def _may_write(self, key: objects.ObjectKey) -> bool:
        """Tell whether a Role still lets a pod change a VM."""
        roles = self._store.kind(bmc_resources.ROLE)
        return any(key.name in shard_manifests.granted(roles.get(role))
                   for role in roles.keys() if role.namespace == key.namespace)

    async def _clean_up(self, key: objects.ObjectKey) -> None:
        """Restore what can be restored now. If something is left, the next
        event of the VM queues it again."""
        if not self._has_no_bmc(key):
            return
        if self._may_write(key):
            self._waiting.add(key)
            return
        with logs.about(*key):
            try:
                await self._restore(key)
            except errors.MachineError as e:
                # Log a first failure, such as a conflict, as information.
                LOG.log(logging.INFO if self._queue.failures(key) < 2
                        else logging.WARNING,
                        'VM %s/%s has no BMC any more; its boot settings are '
                        'not restored yet: %s', *key, e)
                raise workqueue.Failure(
                    getattr(e, 'retry_after', None)) from None

    async def _restore(self, key: objects.ObjectKey) -> None:
        # Imported here because most clusters never need it.
        from sushy_kubevirt.machine import one_time_boot
        from sushy_kubevirt.machine import vm_state
        uids = self._uids[key]
        vm = await self._get(bmc_resources.VM, key)
        # Do not change another VM of that name. The Secret of a deleted VM is
        # deleted below.
        if vm is not None and vm['metadata']['uid'] == uids.vm:
            edited, done = one_time_boot.desired_vm_on_removal(
                vm_state.VmState(vm, await self._get(api_resources.VMI, key)))
            if edited is not None:
                await self._api.patch(bmc_resources.VM, *key, [
                    {'op': 'test', 'path': '/metadata/uid',
                     'value': uids.vm},
                    *one_time_boot.patch(vm, edited)])
                LOG.info('VM %s/%s has no BMC any more: its boot settings '
                         'from before a one-time boot are restored', *key)
            if not done:
                return
        try:
            await self._api.delete(bmc_resources.SECRET, key.namespace,
                                   state_secret.name(key.name), uids.secret)
        except errors.ObjectNotFound:
            pass

    async def _get(self,
                   resource: api_resources.Resource[objects.ObjectT],
                   key: objects.ObjectKey) -> objects.ObjectT | None:
        try:
            return await self._api.get(resource, *key)
        except errors.ObjectNotFound:
            return None


def _owner(
        secret: objects.AnyObject) -> objects.OwnerReference | None:
    """Find the VM whose BMC's state a Secret holds.

    :returns: an owner reference; None for another Secret
    """
    metadata = secret['metadata']
    for owner in metadata.get('ownerReferences') or ():
        if (owner['kind'] == bmc_resources.VM.kind
                and metadata['name'] == state_secret.name(owner['name'])):
            return owner
    return None
