# SPDX-License-Identifier: Apache-2.0
"""``console``."""

from __future__ import annotations

import argparse
import os
import typing

from sushy_kubevirt.cluster import bmcs
from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster import problems

if typing.TYPE_CHECKING:
    from sushy_kubevirt.remote import endpoint

PROGRAM = 'ipmitool'


def command(bmc: endpoint.Bmc) -> tuple[list[str], dict[str, str]]:
    """Make the command line and its secret environment."""
    return [PROGRAM, '-I', 'lanplus', '-H', bmc.address, '-p',
            str(bmc.ipmi_port), '-U', bmc.username, '-E', 'sol', 'activate'
            ], {'IPMI_PASSWORD': bmc.password}


class Console(base.Command):
    """Open the serial console of a node, through its BMC by IPMI.

    It runs ipmitool: "~." at the beginning of a line ends the console, "~?"
    lists what else it knows, and its exit status is that of this command. A
    VM that is off is waited for. The BMC has to be reachable from here.
    """

    arguments = (base.argument(
        'node', metavar='NODE', help='name of the node'),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Become ipmitool."""
        client, namespace = self.connect(parsed_args)
        node = parsed_args.node
        words, environment = command(bmcs.require(
            node, bmcs.of_node(client, namespace, node), 'ipmi'))
        try:
            os.execvpe(PROGRAM, words, {**os.environ, **environment})
        except FileNotFoundError as error:
            raise problems.Unsuitable(
                f'{PROGRAM} is not installed, which opens consoles. Debian '
                'and Fedora have a package of this name') from error
