# SPDX-License-Identifier: Apache-2.0
"""Ports of services."""

import asyncio
import random

from oslotest import base

from kubevirt_sandbox.workloads import forwarding

BACKEND = [('127.0.0.1', 9)]


def a_port():
    """Return a port outside of the ephemeral range, on a separate address."""
    return '127.57.0.1', random.randrange(15000, 30000)


class PortsTestCase(base.BaseTestCase):

    def test_closed_port_can_be_reused_at_once(self):
        async def work(port):
            where = a_port()
            one, two = port(*where), port(*where)
            try:
                await one.serve(BACKEND)
                await one.close()
                # By another service, and by one whose pods changed.
                await two.serve(BACKEND)
                await two.serve([])
                await two.serve(BACKEND)
            finally:
                await one.close()
                await two.close()

        for port in forwarding.Tcp, forwarding.Udp:
            asyncio.run(work(port))
