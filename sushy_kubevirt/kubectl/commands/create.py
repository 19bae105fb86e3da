# SPDX-License-Identifier: Apache-2.0
"""Create or change the BMC of a VM, and wait until it is ready.

The operator makes its account: "kubectl bmc credentials NAME" shows it. Of a
BMC that exists, only what options name is changed.
Ctrl-C ends the wait; the BMC stays.
"""

from __future__ import annotations

import argparse
import sys
import time
import typing

from sushy_kubevirt.kubectl import session as sessions

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

EXAMPLES = """\
kubectl bmc create node-0
kubectl bmc create node-0 --shared
kubectl bmc create node-0 --dry-run=client -o yaml
"""

#: Seconds between two requests while waiting.
_POLL_SECONDS = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument('vm', metavar='VM', help='name of the VM')
    parser.add_argument('--name', metavar='NAME', dest='bmc',
                        help="name of the BMC (default: the VM's)")
    parser.add_argument('--secret', metavar='NAME',
                        help='Secret with username and password; without it, '
                             'the operator makes one')
    parser.add_argument('--shared', action='store_true',
                        help='in a pod with other BMCs of the namespace')
    parser.add_argument('--host', action=argparse.BooleanOptionalAction,
                        help='whether Metal3 gets a BareMetalHost of it, if '
                             'the operator creates these')
    parser.add_argument('--dry-run', choices=('none', 'client'),
                        default='none', help='client: only print the object')
    parser.add_argument('-o', '--output', choices=('yaml', 'json'),
                        help='print the object')
    sessions.add_timeout(parser, 120)


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Apply the object, and wait."""
    from sushy_kubevirt.kube import errors
    from sushy_kubevirt.operator import bmc_resources
    body = manifest(session.namespace, options)
    name = body['metadata']['name']
    if options.dry_run == 'client':
        sessions.show(sessions.serialized(body, options.output or 'yaml'))
        return 0
    target = bmc_resources.BMC, session.namespace
    try:
        live, change = session.client.create(*target, body), 'created'
    except errors.Conflict:
        before = session.client.get(*target, name)
        live = session.client.patch(*target, name, {
            'spec': _spelled_as(before, body['spec'])})
        change = ('configured' if live['metadata']['generation']
                  != before['metadata']['generation'] else 'unchanged')
    if options.output:
        sessions.show(sessions.serialized(live, options.output))
    else:
        sessions.show(f'virtualmachinebmc.bmc.kubevirt.io/{name} {change}')
    _wait(session, name, options.timeout)
    return 0


def manifest(namespace: str, options: argparse.Namespace) -> objects.Json:
    """Make the VirtualMachineBMC."""
    from sushy_kubevirt.operator import naming
    spec: objects.Json = {'virtualMachine': {'name': options.vm}}
    if options.secret:
        spec['authSecret'] = {'name': options.secret}
    if options.shared:
        spec['placement'] = 'Shared'
    if options.host is not None:
        spec['bareMetalHost'] = {'enabled': options.host}
    return {'apiVersion': naming.API_VERSION, 'kind': naming.KIND,
            'metadata': {'name': options.bmc or options.vm,
                         'namespace': namespace}, 'spec': spec}


def _spelled_as(bmc: objects.VirtualMachineBMC, spec: objects.Json
                ) -> objects.Json:
    """Return a spec with KubeVirtBMC's names of fields if a BMC has these."""
    suffix = 'Ref' if (bmc.get('spec') or {}).get('virtualMachineRef') else ''
    return {name + suffix if name in ('virtualMachine', 'authSecret')
            else name: value for name, value in spec.items()}


def _wait(session: sessions.Session, name: str, seconds: int) -> None:
    """Wait until a BMC is ready, and print what it waits for.

    :raises: `errors.MachineError`
    """
    from sushy_kubevirt.kube import errors
    from sushy_kubevirt.operator import bmc_resources
    from sushy_kubevirt.remote import endpoint
    deadline, told = time.monotonic() + seconds, ''
    while problem := endpoint.not_ready(session.client.get(
            bmc_resources.BMC, session.namespace, name)):
        if problem != told:
            told = problem
            sessions.show(problem, sys.stderr)
        if time.monotonic() > deadline:
            raise errors.MachineError(
                f'BMC {name} is not ready after {seconds} s: {problem}')
        time.sleep(_POLL_SECONDS)
    sessions.show(f'BMC {name} is ready')
