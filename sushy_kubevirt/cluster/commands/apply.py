# SPDX-License-Identifier: Apache-2.0
"""``apply``."""

from __future__ import annotations

import argparse
from collections import abc
import typing

from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster.commands import enrolling
from sushy_kubevirt.cluster.objects import catalog
from sushy_kubevirt.cluster import plan


class Apply(base.Lister):
    """Create, change and delete VMs, volumes, BMCs and networks, and wait.

    Nodes whose VM is deleted or recreated are taken out of Ironic before;
    "enrol" enrols recreated ones again. Nodes that match the file are not
    touched.
    """

    arguments = (*base.FILE, base.argument(
        '--output', choices=('yaml',),
        help='print the manifests, for tools such as Argo CD, and change '
             'nothing; the operator makes the passwords then'),
        *base.WAITS, *base.FORCE)
    openstack = base.OPENSTACK

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Make the difference."""
        cluster = base.read(parsed_args)
        if parsed_args.output:
            namespace = parsed_args.namespace or cluster.namespace
            if not namespace:
                _, namespace = self.connect(parsed_args)
            return (), catalog.manifests(cluster, namespace)
        client, namespace = self.connect(parsed_args, cluster.namespace)
        planned = plan.make(client, cluster, namespace)
        rows, self.exit_status = enrolling.rows(enrolling.write(
            client, planned, parsed_args, self.lines()))
        if not planned and not self.exit_status and (
                parsed_args.formatter == 'table'):
            rows = []
        return enrolling.COLUMNS, rows

    def produce_output(
            self, parsed_args: argparse.Namespace,
            column_names: abc.Sequence[str],
            data: abc.Iterable[typing.Any]) -> int:
        """Print manifests, which are not a table."""
        if not parsed_args.output:
            return super().produce_output(parsed_args, column_names, data)
        from sushy_kubevirt.kube import yaml_writer
        self.app.stdout.write(yaml_writer.dump(data))
        return 0
