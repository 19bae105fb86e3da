# SPDX-License-Identifier: Apache-2.0
"""CDI as a whole: kinds, webhooks, controllers and the upload proxy."""
import dataclasses

from sushy_kubevirt.sandbox.cdi import kinds


@dataclasses.dataclass
class Options:
    """How CDI shall be."""


class Cluster:
    """CDI in an API server.

    :param server: the :class:`sandbox.api.server.Server`; kinds and routes
        are registered at once.
    :param storage: the :class:`storage.Storage` of the claims.
    :param options: anything with the attributes of :class:`Options`; those
        that it lacks have their defaults.
    """

    def __init__(self, server, storage, options=None):
        self.store = server.store
        self.storage = storage
        self.kinds = kinds.build()
        for kind in self.kinds:
            server.register_kind(kind)

    async def start(self):
        """Begin to serve."""

    async def stop(self):
        """End imports and uploads."""
