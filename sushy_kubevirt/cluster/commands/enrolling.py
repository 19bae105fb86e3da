# SPDX-License-Identifier: Apache-2.0
"""Parts of several commands that change nodes."""

from __future__ import annotations

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster import apply
from sushy_kubevirt.cluster.commands import status
from sushy_kubevirt.cluster import deploy
from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster.ironic import provision
from sushy_kubevirt.cluster import problems

COLUMNS = 'Node', 'Result', 'Reason'


def openstack(options, owner, lines):
    """Connect to OpenStack.

    :param options: parsed arguments
    :param owner: the cluster, an `identity.owner`
    :returns: `deploy.Openstack`
    :raises: `problems.ServiceError`
    """
    from sushy_kubevirt.cluster import cloud
    return deploy.Openstack(
        cloud.connect(options.os_cloud), owner, options.force, lines,
        options.timeout, options.parallel or provision.PARALLEL)


def write(client, plan, options, lines):
    """Carry out a plan, and wait for the nodes.

    Nodes whose VMs are deleted or recreated leave Ironic first.

    :param client: a `client.Client`
    :param plan: a `plan.Plan`
    :param options: parsed arguments
    :param lines: `progress.Lines`
    :returns: `apply.Result`
    """
    remaining = {}
    if (plan.removed or plan.recreated) and not options.without_openstack:
        try:
            remaining = deploy.leave(openstack(
                options, api_server.owner(
                    client, plan.namespace, plan.cluster), lines), plan)
        except problems.ServiceError as error:
            raise problems.ServiceError(
                f'VMs are to be deleted, and it is unknown whether they have '
                f'an instance: {error}. If they are not enrolled, give '
                '--without-openstack', error.status) from error

    def before_removal(node):
        if node in remaining:
            raise problems.NodeFailed(
                f'still in Ironic: {remaining[node]}')

    return apply.run(
        client, plan, lines.progress,
        apply.Limits(ready=options.timeout, gone=options.timeout),
        before_removal, workers=options.parallel or api_server.WORKERS)


def rows(result):
    """Make the rows of an `apply.Result`.

    :returns: list of tuples, and exit status
    """
    made = ([(one, 'ready', '') for one in result.ready]
            + [(one, 'removed', '') for one in result.removed]
            + [(one, 'failed', reason)
               for one, reason in result.failed.items()])
    made.sort(key=lambda one: identity.order(one[0]))
    return made, status.FAILED if result.failed else status.DONE
