# SPDX-License-Identifier: Apache-2.0
"""Leaves a VM as it was when its BMC is gone.

A pod puts back what a one-time boot changed, also one that was set or begun
while it was away. But when the BMC is deleted in between, nobody is left to
do so, and the boot of one time would be that of all times. So the operator
does. The Secret with a BMC's state, which belongs to the VM, says that the VM
had one of ours: it goes last, so that nothing is forgotten by whoever is
ended meanwhile, or was away when the BMC was deleted; and a BMC without an
operator, for the same VM later on, is never met.
"""

import asyncio
import logging
import random

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.operator import api as api_
from sushy_kubevirt.operator import kinds
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator import naming
from sushy_kubevirt.redfish.services import state_secret

LOG = logging.getLogger(__name__)

#: Seconds before another try, twice as long each time, and at most.
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 60


class Farewell:
    """The VMs that had a BMC.

    :param api: an `api.Api`
    :param known: a `known.Known`
    """

    def __init__(self, api, known):
        self._api = api
        self._known = known
        self._secrets = {}      # (namespace, VM): uids of Secret and VM
        self._news = {}         # of those that are worked on: `asyncio.Event`
        self._tasks = set()
        self._begun = False

    async def follow(self, namespace):
        """Follow the Secrets that say so, for ever.

        :param namespace: None for all
        """
        there = self._api.watch(kinds.SECRET, namespace,
                                label_selector=naming.OURS, metadata_only=True)
        async for kind, found in there:
            if kind == api_.LISTED:
                for at in list(self._secrets):
                    if namespace in (None, at[0]) and (
                            at[0], at[1] + state_secret.ENDING) not in found:
                        del self._secrets[at]
                continue
            owner = _owner(found)
            if owner is None:
                continue
            at = found['metadata']['namespace'], owner['name']
            if kind == 'DELETED':
                self._secrets.pop(at, None)
            else:
                self._secrets[at] = found['metadata']['uid'], owner['uid']
            self.look(*at)

    def begin(self):
        """Begin to work: all BMCs are known."""
        self._begun = True
        for at in list(self._secrets):
            self.look(*at)

    def look(self, namespace, name):
        """Look at a VM, now: it, a BMC or a right about it has changed.

        :param name: of the VM
        """
        at = namespace, name
        if at in self._news:
            self._news[at].set()
        elif self._begun and self._is_left(at):
            self._news[at] = asyncio.Event()
            task = asyncio.create_task(self._leave(at))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def role_gone(self, role):
        """Take that a Role of ours is gone.

        :param role: dict
        """
        for name in _machines(role):
            self.look(role['metadata']['namespace'], name)

    async def close(self):
        """Work no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _is_left(self, at):
        """Whether a VM had a BMC, and has none."""
        return at in self._secrets and not self._known.minding(
            kinds.VM, *at)

    async def _leave(self, at):
        """Stay with a VM until all is as it was."""
        tries = 0
        try:
            with logs.about(*at):
                while self._is_left(at):
                    self._news[at].clear()
                    pause = None
                    try:
                        if not self._may_write(at) and await self._settle(at):
                            return
                        tries = 0
                    except errors.MachineError as e:
                        tries += 1
                        # A conflict is no news: somebody else wrote.
                        LOG.log(logging.INFO if tries < 3
                                else logging.WARNING, '%s', e)
                        pause = _pause(tries)
                    try:
                        async with asyncio.timeout(pause):
                            await self._news[at].wait()
                    except TimeoutError:
                        pass
        except Exception:
            LOG.exception('%s/%s: this should not happen', *at)
        finally:
            del self._news[at]

    def _may_write(self, at):
        """Whether a pod still has the right to change a VM."""
        roles = self._known.objects
        return any(at[1] in _machines(roles.get(kinds.ROLE, *role))
                   for role in roles.names(kinds.ROLE) if role[0] == at[0])

    async def _settle(self, at):
        """Put back what can be put back now.

        :returns: whether nothing is left to do
        """
        # In the operator of a cluster it is seldom needed.
        from sushy_kubevirt.machine import one_time_boot as keeper
        uid, owner = self._secrets[at]
        vm = await self._get(kinds.VM, at)
        # Another VM of that name had no BMC; and of one that is gone, the
        # Secret goes too.
        if vm is not None and vm['metadata']['uid'] == owner:
            edited, done = keeper.retire(
                vm, await self._get(api_resources.VMI, at))
            if edited is not None:
                await self._api.patch(kinds.VM, *at, [
                    {'op': 'test', 'path': '/metadata/uid',
                     'value': owner},
                    *json_patch.guarded(vm, edited)])
                LOG.info('VM %s/%s has no BMC any more: what a one-time boot '
                         'had changed is put back', *at)
            if not done:
                return False
        try:
            await self._api.delete(kinds.SECRET, at[0],
                                   at[1] + state_secret.ENDING, uid)
        except errors.ObjectNotFound:
            pass
        return True

    async def _get(self, resource, at):
        try:
            return await self._api.get(resource, *at)
        except errors.ObjectNotFound:
            return None


def _owner(secret):
    """:returns: the reference to the VM whose BMC's state a Secret is; None
        if it is another Secret
    """
    metadata = secret['metadata']
    for owner in metadata.get('ownerReferences') or ():
        if (owner['kind'] == kinds.VM.kind
                and metadata['name'] == owner['name'] + state_secret.ENDING):
            return owner
    return None


def _machines(role):
    """:returns: set of the names of VMs that a Role is about"""
    return {name for rule in (role or {}).get('rules') or ()
            if kinds.VM.plural in rule.get('resources', ())
            for name in rule.get('resourceNames', ())}


def _pause(tries):
    return min(FIRST_PAUSE * 2 ** min(tries - 1, 20),
               LONGEST_PAUSE) * random.uniform(0.5, 1)
