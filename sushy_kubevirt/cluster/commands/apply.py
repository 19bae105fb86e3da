# SPDX-License-Identifier: Apache-2.0
"""``apply``."""

from __future__ import annotations

from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster.commands import enrolling
from sushy_kubevirt.cluster.commands import plan as plan_command
from sushy_kubevirt.cluster.objects import catalog
from sushy_kubevirt.cluster import plan


class Apply(base.Lister):
    """Create, change and delete VMs, volumes, BMCs and networks, and wait.

    Nodes whose VM is deleted or recreated are taken out of Ironic before;
    "enrol" enrols recreated ones again. Nodes that match the file are not
    touched.
    """

    nothing = plan_command.NOTHING

    def get_parser(self, prog_name):
        """See `cliff.command.Command`."""
        parser = super().get_parser(prog_name)
        base.add_file(parser)
        parser.add_argument(
            '--output', choices=('yaml',),
            help='print the manifests, for tools such as Argo CD, and change '
                 'nothing; the operator makes the passwords then')
        base.add_waits(parser)
        base.add_force(parser)
        base.add_cloud(parser)
        return parser

    def run(self, parsed_args):
        """See `cliff.command.Command`."""
        if parsed_args.output:
            # Is not a table.
            self.produce_output = self._print_manifests
        return super().run(parsed_args)

    def take_action(self, parsed_args):
        """Make the difference."""
        cluster = base.read(parsed_args)
        if parsed_args.output:
            namespace = parsed_args.namespace or cluster.namespace
            if not namespace:
                _, namespace = self.connect(parsed_args)
            return (), catalog.manifests(cluster, namespace)
        client, namespace = self.connect(parsed_args, cluster.namespace)
        made = plan.make(client, cluster, namespace)
        found, self.exit_status = enrolling.rows(enrolling.write(
            client, made, parsed_args, self.lines()))
        if not made and not self.exit_status and (
                parsed_args.formatter == 'table'):
            found = []
        return enrolling.COLUMNS, found

    def _print_manifests(self, parsed_args, column_names, data) -> None:
        import yaml
        yaml.safe_dump_all(data, self.app.stdout, sort_keys=False)
