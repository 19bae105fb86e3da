# SPDX-License-Identifier: Apache-2.0
"""Harvester's webhooks and controllers, as far as they change VMs.

The mutating webhook completes VMs and, when ``Halted`` is replaced, sets the
run strategy of Harvester's annotation. A controller keeps that annotation and
the one with the MAC addresses. The validating webhook refuses to stop a VM
with a backup that is not complete, and empty CD-ROM drives that do not name
SATA as their bus.

Source: harvester/harvester, commit 3d63c2af (1.9):
``pkg/webhook/resources/virtualmachine`` (mutator.go, validator.go),
``pkg/controller/master/virtualmachine`` (vm_controller.go,
vmi_network_controller.go), ``pkg/util/virtualmachine/virtualmachine.go``,
``pkg/webhook/util/filter.go`` (HasActiveBackup).
Not covered are resource quotas and reservations, claims in annotations and
affinity to networks.
"""

import asyncio
import json
import random

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt import workqueue

RUN_STRATEGY = 'harvesterhci.io/vmRunStrategy'
MACS = 'harvesterhci.io/mac-address'

BACKUP = kinds.Kind('harvesterhci.io', 'v1beta1', 'VirtualMachineBackup',
                    'virtualmachinebackups', 'virtualmachinebackup')


class Harvester:
    """Harvester in a sandbox with KubeVirt.

    :param server: the :class:`kubevirt_sandbox.api.server.Server`.
    :param kubevirt: the :class:`kubevirt_kinds.Kinds` of KubeVirt.
    :param lag: see :class:`workqueue.WorkQueue`.
    """

    def __init__(self, server, kubevirt, lag=0):
        server.register_kind(BACKUP)
        self._store = store = server.store
        self._vm, self._vmi = kubevirt.vm, kubevirt.vmi
        self._queue = workqueue.WorkQueue(
            asyncio.get_running_loop(), self._sync, 'harvester', lag)
        store.gates.append(self._gate)
        self._ends = [store.subscribe(kind, self._changed)
                      for kind in (self._vm, self._vmi)]

    async def start(self):
        """Do nothing: it starts with its first VM."""

    async def stop(self):
        """Stop the controllers."""
        for end in self._ends:
            end()
        self._queue.close()

    def _gate(self, kind, admission):
        if (kind is not self._vm
                or admission.operation not in ('CREATE', 'UPDATE')
                or 'deletionTimestamp' in admission.new['metadata']):
            return
        if admission.old is not None and _stops(admission.old, admission.new):
            self._check_backups(admission.new['metadata'])
        if admission.subresource:
            return
        mutate(admission.new, admission.old)
        if admission.operation == 'CREATE' or _interfaces(
                admission.new) != _interfaces(admission.old):
            _check_drives(admission.new)

    def _check_backups(self, meta):
        for backup in self._store.list(BACKUP, meta['namespace']):
            status = backup.get('status') or {}
            if status.get('sourceUID') == meta['uid'] and (
                    status.get('error') or not status.get('readyToUse')):
                raise _denied(400, 'BadRequest', (
                    f'vm {meta["namespace"]}/{meta["name"]} has a backup in '
                    'progress; wait for it to finish or delete it before '
                    'stopping/restarting'))

    def _changed(self, type_, obj, _old):
        if type_ != 'DELETED':
            self._queue.add(paths.key(obj))

    def _sync(self, key):
        vm = self._store.find(self._vm, *key)
        if vm is None or 'deletionTimestamp' in vm['metadata']:
            return
        vmi = self._store.find(self._vmi, *key)
        wanted = {}
        if _strategy(vm) != 'Halted':
            wanted[RUN_STRATEGY] = _strategy(vm)
        if vmi is not None and vmi.get('status', {}).get('phase') == 'Running':
            macs = {one['name']: one['mac'] for one in
                    vmi['status'].get('interfaces') or ()
                    if one.get('name') and one.get('mac')}
            if macs:
                wanted[MACS] = json.dumps(macs, sort_keys=True,
                                          separators=(',', ':'))
        self._store.change(
            self._vm, *key, lambda new: _annotate(new, wanted),
            manager='harvester')


def _annotate(vm, wanted):
    if wanted:
        vm['metadata'].setdefault('annotations', {}).update(wanted)


def mutate(vm, old=None):
    """Do to a VM what the mutating webhook does.

    :param vm: the new VM, changed in place.
    :param old: None for a VM that is created.
    """
    annotations = vm['metadata'].get('annotations') or {}
    spec = vm['spec']['template']['spec']
    cpu = spec['domain'].setdefault('cpu', {})
    for field in 'cores', 'sockets', 'threads':
        cpu[field] = cpu.get(field) or 1
    if (old is not None and vm['spec'].get('running') is None
            and _strategy(old) == 'Halted' != _strategy(vm)):
        vm['spec']['runStrategy'] = (annotations.get(RUN_STRATEGY)
                                     or 'RerunOnFailure')
    spec.setdefault('affinity', {})
    spec.setdefault('terminationGracePeriodSeconds', 120)
    known = json.loads(annotations.get(MACS) or '{}')
    for interface in _interfaces(vm):
        if not interface.get('macAddress') and (
                interface['name'] not in known):
            first, *others = random.randbytes(6)
            interface['macAddress'] = ':'.join(
                f'{part:02x}' for part in ((first | 2) & 0xfe, *others))


def _check_drives(vm):
    """Refuse empty CD-ROM drives at another bus than SATA."""
    spec = vm['spec']['template']['spec']
    filled = {one['name'] for one in spec.get('volumes') or ()}
    for disk in spec['domain'].get('devices', {}).get('disks') or ():
        if ('cdrom' in disk and disk['name'] not in filled
                and disk['cdrom'].get('bus') != 'sata'):
            # An error without a code becomes 500.
            raise _denied(500, 'InternalError', (
                'empty cd-rom device should connect via SATA bus'))


def _denied(code, reason, message):
    return errors.ApiError(code, reason, (
        'admission webhook "validator.harvesterhci.io" denied the request: '
        + message))


def _stops(old, new):
    requests = (new.get('status') or {}).get('stateChangeRequests')
    return (_strategy(old) == 'Always' and _strategy(new) == 'Halted'
            or bool(requests) and requests[0]['action'] == 'Stop')


def _interfaces(vm):
    return vm['spec']['template']['spec']['domain'].get('devices', {}).get(
        'interfaces') or []


def _strategy(vm):
    spec = vm['spec']
    return spec.get('runStrategy') or (
        'Always' if spec.get('running') else 'Halted')
