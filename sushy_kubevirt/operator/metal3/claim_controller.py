# SPDX-License-Identifier: Apache-2.0
"""Creates VMs for HostClaims without a host: ``--claim-templates NAMESPACE``.

A claim for which baremetal-operator finds no host gets a VM from a template,
and a BMC with the VM's name. `HostController` makes the BareMetalHost, bound
to the claim. A claim that is deleted loses first the BMC, whose deletion waits
until its host is deprovisioned, and then the VM with its disks.

The VMs themselves record for which claim they are. A VM's name is derived from
the claim's uid, so that an operator that was killed after creating it finds it
again.
"""

from __future__ import annotations

import asyncio
from collections import abc
import contextlib
import logging
import math
import time
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import events
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator.metal3 import claims
from sushy_kubevirt.operator.metal3 import fields
from sushy_kubevirt.operator.metal3 import host_state
from sushy_kubevirt.operator.metal3 import resources
from sushy_kubevirt.operator.metal3 import templates
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import workqueue

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import api
    from sushy_kubevirt.operator import store as stores

LOG = logging.getLogger(__name__)

NAMESPACE = api_resources.Resource[objects.Json](
    '', 'v1', 'namespaces', 'Namespace')

#: Seconds after which the labels of a claim's namespace are read again.
LABEL_SECONDS = 30

#: Seconds in which a template is not tried again, for any claim, after the API
#: server has refused its VM or has not answered: many claims must not delay
#: those of others, nor the release of VMs.
REFUSED_SECONDS = 1

#: VMs of a claim that other claims may get before it gets no further one.
_ATTEMPTS = 10


