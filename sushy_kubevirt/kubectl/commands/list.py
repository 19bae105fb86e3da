# SPDX-License-Identifier: Apache-2.0
"""List BMCs with the state of their VMs, from the objects of the cluster.

BOOT is the override of the next start, MEDIUM the image in the virtual media
devices. HEALTH is OK, or the reason why the VM or its BMC does not work.
"""

from __future__ import annotations

import argparse
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kubectl.commands import boot as boot_command
from sushy_kubevirt.kubectl import session as sessions
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine.media import device_status
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import vm_state
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import spec
from sushy_kubevirt.remote import endpoint

EXAMPLES = """\
kubectl bmc list
kubectl bmc list -A -o wide
"""

#: Keys of a row, in the order of the columns; the last with ``-o wide`` only.
COLUMNS = ('namespace', 'name', 'vm', 'power', 'boot', 'medium', 'address',
           'health', 'reason')

#: By namespace and name of a VM.
_Objects: typing.TypeAlias = dict[tuple[str, str], typing.Any]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument('-A', '--all-namespaces', action='store_true',
                        help='BMCs of all namespaces')
    parser.add_argument('-o', '--output', choices=('wide', 'json', 'yaml'),
                        help='wide also has the text of a reason')


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Print a table, JSON or YAML."""
    namespace = None if options.all_namespaces else session.namespace
    resources: tuple[api_resources.AnyResource, ...] = (
        bmc_resources.BMC, api_resources.VM, api_resources.VMI)
    bmcs, vms, vmis = (
        {(obj['metadata']['namespace'], obj['metadata']['name']): obj
         for items, _ in session.client.pages(resource, namespace)
         for obj in items} for resource in resources)
    rows = [row(bmc, vms, vmis) for _, bmc in sorted(bmcs.items())]
    if options.output in ('json', 'yaml'):
        sessions.show(sessions.serialized(rows, options.output))
    elif not rows:
        sessions.show(f'No BMC in {namespace or "any namespace"}.')
    else:
        columns = COLUMNS[not options.all_namespaces:
                          None if options.output == 'wide' else -1]
        sessions.table([column.upper() for column in columns], [
            [row[column] for column in columns] for row in rows])
    return 0


def row(bmc: objects.VirtualMachineBMC, vms: _Objects, vmis: _Objects
        ) -> dict[str, str]:
    """Describe a BMC and its VM.

    :returns: text by `COLUMNS`; '' for what there is not
    """
    key = spec.read(bmc).vm
    vm, status = vms.get(key), bmc.get('status') or {}
    values = dict.fromkeys(COLUMNS, '')
    values.update(
        namespace=bmc['metadata']['namespace'], name=bmc['metadata']['name'],
        vm=key.name if key.namespace == bmc['metadata']['namespace']
        else str(key), address=endpoint.address(
            status.get('endpoints') or {}), health='OK')
    problem = None
    if vm is not None:
        state = vm_state.VmState(vm, vmis.get(key))
        settings = boot.settings(state)
        values.update(
            power=power_state.of(state).value,
            boot=boot_command.described(
                settings.target.value, settings.enabled.value,
                settings.http_uri))
        entries = media_annotation.read(vm).media
        media = {device.id: medium for device in model.ALL_DEVICES
                 if (medium := device_status.medium(
                     device, entries.get(device.id), state, None))}
        values['medium'] = ', '.join(
            medium.image_name + ('' if medium.state is model.State.READY else
                                 f' ({medium.state.value})')
            for medium in media.values())
        problem = (device_status.problem(media, state)
                   or power_state.problem(state)
                   or power_state.impairment(state.vmi)
                   or power_state.reconcile_error(vm))
    if not_ready := endpoint.not_ready(bmc):
        reason, colon, text = not_ready.partition(': ')
        values.update(health=reason if colon else 'NotReady',
                      reason=text or reason)
    elif problem:
        values.update(health=problem.reason, reason=problem.message)
    return values
