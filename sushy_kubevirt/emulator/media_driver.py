# SPDX-License-Identifier: Apache-2.0
"""The virtual media driver that sushy-emulator is given.

The entry point ``kubevirt`` of ``sushy_tools.emulator.vmedia`` names it. It
takes the place of sushy-tools' own driver, which would download images to the
emulator's disk. The views of `redfish.resources.virtual_media` replace all of
sushy-tools' and call `machine.Machine`, which knows progress, failures and
tasks; so the methods of `vmedia.BaseDriver` that use a device raise
NotSupportedError.
"""

from __future__ import annotations

from sushy_tools.emulator.resources import vmedia
from sushy_tools import error

from sushy_kubevirt.machine import media


class KubeVirtDriver(vmedia.BaseDriver):
    """Virtual media of KubeVirt VirtualMachines.

    :param config: mapping of the config file's options
    :param logger: the application's logger
    :param _systems: the system driver, which sushy-emulator passes
    """

    def __init__(self, config, logger, _systems) -> None:
        # Not vmedia.BaseDriver's __init__, which opens a database file.
        self._config = config
        self._logger = logger

    @property
    def driver(self) -> str:
        """Return the name of the driver, for sushy-emulator's log."""
        return '<kubevirt-vmedia>'

    @property
    def devices(self):
        """Return a list of the IDs of the devices that every system has."""
        return [device.id for device in media.DEVICES]

    def _get_device(self, identity, device):
        # Every method of the base class that uses a device starts here.
        raise error.NotSupportedError(
            'sushy-kubevirt does not support this route of sushy-tools')

    def insert_image(self, identity, device, image_url, *args,
                     **kwargs) -> None:
        """:raises: `error.NotSupportedError`"""
        self._get_device(identity, device)

    def eject_image(self, identity, device) -> None:
        """:raises: `error.NotSupportedError`"""
        self._get_device(identity, device)
