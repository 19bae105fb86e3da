# SPDX-License-Identifier: Apache-2.0
"""A fake machine that needs no cluster and records the calls it gets."""

import copy
import threading
import types

from kubevirt_sandbox.testing import json_patches
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import changes
from sushy_kubevirt.machine import machine
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import vm_state


def vm(strategy='RerunOnFailure', *, running=None, requests=(), conditions=(),
       disks=None, interfaces=None, volumes=None, domain=None,
       annotations=None, generation=5, **status):
    """Return a VM as the cache has it, by default observed by KubeVirt."""
    spec = {'running': running} if running is not None else {
        'runStrategy': strategy}
    if requests:
        status['stateChangeRequests'] = list(requests)
    if conditions:
        status['conditions'] = list(conditions)
    status.setdefault('runStrategy', strategy)
    status.setdefault('created', True)
    status.setdefault('observedGeneration', generation)
    if disks is None:
        disks = [{'name': 'root', 'disk': {'bus': 'virtio'}},
                 {'name': 'cd', 'cdrom': {'bus': 'sata'}}]
    if interfaces is None:
        interfaces = [{'name': 'default', 'masquerade': {}}]
    if volumes is None:
        volumes = [{'name': 'root', 'containerDisk': {'image': 'x'}}]
    return {
        'metadata': {'name': 'node', 'namespace': 'default', 'uid': 'vm-uid',
                     'resourceVersion': '10', 'generation': generation,
                     'annotations': dict(annotations or {'other': 'kept'})},
        'spec': dict(spec, template={
            'metadata': {'labels': {'vm': 'node'}},
            'spec': {'domain': dict(domain or {}, devices={
                'disks': disks, 'interfaces': interfaces}),
                'volumes': volumes}}),
        'status': status,
    }


def vmi(phase='Running', uid='u0', *, of=None, deleting=False, grace=30,
        conditions=(), policy=None):
    """Return a VMI.

    :param of: the VM from whose template it is created; None for an empty
        spec
    """
    metadata = {'name': 'node', 'namespace': 'default', 'uid': uid}
    if of is not None:
        annotations = of['spec']['template']['metadata'].get('annotations')
        metadata['annotations'] = dict(annotations or {})
        spec = copy.deepcopy(of['spec']['template']['spec'])
    else:
        spec = {'domain': {}}
    if policy:
        spec['domain']['rebootPolicy'] = policy
    if deleting:
        metadata['deletionTimestamp'] = '2026-01-01T00:00:00Z'
    spec['terminationGracePeriodSeconds'] = grace
    return {'metadata': metadata, 'spec': spec,
            'status': {'phase': phase, 'conditions': list(conditions)}}


def condition(type_, status='False', reason='', message=''):
    return {'type': type_, 'status': status, 'reason': reason,
            'message': message}


STOP = {'action': 'Stop', 'uid': 'u0'}
START = {'action': 'Start'}


def set_boot(machine, *settings, **named):
    """Change boot settings, with the parameters of `boot.Change`."""
    change = boot.Change(machine, *settings, **named)
    boot.write(change, lambda: changes.write(machine, (change,),
                                             change.needs_vmi))


def set_policy(machine, policy):
    """Set the power restore policy."""
    changes.write(machine, (power_restore_policy.change(machine, policy),),
                  waits=True)


class Gates:
    """Feature gates, set by the test."""

    version = 'v1.9.0'

    def __init__(self, *on):
        self.on = set(on)

    def pod_interface(self):
        return 'masquerade'

    def enabled(self, name):
        return name in self.on


class Machine:
    """A fake of `machine.Machine`.

    :param vm: the VM, which patches change
    :param vmi: its VMI
    :param gates: names of the feature gates that are on
    :param on_wait: functions called with this machine, one at each wait;
        further waits time out
    :param faults: what the next writes raise, one each: an exception, or
        (exception, True) for a write that takes effect nevertheless

    ``writes`` lists the requests: ('start', body), ('patch', operations).
    ``cached`` is the state that the cache has instead of the present one.
    """

    qualified_name = 'default/node'

    def __init__(self, vm, vmi=None, gates=('RebootPolicy',), on_wait=(),
                 faults=(), **settings):
        self.vm = vm
        self.vmi = vmi
        self.gates = Gates(*gates)
        self.on_wait = list(on_wait)
        self.faults = list(faults)
        self.options = options.Options(
            **{'write_deadline': 3.0, **settings})
        self.cluster = types.SimpleNamespace(
            wait_ready=lambda: None, closing=threading.Event(),
            cache=types.SimpleNamespace(stale=False))
        self.cached = None
        self.effects = {}
        self.writes = []
        self.fetch_count = 0

    def state(self):
        return vm_state.VmState(self.vm, self.vmi)

    def cached_state(self):
        return copy.deepcopy(self.cached or self.state())

    def sizes(self, vm):
        return {}

    def fetch(self):
        blocking.check()
        self.fetch_count += 1
        return copy.deepcopy(self.state())

    def fetch_vm(self):
        blocking.check()
        self.fetch_count += 1
        return copy.deepcopy(self.vm)

    write = machine.Machine.write

    def _shown(self, step, seconds):
        try:
            return blocking.attempt(step, self.cached_state()),
        except (blocking.WouldBlock, errors.MachineError):
            return None

    def wait(self, ready, timeout):
        if ready(self.state()):
            return True
        if self.on_wait:
            self.on_wait.pop(0)(self)
        return ready(self.state())

    def patch(self, operations):
        return self._write(('patch', operations),
                           lambda: self._apply(operations))

    def patch_status(self, operations, guard):
        return self._write(('status', operations),
                           lambda: self._apply(operations, guard))

    def call(self, action, body=None, resource=None):
        def carry_out():
            if body and 'gracePeriod' in body and self.vmi is not None:
                self.vmi['spec']['terminationGracePeriodSeconds'] = body[
                    'gracePeriod']
            self._effect(action)

        return self._write((action, body), carry_out)

    def patch_vmi(self, vmi, operations):
        def apply():
            self.vmi = json_patches.apply(self.vmi, operations)

        self._write(('vmi', operations), apply)

    def delete_vmi(self, uid):
        return self._write(('delete', uid), lambda: self._effect('delete'))

    def _effect(self, action):
        self.vm['metadata']['resourceVersion'] += '0'
        self.effects.get(action, lambda machine: None)(self)

    def _apply(self, operations, guard=None):
        metadata = self.vm['metadata']
        if guard is not None and (guard['metadata']['resourceVersion']
                                  != metadata['resourceVersion']):
            raise errors.Conflict('changed')
        spec = copy.deepcopy(self.vm['spec'])
        try:
            self.vm = json_patches.apply(self.vm, operations)
        except json_patches.Refused as e:
            raise errors.Conflict(str(e)) from e
        self.vm['metadata']['resourceVersion'] += '0'
        if self.vm['spec'] != spec:
            self.vm['metadata']['generation'] += 1
        return copy.deepcopy(self.vm)

    def _write(self, request, carry_out):
        blocking.check()
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, Exception):
            raise fault
        result = carry_out()
        self.writes.append(request)
        if fault:
            raise fault[0]
        return result

    @property
    def actions(self):
        """The names of the requests, in order."""
        return [name for name, _ in self.writes]

    @property
    def strategy(self):
        return self.vm['spec'].get('runStrategy')
