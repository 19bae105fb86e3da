# SPDX-License-Identifier: Apache-2.0
"""What commands share: the connection, BMCs by name, output."""

from __future__ import annotations

import functools
import sys
import typing

if typing.TYPE_CHECKING:
    import argparse

    from sushy_kubevirt.kube import client as kube_client
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.remote import endpoint
    from sushy_kubevirt.remote import redfish as bmc_redfish

#: User-Agent and field manager.
FIELD_MANAGER = 'kubectl-bmc'


class Session:
    """A cluster and a namespace, as the command line and kubeconfig name them.

    :param options: of the command line
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    @functools.cached_property
    def _connected(self) -> tuple[kube_client.Client, str]:
        from sushy_kubevirt.kube import client
        from sushy_kubevirt.kube import connection
        from sushy_kubevirt.machine import options
        server = connection.Connection.from_options(
            self.options.kubeconfig, self.options.context)
        return (client.Client(server, options.Options(
            connect_timeout=10, request_timeout=30, write_deadline=60,
            page_size=500), FIELD_MANAGER), server.namespace or 'default')

    @property
    def client(self) -> kube_client.Client:
        """Client of the API server."""
        return self._connected[0]

    @property
    def namespace(self) -> str:
        """Namespace of ``--namespace``, or of the context."""
        return self.options.namespace or self._connected[1]

    def find(self, name: str) -> objects.VirtualMachineBMC:
        """Find a BMC.

        :param name: its name, or that of its VM
        :raises: `errors.MachineError`
        """
        from sushy_kubevirt.kube import errors
        from sushy_kubevirt.operator import bmc_resources
        try:
            return self.client.get(bmc_resources.BMC, self.namespace, name)
        except errors.ObjectNotFound:
            pass
        matches = [bmc for items, _ in self.client.pages(
            bmc_resources.BMC, self.namespace) for bmc in items
            if vm_of(bmc) == (self.namespace, name)]
        if not matches:
            raise errors.MachineError(
                f'There is no BMC {name}, and none of a VM {name}, in '
                f'namespace {self.namespace}. "kubectl bmc list -A" lists '
                f'BMCs, "kubectl bmc create {name}" creates one')
        if len(matches) > 1:
            raise errors.MachineError(
                f'VM {name} has the BMCs ' + ', '.join(
                    bmc['metadata']['name'] for bmc in matches)
                + '; name one of them')
        return matches[0]

    def bmc(self, name: str) -> endpoint.Bmc:
        """Read addresses and credentials of a BMC.

        :param name: its name, or that of its VM
        :raises: `errors.MachineError`
        """
        from sushy_kubevirt.remote import endpoint
        return endpoint.read(
            self.find(name), endpoint.finder(self.client, self.namespace))

    def redfish(self, name: str) -> bmc_redfish.Client:
        """Return a client of a BMC, which connects through the API server.

        :param name: of the BMC, or of its VM
        :raises: `errors.MachineError`
        """
        from sushy_kubevirt.remote import redfish
        return redfish.Client(self.bmc(name), self.client)


def vm_of(bmc: objects.VirtualMachineBMC) -> tuple[str, str]:
    """Return namespace and name of a BMC's VM."""
    spec = bmc.get('spec') or {}
    vm = spec.get('virtualMachine') or spec.get('virtualMachineRef') or {}
    return (vm.get('namespace') or bmc['metadata']['namespace'],
            vm.get('name', ''))


def show(text: object, file: typing.TextIO | None = None) -> None:
    """Print text without characters that would control the terminal.

    :param file: None for stdout
    """
    from sushy_kubevirt.remote import wording
    print(wording.printable_lines(str(text)), file=file or sys.stdout)
