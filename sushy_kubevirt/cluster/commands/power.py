# SPDX-License-Identifier: Apache-2.0
"""``power``."""

from __future__ import annotations

import argparse

from cliff import show

from sushy_kubevirt.cluster import bmcs
from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster import power

STATUS = 'status'


class Power(base.Command, show.ShowOne):
    """Read or change the power state of a node, through its BMC by Redfish.

    Either way the state is printed; after a change, it may still be that of
    before, or PoweringOn or PoweringOff. The connection goes through
    Kubernetes' API server.
    """

    #: The state alone, for scripts.
    formatter_default = 'value'

    arguments = (
        base.argument('node', metavar='NODE', help='name of the node'),
        base.argument('action', metavar='ACTION', nargs='?', default=STATUS,
                      choices=(STATUS, *power.ACTIONS),
                      help=f"{STATUS}, {', '.join(power.ACTIONS)} "
                           '(default: %(default)s)'))

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Ask the BMC."""
        client, namespace = self.connect(parsed_args)
        node, action = parsed_args.node, parsed_args.action
        bmc = bmcs.require(
            node, bmcs.of_node(client, namespace, node), 'redfish')
        return ('Power',), (power.run(
            bmc, client, None if action == STATUS else action),)
