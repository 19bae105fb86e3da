# SPDX-License-Identifier: Apache-2.0
"""``enrol``."""

from __future__ import annotations

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster.commands import enrolling
from sushy_kubevirt.cluster.commands import plan
from sushy_kubevirt.cluster.commands import status
from sushy_kubevirt.cluster import deploy


def run(client, options, cluster, namespace, lines, without=()):
    """Enrol the nodes of a cluster.

    :param without: names of nodes that are left as they are
    :returns: list of rows: of nodes and flavors that were changed, or that
        failed; and exit status
    """
    results, flavors = deploy.enrol(client, enrolling.openstack(
        options, api_server.owner(client, namespace, cluster.name), lines),
        cluster, namespace, without)
    made = [(one.name, 'failed', one.error) if one.error else
            (one.name, one.state or 'removed', _deferred(one))
            for one in results
            if one.error or one.deferred or one.action != 'unchanged']
    made += [(one.name, f'flavor: {one.action}', '') for one in flavors
             if one.action != 'unchanged']
    failed = any(one.error for one in results)
    return made, status.FAILED if failed else status.DONE


def _deferred(result):
    if not result.deferred:
        return ''
    return 'not changed while it has an instance: ' + ', '.join(
        result.deferred)


class Enrol(base.Lister):
    """Enrol the nodes in Ironic, with ports and traits, and make flavors.

    Nodes that the file does not declare any more are removed.
    """

    nothing = plan.NOTHING

    def get_parser(self, prog_name):
        """See `cliff.command.Command`."""
        parser = super().get_parser(prog_name)
        base.add_file(parser)
        base.add_waits(parser)
        parser.add_argument(
            '--force', action='store_true',
            help='also remove nodes with an instance: they are undeployed, '
                 'and what is on their disks is lost')
        base.add_cloud(parser)
        return parser

    def take_action(self, parsed_args):
        """Make the difference."""
        cluster = base.read(parsed_args)
        client, namespace = self.connect(parsed_args, cluster.namespace)
        found, self.exit_status = run(
            client, parsed_args, cluster, namespace, self.lines())
        return enrolling.COLUMNS, found
