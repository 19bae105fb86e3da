# SPDX-License-Identifier: Apache-2.0
"""``deploy``."""

from __future__ import annotations

import argparse

from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster.commands import enrol
from sushy_kubevirt.cluster.commands import enrolling
from sushy_kubevirt.cluster.commands import status
from sushy_kubevirt.cluster import plan


class Deploy(base.Lister):
    """Apply and enrol, and wait until the nodes are available."""

    arguments = (*base.FILE, *base.WAITS, *base.FORCE)
    openstack = base.OPENSTACK

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Make the difference."""
        # Imports openstacksdk.
        from sushy_kubevirt.cluster import cloud
        cluster, client, namespace = self.open(parsed_args)
        lines = self.lines()
        # A cloud that is not configured is reported before the VMs are made.
        cloud.connect(parsed_args.os_cloud)
        planned = plan.make(client, cluster, namespace)
        written, first = enrolling.rows(enrolling.write(
            client, planned, parsed_args, lines))
        failed = [row for row in written if row.result == 'failed']
        # Ironic would offer a node that lacks, say, a disk.
        without = {row.name for row in failed}
        enrolled, second = enrol.run(
            client, parsed_args, cluster, namespace, lines, without)
        self.exit_status = max(first, second, status.DONE)
        # What was enrolled was ready before.
        seen = {row.name for row in enrolled} | without
        return enrolling.COLUMNS, [
            row for row in written if row.name not in seen and planned
        ] + failed + [row for row in enrolled if row.name not in without]
