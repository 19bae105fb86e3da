# SPDX-License-Identifier: Apache-2.0
"""What commands share: the connection, BMCs by name, output."""

from __future__ import annotations

import json
import sys
import typing

if typing.TYPE_CHECKING:
    import argparse
    from collections import abc

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.remote import endpoint
    from sushy_kubevirt.remote import redfish as bmc_redfish

#: User-Agent and field manager.
FIELD_MANAGER = 'kubectl-bmc'


class UsageError(Exception):
    """Arguments contradict each other."""


class Session:
    """A cluster and a namespace, as the command line and kubeconfig name them.

    :param options: of the command line
    :ivar client: of the API server
    :ivar namespace: that of ``--namespace``, or of the context
    :raises: `errors.ConfigError`
    """

    def __init__(self, options: argparse.Namespace) -> None:
        from sushy_kubevirt.kube import client
        from sushy_kubevirt.kube import connection
        from sushy_kubevirt.machine import options as client_options
        words = vars(options)
        server = connection.Connection.from_options(
            words.get('kubeconfig'), words.get('context'))
        self.client = client.Client(server, client_options.Options(
            connect_timeout=10, request_timeout=30, write_deadline=60,
            page_size=500), FIELD_MANAGER)
        self.namespace = (words.get('namespace') or server.namespace
                          or 'default')

    def find(self, name: str) -> objects.VirtualMachineBMC:
        """Find a BMC.

        :param name: its name, or that of its VM
        :raises: `errors.MachineError`
        """
        from sushy_kubevirt.kube import errors
        from sushy_kubevirt.operator import bmc_resources
        from sushy_kubevirt.operator import spec
        try:
            return self.client.get(bmc_resources.BMC, self.namespace, name)
        except errors.ObjectNotFound:
            pass
        matches = [bmc for items, _ in self.client.pages(
            bmc_resources.BMC, self.namespace) for bmc in items
            if spec.read(bmc).vm == (self.namespace, name)]
        if not matches:
            raise errors.MachineError(
                f'There is no BMC {name}, and none of a VM {name}, in '
                f'namespace {self.namespace}. "kubectl bmc list -A" lists '
                f'BMCs, "kubectl bmc create {name}" creates one')
        if len(matches) > 1:
            names = ', '.join(bmc['metadata']['name'] for bmc in matches)
            raise errors.MachineError(
                f'VM {name} has the BMCs {names}; name one of them')
        return matches[0]

    def bmc(self, name: str) -> endpoint.Bmc:
        """Read addresses and credentials of a BMC.

        :param name: its name, or that of its VM
        :raises: `errors.MachineError`
        """
        from sushy_kubevirt.remote import endpoint
        live = self.find(name)
        bmc = endpoint.read(
            live, endpoint.finder(self.client, self.namespace))
        if problem := endpoint.not_ready(live):
            show(f'warning: BMC {bmc.name} is not ready: {problem}',
                 sys.stderr)
        return bmc

    def redfish(self, name: str) -> bmc_redfish.Client:
        """Return a client of a BMC, which connects through the API server.

        :param name: of the BMC, or of its VM
        :raises: `errors.MachineError`
        """
        from sushy_kubevirt.remote import redfish
        return redfish.Client(self.bmc(name), self.client)


def show(text: object, file: typing.TextIO | None = None) -> None:
    """Print text without characters that would control the terminal.

    :param file: None for stdout
    """
    from sushy_kubevirt.remote import wording
    print(wording.printable_lines(str(text)), file=file or sys.stdout)


def table(columns: abc.Sequence[str],
          rows: abc.Iterable[abc.Sequence[str]]) -> None:
    """Print rows below their columns, as kubectl does."""
    from sushy_kubevirt.remote import wording
    lines = [columns, *([wording.printable(cell or '<none>') for cell in row]
                        for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines)]
    for line in lines:
        print('   '.join(cell.ljust(width) for cell, width
                         in zip(line, widths)).rstrip())


def serialized(value: object, form: str) -> str:
    """Write a value as ``json`` or ``yaml``."""
    if form == 'json':
        return json.dumps(value, indent=4)
    from sushy_kubevirt.kube import yaml_writer
    return yaml_writer.dump([value]).rstrip('\n')


def add_name(parser: argparse.ArgumentParser) -> None:
    """Declare the argument of commands for a BMC."""
    parser.add_argument('name', metavar='NAME',
                        help='name of the BMC, or of its VM')


def add_timeout(parser: argparse.ArgumentParser, seconds: int) -> None:
    """Declare the option of commands that wait.

    :param seconds: the default
    """
    parser.add_argument('--timeout', metavar='SECONDS', type=int,
                        default=seconds, help='longest wait (default: '
                                              '%(default)s)')
