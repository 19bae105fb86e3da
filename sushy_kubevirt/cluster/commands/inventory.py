# SPDX-License-Identifier: Apache-2.0
"""``inventory``."""

from __future__ import annotations

import argparse
import typing

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster.commands import files
from sushy_kubevirt.cluster.commands import status
from sushy_kubevirt.cluster import deploy
from sushy_kubevirt.cluster.inventory import ansible
from sushy_kubevirt.cluster.inventory import bifrost
from sushy_kubevirt.cluster.inventory import devstack
from sushy_kubevirt.cluster.inventory import ironic
from sushy_kubevirt.cluster.inventory import metal3
from sushy_kubevirt.cluster.inventory import metal3_secrets
from sushy_kubevirt.cluster.inventory import virtualpdu

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster.ironic import nodes


class Format(typing.Protocol):
    """A module of `inventory`."""

    TEXT: str

    def make(self, declared: list[nodes.Wanted], owner: str, /) -> str:
        """Make the text of the file."""


FORMATS: dict[str, Format] = {
    'ironic': ironic, 'bifrost': bifrost, 'devstack': devstack,
    'ansible': ansible, 'metal3': metal3, 'metal3-secrets': metal3_secrets,
    'virtualpdu': virtualpdu}


class Inventory(base.Command):
    """Print the nodes of a cluster for other tools.

    Nodes with "ironic_config" are printed whose BMC has an address. If one of
    them has none, the command fails.
    """

    arguments = (
        *base.FILE,
        base.argument('--format', choices=FORMATS, required=True,
                      help='; '.join(f'{name}: {form.TEXT}'
                                     for name, form in FORMATS.items())),
        base.argument('--output-file', metavar='PATH',
                      help='write a file that only its owner can read, '
                           'instead of stdout'))

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Read and print."""
        cluster, client, namespace = self.open(parsed_args)
        wanted, failed = deploy.wanted(client, cluster, namespace)
        for result in failed:
            self.tell(result.error)
        if failed:
            # Half an inventory would be taken for a whole one.
            return status.FAILED
        left_out = [node.name for node in cluster.nodes if node.ironic is None]
        if left_out:
            self.tell('without "ironic_config" and therefore left out: '
                      + ', '.join(left_out))
        text = FORMATS[parsed_args.format].make(
            wanted, api_server.owner(client, namespace, cluster.name))
        if parsed_args.output_file:
            files.write(parsed_args.output_file, text, files.PRIVATE)
        else:
            self.app.stdout.write(text)
        return status.DONE
