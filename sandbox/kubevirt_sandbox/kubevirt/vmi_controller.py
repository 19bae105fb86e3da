# SPDX-License-Identifier: Apache-2.0
"""Controller of VirtualMachineInstances.

Moves each VMI through its phases: Pending until its volumes are ready,
Scheduling until its pod has a node and its images, Scheduled until the guest
starts, Running until the guest ends. It simulates virt-controller and the
virt-handler of every node; :mod:`guests` runs the guests.

Source: pkg/virt-controller/watch/vmi, pkg/virt-handler/vm.go,
pkg/virt-launcher/monitor.go (KubeVirt 1.9).
"""

import json

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import store as api_store
from kubevirt_sandbox.kubevirt import claims
from kubevirt_sandbox.kubevirt import conditions
from kubevirt_sandbox.kubevirt import defaults
from kubevirt_sandbox.kubevirt import events
from kubevirt_sandbox.kubevirt import guests
from kubevirt_sandbox.kubevirt import launcher
from kubevirt_sandbox.kubevirt import launcher_pod
from kubevirt_sandbox.kubevirt import network_attachments
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt import vmi_status
from kubevirt_sandbox.kubevirt import workqueue
from kubevirt_sandbox.scheduling import scheduler

VM_FINALIZER = 'kubevirt.io/virtualMachineControllerFinalize'
NODE_LABEL = 'kubevirt.io/nodeName'

_FAILED_CREATE = 'FailedCreate'
_CONTROLLER, _HANDLER = 'virtualmachine-controller', 'virt-handler'
_POD_SHARE = 0.4  # the pod's share of the start time; the guest has the rest
_ASK_AGAIN = 5
#: libvirt's error for a request to a guest whose CPUs are stopped
_PAUSED_ERROR = ("LibvirtError(Code=55, Domain=10, Message='Requested "
                 "operation is not valid: domain is not running')")


