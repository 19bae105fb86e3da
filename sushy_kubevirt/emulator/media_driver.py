# SPDX-License-Identifier: Apache-2.0
"""The sushy-tools media driver: its contract to machine words and back.

What `sushy_tools.emulator.resources.vmedia` asks of a driver, for VMs. It
keeps nothing: what is in a drive is in the cluster. The routes this project
owns ask the machine themselves, as they know more than this contract can say
(progress, failures, tasks).
"""

from sushy_tools.emulator.resources import vmedia
from sushy_tools import error

from sushy_kubevirt.emulator import system_driver
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import media

_NAMES = {media.CD.id: 'Virtual CD', media.USB_STICK.id: 'Virtual USB Stick'}
_TYPES = {media.Kind.CD: ['CD', 'DVD'], media.Kind.USB_STICK: ['USBStick']}


class KubeVirtDriver(vmedia.BaseDriver):
    """Virtual media of KubeVirt VirtualMachines.

    :param driver: a `system_driver.KubeVirtDriver`, which finds the machines
    """

    def __init__(self, config, logger, driver):
        # Not upstream's: that would keep a database for nothing.
        self._config = config
        self._logger = logger
        self._systems = driver

    @property
    def driver(self):
        """:returns: driver information as `str`"""
        return '<kubevirt-vmedia>'

    @property
    def devices(self):
        """:returns: list of the IDs of the devices every system has"""
        return [device.id for device in media.DEVICES]

    def _machine(self, identity, device):
        """The machine of an identity, and its device.

        :raises: `error.NotFound` if there is no such machine or device
        """
        machine = self._systems.machine(identity)
        for found in machine.media_devices():
            if found.id == device:
                return machine, found
        raise error.NotFound('System %s has no virtual media device %s'
                             % (identity, device))

    def get_device_name(self, identity, device):
        """:returns: a name for people"""
        with system_driver.translated():
            return _NAMES[self._machine(identity, device)[1].id]

    def get_device_media_types(self, identity, device):
        """:returns: list of Redfish's MediaTypes"""
        with system_driver.translated():
            return _TYPES[self._machine(identity, device)[1].kind]

    def get_device_image_info(self, identity, device):
        """:returns: `vmedia.DeviceInfo`; there is never a password in it"""
        with system_driver.translated():
            machine, found = self._machine(identity, device)
            medium = machine.medium(found.id)
            verify = machine.media_verify(found.id)
        if medium is None:
            return vmedia.DeviceInfo('', '', False, False, '', '', verify)
        return vmedia.DeviceInfo(
            medium.image_name, medium.url, True, medium.write_protected,
            medium.username, '', verify)

    def update_device_info(self, identity, device, verify=False):
        """:param verify: whether servers' certificates are checked"""
        with system_driver.translated():
            machine, found = self._machine(identity, device)
            machine.set_media_verify(found.id, verify)

    def insert_image(self, identity, device, image_url, inserted=True,
                     write_protected=True, username=None, password=None):
        """Put an image into a device; see `machine.Machine.insert_media`.

        :param image_url: URL; None ejects what is there
        :returns: name of the DataVolume it will be in
        """
        if not image_url or not inserted:
            self.eject_image(identity, device)
            return None
        with system_driver.translated():
            machine, found = self._machine(identity, device)
            return machine.insert_media(found.id, media.Source(
                image_url, username or '', password or '',
                write_protected)).data_volume

    def eject_image(self, identity, device):
        """Empty a device; not an error if it is."""
        with system_driver.translated():
            machine, found = self._machine(identity, device)
            machine.eject_media(found.id)

    def list_certificates(self, identity, device):
        """:returns: list of `vmedia.Certificate`"""
        with system_driver.translated():
            machine, found = self._machine(identity, device)
            return [_certificate(one)
                    for one in machine.media_certificates(found.id)]

    def add_certificate(self, identity, device, cert_string, cert_type):
        """:returns: `vmedia.Certificate`"""
        if cert_type != 'PEM':
            raise error.BadRequest('Only PEM certificates are supported')
        with system_driver.translated():
            machine, found = self._machine(identity, device)
            return _certificate(machine.add_media_certificate(
                found.id, cert_string))

    def replace_certificate(self, identity, device, cert_id, cert_string,
                            cert_type):
        """:returns: `vmedia.Certificate`, with an ID of its own"""
        if cert_id not in [one.id for one in
                           self.list_certificates(identity, device)]:
            raise error.NotFound(f'Certificate {cert_id} not found')
        made = self.add_certificate(identity, device, cert_string, cert_type)
        if made.id != cert_id:
            self.delete_certificate(identity, device, cert_id)
        return made

    def delete_certificate(self, identity, device, cert_id):
        """:raises: `error.NotFound` if there is none"""
        with system_driver.translated():
            machine, found = self._machine(identity, device)
            try:
                machine.delete_media_certificate(found.id, cert_id)
            except errors.InvalidValue:
                raise error.NotFound('Certificate %s not found'
                                     % cert_id) from None


def _certificate(found):
    return vmedia.Certificate(found.id, found.pem, 'PEM')
