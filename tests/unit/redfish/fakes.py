# SPDX-License-Identifier: Apache-2.0
"""Fakes of the cluster and its machines, and a sushy-emulator that uses them.

The machines only store attributes and record calls. Tests of Redfish check
the calls and the responses; what a real machine does has tests of its own.
"""

import dataclasses
import threading

from sushy_tools.emulator import main

from sushy_kubevirt.emulator import plugin
from sushy_kubevirt.emulator import system_driver
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_options
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import inventory
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import vm_state
from sushy_kubevirt.redfish.services import service_context

A = '6d8c9b46-4d5a-4a46-9d53-0000000000aa'
B = '6d8c9b46-4d5a-4a46-9d53-0000000000bb'
OTHER = '6d8c9b46-4d5a-4a46-9d53-0000000000cc'


@dataclasses.dataclass
class BootState:
    target: boot.Target = boot.Target.NONE
    enabled: boot.Enabled = boot.Enabled.DISABLED
    mode: boot.Mode = boot.Mode.UEFI
    http_uri: str = ''


INVENTORY = inventory.Inventory(
    cpus=inventory.Cpus(sockets=2, cores=3, threads=2, model='Haswell',
                        architecture='amd64'),
    memory_bytes=5 * 2 ** 30,
    nics=(inventory.Nic('default', '02:00:00:00:00:01',
                        ('10.0.0.5', 'fe80::1'), 'virtio',
                        guest_name='eth0', link='up'),
          inventory.Nic('second')),
    disks=(inventory.Disk('root', 'disk', 'virtio', 10 * 2 ** 30,
                          source='dataVolume'),
           inventory.Disk('more', 'disk', 'virtio', source='containerDisk'),
           inventory.Disk('cd', 'cdrom', 'sata')),
    serial='serial-7', machine_type='q35', hostname='guest-a',
    firmware='efi', kubevirt_version='v1.9.0')


#: References to devices of `INVENTORY`.
BOOT_OPTIONS = tuple(
    boot_options.Option(
        reference, boot_order.Device(
            list_, name, class_, None))
    for reference, list_, name, class_ in (
        ('Boot0001', 'disks', 'root', boot_order.Target.HDD),
        ('Boot0003', 'disks', 'cd', boot_order.Target.CD),
        ('Boot1001', 'interfaces', 'default', boot_order.Target.PXE)))

#: BIOS attributes that every VM has.
ATTRIBUTES = {'BootMode': 'UEFI', 'SecureBoot': 'Disabled',
              'PersistentNvram': 'Disabled', 'Tpm': 'None'}


#: Result of an insert, which replaces the URL.
MEDIUM = media.Medium(
    'http://host/a.iso', True, media.State.IMPORTING, 41.7,
    'TransferRunning', 'Import is running', task='attempt-1',
    since='2026-01-02T03:04:05.000Z')


class Machine:
    """Fake of `sushy_kubevirt.machine.machine.Machine`.

    :ivar calls: list of (method name, arguments) that would change the VM
    :ivar fails: exception that such methods raise
    """

    def __init__(self, uuid, name, namespace='default'):
        self.cluster = Cluster
        self.uuid = uuid
        self.uid = 'uid-of-' + name
        self.name = name
        self.namespace = namespace
        self.calls = []
        self.fails = None
        self._power = power_state.PowerState.OFF
        self._problem = self._impairment = self._reconcile_error = None
        self._boot = BootState()
        self._secure = False
        self._secure_now = False
        self._attributes = {**ATTRIBUTES, 'QuietBoot': 'true'}
        self._current = {**ATTRIBUTES, 'QuietBoot': 'false'}
        self._policy = power_restore_policy.Policy.LAST_STATE
        self._asset_tag = ''
        self._indicator = 'Off'
        self.media = {}
        self.verify = {}
        self.certificates = []
        self._inventory = INVENTORY

    @property
    def qualified_name(self):
        return f'{self.namespace}/{self.name}'

    # Virtual media, stored in `media` and `certificates`

    def media_devices(self):
        return media.DEVICES

    def medium(self, device_id):
        return self.media.get(device_id)

    def insert_media(self, device_id, source, wait=None, verify=None):
        self._call('insert_media', device_id, source,
                   *([] if wait is None else [wait]))
        if verify is not None:
            self.verify[device_id] = verify
        self.media[device_id] = MEDIUM._replace(
            url=source.url,
            write_protected=source.write_protected, method=source.method)
        return self.media[device_id]

    def require_media_upload(self):
        self._call('require_media_upload')

    def upload_media(self, device_id, image, probe, write_protected=True,
                     wait=None):
        buffer, content = memoryview(bytearray(2 ** 18)), b''
        while got := image.readinto(buffer):
            content += buffer[:got]
        self._call('upload_media', device_id, image.name, probe, content,
                   write_protected)
        self.media[device_id] = MEDIUM._replace(
            url=image.url, method='Upload')
        return self.media[device_id]

    def eject_media(self, device_id, verify=None):
        self._call('eject_media', device_id)
        if verify is not None:
            self.verify[device_id] = verify
        self.media.pop(device_id, None)

    def media_verify(self, device_id):
        return self.verify.get(device_id, True)

    def set_media_verify(self, device_id, verify):
        self._call('set_media_verify', device_id, verify)
        self.verify[device_id] = verify

    def media_certificates(self, device_id):
        return tuple(self.certificates)

    def add_media_certificate(self, device_id, pem):
        self._call('add_media_certificate', device_id, pem)
        number = 1 + max([int(one.id) for one in self.certificates] or [0])
        self.certificates.append(media.Certificate(str(number), pem))
        return self.certificates[-1]

    def delete_media_certificate(self, device_id, certificate_id):
        self._call('delete_media_certificate', device_id, certificate_id)
        self.certificates = [one for one in self.certificates
                             if one.id != certificate_id]

    def state(self):
        return vm_state.VmState(
            {'metadata': {'name': self.name, 'uid': self.uid}})

    def _call(self, *call):
        if self.fails is not None:
            raise self.fails
        self.calls.append(call)

    def power_state(self):
        return self._power

    def problem(self):
        return self._problem

    def impairment(self):
        return self._impairment

    def reconcile_error(self):
        return self._reconcile_error

    def reset(self, reset_type):
        self._call('reset', reset_type)

    def boot(self):
        return self._boot

    def set_boot(self, target=None, enabled=None, mode=None, **more):
        self._call('set_boot', target, enabled, mode,
                   *([more] if more else []))

    def change(self, boot_settings=None, policy=None, asset_tag=None,
               indicator=None):
        for value, set_ in (
                (policy, self.set_power_restore_policy),
                (asset_tag, self.set_asset_tag),
                (indicator, self.set_indicator)):
            if value is not None:
                set_(value)
        if boot_settings is not None:
            self.set_boot(**boot_settings)

    def boot_options(self):
        return BOOT_OPTIONS

    def boot_order(self):
        return ('Boot1001', 'Boot0001')

    def set_default_boot_order(self):
        self._call('set_default_boot_order')

    def power_restore_policy(self):
        return self._policy

    def set_power_restore_policy(self, policy):
        self._call('set_power_restore_policy', policy)

    def asset_tag(self):
        return self._asset_tag

    def set_asset_tag(self, tag):
        self._call('set_asset_tag', tag)

    def version(self):
        return self.cluster.versions.get(self.uuid)

    def boot_targets(self):
        return (boot.Target.PXE, boot.Target.HDD, boot.Target.CD)

    def boot_modes(self):
        return tuple(boot.Mode)

    def attribute_values(self, attribute):
        return attribute.values

    def has_secure_boot(self):
        return True

    def secure_boot(self):
        return self._secure

    def secure_boot_now(self):
        return self._secure_now

    def set_secure_boot(self, enabled):
        self._call('set_secure_boot', enabled)

    def inventory(self):
        return self._inventory

    def attributes(self):
        return self._attributes

    def current_attributes(self):
        return self._current

    def set_attributes(self, values):
        self._call('set_attributes', values)

    def reset_attributes(self):
        self._call('reset_attributes')

    def indicator(self):
        return self._indicator

    def set_indicator(self, state):
        self._call('set_indicator', state)


