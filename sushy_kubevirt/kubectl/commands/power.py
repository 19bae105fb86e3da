# SPDX-License-Identifier: Apache-2.0
"""``kubectl bmc power``."""

from __future__ import annotations

import typing

from sushy_kubevirt.kubectl import session as sessions

if typing.TYPE_CHECKING:
    import argparse

STATUS = 'status'

#: Actions and Redfish's ``ResetType``.
ACTIONS = {'on': 'On', 'off': 'ForceOff', 'cycle': 'PowerCycle',
           'reset': 'ForceRestart', 'shutdown': 'GracefulShutdown'}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument('name', metavar='NAME', help='BMC or VM')
    parser.add_argument(
        'action', metavar='ACTION', nargs='?', default=STATUS,
        choices=(*ACTIONS, STATUS),
        help=f"{', '.join(ACTIONS)} or {STATUS} (default: %(default)s)")


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Request the action and print the power state."""
    client = session.redfish(options.name)
    if options.action != STATUS:
        client.reset(ACTIONS[options.action])
    sessions.show(client.power_state())
    return 0
