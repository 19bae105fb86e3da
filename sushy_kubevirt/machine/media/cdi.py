# SPDX-License-Identifier: Apache-2.0
"""Whether a cluster has CDI."""

from __future__ import annotations

import logging
import threading
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client

LOG = logging.getLogger(__name__)

#: Why virtual media are refused in a cluster without CDI.
NO_CDI = ('Virtual media need CDI, the Containerized Data Importer, which is '
          'not installed in this cluster; install it: https://kubevirt.io/'
          'user-guide/storage/containerized_data_importer/')


class Cdi:
    """Finds out whether the cluster has CDI."""

    def __init__(self, client: client.Client) -> None:
        self._client = client
        #: Whether CDI was found; costs no API call.
        self.served = False

    def require(self) -> None:
        """Check that the cluster has CDI; one API call until it has.

        :raises: `errors.Unsupported` if it has not
        """
        if self.served:
            return
        self.served = self._client.serves_group(
            api_resources.DATA_VOLUME.group)
        if not self.served:
            raise errors.Unsupported(NO_CDI)

    def check_in_background(self) -> None:
        """Call `require` in a thread, to set `served`."""
        def check() -> None:
            try:
                self.require()
            except errors.MachineError as e:
                LOG.debug('Virtual media are not available: %s', e)

        threading.Thread(target=check, daemon=True, name='media-cdi').start()
