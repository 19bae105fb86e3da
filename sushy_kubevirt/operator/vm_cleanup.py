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

from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator.shared import objects
from sushy_kubevirt.operator import workqueue

LOG = logging.getLogger(__name__)

#: VMs that are cleaned up at a time.
WORKERS = 4


class VmCleanup:
    """Controller of VMs that had a BMC.

    :param client: an `api.Api`
    :param cache: a `cache.Cache`
    """

    def __init__(self, client, cache) -> None:
        self._api = client
        self._cache = cache
        self._secrets = {}      # (namespace, VM): uids of Secret and VM
        self._waiting = set()   # VMs that a pod may still write
        self._queue = workqueue.Queue(self._clean_up, WORKERS)

    def see_secret(self, namespace, kind, found) -> None:
        """Note an event of the watch of all Secrets.

        :param namespace: that is watched; None for all
        :param kind: see `api.Api.watch`
        :param found: object with metadata, or what was listed
        """
        if kind == api.LISTED:
            for at in list(self._secrets):
                if namespace in (None, at[0]) and (
                        at[0], state_secret.name(at[1])) not in found:
                    del self._secrets[at]
            return
        owner = _owner(found)
        if owner is None:
            return
        at = found['metadata']['namespace'], owner['name']
        if kind == 'DELETED' or not naming.made_by_us(found):
            self._secrets.pop(at, None)
        else:
            self._secrets[at] = found['metadata']['uid'], owner['uid']
        self.enqueue(*at)

    def enqueue_all(self) -> None:
        """Check all VMs. The first call, which starts the work, is made when
        all BMCs are cached."""
        if not self._queue.started:
            self._queue.start()
        for at in list(self._secrets):
            self.enqueue(*at)

    def enqueue(self, namespace, name) -> None:
        """Check a VM: it, one of its BMCs or a Role for it has changed.

        :param name: of the VM
        """
        at = namespace, name
        if self._queue.started and self._has_no_bmc(at):
            self._queue.add(at)

    def role_changed(self, namespace) -> None:
        """Check the VMs that wait for a Role, as one was changed or deleted.

        :param namespace: of the Role
        """
        waiting = {at for at in self._waiting if at[0] == namespace}
        self._waiting -= waiting
        for at in waiting:
            self.enqueue(*at)

    async def close(self) -> None:
        """Stop the workers."""
        await self._queue.close(0)

    def _has_no_bmc(self, at) -> bool:
        """Tell whether a VM had a BMC, and has none now."""
        return at in self._secrets and not self._cache.users_of(
            bmc_resources.VM, *at)

    def _may_write(self, at):
        """Tell whether a Role still lets a pod change a VM."""
        roles = self._cache.objects
        return any(at[1] in objects.granted(roles.get(bmc_resources.ROLE,
                                                      *role))
                   for role in roles.names(bmc_resources.ROLE)
                   if role[0] == at[0])

    async def _clean_up(self, at):
        """Restore what can be restored now. If something is left, the next
        event of the VM queues it again."""
        if not self._has_no_bmc(at):
            return
        if self._may_write(at):
            self._waiting.add(at)
            return
        with logs.about(*at):
            try:
                await self._restore(at)
            except errors.MachineError as e:
                # Log a first failure, such as a conflict, as information.
                LOG.log(logging.INFO if self._queue.failures(at) < 2
                        else logging.WARNING,
                        'VM %s/%s has no BMC any more; its boot settings are '
                        'not restored yet: %s', *at, e)
                raise workqueue.Failure(
                    getattr(e, 'retry_after', None)) from None

    async def _restore(self, at) -> None:
        # Imported here because most clusters never need it.
        from sushy_kubevirt.machine import one_time_boot
        uid, owner = self._secrets[at]
        vm = await self._get(bmc_resources.VM, at)
        # Do not change another VM of that name. The Secret of a deleted VM is
        # deleted below.
        if vm is not None and vm['metadata']['uid'] == owner:
            edited, done = one_time_boot.desired_vm_on_removal(
                vm, await self._get(api_resources.VMI, at))
            if edited is not None:
                await self._api.patch(bmc_resources.VM, *at, [
                    {'op': 'test', 'path': '/metadata/uid',
                     'value': owner},
                    *one_time_boot.patch(vm, edited)])
                LOG.info('VM %s/%s has no BMC any more: its boot settings '
                         'from before a one-time boot are restored', *at)
            if not done:
                return
        try:
            await self._api.delete(bmc_resources.SECRET, at[0],
                                   state_secret.name(at[1]), uid)
        except errors.ObjectNotFound:
            pass

    async def _get(self, resource, at):
        try:
            return await self._api.get(resource, *at)
        except errors.ObjectNotFound:
            return None


def _owner(secret):
    """Find the VM whose BMC's state a Secret holds.

    :returns: an owner reference; None for another Secret
    """
    metadata = secret['metadata']
    for owner in metadata.get('ownerReferences') or ():
        if (owner['kind'] == bmc_resources.VM.kind
                and metadata['name'] == state_secret.name(owner['name'])):
            return owner
    return None
