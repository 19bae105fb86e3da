# SPDX-License-Identifier: Apache-2.0
"""The machine that a BMC serves: one KubeVirt VM.

A `Machine` holds the identity of its VM and no state. Reads come from the
cache at the moment of the call, changes go to the API. The modules it
delegates to document the values.
"""

from __future__ import annotations

from collections import abc
import contextlib
import logging
import math
import time
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import architecture
from sushy_kubevirt.machine import attributes
from sushy_kubevirt.machine import bios
from sushy_kubevirt.machine import bmc_annotations
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_options
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import changes
from sushy_kubevirt.machine import firmware
from sushy_kubevirt.machine import inventory
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine.media import ca_certificates
from sushy_kubevirt.machine.media import device_status
from sushy_kubevirt.machine.media import eject
from sushy_kubevirt.machine.media import http_boot
from sushy_kubevirt.machine.media import insert
from sushy_kubevirt.machine import pod_interface
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import protocols
from sushy_kubevirt.machine import reset
from sushy_kubevirt.machine import vm_cache
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import feature_gates
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine.media import image_size
    from sushy_kubevirt.machine.media import manager
    from sushy_kubevirt.machine import options

    # Methods of `Machine` have the names of modules.
    BootState: typing.TypeAlias = boot.BootState
    Enabled: typing.TypeAlias = boot.Enabled
    Inventory: typing.TypeAlias = inventory.Inventory
    Json: typing.TypeAlias = objects.Json
    Mode: typing.TypeAlias = boot.Mode
    ObjectKey: typing.TypeAlias = objects.ObjectKey
    Option: typing.TypeAlias = boot_options.Option
    Options: typing.TypeAlias = options.Options
    Policy: typing.TypeAlias = power_restore_policy.Policy
    PowerState: typing.TypeAlias = power_state.PowerState
    Problem: typing.TypeAlias = power_state.Problem
    ResetType: typing.TypeAlias = power_state.ResetType
    Target: typing.TypeAlias = boot.Target
    Vm: typing.TypeAlias = objects.VirtualMachine
    Vmi: typing.TypeAlias = objects.VirtualMachineInstance
    VmState: typing.TypeAlias = vm_state.VmState

LOG = logging.getLogger(__name__)

#: While the cache is stale, fetched objects serve reads for this many seconds:
#: a Redfish or IPMI request reads a dozen times and fetches once.
FETCHED_SECONDS = 0.5

#: Longest time, in seconds, in which reads wait until the watches show the
#: effect of an action of KubeVirt's, which is usually a few milliseconds. Then
#: the VM is read.
EFFECT_SECONDS = 1.0


class Cluster(protocols.Cluster, typing.Protocol):
    """Of `cluster.Cluster`, which imports this module."""

    cache: vm_cache.VmCache
    fetched: dict[ObjectKey, float]
    known_sizes: dict[str, tuple[int | None, Json]]

    @property
    def media(self) -> manager.Manager:
        ...

    def wait_ready(self) -> None:
        ...

    def wait_until(self, check: abc.Callable[[], protocols.ResultT],
                   timeout: float) -> protocols.ResultT:
        ...

    def refresh(self, machine: Machine) -> None:
        ...


class _Judgement(typing.NamedTuple):
    # The failures of a version of the cached objects, for `Machine.version`.

    version: vm_cache.Version
    failures: tuple[Problem | None, ...]
    needs_sizes: bool
    generation: int | None


