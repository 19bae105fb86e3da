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
import contextlib
import datetime
import logging
import time

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import events
from sushy_kubevirt.operator import informer
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator.metal3 import claims
from sushy_kubevirt.operator.metal3 import fields
from sushy_kubevirt.operator.metal3 import kept
from sushy_kubevirt.operator.metal3 import resources
from sushy_kubevirt.operator.metal3 import served
from sushy_kubevirt.operator.metal3 import templates
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import workqueue

LOG = logging.getLogger(__name__)

NAMESPACE = api_resources.Resource('', 'v1', 'namespaces', 'Namespace')

#: Seconds after which the labels of a claim's namespace are read again.
LABEL_SECONDS = 30

#: Seconds in which a template is not tried again, for any claim, after the API
#: server has refused its VM or has not answered: many claims must not delay
#: those of others, nor the release of VMs.
REFUSED_SECONDS = 1

#: VMs of a claim that other claims may get before it gets no further one.
_ATTEMPTS = 10

_KINDS = resources.CLAIM, resources.POLICY, resources.HOST


class _Refused(Exception):
    """A claim gets no VM now.

    :param reason: of the Event, one word
    :param message: a sentence
    """

    def __init__(self, reason, message) -> None:
        super().__init__(message)
        self.reason = reason


class ClaimController:
    """Creates and deletes the VMs of claims.

    :param options: `command_line.Options`
    :param client: an `api.Api`
    """

    def __init__(self, options, client) -> None:
        self._api = client
        self._options = options.hosts
        self._at = options.hosts.claim_templates
        self._selector = options.bare_metal_hosts
        self._selected = command_line.selector_labels(self._selector)
        self._namespaces = options.namespaces or (None,)
        here = (lambda resource, changed, **more: informer.Informer(
            client, resource, (self._at,), changed, **more))
        self._claims = informer.Informer(
            client, resources.CLAIM, self._namespaces, self._claim_changed,
            keep=kept.of_claim)
        self._policies = here(resources.POLICY, self._rules_changed)
        self._vms = here(bmc_resources.VM, self._vm_changed)
        self._bmcs = here(
            bmc_resources.BMC, self._vm_changed, keep=kept.of_bmc)
        self._hosts = here(
            resources.HOST, self._vm_changed, keep=kept.of_host)
        self._informers = (self._claims, self._policies, self._vms,
                           self._bmcs, self._hosts)
        self._templates = set()
        self._claim_of = {}     # VM: (claim, name of the template)
        self._vms_of = {}       # claim: set of VMs
        self._sent = set()      # names of VMs that may have been created
        self._labels = {}       # namespace: (time of reading, labels)
        self._refused = {}      # name of a template: time of a refusal
        self._told = {}         # claim: its last Event
        # One worker, so that limits are kept.
        self._queue = workqueue.Queue(self._reconcile, 1)
        # A tenant with many claims must not keep it busy with Events.
        self._events = workqueue.Queue(self._record, 1)

    async def run(self) -> None:
        """Watch and work, without end."""
        logged = None
        while True:
            try:
                if None not in self._namespaces and (
                        self._at not in self._namespaces):
                    problem = (f'--claim-templates {self._at} needs '
                               f'--namespace {self._at}, too')
                elif await served.check(self._api, _KINDS, self._namespaces):
                    break
                else:
                    problem = (
                        f'The cluster has no {resources.CLAIM}; install '
                        'Metal3, or remove --claim-templates')
            except errors.MachineError as e:
                problem = f'--claim-templates waits: {e}'
            if problem != logged:
                logged = problem
                LOG.warning('%s', problem)
            await asyncio.sleep(served.SECONDS)
        try:
            async with asyncio.TaskGroup() as group:
                for one in self._informers:
                    group.create_task(one.run())
                for one in self._informers:
                    await one.listed.wait()
                LOG.info('HostClaims are listed')
                self._queue.start()
                self._events.start()
        finally:
            await self._queue.close(0)
            await self._events.close(0)

    # Watches

    def _claim_changed(self, key) -> None:
        if self._claims.get(key) is None:
            self._told.pop(key, None)
            self._events.forget(key)
        self._queue.add(key)

    def _rules_changed(self, key) -> None:
        """Check all claims: a policy or a template has changed."""
        for one in self._claims.keys():
            self._queue.add(one)

    def _vm_changed(self, key) -> None:
        """Check the claim of a VM: it, its BMC or its host has changed."""
        vm = self._vms.get(key)
        self._templates.discard(key)
        if vm is not None and templates.is_template(vm):
            self._templates.add(key)
            self._rules_changed(key)
        found = vm and templates.is_made_here(vm) and templates.claim_of(vm)
        before, _ = self._claim_of.pop(key, (None, None))
        if before:
            self._vms_of[before].discard(key)
            if not self._vms_of[before]:
                del self._vms_of[before]
            self._queue.add(before)
            if not found:
                # There may be room for another one now.
                self._rules_changed(key)
        if found:
            self._claim_of[key] = found[:2], templates.source(vm)
            self._vms_of.setdefault(found[:2], set()).add(key)
            self._queue.add(found[:2])

    # Work on one claim

    async def _reconcile(self, key):
        body = self._claims.get(key)
        claim = body and claims.read(body)
        with logs.about(*key):
            try:
                return await self._process(key, claim)
            except _Refused as e:
                self._tell(claim, e.reason, str(e))
            except claims.Invalid as e:
                LOG.info('No VM for HostClaim %s/%s: %s', *key, e)
            except (errors.Rejected, errors.AccessDenied) as e:
                LOG.warning('HostClaim %s/%s: %s', *key, e)
                if claim is not None:
                    self._tell(claim, 'VirtualMachineRefused', str(e))
                raise workqueue.Failure from None
            except errors.MachineError as e:
                LOG.log(logging.INFO if isinstance(
                    e, (errors.Conflict, errors.ObjectNotFound))
                    else logging.WARNING, 'HostClaim %s/%s: %s', *key, e)
                raise workqueue.Failure(
                    getattr(e, 'retry_after', None)) from None

    async def _process(self, key, claim):
        """:returns: seconds after which to process it again, or None"""
        present = False
        for at in sorted(self._vms_of.get(key, ())):
            vm, host = self._vms.get(at), self._hosts.get(at)
            bound = claims.consumer(host) if host else None
            needed = await self._is_needed(vm, claim)
            if bound and not (needed and bound == key) and (
                    other := await self._live(bound)) and (
                        self._may_take(other, host, key[0])):
                await self._assign(vm, other)
            elif needed:
                present = True
                self._tell_failure(vm, claim)
                await self._keep(vm)
            elif bound == ():
                LOG.warning('VM %s/%s is kept without its HostClaim: its '
                            'BareMetalHost has another consumer', *at)
            elif self._is_paused(at):
                LOG.info('VM %s/%s is kept without its HostClaim: its '
                         'BareMetalHost is paused, or was moved to another '
                         'cluster', *at)
            else:
                await self._release(vm)
        if present or claim is None or claim.deleting or not claim.unmet:
            return None
        return await self._create(claim)

    async def _live(self, key):
        """:returns: `claims.Claim`; None if there is no such claim"""
        try:
            return claims.read(await self._api.get(resources.CLAIM, *key))
        except errors.ObjectNotFound:
            return None

    async def _is_needed(self, vm, claim):
        """Tell whether the claim of a VM exists and has no other host."""
        namespace, name, uid = templates.claim_of(vm)
        at = kept.at(vm)

        def needs(one):
            return (one is not None and one.uid == uid and not one.deleting
                    and one.host in (None, at))
        # The watch may be behind, or not include the claim's namespace.
        return needs(claim) or needs(await self._live((namespace, name)))

    def _may_take(self, claim, host, former):
        """Tell whether a claim may keep the VM of another one.

        baremetal-operator has bound its host to the claim, after the other
        one was deleted and before the host was.

        :param claim: `claims.Claim`
        :param host: dict, bound to it
        :param former: namespace of the other claim
        """
        if claim.deleting or claim.host not in (None, kept.at(host)):
            return False
        if host['provisioned']:
            # The disks have data of the other claim, unless that was later.
            return claim.since is not None and (
                host['provisioned'] >= claim.since)
        return claim.namespace == former or not self._is_full(claim.namespace)

    def _is_full(self, namespace):
        limit = self._options.claim_limit
        return limit is not None and limit <= sum(
            claim[0] == namespace for claim, _ in self._claim_of.values())

    def _is_paused(self, at):
        """Tell whether a host is paused, as before a move, or was moved."""
        host, bmc = self._hosts.get(at), self._bmcs.get(at)
        return bool(host and host['paused'] or bmc and bmc['paused'])

    async def _assign(self, vm, claim) -> None:
        """Record the claim that baremetal-operator has bound a host to."""
        metadata, key = vm['metadata'], (claim.namespace, claim.name)
        self._vms.put(await self._api.patch(
            bmc_resources.VM, metadata['namespace'], metadata['name'], {
                'metadata': {
                    'uid': metadata['uid'],
                    'resourceVersion': metadata['resourceVersion'],
                    'labels': {templates.CLAIM_UID: claim.uid},
                    'annotations': {templates.CLAIM: '/'.join(key)}}}))
        LOG.info('VM %s/%s is for HostClaim %s/%s now, to which its '
                 'BareMetalHost is bound', *kept.at(vm), *key)

    def _tell_failure(self, vm, claim) -> None:
        """Tell why KubeVirt cannot create a VM's disks, or start it."""
        for one in (vm.get('status') or {}).get('conditions') or ():
            if claim and (one['type'], one['status']) == ('Failure', 'True'):
                self._tell(claim, 'VirtualMachineFailed', (
                    f"VM {vm['metadata']['name']}: {one.get('message', '')}"))

    async def _keep(self, vm) -> None:
        """Have a BMC for a VM."""
        at = kept.at(vm)
        if 'deletionTimestamp' in vm['metadata'] or (
                self._bmcs.get(at) is not None):
            return
        try:
            made = await self._api.create(
                bmc_resources.BMC, at[0], templates.bmc(
                    vm, self._selected, self._options.external))
        except errors.Conflict:
            made = await self._api.get(bmc_resources.BMC, *at)
        self._bmcs.put(made)

    async def _release(self, vm) -> None:
        """Delete a VM after its BMC, which is deleted after its host."""
        metadata, at = vm['metadata'], kept.at(vm)
        bmc = self._bmcs.get(at)
        try:
            if bmc is not None and templates.is_bmc_of(vm, bmc):
                if 'deletionTimestamp' not in bmc['metadata']:
                    await self._api.delete(
                        bmc_resources.BMC, *at, bmc['metadata']['uid'])
                    LOG.info('BMC %s/%s is deleted, as its VM has no '
                             'HostClaim any more', *at)
            elif 'deletionTimestamp' not in metadata:
                await self._api.delete(
                    bmc_resources.VM, *at, metadata['uid'])
                LOG.info('VM %s/%s is deleted, as it has no HostClaim any '
                         'more', *at)
        except errors.ObjectNotFound:
            # The watch shows it.
            pass

    # Creation

    async def _create(self, claim):
        """Create the VM of a claim that needs one.

        :returns: as `_process`
        :raises: `_Refused`
        """
        candidates = self._candidates(claim)
        if not candidates:
            return None
        policies = [self._policies.get(key) for key in self._policies.keys()]
        again, labels = None, {}
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
        made = self._manifest(template, claim)
        name = made['metadata']['name']
        self._sent.add(name)
        try:
            vm = await self._api.create(bmc_resources.VM, self._at, made)
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
        LOG.info('VM %s/%s is created for HostClaim %s/%s', self._at,
                 name, claim.namespace, claim.name)
        self._vms.put(vm)
        return None

    async def _labels_of(self, namespace):
        """:returns: dict, not older than `LABEL_SECONDS`"""
        read, labels = self._labels.get(namespace, (None, None))
        now = time.monotonic()
        if read is None or now - read > LABEL_SECONDS:
            found = await self._api.get(
                NAMESPACE, None, namespace, metadata_only=True)
            labels = found['metadata'].get('labels') or {}
            self._labels[namespace] = now, labels
        return labels

    def _candidates(self, claim):
        """:returns: list of templates whose hosts the claim may have

        :raises: `claims.Invalid`
        """
        if claims.TOO_LONG in claim.selector:
            raise _Refused('SelectorTooLong', (
                'No VM is created: hostSelector has more than '
                f'{kept.LONGEST_SELECTOR} characters'))
        if claim.selector.get('inNamespace') not in (None, '', self._at):
            return []
        found = []
        for key in sorted(self._templates):
            vm = self._vms.get(key)
            # Those of the host's link to its BMC are there, too.
            labels = {
                **fields.copied_labels({'metadata': {
                    'labels': templates.labels(vm)}}, self._options),
                naming.LABEL: naming.label(templates.name(key[1], claim.uid)),
                naming.MANAGED_BY: naming.OPERATOR, fields.BMC_UID: ''}
            if claims.matches(claim.selector, labels):
                found.append((claim.failure_domain not in (
                    '', labels.get(fields.FAILURE_DOMAIN)), vm))
        return [vm for _, vm in sorted(found, key=lambda one: one[0])]

    def _usable(self, candidates):
        """:returns: the first template that a VM may be made from

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
                        source == name
                        for _, source in self._claim_of.values()):
                    return vm
                problems.append(f'template {name} has its {limit} VMs')
            except templates.Unusable as e:
                problems.append(f'template {name} cannot be used: {e}')
        raise _Refused('NoTemplate', 'No VM is created: '
                       + '; '.join(problems))

    def _check_labels(self, vm):
        """Check that BMCs of a template's VMs get hosts.

        :raises: `templates.Unusable`
        """
        missing = command_line.unmet(self._selector, {
            **{key: value for key, value in templates.labels(vm).items()
               if key in self._selected},
            naming.MANAGED_BY: naming.OPERATOR, templates.CLAIM_UID: ''})
        if missing:
            raise templates.Unusable(
                f'its labels do not match "{missing}" of --bare-metal-hosts')

    def _manifest(self, template, claim):
        """:returns: dict, a VM whose name no other claim has"""
        for attempt in range(_ATTEMPTS):
            made = templates.vm(template, claim, attempt)
            there, _ = self._claim_of.get(kept.at(made), (None, None))
            if there in (None, (claim.namespace, claim.name)):
                break
        return made

    async def _find_sent(self) -> None:
        """Look for the VMs of requests whose responses were lost.

        They count for the limits before another VM is created.
        """
        for name in list(self._sent):
            with contextlib.suppress(errors.ObjectNotFound):
                self._vms.put(await self._api.get(
                    bmc_resources.VM, self._at, name))
            self._sent.discard(name)

    def _has_vm(self, claim):
        return any(templates.claim_of(self._vms.get(at))[2] == claim.uid
                   for at in self._vms_of.get(
                       (claim.namespace, claim.name), ()))

    def _tell(self, claim, reason, message) -> None:
        """Write an Event, unless it was the claim's last one."""
        key, told = (claim.namespace, claim.name), (
            claim.uid, reason, message)
        if self._told.get(key) != told:
            self._told[key] = told
            self._events.add(key)

    async def _record(self, key) -> None:
        body, told = self._claims.get(key), self._told.get(key)
        if body is None or told is None or told[0] != body['metadata']['uid']:
            return
        now = datetime.datetime.now(datetime.UTC).strftime(
            '%Y-%m-%dT%H:%M:%SZ')
        try:
            await events.record(self._api, events.manifest(
                claims.read(body), events.WARNING, *told[1:], now,
                resources.CLAIM))
        except errors.MachineError as e:
            # It is told again when the claim is processed again.
            self._told.pop(key, None)
            LOG.info('Event not written: %s', e)