class Controller:
    """Moves VMIs through their phases.

    :param store: the store.
    :param kind: the Kind of VMIs.
    :param vms: the Kind of VMs.
    :param recorder: an :class:`events.Recorder`.
    :param loop: the asyncio loop.
    :param version: the version of KubeVirt.
    :param seconds: seconds a VMI takes to start.
    :param provisioner: the :class:`api.volumes.Provisioner`.
    :param nodes: the :class:`scheduling.scheduler.Scheduler`.
    :param quotas: the :class:`api.quotas.Quotas`.
    :param make_guests: function (look, ended, changed) that makes the
        guests; None for simulated ones. Its parameters are those of
        :class:`guests.Guests` and :class:`qemu.guests.Guests`.
    :param lag: see :class:`workqueue.WorkQueue`.
    """

    def __init__(self, store, kind, vms, recorder, loop, version, seconds,
                 provisioner, nodes, quotas, make_guests=None, lag=0):
        self._store = store
        self._kind = kind
        self._vms = vms
        self._recorder = recorder
        self._loop = loop
        self._image = f'quay.io/kubevirt/virt-launcher:{version}'
        self._seconds = seconds
        self._provisioner = provisioner
        provisioner.add_user(self._uses)
        self.guests = (
            make_guests(self._find, self._guest_ended, self._guest_changed)
            if make_guests else guests.Guests(
                loop, self._find, self._guest_ended, self._guest_changed,
                seconds / 2))
        self._pods = launcher.Launchers(nodes, quotas, loop.time)
        self._ended = {}
        #: {uid: when the launcher was told to end}
        self._ending = {}
        #: {uid: when the guest was asked to shut down}
        self._stopping = {}
        self._homeless = set()
        self._failed = set()
        self._queue = workqueue.WorkQueue(loop, self._sync, 'vmi', lag)
        self._ends = [store.subscribe(kind, self._on_event),
                      nodes.call_when_changed(self._on_nodes),
                      store.listen(None, self._on_any_event)]
        for vmi in store.list(kind):
            self._queue.add(paths.key(vmi))

    def close(self):
        """Stop the controller and all guests."""
        for end in self._ends:
            end()
        self._queue.close()
        self.guests.close()

    def enqueue(self, key):
        """Queue a VMI for reconciliation."""
        self._queue.add(key)

    # -- events ----------------------------------------------------------

    def _find(self, namespace, name):
        return self._store.find(self._kind, namespace, name)

    def _on_event(self, type_, vmi, _old):
        if type_ == 'DELETED':
            self._forget(vmi['metadata']['uid'])
        self._queue.add(paths.key(vmi))
        self._provisioner.look()

    def _uses(self, namespace, name):
        """Tell whether the pod of any VMI uses a claim."""
        for vmi in self._store.list(self._kind, namespace):
            if self._pods.get(vmi) is None:
                continue
            if name in [paths.claim_name(v)
                        for v in paths.volumes(vmi['spec'])] + [
                    paths.at(s, 'persistentVolumeClaimInfo', 'claimName')
                    for s in paths.at(vmi, 'status', 'volumeStatus') or ()]:
                return True
        return False

    def _on_nodes(self):
        for key in self._homeless:
            self._queue.add(key)

    def _on_any_event(self, event):
        """Queue the VMIs that may wait for a volume."""
        if not claims.is_relevant(event):
            return
        meta = event.record.obj['metadata']
        for vmi in self._store.list(self._kind, meta['namespace']):
            if any(paths.claim_name(v) == meta['name']
                   for v in paths.volumes(vmi['spec'])):
                self._queue.add(paths.key(vmi))

    def _guest_ended(self, namespace, name, uid, how):
        self._ended[uid] = how
        self._queue.add((namespace, name))

    def _guest_changed(self, namespace, name):
        self._queue.add((namespace, name))

    def _forget(self, uid):
        self.guests.kill(uid)
        self._pods.remove(uid)
        self._ended.pop(uid, None)
        self._ending.pop(uid, None)
        self._stopping.pop(uid, None)

    # -- reconciliation --------------------------------------------------

    def _sync(self, key):
        old = self._find(*key)
        self._homeless.discard(key)
        self._failed.discard(key)
        if old is None:
            return
        self._step(key, old)
        if key in self._failed:
            raise workqueue.Again

    def _step(self, key, old):
        """Move a VMI to its next phase, and write it."""
        vmi = json_copy.copy(old)
        vmi.setdefault('status', {})
        {vmi_status.SCHEDULING: self._schedule,
         vmi_status.SCHEDULED: self._start,
         vmi_status.RUNNING: self._run, vmi_status.SUCCEEDED: self._finish,
         vmi_status.FAILED: self._finish}.get(
             vmi_status.phase(vmi), self._prepare)(key, vmi)
        if vmi == old:
            return
        before, after = vmi_status.phase(old), vmi_status.phase(vmi)
        try:
            self._store.update(self._kind, vmi, write=api_store.Write(
                'virt-controller', own=True))
        except errors.ApiError as error:
            if error.code not in (404, 409):
                raise
            self._queue.add(key)
            return
        if before != after:
            self._record_phase(vmi, after)

    def _record_phase(self, vmi, phase):
        said = {
            vmi_status.RUNNING: (events.NORMAL, 'Started',
                                 'VirtualMachineInstance started.'),
            vmi_status.SUCCEEDED: (
                events.NORMAL, 'Stopped',
                'The VirtualMachineInstance was shut down.'),
            vmi_status.FAILED: (events.WARNING, 'Stopped',
                                'The VirtualMachineInstance crashed.'),
        }.get(phase)
        if said:
            self._record(vmi, *said)

    def _record(self, vmi, kind, reason, message, component=_HANDLER):
        self._recorder.event(vmi, kind, reason, message, component)

    # -- phases ----------------------------------------------------------

    def _prepare(self, key, vmi):
        """Handle phase Pending, until the volumes are ready."""
        vmi_status.set_ready(vmi, None)
        if 'deletionTimestamp' in vmi['metadata']:
            vmi_status.move(vmi, vmi_status.FAILED)
            return
        namespace = vmi['metadata']['namespace']
        volumes = paths.volumes(vmi['spec'])
        vmi_status.set_data_volumes(vmi, self._store)
        vmi_status.move(vmi, vmi_status.PENDING)
        missing = claims.missing(self._store, namespace, volumes)
        if missing:
            message = (f'PVC {namespace}/{missing} does not exist, waiting '
                       'for it to appear')
            vmi_status.set_claim_missing(vmi, message)
            self._record(vmi, events.NORMAL, 'FailedPvcNotFound', message,
                         _CONTROLLER)
            return
        if not conditions.has(vmi, 'Synchronized', 'False', _FAILED_CREATE):
            vmi_status.set_synchronized(vmi)
        self._bind_claims(namespace, volumes, self._some_node())
        if not claims.ready(self._store, namespace, volumes):
            return
        pod = self._create_pod(key, vmi)
        if pod is None:
            return
        vmi_status.set_synchronized(vmi)
        self._record(vmi, events.NORMAL, 'SuccessfulCreate',
                     f'Created virtual machine pod {pod.name}', _CONTROLLER)
        self._set_pod(vmi, pod)
        vmi_status.set_ready(vmi, pod)
        vmi_status.move(vmi, vmi_status.SCHEDULING)

    def _create_pod(self, key, vmi):
        """Create the launcher pod, or report why it cannot be created."""
        try:
            return self._pods.create(vmi, network_attachments.resources(
                self._store, vmi))
        except network_attachments.Missing as error:
            why = f'failed to render launch manifest: {error}'
        except errors.ApiError as error:
            why = f'failed to create virtual machine pod: {error}'
            self._record(vmi, events.WARNING, _FAILED_CREATE,
                         f'Error creating pod: {error}', _CONTROLLER)
        self._failed.add(key)
        vmi_status.set_synchronized(vmi, _FAILED_CREATE, why)
        return None

    def _bind_claims(self, namespace, volumes, node):
        """Bind the claims of DataVolumes that wait for a first consumer.

        KubeVirt creates a temporary pod for this purpose.
        """
        for name in claims.awaited(self._store, namespace, volumes):
            self._provisioner.consume(namespace, name, node)

    def _some_node(self):
        nodes = self._store.list(core.NODE)
        return nodes[0]['metadata']['name'] if nodes else ''

    @staticmethod
    def _set_pod(vmi, pod):
        vmi['status']['activePods'] = {pod.uid: pod.node or ''}

    def _schedule(self, key, vmi):
        """Handle phase Scheduling, until the pod has a node and images."""
        pod = self._pods.get(vmi)
        if pod is None or 'deletionTimestamp' in vmi['metadata']:
            self._give_up(vmi)
            return
        vmi_status.set_ready(vmi, pod)
        vmi['status']['qosClass'] = (
            'Guaranteed' if launcher_pod.is_guaranteed(vmi['spec'])
            else 'Burstable')
        if pod.node is None:
            why = self._pods.place(vmi, pod)
            if not why:
                for volume in paths.volumes(vmi['spec']):
                    self._provisioner.consume(
                        key[0], paths.claim_name(volume) or '', pod.node)
            if not why and claims.unbound(
                    self._store, key[0], paths.volumes(vmi['spec'])):
                why = self._pods.release(pod)
            if why:
                self._homeless.add(key)
                conditions.put(vmi, 'PodScheduled', False, 'Unschedulable',
                               why)
                self._recorder.event(
                    pod.manifest, events.WARNING, 'FailedScheduling', why,
                    scheduler.COMPONENT)
                return
            self._recorder.event(
                pod.manifest, events.NORMAL, 'Scheduled', 'Successfully '
                f'assigned {key[0]}/{pod.name} to {pod.node}',
                scheduler.COMPONENT)
        conditions.drop(vmi, 'PodScheduled')
        self._set_pod(vmi, pod)
        if self._image_fails(key, vmi, pod):
            return
        vmi_status.set_synchronized(vmi)
        if self._wait(key, pod.moved + self._seconds * _POD_SHARE):
            return
        pod.moved = self._loop.time()
        vmi['metadata'].setdefault('labels', {})[NODE_LABEL] = pod.node
        vmi['status'].update(
            nodeName=pod.node, migrationTransport='Unix',
            launcherContainerImageVersion=self._image)
        self._set_volumes(vmi, running=False)
        vmi_status.move(vmi, vmi_status.SCHEDULED)
        vmi_status.set_ready(vmi, pod)

    def _image_fails(self, key, vmi, pod):
        image = launcher.missing_image(vmi) or self.guests.missing_image(vmi)
        if image is None:
            return False
        why = (f'failed to pull and unpack image "{image}": failed to '
               'resolve reference: not found')
        back_off = pod.moved + max(self._seconds, 0.5)
        if self._wait(key, back_off):
            vmi_status.set_synchronized(vmi, 'ErrImagePull', why)
        else:
            vmi_status.set_synchronized(
                vmi, 'ImagePullBackOff',
                f'Back-off pulling image "{image}": ErrImagePull: {why}')
        return True

    def _wait(self, key, when):
        """Tell whether a time is in the future; then requeue the VMI."""
        left = when - self._loop.time()
        if left <= 0:
            return False
        self._queue.add_after(key, left)
        return True

    def _give_up(self, vmi):
        self._forget(vmi['metadata']['uid'])
        vmi_status.move(vmi, vmi_status.FAILED)
        vmi_status.set_ready(vmi, None)

    def _start(self, key, vmi):
        """Handle phase Scheduled, until the guest runs."""
        pod = self._pods.get(vmi)
        if pod is None or 'deletionTimestamp' in vmi['metadata']:
            self._give_up(vmi)
            return
        self._set_volumes(vmi, running=False)
        if self._wait(key, pod.moved + self._seconds * (1 - _POD_SHARE)):
            return
        if launcher.fails_to_start(vmi):
            self._give_up(vmi)
            return
        if not vmi_status.plugs_ready(vmi):
            self._queue.add_after(key, self._seconds / 10)
            return
        why = self.guests.refusal(vmi)
        if why:
            self._sync_failed(key, vmi, 'SyncVMI', why)
            return
        vmi_status.set_synchronized(vmi)
        self._record(vmi, events.NORMAL, 'Created',
                     'VirtualMachineInstance defined.')
        vmi_status.move(vmi, vmi_status.RUNNING)
        self.guests.start(vmi, vmi['spec'].get('startStrategy') == 'Paused')
        vmi['status']['machine'] = {'type': paths.at(
            vmi, 'spec', 'domain', 'machine', 'type')}
        self._observe(key, vmi, pod)

    def _set_volumes(self, vmi, running):
        uid = vmi['metadata']['uid']
        return vmi_status.set_volumes(
            vmi, self._store, running,
            lambda volume: self.guests.plugged(uid, volume))

    def _observe(self, key, vmi, pod):
        """Write the state of the guest to the status."""
        agent = self.guests.has_agent(vmi)
        vmi_status.set_migratable(vmi, self._store)
        vmi_status.set_data_volumes(vmi, self._store)
        vmi_status.set_interfaces(vmi, pod, agent)
        vmi_status.set_agent(vmi, agent)
        uid = vmi['metadata']['uid']
        vmi_status.set_paused(vmi, self.guests.paused(uid),
                              self.guests.io_error(uid))
        vmi_status.set_size_changes(vmi)
        self._bind_claims(key[0], paths.volumes(vmi['spec']), pod.node)
        if not self._lacks_volume(key[0], vmi):
            if self._set_volumes(vmi, running=True):
                self._queue.add_after(key, self._seconds / 10)
            self.guests.plug(vmi)
            why = self.guests.locked(vmi)
            if why:
                self._sync_failed(key, vmi, 'SyncVMI', why)
                self._queue.add_after(key, max(self._seconds, 0.1))
        alive = 'deletionTimestamp' not in vmi['metadata']
        vmi_status.set_ready(vmi, pod, alive)

    def _lacks_volume(self, namespace, vmi):
        """Tell whether KubeVirt no longer updates a guest's volumes.

        It does so when the DataVolume of any volume that the guest started
        with is missing, as long as the guest runs (areDataVolumesReady in
        vmi/datavolumes.go).
        """
        volumes = paths.volumes(vmi['spec'])
        gone = claims.orphaned(self._store, namespace, volumes)
        if gone is None:
            if not conditions.has(vmi, 'Synchronized', 'False',
                                  vmi_status.SYNC_FAILED):
                vmi_status.set_synchronized(vmi)
            return False
        why = f'unable to find datavolume {namespace}/{gone}'
        if not conditions.has(vmi, 'Synchronized', 'False',
                              'FailedDataVolumeImport'):
            self._record(vmi, events.WARNING, 'FailedPvcNotFound',
                         f'Error determining if volume is ready: {why}',
                         _CONTROLLER)
        vmi_status.set_synchronized(
            vmi, 'FailedDataVolumeImport',
            f'Error determining if volume is ready {why}')
        return True

    def _run(self, key, vmi):
        """Handle phase Running, until the guest ends."""
        uid = vmi['metadata']['uid']
        pod = self._pods.get(vmi)
        if pod is None or not self.guests.alive(uid):
            shut = self._ended.get(uid) == guests.SHUTDOWN
            vmi_status.move(vmi, vmi_status.SUCCEEDED if shut
                            else vmi_status.FAILED)
            self._finish(key, vmi)
            return
        self._observe(key, vmi, pod)
        if 'deletionTimestamp' in vmi['metadata'] and self._stop(
                key, vmi, pod):
            self._finish(key, vmi)

    def _sync_failed(self, key, vmi, command, why):
        """Report that a launcher has failed to carry out a command.

        virt-handler repeats it, for ever.
        """
        message = f'server error. command {command} failed: {json.dumps(why)}'
        vmi_status.set_synchronized(vmi, vmi_status.SYNC_FAILED, message)
        self._record(vmi, events.WARNING, 'SyncFailed', message)
        self._failed.add(key)

    def _stop(self, key, vmi, pod):
        """Shut down a guest, or kill it after its grace period.

        A paused guest cannot be asked to shut down. Then its grace period
        does not begin; the launcher ends it by its own, which is longer.

        :returns: whether the guest has ended.
        """
        uid = vmi['metadata']['uid']
        grace = launcher.grace(vmi)
        now = self._loop.time()
        ending = self._ending.setdefault(uid, now)
        if (grace > 0 and uid not in self._stopping
                and self.guests.paused(uid)):
            left = ending + pod.grace - now
            if left > 0:
                self._sync_failed(key, vmi, 'Shutdown', _PAUSED_ERROR)
                self._queue.add_after(key, left)
                return False
        elif grace > 0:
            vmi_status.set_synchronized(vmi)
            if uid not in self._stopping:
                self._stopping[uid] = now
                self._record(vmi, events.NORMAL, 'ShuttingDown',
                             'Signaled Graceful Shutdown')
            left = self._stopping[uid] + grace - now
            if left > 0:
                # repeat it: a guest that still boots may miss the first one
                self.guests.press_power_button(uid)
                self._queue.add_after(key, min(left, _ASK_AGAIN))
                return False
        self.guests.kill(uid)
        self._record(vmi, events.NORMAL, 'Deleted',
                     'VirtualMachineInstance stopping')
        # a guest with ACPI that did not shut down in time has failed
        acpi = paths.at(vmi, 'spec', 'domain', 'features', 'acpi') or {}
        expired = grace > 0 and acpi.get('enabled', True)
        vmi_status.move(vmi,
                        vmi_status.FAILED if expired else vmi_status.SUCCEEDED)
        return True

    def _finish(self, _key, vmi):
        """Handle phases Succeeded and Failed: release the VMI."""
        meta = vmi['metadata']
        pod = self._pods.remove(meta['uid'])
        if pod is not None:
            self._record(vmi, events.NORMAL, 'SuccessfulDelete',
                         f'Deleted virtual machine pod {pod.name}',
                         _CONTROLLER)
        self._forget(meta['uid'])
        vmi_status.set_ready(vmi, None)
        vmi_status.set_paused(vmi, False)
        vmi['status'].pop('launcherContainerImageVersion', None)
        gone = {defaults.VMI_FINALIZER}
        if self._owner(vmi) is None:
            gone.add(VM_FINALIZER)
        if not gone.isdisjoint(meta.get('finalizers', ())):
            meta['finalizers'] = [f for f in meta['finalizers']
                                  if f not in gone]

    def _owner(self, vmi):
        """Return the VM that owns a VMI, or None when it is gone."""
        for reference in vmi['metadata'].get('ownerReferences') or ():
            if reference.get('controller') and reference[
                    'kind'] == 'VirtualMachine':
                vm = self._store.find(self._vms, vmi['metadata'][
                    'namespace'], reference['name'])
                if vm and vm['metadata']['uid'] == reference['uid']:
                    return vm
        return None