class Client:
    """Fake of `client.Client` for an API with one object at most."""

    def __init__(self):
        self.object = None

    def get(self, kind, namespace, name):
        if self.object is None:
            raise errors.ObjectNotFound(name)
        return self.object

    def create(self, kind, namespace, body):
        self.object = body
        body['metadata']['resourceVersion'] = '1'
        return body

    def patch(self, kind, namespace, name, operations):
        self.object = {**self.object, 'data': operations[1]['value']}
        return self.object

    def pages(self, kind, namespace=None, **_selectors):
        """List nothing: there are no Kubernetes events."""
        yield [], None


class Cluster:
    """Fake of `cluster.Cluster` with the given machines."""

    options = options.Options()
    vm = None
    default_namespace = 'default'
    closing = threading.Event()

    def __init__(self, *machines):
        self.client = Client()
        self.all = list(machines)
        for machine in machines:
            machine.cluster = self
        self.fails = None
        self.started = False
        #: UUID to what its `version` returns; without one nothing is cached.
        self.versions = {}

    def start(self):
        self.started = True

    def wait_ready(self, seconds):
        """Block until the end, so that no thread reports events."""
        self.closing.wait()
        raise errors.Unavailable('closed')

    def machines(self):
        if self.fails is not None:
            raise self.fails
        return [machine for machine in self.all if self.vm in (
            None, (machine.namespace, machine.name))]

    def machine(self, identity, wait=True):
        found = [machine for machine in self.machines()
                 if identity.lower() == machine.uuid
                 or identity in (machine.name, machine.qualified_name)]
        if not found:
            raise errors.MachineNotFound(identity)
        if len(found) > 1:
            raise errors.AmbiguousName(
                identity, [machine.qualified_name for machine in found])
        return found[0]

    def refresh(self, machine):
        machine._call('refresh')

    def close(self):
        pass


def application(test, machines, **config):
    """Return sushy-emulator's application with the kubevirt driver.

    Upstream's views use ``main.app``, so all tests of a process share it; a
    cleanup restores its configuration.

    :param test: test case
    :param machines: `Cluster`
    :param config: options of the config file
    :returns: `main.Application`
    """
    plugin.enable()
    app = main.app
    before = dict(app.config)

    def restore():
        app.config.clear()
        app.config.update(before)
        # Upstream's drivers, made for this configuration.
        vars(app).pop('_cache', None)

    test.addCleanup(restore)
    app.config.update({plugin.DRIVER: 'kubevirt', **config})
    vm = config.get('SUSHY_EMULATOR_KUBEVIRT_VM')
    machines.vm = objects.ObjectKey(*vm.split('/')) if vm else None
    use(app.sushy_kubevirt, system_driver.KubeVirtDriver.initialize(
        app.config, app.logger)(machines))
    return app


def use(state, driver):
    """Let an application's `plugin._State` use a driver."""
    state._close_driver()
    state._driver = driver
    state.services = service_context.Services(driver.settings, driver.cluster)
    state._arguments = (state._name(), (), driver.settings)
