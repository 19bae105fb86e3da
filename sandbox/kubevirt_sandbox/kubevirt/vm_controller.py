# SPDX-License-Identifier: Apache-2.0
"""Controller of VirtualMachines.

Creates and deletes VMIs according to the run strategy and the requests in the
status, applies template changes to running VMIs, and writes the status.

Source: pkg/virt-controller/watch/vm/vm.go, firmware.go (KubeVirt 1.9).
"""

import collections
import random

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.kubevirt import claims
from kubevirt_sandbox.kubevirt import conditions
from kubevirt_sandbox.kubevirt import defaults
from kubevirt_sandbox.kubevirt import events
from kubevirt_sandbox.kubevirt import instancetypes
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt import vm_datavolumes
from kubevirt_sandbox.kubevirt import vm_liveupdate
from kubevirt_sandbox.kubevirt import vm_model
from kubevirt_sandbox.kubevirt import vm_status
from kubevirt_sandbox.kubevirt.vmi_controller import VM_FINALIZER
from kubevirt_sandbox.kubevirt import vmi_status
from kubevirt_sandbox.kubevirt import workqueue

_MANAGER = 'virt-controller'
_OBSERVED = {'kubevirt.io/latest-observed-api-version': 'v1',
             'kubevirt.io/storage-observed-api-version': 'v1'}
_NOT_AT_ONCE = 'kubevirt.io/immediate-data-volume-creation'


def _claims(vm):
    """List (namespace, name) of the claims that a VM uses."""
    return [(vm['metadata']['namespace'], paths.claim_name(one))
            for one in paths.volumes(vm['spec']['template'].get('spec'))]


def _plans(vm):
    """Return the parts of a VM's status that the next turn acts on."""
    status = vm.get('status') or {}
    return status.get('stateChangeRequests'), status.get('startFailure')


