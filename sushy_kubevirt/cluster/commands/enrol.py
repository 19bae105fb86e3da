# SPDX-License-Identifier: Apache-2.0
"""``enrol``."""

from __future__ import annotations

import argparse
from collections import abc
import typing

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster.commands import enrolling
from sushy_kubevirt.cluster.commands import status
from sushy_kubevirt.cluster import deploy

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster.ironic import provision
    from sushy_kubevirt.cluster import model
    from sushy_kubevirt.cluster import progress
    from sushy_kubevirt.kube import client


def run(client: client.Client, options: argparse.Namespace,
        cluster: model.Cluster, namespace: str, lines: progress.Lines,
        without: abc.Container[str | None] = ()
        ) -> tuple[list[enrolling.Row], int]:
    """Enrol the nodes of a cluster.

    :param without: names of nodes that are left as they are
    :returns: rows of nodes and flavors that were changed, or that failed; and
        exit status
    """
    results, flavors = deploy.enrol(client, enrolling.openstack(
        options, api_server.owner(client, namespace, cluster.name), lines),
        cluster, namespace, without)
    rows = [enrolling.Row(result.name, 'failed', result.error)
            if result.error else enrolling.Row(
                result.name, result.state or 'removed', _deferred(result))
            for result in results
            if result.error or result.deferred or result.action != 'unchanged']
    rows += [enrolling.Row(change.name, f'flavor: {change.action}', '')
             for change in flavors if change.action != 'unchanged']
    failed = any(result.error for result in results)
    return rows, status.FAILED if failed else status.DONE


def _deferred(result: provision.Result) -> str:
    if not result.deferred:
        return ''
    return 'not changed while it has an instance: ' + ', '.join(
        result.deferred)


class Enrol(base.Lister):
    """Enrol the nodes in Ironic, with ports and traits, and make flavors.

    Nodes that the file does not declare any more are removed.
    """

    arguments = (*base.FILE, *base.WAITS, base.argument(
        '--force', action='store_true',
        help='also remove nodes with an instance: they are undeployed, and '
             'what is on their disks is lost'))
    openstack = base.OPENSTACK

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Make the difference."""
        cluster, client, namespace = self.open(parsed_args)
        rows, self.exit_status = run(
            client, parsed_args, cluster, namespace, self.lines())
        return enrolling.COLUMNS, rows
