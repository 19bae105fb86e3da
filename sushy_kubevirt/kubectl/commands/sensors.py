# SPDX-License-Identifier: Apache-2.0
"""Show the state and the health of a VM and its parts.

They are what Redfish reports; KubeVirt has states, and no measurements.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.kubectl import session as sessions

if typing.TYPE_CHECKING:
    import argparse
    from collections import abc

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.remote import redfish

EXAMPLES = 'kubectl bmc sensors node-0'

#: Links of the ComputerSystem to collections, and those of their members.
_PARTS = {'Processors': '', 'Memory': '', 'Storage': 'Drives',
          'EthernetInterfaces': ''}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    sessions.add_name(parser)


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Print a table."""
    sessions.table(('NAME', 'STATE', 'HEALTH', 'PROBLEM'),
                   rows(session.redfish(options.name)))
    return 0


def rows(client: redfish.Client) -> abc.Iterator[tuple[str, ...]]:
    """Read the state of a system and its parts.

    :returns: for each: name, state, health and what is wrong
    :raises: `endpoint.BmcUnavailable`; `errors.MachineError`
    """
    system = client.get()
    yield 'Power state', system['PowerState'], '', ''
    yield ('Boot progress', system.get('BootProgress', {}).get(
        'LastState') or 'Unknown', '', '')
    # That of the chassis' sensor "Power" is the system's.
    for chassis in system['Links'].get('Chassis') or ():
        for sensor in _members(client, client.get(chassis['@odata.id']),
                               'Sensors'):
            yield _row('', sensor)
    for part, child in _PARTS.items():
        for member in _members(client, system, part):
            yield _row(part, member)
            for item in member.get(child) or ():
                yield _row(child, item)


def _members(client: redfish.Client, parent: objects.Json,
             link: str) -> list[objects.Json]:
    """Read a collection with its members (DSP0266 1.20, "Expand")."""
    if link not in parent:
        return []
    return client.get(parent[link]['@odata.id']
                      + '?$expand=.($levels=2)')['Members']


def _row(kind: str, resource: objects.Json) -> tuple[str, ...]:
    status = resource.get('Status') or {}
    return (f"{kind} {resource['Name']}".strip(), status.get('State') or '',
            status.get('Health') or '', ' '.join(
                condition['Message'] for condition
                in status.get('Conditions') or ()))
