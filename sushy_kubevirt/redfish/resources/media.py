# SPDX-License-Identifier: Apache-2.0
"""A virtual media driver without devices.

Upstream's own would fetch an image to the emulator's disk and answer
success, though no VM ever sees it.
"""

from sushy_tools.emulator.resources import vmedia
from sushy_tools import error


class NoMedia(vmedia.BaseDriver):
    """Systems that have no virtual media: every device is not found."""

    def __init__(self, config, logger):
        # Not upstream's: that would keep a database for nothing.
        self._config = config
        self._logger = logger

    @property
    def driver(self):
        """:returns: driver information as `str`"""
        return '<no-vmedia>'

    @property
    def devices(self):
        """:returns: IDs of the devices: none"""
        return []

    def _get_device(self, identity, device):
        raise error.NotFound('System %s has no virtual media device %s'
                             % (identity, device))

    def insert_image(self, identity, device, *_args, **_kwargs):
        """:raises: `error.NotFound`"""
        self._get_device(identity, device)

    def eject_image(self, identity, device):
        """:raises: `error.NotFound`"""
        self._get_device(identity, device)
