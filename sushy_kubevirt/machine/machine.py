# SPDX-License-Identifier: Apache-2.0
"""One KubeVirt VM, seen as the machine that a BMC serves.

A thin handle: it remembers which VM it is and nothing about it. Everything
it tells is read from the cache at that moment, everything it changes goes to
the API. What the words mean is in the modules it delegates to.
"""

import dataclasses

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine import attributes
from sushy_kubevirt.machine import bios
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_options
from sushy_kubevirt.machine import firmware
from sushy_kubevirt.machine import inventory
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine.media import ca_certificates
from sushy_kubevirt.machine.media import device_status
from sushy_kubevirt.machine.media import eject
from sushy_kubevirt.machine.media import http_boot
from sushy_kubevirt.machine.media import insert
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reset
from sushy_kubevirt.machine import run_strategy


class Machine:
    """A VirtualMachine and, while it runs, its VirtualMachineInstance."""

    __slots__ = ('cluster', 'namespace', 'name', 'uid', 'uuid')

    def __init__(self, cluster, namespace, name, uid, uuid):
        self.cluster = cluster
        self.namespace = namespace
        self.name = name
        #: ``metadata.uid`` of the VM: one that was deleted and made again
        #: under its old name is another machine.
        self.uid = uid
        #: The firmware UUID, normalised; the VM's uid if it has none.
        self.uuid = uuid

    @property
    def qualified_name(self):
        return f'{self.namespace}/{self.name}'

    @property
    def options(self):
        return self.cluster.options

    @property
    def gates(self):
        """The cluster's feature gates, a `gates.Gates`."""
        return self.cluster.gates

    # What the modules of this package build on

    def objects(self):
        """The VM and its VMI, from the cache; from the API if it is stale.

        Both are shared: look, do not touch. Large and secret parts (managed
        fields, cloud-init data) are left out.

        :returns: (vm, vmi), dicts; vmi is None when there is none
        :raises: `errors.MachineNotFound`, `errors.Unavailable`
        """
        return self.cluster.objects(self)

    def fetch(self):
        """The VM and its VMI as the API has them at this moment.

        :returns: (vm, vmi) like `objects`
        """
        return self.cluster.fetch(self)

    def write(self, step):
        """Change something, through bad moments and until the deadline.

        :param step: function of (vm, vmi), called with fresh state at each
            try. It looks first, and returns when nothing is left to do: a
            try whose answer was lost may have been carried out.
        :returns: what the step returned
        """
        return retry.run(lambda: step(*self.fetch()), self.cluster.options,
                         self.cluster.closing)

    def patch(self, operations, guard=None):
        """Apply a JSON patch to the VM and put the answer into the cache.

        One try; call it in a step of `write`.

        :param operations: list of JSON patch operations
        :param guard: the VM the operations were made from: the patch is
            refused (`errors.Conflict`) if it has changed since
        :returns: the VM as it is now
        """
        if guard is not None:
            operations = [{
                'op': 'test', 'path': '/metadata/resourceVersion',
                'value': guard['metadata']['resourceVersion'],
            }] + list(operations)
        return self.cluster.patch_vm(self, operations)

    def patch_status(self, operations, guard):
        """Apply a JSON patch to the VM's status, see `patch`."""
        return self.cluster.patch_status(self, [{
            'op': 'test', 'path': '/metadata/resourceVersion',
            'value': guard['metadata']['resourceVersion'],
        }] + list(operations))

    def delete_vmi(self, uid):
        """Delete the VMI with this uid, if it is there. One try."""
        self.cluster.delete_vmi(self, uid)

    def refresh(self):
        """Read anew what is known of the machine and its cluster."""
        self.cluster.refresh(self)

    def wait(self, ready, timeout):
        """Wait, by the cache, until something is so.

        :param ready: function of (vm, vmi), as from `objects`
        :param timeout: seconds
        :returns: whether it came to be so
        """
        return self.cluster.wait(self, ready, timeout)

    def call(self, action, body=None, resource=api_resources.VM):
        """Call one of KubeVirt's actions: ``start``, ``stop``, ``restart`` on
        the VM, ``pause``, ``unpause`` … with resource=resources.VMI.

        One try; call it in a step of `write`.
        """
        return self.cluster.call(self, action, body, resource)

    # Power

    def power_state(self):
        """:returns: a `power_state.PowerState`"""
        return power_state.state(*self.objects())

    def problem(self):
        """Why a VM that was told to start cannot, in KubeVirt's words.

        :returns: a `power_state.Problem`, or None
        """
        vm, vmi = self.objects()
        return device_status.problem(
            self.cluster.media.media(vm, vmi), vm, vmi
        ) or (power_state.problem(vm, vmi))

    def reset(self, reset_type):
        """:param reset_type: a `power_state.ResetType`"""
        reset.reset(self, reset_type)

    def power_restore_policy(self):
        """:returns: a `power_restore_policy.Policy`, or None"""
        return power_restore_policy.of(self.objects()[0], self.options)

    def set_power_restore_policy(self, policy):
        """:param policy: a `power_restore_policy.Policy`"""
        power_restore_policy.set(self, policy)

    # Boot and firmware

    def boot(self):
        """:returns: a `boot.BootState`"""
        vm, vmi = self.objects()
        return dataclasses.replace(boot.state(vm, vmi),
                                   http_uri=http_boot.uri(vm))

    def set_boot(self, target=None, enabled=None, mode=None, http_uri=None,
                 order=None):
        """Choose what the next start boots from. None leaves as it is.

        :param target: a `boot.Target`
        :param enabled: a `boot.Enabled`
        :param mode: a `boot.Mode`
        :param http_uri: what `boot.Target.UEFI_HTTP` boots, a URL
        :param order: the persistent order under the override: references of
            `boot_options`
        """
        http_boot.prepare(self, target, enabled, mode, http_uri)
        try:
            boot.set(self, target=target, enabled=enabled, mode=mode,
                     order=order, media_targets=self._media_targets())
        except errors.MachineError:
            if target is boot.Target.UEFI_HTTP:
                http_boot.undo(self)
            raise

    def _media_targets(self):
        """Targets whose devices come with a medium."""
        if not self.cluster.media.cdi_available:
            return ()
        return boot.Target.CD, boot.Target.UEFI_HTTP

    def boot_options(self):
        """:returns: tuple of `boot_options.Option`"""
        return boot_options.options(self.objects()[0])

    def boot_order(self):
        """:returns: tuple of references, see `boot_options.order`"""
        return boot_options.order(self.objects()[0])

    def set_default_boot_order(self):
        """Bring the boot order back that the VM's owner wrote."""
        boot.set_default_order(self)

    def boot_targets(self):
        """:returns: tuple of the `boot.Target` the VM has devices for, or can
            be given by virtual media
        """
        found = {*boot.targets(*self.objects()), *self._media_targets()}
        return tuple(target for target in boot.Target if target in found)

    def secure_boot(self):
        """:returns: True if the VM starts with secure boot"""
        return firmware.secure_boot(*self.objects())

    def secure_boot_now(self):
        """Whether the boot that runs has secure boot.

        :returns: `secure_boot` while the machine is off
        """
        vm, vmi = self.objects()
        if run_strategy.is_active(vmi):
            return firmware.secure_boot({'spec': {'template': vmi}})
        return firmware.secure_boot(vm, vmi)

    def set_secure_boot(self, enabled):
        boot.set_secure_boot(self, enabled)

    # Virtual media

    def media_devices(self):
        """:returns: tuple of the `media.Device` there are"""
        return media.DEVICES

    def medium(self, device_id):
        """What is in a device; costs no API call.

        :param device_id: ``Cd``, ``USBStick`` or ``HttpBoot``
        :returns: a `media.Medium`, or None
        """
        return self.cluster.media.medium(self, _device(device_id))

    def insert_media(self, device_id, source, wait=None):
        """Put an image into a device, in place of what is there.

        It does not start, stop or reboot anything. Returns as soon as the
        import is under way, or when it has come to an end. What is there
        already and has not failed, stays.

        :param source: a `media.Source`
        :param wait: whether to wait for its end; None for what
            `options.MediaOptions.wait` says
        :returns: the `media.Medium`
        :raises: `errors.Unsupported` without CDI, `errors.InvalidValue` for
            a URL that may not be used, `errors.Rejected` by quota or
            admission, `errors.MediaUnreachable` if the server of the image
            refuses or does not answer, `errors.WrongState` if it was ejected
            or replaced in the meantime
        """
        return insert.insert(self, _device(device_id), source, wait)

    def eject_media(self, device_id):
        """Empty a device; not an error if it is."""
        eject.eject(self, _device(device_id))

    def media_certificates(self, device_id):
        """:returns: tuple of the `media.Certificate` of a device"""
        return ca_certificates.certificates(self, _device(device_id))

    def add_media_certificate(self, device_id, pem):
        """Check servers against this certificate too, at the next insert.

        :param pem: one certificate, PEM
        :returns: the `media.Certificate`
        :raises: `errors.InvalidValue` if it is none
        """
        return ca_certificates.add(self, _device(device_id), pem)

    def delete_media_certificate(self, device_id, certificate_id):
        """:raises: `errors.InvalidValue` if there is none of that name"""
        ca_certificates.delete(self, _device(device_id), certificate_id)

    def media_verify(self, device_id):
        """:returns: whether servers' certificates are checked at the next
            insert that does not say
        """
        return ca_certificates.verify(self, _device(device_id))

    def set_media_verify(self, device_id, verify):
        """See `media_verify`."""
        ca_certificates.set_verify(self, _device(device_id), verify)

    # Inventory, attributes, indicator

    def inventory(self):
        """:returns: an `inventory.Inventory`"""
        vm, vmi = self.objects()
        sizes = None
        if inventory.needs_sizes(vm, vmi):
            sizes = self.cluster.sizes(self, vm)
        return inventory.of(vm, vmi, self.gates.version, sizes)

    def attributes(self):
        """:returns: dict of the BIOS attributes from the next boot on"""
        return bios.pending(*self.objects())

    def current_attributes(self):
        """:returns: dict of the BIOS attributes of the boot that runs"""
        return bios.current(*self.objects())

    def set_attributes(self, values):
        """Change some BIOS attributes: see `bios.set`"""
        bios.set(self, values)

    def reset_attributes(self):
        """Bring the BIOS attributes back to their defaults: see
        `bios.reset`
        """
        bios.reset(self)

    def asset_tag(self):
        """:returns: text, '' if there is none"""
        return attributes.asset_tag(self.objects()[0])

    def set_asset_tag(self, tag):
        attributes.set_asset_tag(self, tag)

    def indicator(self):
        """:returns: 'Lit', 'Blinking' or 'Off'"""
        return attributes.indicator(self.objects()[0])

    def set_indicator(self, state):
        attributes.set_indicator(self, state)

    def __repr__(self):
        return f'Machine({self.qualified_name}, {self.uuid})'


def _device(device_id):
    for device in (*media.DEVICES, media.HTTP_BOOT):
        if device.id == device_id:
            return device
    raise errors.InvalidValue(
        'VirtualMedia', device_id, [device.id for device in media.DEVICES])
