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
_PARTS = {'Processors': (), 'Memory': (), 'Storage': ('Drives',),
          'EthernetInterfaces': ()}

#: A collection with its members, by one request (DSP0266, "Expand").
_EXPANDED = '?$expand=.($levels={})'

#: Name, state, health and what is wrong.
Row: typing.TypeAlias = 'tuple[str, str, str, str]'


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    sessions.add_name(parser)


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Print a table."""
    sessions.table(('NAME', 'STATE', 'HEALTH', 'PROBLEM'),
                   rows(session.redfish(options.name)))
    return 0


def rows(client: redfish.Client) -> abc.Iterator[Row]:
    """Read the state of a system and its parts.

    :raises: `endpoint.BmcUnavailable`; `errors.MachineError`
    """
    system = client.get()
    yield 'Power state', system['PowerState'], '', ''
    yield ('Boot progress', system.get('BootProgress', {}).get(
        'LastState') or 'Unknown', '', '')
    yield _row('System', system)
    for chassis in system['Links'].get('Chassis') or ():
        yield from _members('', client, client.get(chassis['@odata.id']),
                            'Sensors')
    for part, children in _PARTS.items():
        yield from _members(part, client, system, part, children)


def _members(kind: str, client: redfish.Client, parent: objects.Json,
             link: str, children: abc.Iterable[str] = ()
             ) -> abc.Iterator[Row]:
    if link not in parent:
        return
    for member in client.get(parent[link]['@odata.id'] + _EXPANDED.format(
            2 if children else 1))['Members']:
        yield _row(f"{kind} {member['Name']}".strip(), member)
        for child in children:
            for item in member.get(child) or ():
                yield _row(f"{child} {item['Name']}", item)


def _row(name: str, resource: objects.Json) -> Row:
    status = resource.get('Status') or {}
    return (name, status.get('State') or '', status.get('Health') or '',
            ' '.join(condition['Message'] for condition
                     in status.get('Conditions') or ()))
