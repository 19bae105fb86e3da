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

from collections import abc
import logging
import typing

from sushy_tools.emulator.resources import vmedia
from sushy_tools import error

from sushy_kubevirt.machine import media


class KubeVirtDriver(vmedia.BaseDriver):
    """Virtual media of KubeVirt VirtualMachines.

    :param config: the config file's options
    :param logger: the application's
    :param _systems: the system driver, which sushy-emulator passes
    """

    def __init__(self, config: abc.Mapping[str, object],
                 logger: logging.Logger, _systems: object) -> None:
        # Not vmedia.BaseDriver's __init__, which opens a database file.
        self._config = config
        self._logger = logger

    @property
    def driver(self) -> str:
        """Return the name of the driver, for sushy-emulator's log."""
        return '<kubevirt-vmedia>'

    @property
    def devices(self) -> list[str]:
        """Return the IDs of the devices that every system has."""
        return [device.id for device in media.DEVICES]

    def _get_device(self, identity: str, device: str) -> typing.NoReturn:
        # Every method of the base class that uses a device starts here.
        raise error.NotSupportedError(
            'sushy-kubevirt does not support this route of sushy-tools')

    def insert_image(self, identity: str, device: str, image_url: str,
                     *args: object, **kwargs: object) -> None:
        """:raises: `error.NotSupportedError`"""
        self._get_device(identity, device)

    def eject_image(self, identity: str, device: str) -> None:
        """:raises: `error.NotSupportedError`"""
        self._get_device(identity, device)
