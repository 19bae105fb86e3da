# SPDX-License-Identifier: Apache-2.0
"""Show the event log of a BMC, the oldest entry first."""

from __future__ import annotations

import sys
import time
import typing

from sushy_kubevirt.kubectl import session as sessions

if typing.TYPE_CHECKING:
    import argparse

    from sushy_kubevirt.remote import redfish as bmc_redfish

EXAMPLES = """\
kubectl bmc log node-0 --follow
kubectl bmc log node-0 --clear
"""

_LOG = 'LogServices/Events'

#: Seconds between requests. The BMC reads Kubernetes' Events, of which its
#: event stream has only those that it causes, as often.
_POLL_SECONDS = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    sessions.add_name(parser)
    parser.add_argument('-f', '--follow', action='store_true',
                        help='wait for further entries')
    parser.add_argument('--clear', action='store_true',
                        help='hide the present entries, for Redfish and IPMI')


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Print or clear the entries."""
    from sushy_kubevirt.kube import errors
    from sushy_kubevirt.remote import redfish
    client = session.redfish(options.name)
    log = f'{redfish.SYSTEM}/{_LOG}'
    if options.clear:
        client.post(f'{log}/Actions/LogService.ClearLog')
        if not options.follow:
            return 0
    shown: set[str] = set()
    _show(client, log, shown)
    said = ''
    while options.follow:
        time.sleep(_POLL_SECONDS)
        try:
            _show(client, log, shown)
            said = ''
        except errors.MachineError as error:
            if said != (said := str(error)):
                sessions.show(f'{said}. Trying again', sys.stderr)
    return 0


def _show(client: bmc_redfish.Client, log: str, shown: set[str]) -> None:
    entries = client.get(f'{log}/Entries')['Members']
    for entry in entries:
        # Kubernetes counts a repeated Event: the same entry, later.
        key = entry['Id'] + entry['Created']
        if key not in shown:
            shown.add(key)
            created = entry['Created'][:len('2000-01-01T00:00:00')]
            text = ' '.join(entry['Message'].split('\n'))
            sessions.show(f"{created}Z  {entry['Severity']:8}  {text}")
    sys.stdout.flush()
