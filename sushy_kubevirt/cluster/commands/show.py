# SPDX-License-Identifier: Apache-2.0
"""``show``."""

from __future__ import annotations

import argparse
import dataclasses
import typing

from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster.commands import status
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cluster import show

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

COLUMNS = ('Cluster', 'Node', 'VM', 'BMC', 'Ironic', 'Server',
           'Kubernetes node', 'Problem')


class Show(base.Lister):
    """Show the state of nodes: VM, BMC, Ironic, Nova server, Kubernetes node.

    Ironic is asked if there is a cloud in clouds.yaml.
    """

    arguments = (base.argument(
        'cluster', metavar='FILE|NAME', nargs='?',
        help='cluster file, which has to exist, or name of a cluster; '
             'without it, all of the namespace'),)
    openstack = base.OPENSTACK

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Read everything."""
        name, namespace = None, None
        if parsed_args.cluster:
            name, namespace = base.file_or_name(
                parsed_args.cluster, namespace=parsed_args.namespace)
        client, namespace = self.connect(parsed_args, namespace)
        whose = f' of the cluster {name}' if name else ''
        self.nothing = (f'no nodes{whose} in the namespace {namespace}; '
                        '--namespace chooses another')
        return COLUMNS, map(dataclasses.astuple, show.rows(
            client, namespace, name, self._enrolled(parsed_args)))

    def _enrolled(self,
                  options: argparse.Namespace) -> list[objects.Json] | None:
        """Return nodes of Ironic; None if they are not known."""
        from sushy_kubevirt.cluster import cloud
        from sushy_kubevirt.cluster.ironic import client
        connection = cloud.connect_if_configured(options.os_cloud)
        if connection is None:
            return None
        try:
            return client.Client(connection).list('nodes', nodes.FIELDS)
        except problems.ServiceError as error:
            self.tell(error)
            self.exit_status = status.FAILED
            return None
