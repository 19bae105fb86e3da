# SPDX-License-Identifier: Apache-2.0
"""``console``."""

from __future__ import annotations

import argparse

from sushy_kubevirt.cluster import bmcs
from sushy_kubevirt.cluster.commands import base


class Console(base.Command):
    """Open the serial console of a node, through its BMC.

    "~." at the beginning of a line ends it, "~?" lists more. A VM that is off
    is waited for. The connection goes through Kubernetes' API server.
    """

    arguments = (base.argument(
        'node', metavar='NODE', help='name of the node'),)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Serve the terminal until the user ends the console."""
        from sushy_kubevirt.remote import console
        from sushy_kubevirt.remote import redfish
        client, namespace = self.connect(parsed_args)
        return console.run(lambda: redfish.Client(
            bmcs.of_node(client, namespace, parsed_args.node), client))
