# SPDX-License-Identifier: Apache-2.0
"""BMCs that nobody has to make: ``--auto-create SELECTOR``.

Each VM whose labels match gets a VirtualMachineBMC of its name, which the VM
owns. It goes with the VM, when the labels match no more, and when a user
makes one for that VM. What a user made is never touched, and may be told
apart: `is_automatic`. How such a BMC then becomes a pod is not decided here;
nor is its spec put right when somebody changes it.
"""

import asyncio
import dataclasses
import logging
import random

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import api as api_
from sushy_kubevirt.operator import kinds
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import permission
from sushy_kubevirt.operator import spec

LOG = logging.getLogger(__name__)

#: Label of what is made here, with the value ``true``.
LABEL = naming.GROUP + '/auto-created'

#: Seconds before what failed is tried again, twice as long each time, and
#: at most.
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60


@dataclasses.dataclass(frozen=True)
class Machine:
    """A VM whose labels match.

    :param namespace: of the VM
    :param name: of the VM
    :param uid: of the VM
    :param deleting: whether it is on its way out
    :param allowed: its annotation `permission.ANNOTATION`, or None
    """

    namespace: str
    name: str
    uid: str
    deleting: bool = False
    allowed: str | None = None

    def permits(self, namespace):
        """Whether BMCs of a namespace may name it."""
        return permission.permitted(namespace, {'metadata': {
            'namespace': self.namespace,
            'annotations': {permission.ANNOTATION: self.allowed}}})


@dataclasses.dataclass(frozen=True)
class Made:
    """A BMC that there is.

    :param namespace: of the BMC
    :param name: of the BMC
    :param uid: of the BMC
    :param vm: (namespace, name) of the VM that it names; None if it names
        none, see `spec.Bmc`
    :param automatic: whether it was made here
    """

    namespace: str
    name: str
    uid: str
    vm: tuple
    automatic: bool = False


def is_automatic(body):
    """Whether a BMC was made here: it says so, and its VM owns it.

    :param body: dict
    """
    meta = body['metadata']
    return (meta.get('labels') or {}).get(LABEL) == 'true' and any(
        reference.get('kind') == kinds.VM.kind
        and reference.get('name') == meta['name']
        for reference in meta.get('ownerReferences') or ())


def body(machine):
    """The BMC of a VM.

    :param machine: a `Machine`
    """
    return {
        'apiVersion': naming.API_VERSION, 'kind': naming.KIND,
        'metadata': {
            'name': machine.name, 'namespace': machine.namespace,
            'labels': {LABEL: 'true', naming.MANAGED_BY: naming.OPERATOR},
            'ownerReferences': [{
                'apiVersion': kinds.VM.api_version, 'kind': kinds.VM.kind,
                'name': machine.name, 'uid': machine.uid}]},
        'spec': {'virtualMachineRef': {'name': machine.name}}}


def decide(machine, naming_it, of_its_name):
    """What is to be done about a VM.

    :param machine: a `Machine`; None if there is none whose labels match
    :param naming_it: list of `Made` that name the VM
    :param of_its_name: the `Made` that has the VM's namespace and name, or
        None
    :returns: (whether to make one, list of `Made` to delete)
    """
    ours = [one for one in naming_it if one.automatic]
    if machine is None:
        return False, ours
    if machine.deleting:
        # What it owns goes with it.
        return False, []
    if any(not one.automatic and machine.permits(one.namespace)
           for one in naming_it):
        return False, ours
    return of_its_name is None, []