class Controller:
    """Reconciles VMs with their VMIs.

    :param store: the store.
    :param kind: the Kind of VMs.
    :param vmis: the Kind of VMIs.
    :param config: a :class:`config.ClusterConfig`.
    :param recorder: an :class:`events.Recorder`.
    :param loop: the asyncio loop.
    :param lag: see :class:`workqueue.WorkQueue`.
    """

    def __init__(self, store, kind, vmis, config, recorder, loop, lag=0):
        self._store = store
        self._kind = kind
        self._vmis = vmis
        self._config = config
        self._recorder = recorder
        self._data_volumes = vm_datavolumes.DataVolumes(store, recorder)
        #: {uid of a VM: the VM at the time its VMI was created}
        self._started = {}
        #: Keys of the VMs whose VMI was created in the current turn
        self._created = set()
        #: {(namespace, name) of a claim: keys of the VMs with it}
        self._users = collections.defaultdict(set)
        self._loop = loop
        self._lag = lag
        #: {key of a VM whose VMI is being created: handle}, with ``lag``
        self._creating = {}
        #: Whether the status is being written, which needs no new turn.
        self._reporting = False
        self._queue = workqueue.WorkQueue(loop, self._sync, 'vm', lag)
        self._ends = [store.subscribe(kind, self._on_event),
                      store.subscribe(vmis, self._on_vmi),
                      store.listen(None, self._on_any_event)]
        for vm in store.list(kind):
            self._on_event('ADDED', vm, None)

    def close(self):
        """Stop the controller."""
        for end in self._ends:
            end()
        self._queue.close()
        for handle in self._creating.values():
            handle.cancel()

    # -- events ----------------------------------------------------------

    def _on_event(self, type_, vm, old):
        if type_ == 'DELETED' or old is None or old['spec'] != vm['spec']:
            self._count_claims(type_, vm, old)
        if not self._reporting or _plans(vm) != _plans(old):
            self._queue.add(paths.key(vm))

    def _count_claims(self, type_, vm, old):
        for claim in _claims(old) if old else ():
            self._users[claim].discard(paths.key(vm))
            if not self._users[claim]:
                del self._users[claim]
        if type_ != 'DELETED':
            for claim in _claims(vm):
                self._users[claim].add(paths.key(vm))
        else:
            self._started.pop(vm['metadata']['uid'], None)

    def _on_vmi(self, _type, vmi, _old):
        self._queue.add(paths.key(vmi))

    def _on_any_event(self, event):
        obj = event.record.obj
        if claims.is_relevant(event):
            for key in sorted(self._users.get(paths.key(obj), ())):
                self._queue.add(key)
        elif obj.get('kind') == 'KubeVirt':
            for vm in self._store.list(self._kind):
                self._queue.add(paths.key(vm))

    # -- reconciliation --------------------------------------------------

    def _sync(self, key):
        if self._store.find(self._kind, *key) is None:
            return
        if key in self._creating:
            return  # a key is processed once at a time
        failure = None
        try:
            self._reconcile(key)
        except vm_model.SyncError as error:
            failure = error
        except errors.ApiError as error:
            if error.code in (404, 409):
                self._queue.add_after(key, 0.05)  # conflicting write
            else:
                failure = vm_model.SyncError('FailedUpdateError', str(error))
        if key in self._creating:
            return  # the status follows
        self._write_status(key, failure)
        if failure is not None:
            raise failure

    def _vm(self, key):
        return self._store.find(self._kind, *key)

    def _vmi(self, vm):
        """Return the VM's VMI; adopt a VMI of its name without an owner."""
        vmi = self._store.find(self._vmis, *paths.key(vm))
        if vmi is None:
            return None
        owners = [r for r in vmi['metadata'].get('ownerReferences') or ()
                  if r.get('controller')]
        if owners:
            mine = owners[0]['uid'] == vm['metadata']['uid']
            return vmi if mine else None
        if 'deletionTimestamp' in {**vm['metadata'], **vmi['metadata']}:
            return None
        return self._store.change(
            self._vmis, *paths.key(vm),
            lambda new: new['metadata'].setdefault(
                'ownerReferences', []).append(vm_model.reference(vm)),
            manager=_MANAGER)

    def _change(self, key, change, **more):
        return self._store.change(self._kind, *key, change,
                                  manager=_MANAGER, **more)

    def _write_status(self, key, failure):
        vm = self._vm(key)
        if vm is None:
            return
        vmi = self._vmi(vm)
        if key in self._created:
            # virt-controller looked for it before it created it.
            self._created.remove(key)
            vmi = None
        try:
            strategy = vm_model.run_strategy(vm)
        except vm_model.BothError:
            strategy = None
        said = failure and (failure.reason, str(failure))
        self._reporting = True
        try:
            self._change(key, lambda new: vm_status.update(
                new, vmi, strategy, said, self._store), subresource='status')
        finally:
            self._reporting = False
        if (vmi is not None and vmi_status.is_final(vmi)
                and VM_FINALIZER in vmi['metadata'].get('finalizers', ())):
            # remove the finalizer only after the VM's status records the end
            self._store.change(
                self._vmis, *key, lambda new: new['metadata'][
                    'finalizers'].remove(VM_FINALIZER), manager=_MANAGER)

    def _reconcile(self, key):
        vm = self._vm(key)
        vmi = self._vmi(vm)
        if 'deletionTimestamp' in vm['metadata']:
            self._finalize(key, vm, vmi)
            return
        vm = self._mark(key, vm)
        if vmi is not None:
            self._bump_generation(vm, vmi)
            vmi = self._vmi(vm)
        try:
            strategy = vm_model.run_strategy(vm)
        except vm_model.BothError as error:
            raise vm_model.SyncError('FailedCreate',
                                     f'Error fetching RunStrategy: {error}')
        self._expanded(vm)
        if (vm['metadata'].get('annotations') or {}).get(
                _NOT_AT_ONCE) != 'false':
            ready = self._data_volumes.make(vm)
            if not ready and strategy != vm_model.HALTED:
                return
        self._apply_run_strategy(key, vm, vmi, strategy)
        if vmi is not None:
            self._apply_template_changes(key)
        self._drop_cards(key)
        self._keep_firmware_uuid(key)

    def _expanded(self, vm):
        """Return the VM with the sizes of its instance type filled in."""
        try:
            return instancetypes.expanded(self._store, vm)
        except errors.ApiError as error:
            raise vm_model.SyncError('FailedFindInstancetype', str(error))

    def _finalize(self, key, vm, vmi):
        finalizers = vm['metadata'].get('finalizers', ())
        if vmi is not None and 'orphan' not in finalizers:
            self._stop(key, vm, vmi)
        elif VM_FINALIZER in finalizers:
            self._change(key, lambda new: new['metadata'][
                'finalizers'].remove(VM_FINALIZER))

    def _mark(self, key, vm):
        def change(new):
            meta = new['metadata']
            meta.setdefault('annotations', {}).update(_OBSERVED)
            finalizers = meta.setdefault('finalizers', [])
            if VM_FINALIZER not in finalizers:
                finalizers.append(VM_FINALIZER)
        meta = vm['metadata']
        if VM_FINALIZER in meta.get('finalizers', ()) and (
                _OBSERVED.items() <= meta.get('annotations', {}).items()):
            return vm
        return self._change(key, change)

    def _bump_generation(self, vm, vmi):
        """Update the VMI's generation after a change outside the template.

        Such a change leaves the VMI up to date.
        """
        generation = str(vm['metadata']['generation'])
        annotations = vmi['metadata'].get('annotations') or {}
        started = self._started.get(vm['metadata']['uid'])
        if annotations.get(vm_status.GENERATION) == generation or not started:
            return
        if vm_model.same(started['spec']['template'], vm['spec']['template']):
            self._store.change(
                self._vmis, *paths.key(vm), lambda new: new['metadata']
                .setdefault('annotations', {}).__setitem__(
                    vm_status.GENERATION, generation), manager=_MANAGER)

    # -- run strategies --------------------------------------------------

    def _apply_run_strategy(self, key, vm, vmi, strategy):
        """Start or stop the VMI according to the run strategy."""
        {vm_model.ALWAYS: self._apply_always,
         vm_model.RERUN: self._apply_rerun,
         vm_model.MANUAL: self._apply_manual,
         vm_model.ONCE: self._apply_once,
         vm_model.HALTED: self._apply_halted}[strategy](key, vm, vmi)

    def _apply_always(self, key, vm, vmi):
        if vmi is None:
            self._start_in_time(key, vm)
        elif vm_model.wants_stop(vm, vmi) or vmi_status.is_final(vmi):
            self._stop(key, vm, vmi)  # a new VMI follows

    def _apply_rerun(self, key, vm, vmi):
        if vmi is None:
            if vm_model.reruns(vm, vm_model.RERUN):
                self._start_in_time(key, vm)
            return
        if 'deletionTimestamp' in vmi['metadata']:
            return
        if vm_model.wants_stop(vm, vmi) or vmi_status.is_final(vmi):
            self._stop(key, vm, vmi)
            if vmi_status.phase(vmi) == vmi_status.FAILED:
                self._change(key, lambda new: new.setdefault(
                    'status', {}).setdefault('stateChangeRequests', [])
                    .append({'action': vm_model.START}), subresource='status')

    def _apply_manual(self, key, vm, vmi):
        if vmi is None:
            if vm_model.wants_start(vm):
                self._start(key, vm)
        elif vm_model.wants_stop(vm, vmi):
            self._stop(key, vm, vmi)

    def _apply_once(self, key, vm, vmi):
        if vmi is None:
            self._start(key, vm)

    def _apply_halted(self, key, vm, vmi):
        if vmi is not None:
            self._stop(key, vm, vmi)
        elif vm_model.wants_start(vm):  # a paused start
            def change(new):
                spec = new['spec']
                if spec.get('runStrategy') is not None:
                    spec['runStrategy'] = vm_model.ALWAYS
                else:
                    spec['running'] = True
            self._change(key, change)

    def _start_in_time(self, key, vm):
        left = vm_status.seconds_left(vm)
        if left > 0:
            self._queue.add_after(key, left)
        else:
            self._start(key, vm)

    # -- starting and stopping -------------------------------------------

    def _start(self, key, vm):
        try:
            if (not self._data_volumes.make(vm)
                    or conditions.is_true(vm, vm_model.RECOVERY_REQUIRED)):
                return
            self._reset_back_off(key)
            vmi = self._new_vmi(vm)
            if self._lag:
                self._creating[key] = self._loop.call_later(
                    random.uniform(0, self._lag),  # noqa: S311
                    self._create_late, key, vm, vmi)
                return
            self._create(key, vm, vmi)
        except (errors.ApiError, defaults.DefaultsError) as error:
            raise self._failed_to_create(vm, error)

    def _failed_to_create(self, vm, error):
        self._record(vm, events.WARNING, 'FailedCreate',
                     f'Error creating virtual machine instance: {error}')
        return vm_model.SyncError('FailedCreate',
                                  f'Failure while starting VMI: {error}')

    def _create_late(self, key, vm, vmi):
        """Create a VMI of a VM as it was when its start began.

        virt-controller works with the VM in its cache, and creates the VMI
        even if the VM has changed meanwhile. Its write of the status then
        conflicts, and it processes the VM again.
        """
        del self._creating[key]
        self._queue.add(key)
        found = self._vm(key)
        if found is None or found['metadata']['uid'] != vm['metadata']['uid']:
            return
        try:
            self._create(key, vm, vmi)
        except errors.ApiError as error:
            self._write_status(key, self._failed_to_create(vm, error))

    def _create(self, key, vm, vmi):
        self._started[vm['metadata']['uid']] = vm
        self._store.create(self._vmis, vmi, manager=_MANAGER)
        self._created.add(key)
        self._record(vm, events.NORMAL, 'SuccessfulCreate',
                     'Started the virtual machine by creating the new virtual '
                     f'machine instance {key[1]}')

    def _new_vmi(self, vm):
        meta = vm['metadata']
        template = json_copy.copy(self._expanded(vm)['spec']['template'])
        given = template.get('metadata') or {}
        generation = str(meta['generation'])
        vmi = {
            'apiVersion': vm['apiVersion'], 'kind': 'VirtualMachineInstance',
            'metadata': {
                'name': meta['name'], 'namespace': meta['namespace'],
                'labels': given.get('labels') or {},
                'annotations': {**(given.get('annotations') or {}),
                                vm_status.GENERATION: generation},
                'finalizers': [VM_FINALIZER],
                'ownerReferences': [vm_model.reference(vm)]},
            'spec': template['spec'],
            'status': {'virtualMachineRevisionName':
                       f'revision-start-vm-{meta["uid"]}-{generation}'}}
        spec = vmi['spec']
        if vm_model.wants_paused_start(vm):
            spec['startStrategy'] = 'Paused'
        firmware = spec['domain'].setdefault('firmware', {})
        if not firmware.get('uuid'):
            firmware['uuid'] = vm_model.legacy_uuid(meta['name'])
        defaults.add_disks(spec)
        devices = spec['domain']['devices']
        if devices.get('autoattachInputDevice') and not devices.get(
                'inputs'):
            devices['inputs'] = [{'name': 'default-0', 'type': 'tablet'}]
        defaults.add_interface(spec, self._config)
        return vmi

    def _stop(self, key, vm, vmi):
        if 'deletionTimestamp' in vmi['metadata']:
            return
        try:
            self._store.delete(self._vmis, *key,
                               uid=vmi['metadata']['uid'])
        except errors.ApiError as error:
            raise vm_model.SyncError(
                'FailedDelete', f'Failure attempting to delete VMI: {error}')
        self._reset_back_off(key)
        self._record(vm, events.NORMAL, 'SuccessfulDelete',
                     'Stopped the virtual machine by deleting the virtual '
                     f'machine instance {vmi["metadata"]["uid"]}')

    def _reset_back_off(self, key):
        vm = self._vm(key)
        if vm is not None and conditions.find(vm, vm_model.RESTART_REQUIRED):
            self._change(key, lambda new: conditions.drop(
                new, vm_model.RESTART_REQUIRED), subresource='status')

    def _record(self, vm, kind, reason, message):
        self._recorder.event(vm, kind, reason, message, vm_model.COMPONENT)

    # -- a running machine -----------------------------------------------

    def _apply_template_changes(self, key):
        """Apply template changes to the VMI, or require a restart."""
        vm = self._vm(key)
        old = self._vmi(vm)
        started = self._started.get(vm['metadata']['uid'])
        if old is None or started is None:
            return
        vmi, failure = json_copy.copy(old), None
        # only the status is written, so the sizes may be filled in
        said = {**self._expanded(vm),
                'status': json_copy.copy(vm.get('status', {}))}
        restart = vm_liveupdate.check_restart(
            said, vmi, self._expanded(started)['spec']['template']['spec'],
            self._config)
        vm_liveupdate.plug_cards(said, vmi)
        if (self._config.enabled('DeclarativeHotplugVolumes')
                and not self._config.enabled('HotplugVolumes')):
            vm_liveupdate.plug_volumes(said, vmi)
        if self._config.live_update and not restart:
            try:
                vm_liveupdate.carry_out(said, vmi, self._config)
            except vm_liveupdate.LiveUpdateError as error:
                failure = vm_model.SyncError(*error.args)
        if said['status'] != vm.get('status', {}):
            self._store.update(self._kind, said, subresource='status',
                               manager=_MANAGER)
        if vmi['spec'] != old['spec'] and 'deletionTimestamp' not in vmi[
                'metadata']:
            try:
                self._store.update(self._vmis, vmi, manager=_MANAGER)
            except errors.ApiError as error:
                raise vm_model.SyncError(
                    'HotPlugVolumeError', 'Error encountered while handling '
                    f'declarative hotplug volumes: {error}')
        if failure:
            raise failure

    def _drop_cards(self, key):
        """Remove the NICs with state absent that were unplugged."""
        vm = self._vm(key)
        spec = vm['spec']['template']['spec']
        cards, networks = vm_liveupdate.unplugged_cards(vm, self._vmi(vm))
        if cards == paths.interfaces(spec):
            return

        def change(new):
            spec = new['spec']['template']['spec']
            spec['domain']['devices']['interfaces'] = cards
            spec['networks'] = networks
        self._change(key, change)

    def _keep_firmware_uuid(self, key):
        vm = self._vm(key)
        domain = paths.at(vm, 'spec', 'template', 'spec', 'domain')
        if domain is None or paths.at(domain, 'firmware', 'uuid'):
            return
        self._change(key, lambda new: new['spec']['template']['spec'][
            'domain'].setdefault('firmware', {}).__setitem__(
                'uuid', vm_model.legacy_uuid(key[1])))
