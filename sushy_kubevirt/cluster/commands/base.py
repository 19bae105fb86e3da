# SPDX-License-Identifier: Apache-2.0
"""What commands share: options, connections, exit statuses."""

from __future__ import annotations

import argparse
from collections import abc
import functools
import operator
import os
import sys
import typing

from cliff import command
from cliff import lister

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster.commands import status
from sushy_kubevirt.cluster import config
from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster.ironic import provision
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cluster import progress
from sushy_kubevirt.kube import errors
from sushy_kubevirt.remote import wording

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import model
    from sushy_kubevirt.kube import client


NOTHING = 'nothing to do'

#: Names of columns, and rows.
Table: typing.TypeAlias = tuple[abc.Sequence[str], abc.Iterable[typing.Any]]


def positive(text: str) -> int:
    """Type of an option: a positive whole number."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError('has to be at least 1')
    return number


#: Argument of a command: parameters of `ArgumentParser.add_argument`.
argument = functools.partial(operator.methodcaller, 'add_argument')

_KUBERNETES = (
    argument('--kubeconfig', metavar='PATH',
             help='kubeconfig; without it, KUBECONFIG or ~/.kube/config'),
    argument('--context', metavar='NAME',
             help='context of the kubeconfig; without it, the current one'),
    argument('--namespace', metavar='NAME',
             help='namespace of VMs and BMCs; without it, that of the cluster '
                  'file, or of the context'))

#: Of commands that use OpenStack.
OPENSTACK = (
    argument('--os-cloud', metavar='NAME',
             help='cloud in clouds.yaml; without it, OS_CLOUD, or the only '
                  'one'),)

#: Of commands that `read` a cluster file.
FILE = (
    argument('file', metavar='FILE', help='cluster file'),
    argument('--name', metavar='NAME',
             help='name of the cluster; without it, that in the file, or the '
                  "file's name"))

#: Of commands that wait for nodes.
WAITS = (
    argument('--parallel', metavar='NUMBER', type=positive,
             help='nodes that are worked on at the same time (default: '
                  f'{api_server.WORKERS} in Kubernetes, '
                  f'{provision.PARALLEL} in Ironic)'),
    argument('--timeout', metavar='SECONDS', type=positive, default=1800,
             help='longest wait for each step of Kubernetes or Ironic '
                  '(default: %(default)s)'))

#: Of commands that delete VMs.
FORCE = (
    argument('--force', action='store_true',
             help='also nodes with an instance: they are undeployed, and what '
                  'is on their disks is lost'),
    argument('--without-openstack', action='store_true',
             help='the nodes are not enrolled: delete VMs without asking '
                  'Ironic whether they have an instance'))


class Command(command.Command):
    """A command: its options, and its errors as exit statuses."""

    #: Its arguments, besides those that choose a cluster and a cloud.
    arguments: tuple[operator.methodcaller, ...] = ()

    #: `OPENSTACK`, or nothing.
    openstack: tuple[operator.methodcaller, ...] = ()

    #: Status of a run without an exception; changed by `take_action`.
    exit_status = status.DONE

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """See `cliff.command.Command`."""
        parser = super().get_parser(prog_name)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = status.HELP
        for add in self.arguments:
            add(parser)
        for title, arguments in (('Kubernetes', _KUBERNETES),
                                 ('OpenStack', self.openstack)):
            group = parser.add_argument_group(title)
            for add in arguments:
                add(group)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run, and say in one line each what is wrong.

        :returns: see `status`
        """
        try:
            return super().run(parsed_args) or self.exit_status
        except problems.InvalidFile as error:
            for problem in error.problems:
                print(problem, file=sys.stderr)
            return status.INVALID
        except (problems.NodesInUse, problems.NotConfirmed) as error:
            self.tell(error)
            return status.REFUSED
        except ModuleNotFoundError as error:
            # Commands import what they need when they run.
            print(f'The Python package of {error.name} is not installed: '
                  'pip install "sushy-kubevirt[cluster]"', file=sys.stderr)
            return status.FAILED
        except (problems.ClusterError, errors.MachineError,
                TimeoutError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            self.tell(error)
            return status.FAILED

    @staticmethod
    def tell(text: object) -> None:
        """Write an error, or a part of one, to stderr.

        Services may quote what others have written into their objects:
        control characters must not reach the terminal.
        """
        print(wording.printable_lines(str(text)), file=sys.stderr)

    def connect(self, options: argparse.Namespace,
                namespace: str | None = None) -> tuple[client.Client, str]:
        """Connect to Kubernetes.

        :param namespace: that of the cluster file
        :returns: the client, and the namespace of the objects
        :raises: `problems.InvalidFile`; `errors.MachineError`
        """
        if options.namespace and not identity.is_name(options.namespace):
            raise problems.InvalidFile([problems.Problem(
                '', f'"{options.namespace}" cannot name a namespace')])
        client, default = api_server.connect(
            options.kubeconfig, options.context)
        return client, options.namespace or namespace or default

    def open(self, options: argparse.Namespace
             ) -> tuple[model.Cluster, client.Client, str]:
        """Read the cluster file, and connect to Kubernetes.

        :returns: the cluster, the client and the namespace
        :raises: see `read` and `connect`
        """
        cluster = read(options)
        return cluster, *self.connect(options, cluster.namespace)

    def lines(self) -> progress.Lines:
        """Return lines on stderr; silent with ``--quiet``."""
        quiet = self.app_args is not None and (
            self.app_args.verbose_level == 0)
        return progress.Lines(None if quiet else sys.stderr)


class Lister(Command, lister.Lister):
    """A command with a table, JSON or YAML."""

    #: Rows have an order already.
    need_sort_by_cliff = False

    #: What is printed instead of an empty table.
    nothing = NOTHING

    def produce_output(
            self, parsed_args: argparse.Namespace,
            column_names: abc.Sequence[str],
            data: abc.Iterable[abc.Sequence[typing.Any]]) -> int:
        """See `cliff.display.DisplayCommandBase`."""
        table = parsed_args.formatter == 'table'
        # Tables leave out what there is not; JSON has null.
        data = [tuple(wording.printable_lines(value) if isinstance(value, str)
                      else '' if value is None and table
                      else value for value in row) for row in data]
        if not data and table:
            self.app.stdout.write(self.nothing + '\n')
            return 0
        return super().produce_output(parsed_args, column_names, data)


def read(options: argparse.Namespace) -> model.Cluster:
    """Read the cluster file, and tell its warnings.

    :raises: `problems.InvalidFile`
    """
    cluster = config.read(options.file, options.name, options.namespace)
    for warning in cluster.warnings:
        print(f'warning: {warning}', file=sys.stderr)
    return cluster


def file_or_name(text: str, name: str | None = None,
                 namespace: str | None = None) -> tuple[str, str | None]:
    """Find the cluster that an argument means.

    :param text: path of a cluster file that exists, or name of a cluster
    :param name: of the cluster, instead of that of the file
    :param namespace: likewise
    :returns: name of the cluster, and its namespace if the file has one
    :raises: `problems.InvalidFile`
    """
    if os.path.isfile(text):
        declared = config.read(text, name, namespace)
        return declared.name, declared.namespace
    if not identity.is_name(text, identity.MAX_CLUSTER_LENGTH):
        raise problems.InvalidFile([problems.Problem(
            '', f'{text} is neither a file nor the name of a cluster')])
    return text, None
