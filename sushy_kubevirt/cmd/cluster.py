# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-cluster``: clusters of virtual bare metal."""

from __future__ import annotations

import argparse
from collections import abc
from importlib import metadata
import sys
import typing

from cliff import app
from cliff import command
from cliff import commandmanager

from sushy_kubevirt.cluster.commands import apply
from sushy_kubevirt.cluster.commands import console
from sushy_kubevirt.cluster.commands import deploy
from sushy_kubevirt.cluster.commands import enrol
from sushy_kubevirt.cluster.commands import inventory
from sushy_kubevirt.cluster.commands import plan
from sushy_kubevirt.cluster.commands import power
from sushy_kubevirt.cluster.commands import show
from sushy_kubevirt.cluster.commands import switch
from sushy_kubevirt.cluster.commands import teardown

NAME = 'sushy-kubevirt-cluster'

COMMANDS: dict[str, type[command.Command]] = {
    'plan': plan.Plan, 'apply': apply.Apply, 'enrol': enrol.Enrol,
    'deploy': deploy.Deploy, 'show': show.Show,
    'inventory': inventory.Inventory, 'switch': switch.Switch,
    'console': console.Console, 'power': power.Power,
    'teardown': teardown.Teardown}


class Application(app.App):
    """The command line."""

    NAME = NAME

    def __init__(self) -> None:
        manager = commandmanager.CommandManager(None)
        for name, class_ in COMMANDS.items():
            manager.add_command(name, class_)
        super().__init__(
            'Declare virtual bare metal for OpenStack in a file, and make '
            'KubeVirt VMs with BMCs, Ironic nodes and Nova flavors of it.',
            metadata.version('sushy-kubevirt'), manager,
            # So that "plan --help" is not the help of all.
            deferred_help=True)

    def build_option_parser(
            self, description: str | None, version: str | None,
            argparse_kwargs: dict[str, typing.Any] | None = None,
    ) -> argparse.ArgumentParser:
        """See `cliff.app.App`."""
        parser = super().build_option_parser(
            description, version, argparse_kwargs)
        parser.prog = NAME
        return parser


def main(arguments: abc.Sequence[str] | None = None) -> int:
    """Run a command.

    :param arguments: without the program's name; None for
        those of the process
    :returns: exit status, see `status`
    """
    words = sys.argv[1:] if arguments is None else arguments
    # Without a command, cliff would open a shell.
    return Application().run(list(words) or ['--help'])


if __name__ == '__main__':
    sys.exit(main())
