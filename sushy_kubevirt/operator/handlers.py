# SPDX-License-Identifier: Apache-2.0
"""What happens when something happens."""

import asyncio
import logging

import kopf

from sushy_kubevirt.operator import kinds
from sushy_kubevirt.operator import logs

LOG = logging.getLogger(__name__)


class Work:
    """The work of the replica that holds the Lease.

    :param options: `options.Options`
    :param api: an `api.Api`
    :param metrics: `metrics.Metrics`
    """

    def __init__(self, options, api, metrics):
        self.listed = asyncio.Event()

    def register(self, registry):
        """Have kopf tell of BMCs."""
        @kopf.on.event(kinds.BMC.group, kinds.BMC.version, kinds.BMC.plural,
                       registry=registry, id='bmc')
        async def bmc(event, namespace, name, **_):
            with logs.about(namespace, name):
                LOG.info('%s', event['type'])

    async def start(self):
        """Begin."""
        self.listed.set()

    async def close(self):
        """Finish what is under way."""

    def ready(self):
        """:returns: a sentence if it does not work, or None"""