class Automatic:
    """Makes and removes BMCs.

    :param options: `options.Options`, with a selector
    :param api: an `api.Api`
    """

    def __init__(self, options, api):
        self._selector = options.auto_create
        self._namespaces = options.namespaces or (None,)
        self._api = api
        self._machines = {}
        self._made = {}
        self._by_vm = {}
        self._unlisted = 2 * len(self._namespaces)
        # Of each VM that waits: when it may be looked at, and how often it
        # failed.
        self._waiting = {}
        self._wake = asyncio.Event()

    async def run(self):
        """Go on for ever."""
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                group.create_task(self._watch_machines(namespace))
                group.create_task(self._watch_made(namespace))
            group.create_task(self._work())

    async def _watch_machines(self, namespace):
        first = True
        async for kind, found in self._api.watch(
                kinds.VM, namespace, label_selector=self._selector,
                metadata_only=True):
            if kind == api_.LISTED:
                for key in self._vanished(self._machines, found, namespace):
                    del self._machines[key]
                    self._look_at(key)
                first = self._listed(first)
                continue
            meta = found['metadata']
            key = meta['namespace'], meta['name']
            if kind == 'DELETED':
                self._machines.pop(key, None)
            else:
                self._machines[key] = Machine(
                    *key, meta['uid'], 'deletionTimestamp' in meta,
                    (meta.get('annotations') or {}).get(
                        permission.ANNOTATION))
            self._look_at(key)

    async def _watch_made(self, namespace):
        first = True
        async for kind, found in self._api.watch(kinds.BMC, namespace):
            if kind == api_.LISTED:
                for key in self._vanished(self._made, found, namespace):
                    self._forget(key)
                first = self._listed(first)
                continue
            meta = found['metadata']
            self._forget((meta['namespace'], meta['name']))
            if kind != 'DELETED':
                self._note(found)

    def _note(self, found):
        bmc = spec.read(found)
        made = Made(bmc.namespace, bmc.name, bmc.uid,
                    bmc.vm and (bmc.vm.namespace, bmc.vm.name),
                    is_automatic(found))
        key = made.namespace, made.name
        self._made[key] = made
        self._by_vm.setdefault(made.vm, set()).add(key)
        self._look_at(made.vm)

    def _forget(self, key):
        made = self._made.pop(key, None)
        if made is None:
            return
        keys = self._by_vm[made.vm]
        keys.discard(key)
        if not keys:
            del self._by_vm[made.vm]
        self._look_at(made.vm)
        # Its name may be that of another VM, which waited for it.
        self._look_at(key)

    @staticmethod
    def _vanished(known, there, namespace):
        return [key for key in known if key not in there
                and namespace in (None, key[0])]

    def _listed(self, first):
        if first:
            self._unlisted -= 1
            self._wake.set()
        return False

    def _look_at(self, key):
        if key is None:
            return
        self._waiting[key] = 0, 0
        self._wake.set()

    async def _work(self):
        while True:
            self._wake.clear()
            now = _now()
            if not self._unlisted:
                due = [key for key, (when, _) in self._waiting.items()
                       if when <= now]
                for key in due:
                    await self._settle(key)
            times = [when for when, _ in self._waiting.values()]
            wait = None
            if times and not self._unlisted:
                wait = max(0, min(times) - _now())
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _settle(self, key):
        _, tries = self._waiting.pop(key)
        try:
            with logs.about(*key):
                await self._put_right(key)
        except errors.MachineError as e:
            pause = min(FIRST_PAUSE * 2 ** min(tries, 10), LONGEST_PAUSE)
            when = _now() + pause * random.uniform(0.5, 1)
            # Unless something new is known of it meanwhile.
            self._waiting.setdefault(key, (when, tries + 1))
            if not isinstance(e, errors.Conflict):
                passing = isinstance(e, errors.NamespaceTerminating)
                with logs.about(*key):
                    LOG.log(logging.INFO if passing else logging.WARNING,
                            '%s', e)

    async def _put_right(self, key):
        machine, of_its_name = self._machines.get(key), self._made.get(key)
        naming_it = [self._made[one] for one in self._by_vm.get(key, ())]
        create, surplus = decide(machine, naming_it, of_its_name)
        for one in surplus:
            LOG.info('It is deleted, as it is not wanted automatically')
            try:
                await self._api.delete(kinds.BMC, one.namespace, one.name,
                                       one.uid)
            except (errors.ObjectNotFound, errors.Conflict):
                # It is gone, or another one: the watch tells.
                pass
        if create:
            # One that the watch has not told yet: Conflict, so later again.
            await self._api.create(kinds.BMC, machine.namespace,
                                   body(machine))
            LOG.info('It is made, as the labels of its VM want it')
        elif machine and not machine.deleting and not naming_it:
            LOG.info('VM %s/%s gets no BMC: the one of its name is for '
                     'another VM', *key)


def _now():
    return asyncio.get_running_loop().time()