class _Refused(Exception):
    """A claim gets no VM now.

    :param reason: of the Event, one word
    :param message: a sentence
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class _Origin(typing.NamedTuple):
    """What a VM was made for, and of.

    :param template: name
    """

    claim: objects.ObjectKey
    template: str | None


class ClaimController:
    """Creates and deletes the VMs of claims.

    :param options: with a namespace of templates and a selector of hosts
    """

    def __init__(self, options: command_line.Options, client: api.Api,
                 store: stores.Store) -> None:
        self._api = client
        self._options = options
        self._namespace = options.claim_templates or ''
        self._selector = options.bare_metal_hosts or ''
        self._selected = command_line.selector_labels(self._selector)
        self._namespaces = store.namespaces
        self._claims = store.add(resources.CLAIM, keep=claims.kept)
        self._policies = store.add(resources.POLICY, (self._namespace,))
        self._vms = store.kind(bmc_resources.VM)
        self._bmcs = store.kind(bmc_resources.BMC)
        self._hosts = store.add(resources.HOST)
        self._claims.subscribe(self._claim_changed)
        self._policies.subscribe(lambda change: self._check_all())
        self._vms.subscribe(self._vm_changed)
        self._bmcs.subscribe(self._vm_changed)
        self._hosts.subscribe(self._vm_changed,
                              lambda namespace: self._check_all())
        self._templates: set[objects.ObjectKey] = set()
        self._origins: dict[objects.ObjectKey, _Origin] = {}    # by VM
        self._vms_of: dict[objects.ObjectKey, set[objects.ObjectKey]] = {}
        #: Names of VMs that may have been created.
        self._sent: set[str] = set()
        #: Labels of namespaces, and when they were read.
        self._labels: dict[str, tuple[float, dict[str, str]]] = {}
        #: When the API server refused a VM, by the name of the template.
        self._refused: dict[str, float] = {}
        #: The last Event of a claim, and the claim's uid.
        self._told: dict[objects.ObjectKey, tuple[str, events.Event]] = {}
        #: Last message of `_tell_unserved`.
        self._unserved = ''
        # One worker, so that limits are kept.
        self._queue = workqueue.Queue(self._reconcile, 1)
        # A tenant with many claims must not keep it busy with Events.
        self._events = workqueue.Queue(self._record, 1)

    async def run(self) -> None:
        """Watch and work, without end."""
        if {None, self._namespace}.isdisjoint(self._namespaces):
            LOG.warning('--claim-templates %s needs --namespace %s, too',
                        self._namespace, self._namespace)
            await asyncio.Event().wait()
        for kind in self._claims, self._policies, self._hosts:
            await kind.wait_until_served(self._tell_unserved)
        try:
            async with asyncio.TaskGroup() as group:
                for kind in self._claims, self._policies:
                    group.create_task(kind.run())
                for kind in (self._claims, self._policies, self._vms,
                             self._bmcs, self._hosts):
                    await kind.listed.wait()
                LOG.info('HostClaims are listed')
                self._queue.start()
                self._events.start()
        finally:
            await self._queue.close(0)
            await self._events.close(0)

    async def _tell_unserved(self, problem: errors.MachineError | None
                             ) -> None:
        message = f'--claim-templates waits: {problem}' if problem else (
            f'The cluster has no {resources.CLAIM}; install Metal3, or remove '
            '--claim-templates')
        if message != self._unserved:
            self._unserved = message
            LOG.warning('%s', message)

    # Watches

    def _claim_changed(self, change: stores.Change) -> None:
        if change.gone:
            self._told.pop(change.key, None)
            self._events.forget(change.key)
        self._queue.add(change.key)

    def _check_all(self) -> None:
        """Check all claims, and those that are gone but have VMs."""
        for claim in (*self._claims.keys(), *self._vms_of):
            self._queue.add(claim)

    def _vm_changed(self, change: stores.Change) -> None:
        """Check the claim of a VM: it, its BMC or its host has changed."""
        key = change.key
        if key.namespace != self._namespace:
            return
        vm = self._vms.get(key)
        self._templates.discard(key)
        if vm is not None and templates.is_template(vm):
            self._templates.add(key)
            self._check_all()
        claim = templates.claim_of(vm) if vm is not None else None
        before = self._origins.pop(key, None)
        if before:
            self._vms_of[before.claim].discard(key)
            if not self._vms_of[before.claim]:
                del self._vms_of[before.claim]
            self._queue.add(before.claim)
            if not claim:
                # There may be room for another one now.
                self._check_all()
        if vm is not None and claim:
            self._origins[key] = _Origin(
                claim.key, templates.template_name(vm))
            self._vms_of.setdefault(claim.key, set()).add(key)
            self._queue.add(claim.key)

    # Work on one claim

    async def _reconcile(self, key: objects.ObjectKey) -> float | None:
        body = self._claims.get(key)
        claim = claims.read(body) if body else None
        with logs.about(*key), workqueue.retried(
                'HostClaim %s/%s: %s', *key):
            try:
                return await self._process(key, claim)
            except _Refused as e:
                if claim is not None:
                    self._tell(claim, e.reason, str(e))
                return None
            except claims.Invalid as e:
                LOG.info('No VM for HostClaim %s/%s: %s', *key, e)
                return None
            except (errors.Rejected, errors.AccessDenied) as e:
                LOG.warning('HostClaim %s/%s: %s', *key, e)
                if claim is not None:
                    self._tell(claim, 'VirtualMachineRefused', str(e))
                raise workqueue.Failure from None

    async def _process(self, key: objects.ObjectKey,
                       claim: claims.Claim | None) -> float | None:
        """Keep, assign, release or create the VM of a claim.

        :returns: seconds after which to process the claim again, or None
        """
        if not self._hosts.listed.is_set():
            # A host that is not listed again yet would count as gone.
            return None
        present = False
        for vm_key in sorted(self._vms_of.get(key, ())):
            vm, host = self._vms.get(vm_key), self._hosts.get(vm_key)
            if vm is None:
                # It was deleted meanwhile.
                continue
            bound = claims.consumer(host)
            needed = await self._is_needed(vm, claim)
            if host and bound and not (needed and bound == key) and (
                    other := await self._live(bound)) and (
                        self._may_take(other, host, key.namespace)):
                await self._assign(vm, other)
            elif needed:
                present = True
                self._tell_failure(vm, claim)
                await self._keep(vm)
            elif claims.has_other_consumer(host):
                LOG.warning('VM %s/%s is kept without its HostClaim: its '
                            'BareMetalHost has another consumer', *vm_key)
            elif self._is_paused(vm_key):
                LOG.info('VM %s/%s is kept without its HostClaim: its '
                         'BareMetalHost is paused, or was moved to another '
                         'cluster', *vm_key)
            else:
                await self._release(vm)
        if present or claim is None or claim.deleting or not claim.unmet:
            return None
        return await self._create(claim)

    async def _live(self, key: objects.ObjectKey) -> claims.Claim | None:
        """Read a claim; None if there is none."""
        try:
            body = await self._api.get(resources.CLAIM, *key)
        except errors.ObjectNotFound:
            return None
        return claims.read(body)

    async def _is_needed(self, vm: objects.VirtualMachine,
                         claim: claims.Claim | None) -> bool:
        """Tell whether the claim of a VM exists and has no other host."""
        ref = templates.claim_of(vm)
        vm_key = object_cache.object_key(vm)

        def needs(other: claims.Claim | None) -> bool:
            return (other is not None and ref is not None
                    and other.uid == ref.uid and not other.deleting
                    and other.host in (None, vm_key))
        # The watch may be behind, or not include the claim's namespace.
        return needs(claim) or ref is not None and needs(
            await self._live(ref.key))

    def _may_take(self, claim: claims.Claim, host: objects.Json, former: str
                  ) -> bool:
        """Tell whether a claim may keep the VM of another one.

        baremetal-operator has bound its host to the claim, after the other
        one was deleted and before the host was.

        :param host: bound to it
        :param former: namespace of the other claim
        """
        if claim.deleting or claim.host not in (
                None, object_cache.object_key(host)):
            return False
        provisioned = host_state.provisioned(host)
        if provisioned:
            # The disks have data of the other claim, unless that was later.
            return claim.since is not None and provisioned >= claim.since
        return claim.namespace == former or not self._is_full(claim.namespace)

    def _is_full(self, namespace: str) -> bool:
        return self._options.claim_limit <= sum(
            origin.claim.namespace == namespace
            for origin in self._origins.values())

    def _is_paused(self, key: objects.ObjectKey) -> bool:
        """Tell whether a host is paused, as before a move, or was moved."""
        host, bmc = self._hosts.get(key), self._bmcs.get(key)
        return bool(host and host_state.is_paused(host)
                    or bmc and host_state.was_paused(bmc))

    async def _assign(self, vm: objects.VirtualMachine, claim: claims.Claim
                      ) -> None:
        """Record the claim that baremetal-operator has bound a host to."""
        metadata = vm['metadata']
        self._vms.put(await self._api.patch(
            bmc_resources.VM, metadata['namespace'], metadata['name'], {
                'metadata': {
                    'uid': metadata['uid'],
                    'resourceVersion': metadata['resourceVersion'],
                    'labels': {stored_names.CLAIM_UID: claim.uid},
                    'annotations': {
                        stored_names.CLAIM: '/'.join(claim.key)}}}))
        LOG.info('VM %s/%s is for HostClaim %s/%s now, to which its '
                 'BareMetalHost is bound', *object_cache.object_key(vm),
                 *claim.key)

    def _tell_failure(self, vm: objects.VirtualMachine,
                      claim: claims.Claim | None) -> None:
        """Tell why KubeVirt cannot create a VM's disks, or start it."""
        if claim and objects.holds(vm, 'Failure'):
            message = objects.conditions_of(vm)['Failure'].get('message', '')
            self._tell(claim, 'VirtualMachineFailed',
                       f"VM {vm['metadata']['name']}: {message}")

    async def _keep(self, vm: objects.VirtualMachine) -> None:
        """Have a BMC for a VM."""
        key = object_cache.object_key(vm)
        if 'deletionTimestamp' in vm['metadata'] or (
                self._bmcs.get(key) is not None):
            return
        try:
            bmc = await self._api.create(
                bmc_resources.BMC, key.namespace, templates.bmc(
                    vm, self._selected, self._options.host_external))
        except errors.Conflict:
            bmc = await self._api.get(bmc_resources.BMC, *key)
        self._bmcs.put(bmc)

    async def _release(self, vm: objects.VirtualMachine) -> None:
        """Delete a VM after its BMC, which is deleted after its host."""
        metadata, key = vm['metadata'], object_cache.object_key(vm)
        bmc = self._bmcs.get(key)
        try:
            if bmc is not None and templates.is_bmc_of(vm, bmc):
                if 'deletionTimestamp' not in bmc['metadata']:
                    await self._api.delete(
                        bmc_resources.BMC, *key, bmc['metadata']['uid'])
                    LOG.info('BMC %s/%s is deleted, as its VM has no '
                             'HostClaim any more', *key)
            elif 'deletionTimestamp' not in metadata:
                await self._api.delete(
                    bmc_resources.VM, *key, metadata['uid'])
                LOG.info('VM %s/%s is deleted, as it has no HostClaim any '
                         'more', *key)
        except errors.ObjectNotFound:
            # The watch shows it.
            pass

    # Creation

    async def _create(self, claim: claims.Claim) -> float | None:
        """Create the VM of a claim that needs one.

        :returns: as `_process`
        :raises: `_Refused`
        """
        candidates = self._candidates(claim)
        if not candidates:
            return None
        policies = [policy for policy in map(
            self._policies.get, self._policies.keys()) if policy]
        again: float | None = None
        labels: dict[str, str] = {}
        if claims.needs_labels(policies):
            again = LABEL_SECONDS
            labels = await self._labels_of(claim.namespace)
        if not claims.admitted(policies, claim.namespace, labels):
            return again
        await self._find_sent()
        if self._has_vm(claim):
            return None
        if self._is_full(claim.namespace):
            raise _Refused('ClaimLimitReached', (
                f'No VM is created: namespace {claim.namespace} may have '
                f'{self._options.claim_limit} VMs for HostClaims. Delete a '
                'HostClaim'))
        template = self._usable(candidates)
        source, now = template['metadata']['name'], time.monotonic()
        if now - self._refused.get(source, -REFUSED_SECONDS) < REFUSED_SECONDS:
            raise workqueue.Failure
        manifest = self._manifest(template, claim)
        name = manifest['metadata']['name']
        self._sent.add(name)
        try:
            vm = await self._api.create(
                bmc_resources.VM, self._namespace, manifest)
        except errors.Conflict as e:
            await self._find_sent()
            if not self._has_vm(claim):
                raise _Refused('NameTaken', str(e)) from None
            return None
        except errors.MachineError as e:
            self._refused[source] = time.monotonic()
            if isinstance(e, (errors.Rejected, errors.AccessDenied)):
                self._sent.discard(name)
            raise
        self._sent.discard(name)
        LOG.info('VM %s/%s is created for HostClaim %s/%s',
                 self._namespace, name, *claim.key)
        self._vms.put(vm)
        return None

    async def _labels_of(self, namespace: str) -> dict[str, str]:
        """Read the labels of a namespace, not older than `LABEL_SECONDS`."""
        read, labels = self._labels.get(namespace, (-math.inf, {}))
        now = time.monotonic()
        if now - read > LABEL_SECONDS:
            body = await self._api.get(
                NAMESPACE, None, namespace, metadata_only=True)
            labels = objects.labels_of(body)
            self._labels[namespace] = now, labels
        return labels

    def _candidates(self, claim: claims.Claim
                    ) -> list[objects.VirtualMachine]:
        """List the templates whose hosts the claim may have.

        :raises: `claims.Invalid`
        """
        if claims.TOO_LONG in claim.selector:
            raise _Refused('SelectorTooLong', (
                'No VM is created: hostSelector has more than '
                f'{claims.LONGEST_SELECTOR} characters'))
        if claim.selector.get('inNamespace') not in (
                None, '', self._namespace):
            return []
        near: list[objects.VirtualMachine] = []
        far: list[objects.VirtualMachine] = []
        for key in sorted(self._templates):
            vm = self._vms.get(key)
            assert vm is not None
            # Those of the host's link to its BMC are there, too.
            labels = {
                **fields.copied_labels({'metadata': {
                    'labels': templates.labels(vm)}}, self._options),
                stored_names.BMC_NAME: naming.label(
                    templates.name(key.name, claim.uid)),
                naming.MANAGED_BY: naming.OPERATOR, stored_names.BMC_UID: ''}
            if claims.matches(claim.selector, labels):
                is_near = claim.failure_domain in (
                    '', labels.get(fields.FAILURE_DOMAIN))
                (near if is_near else far).append(vm)
        return near + far

    def _usable(self, candidates: abc.Iterable[objects.VirtualMachine]
                ) -> objects.VirtualMachine:
        """Choose the first template that a VM may be made from.

        :raises: `_Refused`
        """
        problems = []
        for vm in candidates:
            name = vm['metadata']['name']
            try:
                templates.check(vm)
                self._check_labels(vm)
                limit = templates.limit(vm)
                if limit is None or limit > sum(
                        origin.template == name
                        for origin in self._origins.values()):
                    return vm
                problems.append(f'template {name} has its {limit} VMs')
            except templates.Unusable as e:
                problems.append(f'template {name} cannot be used: {e}')
        raise _Refused('NoTemplate', 'No VM is created: '
                       + '; '.join(problems))

    def _check_labels(self, vm: objects.VirtualMachine) -> None:
        """Check that BMCs of a template's VMs get hosts.

        :raises: `templates.Unusable`
        """
        missing = command_line.unmet(self._selector, {
            **{key: value for key, value in templates.labels(vm).items()
               if key in self._selected},
            naming.MANAGED_BY: naming.OPERATOR, stored_names.CLAIM_UID: ''})
        if missing:
            raise templates.Unusable(
                f'its labels do not match "{missing}" of --bare-metal-hosts')

    def _manifest(self, template: objects.VirtualMachine, claim: claims.Claim
                  ) -> objects.Json:
        """Make a VM whose name no other claim has."""
        for attempt in range(_ATTEMPTS):
            vm = templates.vm(template, claim, attempt)
            present = self._origins.get(object_cache.object_key(vm))
            if present is None or present.claim == claim.key:
                break
        return vm

    async def _find_sent(self) -> None:
        """Look for the VMs of requests whose responses were lost.

        They count for the limits before another VM is created.
        """
        for name in list(self._sent):
            with contextlib.suppress(errors.ObjectNotFound):
                self._vms.put(await self._api.get(
                    bmc_resources.VM, self._namespace, name))
            self._sent.discard(name)

    def _has_vm(self, claim: claims.Claim) -> bool:
        refs = [templates.claim_of(vm) for vm in map(
            self._vms.get, self._vms_of.get(claim.key, ())) if vm]
        return any(ref and ref.uid == claim.uid for ref in refs)

    def _tell(self, claim: claims.Claim, reason: str, message: str) -> None:
        """Write an Event, unless it was the claim's last one."""
        told = claim.uid, events.Event(events.WARNING, reason, message)
        if self._told.get(claim.key) != told:
            self._told[claim.key] = told
            self._events.add(claim.key)

    async def _record(self, key: objects.ObjectKey) -> None:
        body, told = self._claims.get(key), self._told.get(key)
        if body is None or told is None or told[0] != body['metadata']['uid']:
            return
        if not await events.record(self._api, claims.read(body), told[1],
                                   events.now(), resources.CLAIM):
            # It is told again when the claim is processed again.
            self._told.pop(key, None)
