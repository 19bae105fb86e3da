# SPDX-License-Identifier: Apache-2.0
"""Parts of several commands that change nodes."""

from __future__ import annotations

import argparse
from collections import abc
import typing

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster import apply
from sushy_kubevirt.cluster.commands import status
from sushy_kubevirt.cluster import deploy
from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster.ironic import provision
from sushy_kubevirt.cluster import problems

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import plan
    from sushy_kubevirt.cluster import progress
    from sushy_kubevirt.kube import client

COLUMNS = 'Node', 'Result', 'Reason'


class Row(typing.NamedTuple):
    """A row with what was done with a node or a flavor."""

    name: str
    result: str
    reason: str


def openstack(options: argparse.Namespace, owner: str,
              lines: progress.Lines) -> deploy.Openstack:
    """Connect to OpenStack.

    :param owner: the cluster, an `identity.owner`
    :raises: `problems.ServiceError`
    """
    from sushy_kubevirt.cluster import cloud
    return deploy.Openstack(
        cloud.connect(options.os_cloud), owner, options.force, lines,
        options.timeout, options.parallel or provision.PARALLEL)


def write(client: client.Client, plan: plan.Plan, options: argparse.Namespace,
          lines: progress.Lines) -> apply.Result:
    """Carry out a plan, and wait for the nodes.

    Nodes whose VMs are deleted or recreated leave Ironic first.
    """
    remaining: dict[str, str] = {}
    if (plan.removed or plan.recreated) and not options.without_openstack:
        with problems.service_errors(
                'VMs are to be deleted, and it is unknown whether they have '
                'an instance: ',
                '. If they are not enrolled, give --without-openstack'):
            remaining = deploy.leave(openstack(
                options, api_server.owner(
                    client, plan.namespace, plan.cluster), lines), plan)

    return carry_out(client, plan, remaining, options, lines)


def carry_out(client: client.Client, plan: plan.Plan,
              remaining: abc.Mapping[str, str], options: argparse.Namespace,
              lines: progress.Lines) -> apply.Result:
    """Carry out a plan, and wait for the nodes.

    :param remaining: why nodes are still in Ironic, so that their VMs must
        not be deleted
    """
    return apply.run(
        client, plan, lines,
        apply.Limits(ready=options.timeout, gone=options.timeout),
        {node: f'still in Ironic: {reason}'
         for node, reason in remaining.items()},
        options.parallel or api_server.WORKERS)


def rows(result: apply.Result) -> tuple[list[Row], int]:
    """Make rows of what a run has achieved.

    :returns: rows, and exit status
    """
    achieved = ([Row(node, 'ready', '') for node in result.ready]
                + [Row(node, 'removed', '') for node in result.removed]
                + [Row(name, 'failed', reason)
                   for name, reason in result.failed.items()])
    achieved.sort(key=lambda row: identity.order(row.name))
    return achieved, status.FAILED if result.failed else status.DONE
