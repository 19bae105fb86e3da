# SPDX-License-Identifier: Apache-2.0
"""``plan``."""

from __future__ import annotations

from cliff import columns

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster.commands import status
from sushy_kubevirt.cluster import deploy
from sushy_kubevirt.cluster import plan
from sushy_kubevirt.cluster import problems

COLUMNS = 'Action', 'Kind', 'Name', 'Node', 'Reasons'

NOTHING = 'nothing to do'


class Reasons(columns.FormattableColumn):
    """Reasons of a change: a list for programs, text for people."""

    def human_readable(self):
        """See `cliff.columns.FormattableColumn`."""
        return '; '.join(self._value)


class Plan(base.Lister):
    """Show what would be created, changed and deleted.

    Nothing is changed. Ironic and Nova are asked if the file has nodes for
    Ironic or flavors, or VMs would be deleted, and there is a cloud in
    clouds.yaml.
    """

    nothing = NOTHING

    def get_parser(self, prog_name):
        """See `cliff.command.Command`."""
        parser = super().get_parser(prog_name)
        base.add_file(parser)
        base.add_cloud(parser)
        parser.add_argument(
            '--without-openstack', action='store_true',
            help='do not ask Ironic and Nova')
        return parser

    def take_action(self, parsed_args):
        """Read the file and the cluster."""
        cluster = base.read(parsed_args)
        client, namespace = self.connect(parsed_args, cluster.namespace)
        made = plan.make(client, cluster, namespace)
        # A network that does not exist is one of each of its nodes.
        for one in dict.fromkeys(map(str, made.conflicts)):
            self.tell(one)
            self.exit_status = status.FAILED
            self.nothing = 'nothing else to do'
        return COLUMNS, [
            (str(one.action), one.resource.kind, one.name, one.node,
             Reasons(one.reasons)) for one in made.changes
        ] + self._openstack(parsed_args, client, cluster, made)

    def _openstack(self, options, client, cluster, made):
        """:returns: list of rows of Ironic's nodes and of flavors"""
        if options.without_openstack or not (
                cluster.flavors or made.removed or made.recreated or any(
                    one.ironic is not None for one in cluster.nodes)):
            return []
        from sushy_kubevirt.cluster import cloud
        connection = cloud.connect_if_configured(options.os_cloud)
        if connection is None:
            self.tell('Ironic and Nova are not asked: clouds.yaml has no '
                      'cloud, or several and none is chosen (--os-cloud)')
            return []
        try:
            nodes, flavors = deploy.plan(
                client, deploy.Openstack(connection, api_server.owner(
                    client, made.namespace, cluster.name)),
                cluster, made.namespace, made)
        except problems.ServiceError as error:
            raise problems.ServiceError(
                f'{error}. For the changes in Kubernetes alone, give '
                '--without-openstack', error.status) from error
        return [
            (one.action, 'Ironic node', one.name, one.name, Reasons((
                *one.changed, *(f'{name} not while it has an instance'
                                for name in one.deferred),
                *filter(None, [one.error]))))
            for one in nodes if one.action != 'unchanged' or one.deferred
        ] + [(one.action, 'Flavor', one.name, None, Reasons(()))
             for one in flavors if one.action != 'unchanged']
