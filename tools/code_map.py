# SPDX-License-Identifier: Apache-2.0
"""Generate the map of the code: packages, and where the main flows pass.

Prints doc/source/code_map.txt, which doc/source/internals.rst shows::

    python -m tools.code_map > doc/source/code_map.txt
"""

import graphlib
import importlib
import pathlib
import sys

from kubevirt_sandbox.testing import imports

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / 'doc/source/code_map.txt'

PACKAGES = 'sushy_kubevirt', 'vbmc_kubevirt'

#: Packages that the picture shows as one with their parent.
MERGED = ('sushy_kubevirt.cluster', 'sushy_kubevirt.operator',
          'sushy_kubevirt.redfish.services',
          'sushy_kubevirt.machine', 'vbmc_kubevirt')

#: The main flows: title, and what is passed: a function and what it does.
FLOWS = (
    ('A Redfish request: POST .../Actions/ComputerSystem.Reset', (
        ('sushy_kubevirt.pod.http_server:Server._call',
         'a thread of the pod answers it (in sushy-emulator: Flask)'),
        ('sushy_kubevirt.redfish.routes:_check',
         'account, role, headers, VM, body, If-Match'),
        ('sushy_kubevirt.redfish.resources.computer_system:reset',
         'the view: ResetType'),
        ('sushy_kubevirt.machine.reset:reset', 'which action is it?'),
        ('sushy_kubevirt.machine.power_on_off:on',
         'what is left to do for this VM and VMI?'),
        ('sushy_kubevirt.machine.machine:Machine.write',
         'again after a conflict'),
        ('sushy_kubevirt.kube.client:Client.action',
         'PUT .../virtualmachines/VM/start'),
        ('sushy_kubevirt.machine.vm_cache:VmCache.expect',
         'the next GET waits for its effect'),
    )),
    ('An IPMI packet: chassis power on', (
        ('vbmc_kubevirt.ipmi.server:Server.receive',
         'in the event loop; session20 verifies and decrypts'),
        ('vbmc_kubevirt.command_table:commands', 'what the BMC serves'),
        ('vbmc_kubevirt.commands.chassis:Chassis.chassis_control',
         'in a thread, as it changes the VM'),
        ('sushy_kubevirt.machine.reset:reset', 'as above'),
    )),
    ('A VirtualMachineBMC', (
        ('sushy_kubevirt.operator.store:Kind.watch',
         'the watch of a kind, to which controllers subscribe'),
        ('sushy_kubevirt.operator.controller:Controller._owned_changed',
         'which BMCs an object concerns'),
        ('sushy_kubevirt.operator.workqueue:Queue.add', 'one at a time'),
        ('sushy_kubevirt.operator.reconcile:Reconciler.reconcile',
         'a round: facts, verdict, plan, status'),
        ('sushy_kubevirt.operator.verdict:judge',
         'what follows from spec and facts'),
        ('sushy_kubevirt.operator.plan:steps',
         'from what there is to desired_state'),
        ('sushy_kubevirt.operator.executor:Executor.execute',
         'a step, by an API call'),
        ('sushy_kubevirt.operator.conditions:status', 'what users see'),
        ('vbmc_kubevirt.cmd.bmc:main', 'the process of the pod'),
    )),
    ('kubectl bmc power NAME on', (
        ('sushy_kubevirt.cmd.kubectl:main', 'the command line'),
        ('sushy_kubevirt.kubectl.session:Session.redfish',
         'the BMC of this name, or of the VM'),
        ('sushy_kubevirt.remote.endpoint:read',
         'address, account and CA from its objects'),
        ('sushy_kubevirt.remote.redfish:Client.request',
         'HTTPS over a connection of its own:'),
        ('sushy_kubevirt.remote.forward:connect',
         'a ready pod of its Service'),
        ('sushy_kubevirt.kube.portforward:connect',
         'pods/portforward, by a WebSocket'),
    )),
    ('A cluster file: sushy-kubevirt-cluster deploy FILE', (
        ('sushy_kubevirt.cluster.config:read', 'the file, with all problems'),
        ('sushy_kubevirt.cluster.plan:make', 'changes, with their reasons'),
        ('sushy_kubevirt.cluster.apply:run',
         'VMs and BMCs, until they are ready'),
        ('sushy_kubevirt.cluster.bmcs:of_cluster',
         'addresses and credentials'),
        ('sushy_kubevirt.cluster.deploy:enrol',
         "Ironic's nodes, to available"),
        ('sushy_kubevirt.cluster.nova.flavors:apply', "Nova's flavors"),
    )),
)


def _package(module, packages):
    parts = module.split('.')
    while '.'.join(parts) not in packages:
        parts.pop()
    name = '.'.join(parts)
    return next((merged for merged in MERGED
                 if imports.within(name, {merged})), name)


def package_imports():
    """Find which package imports which.

    :returns: dict of package to the set of packages that it imports
    """
    imported = imports.modules(ROOT, *PACKAGES)
    packages = {module for module in imported if (
        ROOT / module.replace('.', '/') / '__init__.py').exists()}
    found = {}
    for module, names in imports.graph(imported).items():
        package = _package(module, packages)
        found.setdefault(package, set()).update(
            _package(name, packages) for name in names)
    return {package: names - {package} for package, names in found.items()
            if package != 'sushy_kubevirt'}


def page():
    """Generate the map, plain text."""
    graph = package_imports()
    order = list(graphlib.TopologicalSorter(graph).static_order())
    short = {package: package.removeprefix('sushy_kubevirt.')
             for package in order}
    width = max(map(len, short.values())) + 2
    lines = ['Packages; each imports only what is below it', '']
    for package in reversed(order):
        below = [name for name in reversed(order) if name in graph[package]]
        lines.append('    ' + (short[package].ljust(width) + ' '.join(
            short[name] for name in below)).rstrip())
    for title, steps in FLOWS:
        lines += ['', title, '']
        for reference, what in steps:
            module, _colon, name = reference.partition(':')
            place = f'{module.removeprefix("sushy_kubevirt.")}: {name}'
            lines.append(f'    {place:58}{what}')
    return '\n'.join(lines) + '\n'


def resolve(reference):
    """Return the function of a step of a flow.

    :raises: ImportError, AttributeError if there is none
    """
    module, _colon, name = reference.partition(':')
    value = importlib.import_module(module)
    for part in name.split('.'):
        value = getattr(value, part)
    return value


if __name__ == '__main__':
    sys.stdout.write(page())