class Machine:
    """A VirtualMachine and, while it runs, its VirtualMachineInstance."""

    __slots__ = ('cluster', 'key', 'uid', 'uuid', '_judgement')

    def __init__(self, cluster: Cluster, key: ObjectKey, uid: str, uuid: str
                 ) -> None:
        self.cluster = cluster
        #: Namespace and name of the VM.
        self.key = key
        #: ``metadata.uid`` of the VM. A VM that was deleted and created
        #: again under the same name is another machine.
        self.uid = uid
        #: The firmware UUID in lower case with hyphens; the VM's uid if it
        #: has none or shares it with another VM.
        self.uuid = uuid
        self._judgement: _Judgement | None = None

    @property
    def namespace(self) -> str:
        """Namespace of the VM."""
        return self.key.namespace

    @property
    def name(self) -> str:
        """Name of the VM."""
        return self.key.name

    @property
    def qualified_name(self) -> str:
        """'namespace/name' of the VM."""
        return '/'.join(self.key)

    @property
    def options(self) -> Options:
        """The options of the cluster."""
        return self.cluster.options

    @property
    def gates(self) -> feature_gates.Gates:
        """The feature gates of the cluster."""
        return self.cluster.gates

    # Reading, for the modules of this package

    def state(self) -> VmState:
        """Return the VM and its VMI from the cache; from the API if stale.

        Both are shared and must not be changed. Large and secret parts
        (managed fields, cloud-init data) are left out, see `trim`.

        :raises: `errors.MachineNotFound`, `errors.Unavailable`
        """
        cluster = self.cluster
        cluster.wait_ready()
        if cluster.cache.stale:
            if (time.monotonic() - cluster.fetched.get(self.key, -math.inf)
                    >= FETCHED_SECONDS):
                return self.fetch()
        else:
            try:
                cluster.cache.catch_up(self.key, cluster.closing,
                                       self.fetch_vm)
            except errors.MachineError:
                pass    # the action succeeded; the watch will report it
        state = self.cached_state()
        if state is None:
            raise errors.MachineNotFound(self.qualified_name)
        return state

    def cached_state(self) -> VmState | None:
        """Return the VM and its VMI from the cache, even if it is stale.

        :returns: None if the VM is not there or has another uid
        """
        state = self.cluster.cache.state(self.key)
        if state is None or state.vm['metadata']['uid'] != self.uid:
            return None
        return state

    def version(self) -> tuple[object, ...] | None:
        """Return a value that changes when what is read of the machine does.

        That is its VM and VMI, whether a failed start, or an error of
        KubeVirt's controller, is a problem by now, its media, whether there
        is CDI, KubeVirt's version, and the sizes of its instance type.

        :returns: tuple to be compared; None while a read would call the API
        """
        cluster = self.cluster
        if not cluster.cache.listed or cluster.cache.stale:
            return None
        version = cluster.cache.version(self.key, cluster.vm is not None)
        if version is None or version.identity != (self.uid, self.uuid):
            return None
        judgement = self._judgement
        if judgement is None or judgement.version != version:
            state = cluster.cache.state(self.key)
            if state is None:
                return None
            judgement = self._judgement = _Judgement(
                version, power_state.failures(state),
                inventory.needs_sizes(state),
                state.vm['metadata'].get('generation'))
        sizes = None
        if judgement.needs_sizes:
            sizes = cluster.known_sizes.get(self.uid)
            if sizes is None or sizes[0] != judgement.generation:
                return None
        return (version, *map(power_state.after_grace, judgement.failures),
                cluster.gates.version, cluster.media.cdi.served,
                cluster.media.changes, sizes)

    def fetch(self) -> VmState:
        """Read the VM and its VMI from the API."""
        cache = self.cluster.cache
        vm = self.fetch_vm()
        known = cache.vmi_uid(self.key)
        try:
            vmi = self.cluster.client.get(api_resources.VMI, *self.key)
        except errors.ObjectNotFound:
            state = vm_state.VmState(vm, vmi_gone=True)
            if known:
                cache.discard_vmi(self.key, known)
        else:
            cache.put_vmi(vmi)
            state = vm_state.VmState(
                vm, vmi if vm_cache.owner_uid(vmi) == self.uid else None)
        self.cluster.fetched[self.key] = time.monotonic()
        return state

    def fetch_vm(self) -> Vm:
        """Read the VM alone from the API."""
        cache = self.cluster.cache
        try:
            vm = self.cluster.client.get(api_resources.VM, *self.key)
        except errors.ObjectNotFound:
            pass
        else:
            cache.put_vm(vm)
            if vm['metadata']['uid'] == self.uid:
                return vm
        cache.discard_vm(self.key, self.uid)
        raise errors.MachineNotFound(self.qualified_name)

    def sizes(self, vm: Vm) -> Json:
        """Return the sizes that an instance type gives a VM that is off.

        No watched object has them, so this calls the API (expand-spec) once
        for each generation of the VM.

        :returns: those of ``cpu``, ``memory`` and ``resources``
            that the expanded domain has, and ``devices`` if it excludes the
            pod interface; empty if the call fails
        """
        generation = vm['metadata'].get('generation')
        known = self.cluster.known_sizes.get(self.uid)
        if known is not None and known[0] == generation:
            return known[1]
        sizes: Json = {}
        try:
            expanded = self.cluster.client.expand_spec(*self.key)
        except errors.Unavailable as e:
            LOG.info('%s: CPU and memory of its instance type could not be '
                     'read: %s', self.qualified_name, e)
            return sizes
        except errors.MachineError as e:
            LOG.warning('%s: CPU and memory of its instance type are not '
                        'shown while it is off: %s', self.qualified_name, e)
        else:
            domain = expanded['spec']['template']['spec']['domain']
            sizes = {field: domain[field] for field in (
                'cpu', 'memory', 'resources') if field in domain}
            devices = domain.get('devices') or {}
            if devices.get('autoattachPodInterface') is False:
                sizes['devices'] = {
                    **vm['spec']['template']['spec']['domain']['devices'],
                    'autoattachPodInterface': False}
        self.cluster.known_sizes[self.uid] = (generation, sizes)
        return sizes

    def wait(self, ready: protocols.Step[bool], timeout: float) -> bool:
        """Wait until the cached objects satisfy a condition.

        :param ready: called with what `state` returns
        :param timeout: seconds
        :returns: True if the condition was met in time
        """
        return self.cluster.wait_until(lambda: ready(self.state()), timeout)

    # Writing, for the modules of this package

    def write(self, step: protocols.Step[protocols.ResultT],
              from_cache: protocols.Attempt[protocols.ResultT] | None = None
              ) -> protocols.ResultT:
        """Run a step with retries until the write deadline, see `retry`.

        :param step: called with fresh state at each attempt. It has to check
            the state first and return when nothing is left to do: an earlier
            attempt whose response was lost may have been carried out.
        :param from_cache: called once before the step with the cached
            objects, unless the cache is stale. Returns a tuple with what the
            step would return, or None to have the step called. As the objects
            may be out of date, it may only return a tuple after a write that
            is refused in that case. What the API server or admission answer
            is raised; after a conflict, and an error found in the state, the
            step is called.
        :returns: what the step returned
        :raises: see `retry.Attempts.wait`
        """
        attempts: retry.Attempts[protocols.ResultT] = retry.Attempts(
            self.options.write_deadline, self.cluster.closing,
            lambda seconds: self._shown(step, seconds))
        while True:
            try:
                first, from_cache = from_cache, None
                if first is not None:
                    self.cluster.wait_ready()
                    state = self.cached_state()
                    try:
                        if state is not None and not self.cluster.cache.stale:
                            result = first(state)
                            if result is not None:
                                return result[0]
                    except errors.Conflict:
                        pass
                    except (errors.Unavailable, errors.Rejected,
                            errors.AccessDenied):
                        raise
                    except errors.MachineError:
                        pass
                return step(self.fetch())
            except errors.Unavailable as e:
                result = attempts.wait(e)
                if result is not None:
                    return result[0]

    def _shown(self, step: protocols.Step[protocols.ResultT], seconds: float
               ) -> tuple[protocols.ResultT] | None:
        """Wait until the watches show that nothing is left for a step to do.

        The step has sent a request whose response was lost. The cache is not
        older than what it was computed from, so it shows the effect, or the
        step would have to send the request again. But its VMI may be newer
        than its VM: `power_action.run` waits for nothing that they show.

        :param seconds: longest wait
        :returns: tuple with what the step returned; None if it has something
            left to do
        """
        def attempt() -> tuple[protocols.ResultT] | None:
            state = self.cached_state()
            try:
                return (blocking.attempt(step, state),) if state else None
            except (blocking.WouldBlock, errors.MachineError):
                return None

        return self.cluster.wait_until(attempt, seconds)

    def patch(self, operations: protocols.Operations,
              subresource: str | None = None) -> Vm:
        """Apply a JSON patch to the VM and put the response into the cache.

        Sends one request without retries; call it in a step of `write`.

        :param operations: refused with `errors.Conflict` if a test fails
        :returns: the patched VM
        """
        try:
            vm = self.cluster.client.patch(api_resources.VM, *self.key, [
                {'op': 'test', 'path': '/metadata/uid', 'value': self.uid},
                *operations], subresource)
        except errors.ObjectNotFound:
            self.cluster.cache.discard_vm(self.key, self.uid)
            raise errors.MachineNotFound(self.qualified_name) from None
        self.cluster.cache.put_vm(vm)
        return vm

    def patch_status(self, operations: protocols.Operations, guard: Vm) -> Vm:
        """Apply a JSON patch to the VM's status, see `patch`.

        :param guard: the VM from which the operations were computed; the
            patch is refused if the VM has changed since
        """
        return self.patch([{
            'op': 'test', 'path': '/metadata/resourceVersion',
            'value': guard['metadata']['resourceVersion'],
        }, *operations], 'status')

    def patch_vmi(self, vmi: Vmi, operations: protocols.Operations) -> None:
        """Apply a JSON patch to this VMI. No retries.

        :raises: `errors.Conflict` if a test fails or the VMI is gone
        """
        try:
            self.cluster.cache.put_vmi(self.cluster.client.patch(
                api_resources.VMI, *self.key, [
                    {'op': 'test', 'path': '/metadata/uid',
                     'value': vmi['metadata']['uid']}, *operations]))
        except errors.ObjectNotFound as e:
            raise errors.Conflict(str(e)) from None

    def delete_vmi(self, uid: str) -> None:
        """Delete the VMI with this uid, if it exists. No retries."""
        with contextlib.suppress(errors.ObjectNotFound):
            self.cluster.client.delete(api_resources.VMI, *self.key, {
                'preconditions': {'uid': uid}})

    def call(self, action: str, body: Json | None = None,
             resource: api_resources.Resource[typing.Any] = api_resources.VM
             ) -> None:
        """Call an action of KubeVirt's API.

        Sends one request without retries; call it in a step of `write`.
        Returns when KubeVirt has accepted it; the next read shows its effect
        on a VM.

        :param action: ``start``, ``stop`` or ``restart`` of the VM;
            ``pause``, ``unpause`` … of the VMI
        :param resource: `api_resources.VM` or `api_resources.VMI`
        """
        before = self.cached_state()
        uid = self.cluster.cache.vmi_uid(self.key)
        version = before and before.vm['metadata']['resourceVersion']
        # A VMI may be reported before its VM.
        needs_change = before is not None and not before.shows(action, uid)

        def shown(state: VmState) -> bool:
            return state.shows(action, uid) and not (
                needs_change
                and state.vm['metadata']['resourceVersion'] == version)

        try:
            self.cluster.client.action(resource, *self.key, action, body)
        except errors.ObjectNotFound as e:
            # The object was deleted since the step read it: let it retry.
            raise errors.Conflict(str(e)) from None
        # What was read before does not serve reads of a stale cache.
        self.cluster.fetched.pop(self.key, None)
        if resource is api_resources.VM:
            # The response does not contain the changed VM.
            self.cluster.cache.expect(self.key, shown, EFFECT_SECONDS)

    # Power

    def power_state(self) -> PowerState:
        """Return the power state."""
        return power_state.of(self.state())

    def problem(self) -> Problem | None:
        """Return why a VM that was started cannot run."""
        state = self.state()
        return (device_status.problem(self.cluster.media.media(state), state)
                or power_state.problem(state))

    def impairment(self) -> Problem | None:
        """Return why a guest that was running does not work."""
        return power_state.impairment(self.state().vmi)

    def reconcile_error(self) -> Problem | None:
        """Return why KubeVirt does not do what the VM requests."""
        return power_state.reconcile_error(self.state().vm)

    def node_lost(self) -> bool:
        """Return whether the node of the guest does not respond."""
        return power_state.node_lost(self.state().vmi)

    def reset(self, reset_type: ResetType,
              restart_powers_on: bool = True) -> None:
        """Carry out a power action, see `reset.reset`."""
        reset.reset(self, reset_type, restart_powers_on)

    def running_uid(self) -> str | None:
        """Return the uid of the VMI that has not ended, or None."""
        vmi = self.state().vmi
        return vmi['metadata']['uid'] if vm_state.is_active(vmi) else None

    def shows(self, reset_type: ResetType, before: str | None) -> bool:
        """Return whether a reset has had an effect, see `reset.shows`.

        :param before: `running_uid` before it was requested
        """
        return reset.shows(reset_type, before, self.state())

    def power_restore_policy(self) -> Policy | None:
        """Return the policy, see `power_restore_policy.of`."""
        return power_restore_policy.of(self.state().vm, self.options)

    def set_power_restore_policy(self, policy: Policy) -> None:
        """Set the policy, see `power_restore_policy.change`."""
        self.change(policy=policy)

    # Boot and firmware

    set_default_boot_order = boot.set_default_order

    def boot(self) -> BootState:
        """Return the boot settings of the next VMI."""
        state = self.state()
        return boot.settings(state)._replace(
            http_uri=http_boot.uri(state.vm))

    def booted_from(self) -> Target | None:
        """Return the target of the current boot, see `boot.booted_from`."""
        return boot.booted_from(self.state().vmi)

    def set_boot(self, target: Target | None = None,
                 enabled: Enabled | None = None, mode: Mode | None = None,
                 http_uri: str | None = None,
                 order: abc.Sequence[str] | None = None) -> None:
        """Set the boot source override, the mode or the boot order.

        The parameters are those of `boot.Change`.
        """
        self.change(boot_settings={
            'target': target, 'enabled': enabled, 'mode': mode,
            'http_uri': http_uri, 'order': order})

    def change(self, boot_settings: dict[str, typing.Any] | None = None,
               policy: Policy | None = None, asset_tag: str | None = None,
               indicator: str | None = None) -> None:
        """Change several settings at once; None leaves a setting.

        An error means that nothing was changed.

        :param boot_settings: the parameters of `boot.Change`, by name
        :param asset_tag: see `set_asset_tag`
        :param indicator: see `set_indicator`
        :raises: see the methods for single settings
        """
        parts: list[changes.Change] = []
        if policy is not None:
            parts.append(power_restore_policy.change(self, policy))
        if asset_tag is not None:
            parts.append(attributes.text_change(
                stored_names.ASSET_TAG, asset_tag))
        if indicator is not None:
            parts.append(attributes.indicator_change(indicator))
        if boot_settings is None:
            changes.write(self, parts, waits=policy is not None)
        else:
            http_boot.write(self, boot.Change(
                self, media_targets=self._media_targets(), **boot_settings),
                parts)

    def _media_targets(self) -> tuple[Target, ...]:
        """Return the targets whose devices are added with a medium."""
        if not self.cluster.media.cdi.served:
            return ()
        vm = self.state().vm
        return (boot.Target.CD,
                *([boot.Target.USB] if architecture.of(vm).usb else []),
                *([boot.Target.UEFI_HTTP] if boot.Mode.UEFI in firmware.modes(
                    vm) else []))

    def boot_options(self) -> tuple[Option, ...]:
        """Return the boot options, see `boot_options.options`."""
        return boot_options.options(self._bootable())

    def boot_order(self) -> tuple[str, ...]:
        """Return the boot order as references, see `boot_options.order`."""
        return boot_options.order(self._bootable())

    def boot_targets(self) -> tuple[Target, ...]:
        """Return the boot targets that the VM has a device for, or that
        virtual media can provide.
        """
        bootable = {*boot_order.classes(
            self._bootable()['spec']['template']), *self._media_targets()}
        return tuple(target for target in boot.Target if target in bootable)

    def _bootable(self) -> Vm:
        """Return the VM with what its preference says of boot devices."""
        return pod_interface.shown(self, self.state())

    def boot_modes(self) -> tuple[Mode, ...]:
        """Return the boot modes that the architecture has."""
        return firmware.modes(self.state().vm)

    def has_secure_boot(self) -> bool:
        """Return whether the architecture has secure boot."""
        return firmware.has_secure_boot(self.state().vm)

    def secure_boot(self) -> bool:
        """Return True if the next boot has secure boot."""
        state = self.state()
        return firmware.secure_boot(state.vm, state.vmi)

    def secure_boot_now(self) -> bool:
        """Return True if the current boot has secure boot.

        While the machine is off this is the value of `secure_boot`.
        """
        state = self.state()
        if vm_state.is_active(state.vmi):
            return firmware.secure_boot({'spec': {'template': state.vmi}})
        return firmware.secure_boot(state.vm, state.vmi)

    def set_secure_boot(self, enabled: bool) -> None:
        """Switch secure boot on or off, see `boot.secure_boot_change`."""
        changes.write(self, (boot.secure_boot_change(enabled),))

    # Virtual media

    def media_devices(self) -> tuple[media.Device, ...]:
        """Return the virtual media devices that the architecture has."""
        if architecture.of(self.state().vm).usb:
            return media.DEVICES
        # A stick of an earlier version keeps the VM from starting.
        return tuple(device for device in media.DEVICES if
                     device is not media.USB_STICK or self.medium(device.id))

    def medium(self, device_id: str) -> media.Medium | None:
        """Return the medium in a device, without an API call.

        :param device_id: ``Cd``, ``USBStick`` or ``HttpBoot``
        """
        return self.cluster.media.medium(self, _device(device_id))

    def insert_media(self, device_id: str, source: media.Source,
                     wait: bool | None = None, verify: bool | None = None
                     ) -> media.Medium:
        """Insert an image into a device, replacing the present medium.

        Starts, stops and reboots nothing. Returns when the import has
        started or, with ``wait``, when it has ended. The same image is not
        imported again unless its import has failed.

        :param device_id: ``Cd``, ``USBStick`` or ``HttpBoot``
        :param wait: True to wait for the end of the import; None for
            `options.MediaOptions.wait`
        :param verify: new value of `media_verify`; None leaves it
        :raises: `errors.Unsupported` without CDI, `errors.InvalidValue` for
            a URL that is not allowed, `errors.Rejected` by quota or
            admission, `errors.MediaUnreachable` if the server of the image
            refuses or does not respond, `errors.WrongState` if the medium
            was ejected or replaced in the meantime
        """
        device = _device(device_id)
        return self._complete(device, insert.insert(
            self, device, source, self._verify_changes(device, verify)), wait)

    def _complete(self, device: media.Device, medium: media.Medium,
                  wait: bool | None) -> media.Medium:
        """Wait for the import of a medium if that is requested.

        A medium whose import fails meanwhile is ejected: the error has the
        reason.
        """
        if not (self.options.media.wait if wait is None else wait):
            return medium
        try:
            return insert.wait(self, device, medium)
        except errors.MediaUnreachable:
            eject.eject(self, device)
            raise

    def require_media_upload(self) -> None:
        """Check that a client can upload, see `insert.require_upload`."""
        insert.require_upload(self)

    def upload_media(self, device_id: str, image: media.ClientImage,
                     probe: image_size.Probe, write_protected: bool = True,
                     wait: bool | None = None) -> media.Medium:
        """Insert an image that a client sends, replacing the present medium.

        Call `require_media_upload` first. Returns when CDI has the whole
        image. A failure is recorded in the medium as well.

        :param device_id: ``Cd`` or ``USBStick``
        :param probe: of the image
        :param write_protected: whether the guest may not write to it
        :param wait: see `insert_media`
        :raises: see `insert_media`; exceptions of the image
        """
        device = _device(device_id)
        return self._complete(device, insert.upload_image(
            self, device, image, probe, write_protected), wait)

    def eject_media(self, device_id: str, verify: bool | None = None
                    ) -> None:
        """Eject the medium of a device; an empty device is no error.

        :param verify: new value of `media_verify`; None leaves it
        """
        device = _device(device_id)
        eject.eject(self, device, self._verify_changes(device, verify))

    def _verify_changes(self, device: media.Device, verify: bool | None
                        ) -> tuple[changes.Change, ...]:
        return () if verify is None else (
            ca_certificates.verify_change(self, device, verify),)

    def media_certificates(self, device_id: str
                           ) -> tuple[media.Certificate, ...]:
        """Return the CA certificates of a device."""
        return ca_certificates.certificates(self, _device(device_id))

    def add_media_certificate(self, device_id: str, pem: str
                              ) -> media.Certificate:
        """Trust a further CA certificate from the next insert on.

        :param pem: one certificate (PEM text)
        :raises: `errors.InvalidValue` if the text is no certificate
        """
        return ca_certificates.add(self, _device(device_id), pem)

    def delete_media_certificate(self, device_id: str, certificate_id: str
                                 ) -> None:
        """Delete a certificate of a device.

        :raises: `errors.InvalidValue` if there is no such certificate
        """
        ca_certificates.delete(self, _device(device_id), certificate_id)

    def media_verify(self, device_id: str) -> bool:
        """Return whether inserts verify TLS certificates by default."""
        return ca_certificates.verify(self, _device(device_id))

    def set_media_verify(self, device_id: str, verify: bool) -> None:
        """Set the default returned by `media_verify`."""
        changes.write(self, self._verify_changes(_device(device_id), verify))

    # Inventory, attributes, indicator

    def inventory(self) -> Inventory:
        """Return the inventory, see `inventory.of`."""
        state = self.state()
        sizes = None
        if inventory.needs_sizes(state):
            sizes = self.sizes(state.vm)
        return inventory.of(state, self.gates.version, sizes)

    def serial(self) -> str:
        """Return the serial number, see `inventory.serial`."""
        return inventory.serial(self.state())

    def attributes(self) -> dict[str, bios.Value]:
        """Return the BIOS attributes of the next boot, by name."""
        return bios.pending(self.state())

    def current_attributes(self) -> dict[str, bios.Value]:
        """Return the BIOS attributes of the current boot, by name."""
        return bios.current(self.state())

    def attribute_values(self, attribute: bios.VmAttribute
                         ) -> tuple[str, ...]:
        """Return the values of a `bios.VmAttribute`, see `bios.values_of`."""
        return bios.values_of(attribute, self.state().vm)

    def set_attributes(self, values: abc.Mapping[str, bios.Value | None]
                       ) -> None:
        """Change BIOS attributes from the next boot on, see `bios.set`."""
        bios.set(self, values)

    def reset_attributes(self) -> None:
        """Remove what clients set in BIOS attributes, see `bios.reset`."""
        bios.reset(self)

    def asset_tag(self) -> str:
        """Return the asset tag, '' if there is none."""
        return bmc_annotations.text(self.state().vm, stored_names.ASSET_TAG)

    def set_asset_tag(self, tag: str) -> None:
        """Set the asset tag, see `attributes.text_change`."""
        self.change(asset_tag=tag)

    def controller_name(self) -> str:
        """Return the name that a client gave to the BMC, or ''."""
        return bmc_annotations.text(self.state().vm,
                                    stored_names.CONTROLLER_NAME)

    def set_controller_name(self, name: str) -> None:
        """Name the BMC, see `attributes.text_change`."""
        changes.write(self, (attributes.text_change(
            stored_names.CONTROLLER_NAME, name),))

    def system_info(self, name: str) -> str:
        """Return what a client wrote, see `attributes.system_info`."""
        return attributes.system_info(self.state().vm, name)

    def set_system_info(self, name: str, text: str) -> None:
        """Write a parameter, see `attributes.system_info_change`."""
        changes.write(self, (attributes.system_info_change(name, text),))

    def indicator(self) -> str:
        """Return the indicator LED: 'Lit', 'Blinking' or 'Off'."""
        return attributes.indicator(self.state().vm)

    def set_indicator(self, state: str) -> None:
        """Set the indicator LED, see `attributes.indicator_change`."""
        self.change(indicator=state)

    def __repr__(self) -> str:
        return f'Machine({self.qualified_name}, {self.uuid})'


def _device(device_id: str) -> media.Device:
    for device in (*media.DEVICES, media.HTTP_BOOT):
        if device.id == device_id:
            return device
    raise errors.InvalidValue(
        'VirtualMedia', device_id, [device.id for device in media.DEVICES])
