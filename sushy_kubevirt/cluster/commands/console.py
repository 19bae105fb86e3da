# SPDX-License-Identifier: Apache-2.0
"""``console``."""

from __future__ import annotations

import os

from sushy_kubevirt.cluster import bmcs
from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster import problems

PROGRAM = 'ipmitool'


def command(bmc):
    """Make the command line and its secret environment.

    :param bmc: a `nodes.Bmc`
    :returns: list of words, and dict
    """
    return [PROGRAM, '-I', 'lanplus', '-H', bmc.address, '-p',
            str(bmc.ipmi_port), '-U', bmc.username, '-E', 'sol', 'activate'
            ], {'IPMI_PASSWORD': bmc.password}


class Console(base.Command):
    """Open the serial console of a node, through its BMC by IPMI.

    It runs ipmitool: "~." at the beginning of a line ends the console, "~?"
    lists what else it knows, and its exit status is that of this command. A
    VM that is off is waited for. The BMC has to be reachable from here.
    """

    def get_parser(self, prog_name):
        """See `cliff.command.Command`."""
        parser = super().get_parser(prog_name)
        parser.add_argument('node', metavar='NODE', help='name of the node')
        return parser

    def take_action(self, parsed_args):
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
