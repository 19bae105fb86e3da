# SPDX-License-Identifier: Apache-2.0
"""``plan``."""

from __future__ import annotations

import argparse
from collections import abc
import typing

from cliff import columns

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster.commands import status
from sushy_kubevirt.cluster import deploy
from sushy_kubevirt.cluster import plan
from sushy_kubevirt.cluster import problems

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import model
    from sushy_kubevirt.kube import client

COLUMNS = 'Action', 'Kind', 'Name', 'Node', 'Reasons'


class Reasons(columns.FormattableColumn[abc.Sequence[str]]):
    """Reasons of a change: a list for programs, text for people."""

    def human_readable(self) -> str:
        """See `cliff.columns.FormattableColumn`."""
        return '; '.join(self._value)


_Row: typing.TypeAlias = tuple[str, str, str, str | None, Reasons]


class Plan(base.Lister):
    """Show what would be created, changed and deleted.

    Nothing is changed. Ironic and Nova are asked if the file has nodes for
    Ironic or flavors, or VMs would be deleted, and there is a cloud in
    clouds.yaml.
    """

    arguments = (*base.FILE, base.argument(
        '--without-openstack', action='store_true',
        help='do not ask Ironic and Nova'))
    openstack = base.OPENSTACK

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Read the file and the cluster."""
        cluster, client, namespace = self.open(parsed_args)
        planned = plan.make(client, cluster, namespace)
        # A network that does not exist is one of each of its nodes.
        for conflict in dict.fromkeys(map(str, planned.conflicts)):
            self.tell(conflict)
            self.exit_status = status.FAILED
            self.nothing = 'nothing else to do'
        return COLUMNS, [
            _row(change.action, change.resource.kind, change.name, change.node,
                 change.reasons) for change in planned.changes
        ] + self._openstack(parsed_args, client, cluster, planned)

    def _openstack(self, options: argparse.Namespace, client: client.Client,
                   cluster: model.Cluster, planned: plan.Plan) -> list[_Row]:
        """Return rows of Ironic's nodes and of flavors."""
        if options.without_openstack or not (
                cluster.flavors or planned.removed or planned.recreated or any(
                    node.ironic is not None for node in cluster.nodes)):
            return []
        from sushy_kubevirt.cluster import cloud
        connection = cloud.connect_if_configured(options.os_cloud)
        if connection is None:
            self.tell('Ironic and Nova are not asked: clouds.yaml has no '
                      'cloud, or several and none is chosen (--os-cloud)')
            return []
        with problems.service_errors('', '. For the changes in Kubernetes '
                                     'alone, give --without-openstack'):
            nodes, flavors = deploy.preview(
                client, deploy.Openstack(connection, api_server.owner(
                    client, planned.namespace, cluster.name)),
                cluster, planned)
        return [
            _row(node.action, 'Ironic node', node.name, node.name, (
                *node.changed, *(f'{name} not while it has an instance'
                                 for name in node.deferred),
                *filter(None, [node.error])))
            for node in nodes if node.action != 'unchanged' or node.deferred
        ] + [_row(flavor.action, 'Flavor', flavor.name, None, ())
             for flavor in flavors if flavor.action != 'unchanged']


def _row(action: str, kind: str, name: str, node: str | None,
         reasons: abc.Sequence[str]) -> _Row:
    return str(action), kind, name, node, Reasons(reasons)
