# SPDX-License-Identifier: Apache-2.0
"""``teardown``."""

from __future__ import annotations

import argparse
import sys
import typing

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster.commands import enrolling
from sushy_kubevirt.cluster import deploy
from sushy_kubevirt.cluster.ironic import teardown
from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster import plan
from sushy_kubevirt.cluster import problems

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster.nova import flavors as nova_flavors
    from sushy_kubevirt.cluster import progress
    from sushy_kubevirt.kube import objects


class Teardown(base.Lister):
    """Delete everything that a cluster has in Nova, Ironic and Kubernetes.

    Disks are deleted with their nodes.
    """

    arguments = (
        base.argument('cluster', metavar='FILE|NAME',
                      help='cluster file, which has to exist, or name of a '
                           'cluster'),
        base.argument('--name', metavar='NAME',
                      help='name of the cluster, instead of that of FILE'),
        base.argument('--yes', action='store_true', help='do not ask'),
        *base.WAITS, *base.FORCE)
    openstack = base.OPENSTACK

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Ask, and delete."""
        name, namespace = base.file_or_name(
            parsed_args.cluster, parsed_args.name, parsed_args.namespace)
        client, namespace = self.connect(parsed_args, namespace)
        lines = self.lines()
        planned = plan.make(
            client, model.Cluster(name, namespace), namespace)
        openstack: deploy.Openstack | None = None
        enrolled: list[objects.Json] = []
        flavors: list[nova_flavors.Change] = []
        remaining: dict[str, str] = {}
        if not parsed_args.without_openstack:
            openstack, enrolled = _enrolled(
                parsed_args, api_server.owner(client, namespace, name), lines,
                planned)
            teardown.check_unused(enrolled, parsed_args.force)
            flavors = deploy.compare_flavors(
                client, openstack, (), namespace)
        if not planned and not enrolled and not flavors:
            return enrolling.COLUMNS, []
        if not parsed_args.yes:
            self._confirm(f'{namespace}/{name}', planned, len(enrolled),
                          len(flavors))
        if openstack:
            from sushy_kubevirt.cluster.nova import flavors as nova
            remaining = {result.name: result.error
                         for result in deploy.remove(openstack, enrolled)
                         if result.error}
            nova.apply(openstack.connection, flavors)
        result = enrolling.carry_out(
            client, planned, remaining, parsed_args, lines)
        result.failed = {**remaining, **result.failed}
        rows, self.exit_status = enrolling.rows(result)
        return enrolling.COLUMNS, rows

    def _confirm(self, cluster: str, planned: plan.Plan, nodes: int,
                 flavors: int) -> None:
        vms = len(planned.removed)
        question = (f'Delete cluster {cluster}: {vms} VMs with their disks, '
                    f'{nodes} Ironic nodes, {flavors} flavors? [y/N] ')
        if not self.app.stdin.isatty():
            raise problems.NotConfirmed(
                'There is no terminal to ask for confirmation: give --yes')
        print(question, end='', file=sys.stderr, flush=True)
        if self.app.stdin.readline().strip().lower() not in ('y', 'yes'):
            raise problems.NotConfirmed('Nothing was deleted')


def _enrolled(options: argparse.Namespace, owner: str, lines: progress.Lines,
              plan: plan.Plan) -> tuple[deploy.Openstack, list[objects.Json]]:
    """Return where nodes are enrolled, and those of the cluster."""
    with problems.service_errors(
            'It is unknown whether nodes have an instance: ',
            '. If they are not enrolled, give --without-openstack'):
        openstack = enrolling.openstack(options, owner, lines)
        return openstack, deploy.owned(openstack, deploy.deleted_vms(plan))
