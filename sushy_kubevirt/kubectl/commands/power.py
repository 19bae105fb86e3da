# SPDX-License-Identifier: Apache-2.0
"""Show or change the power state of a VM, as its BMC reports it.

Without --wait it is printed as it is just after the request: On, Off,
PoweringOn, PoweringOff or Paused. A reason why the VM does not work goes to
standard error.
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
kubectl bmc power node-0
kubectl bmc power node-0 on --wait
"""

STATUS = 'status'

#: Actions, Redfish's ``ResetType`` and the state that they lead to.
ACTIONS = {'on': ('On', 'On'), 'off': ('ForceOff', 'Off'),
           'cycle': ('PowerCycle', 'On'), 'reset': ('ForceRestart', 'On'),
           'shutdown': ('GracefulShutdown', 'Off')}

#: Those after which another guest runs.
_RESTARTS = 'cycle', 'reset'

#: Seconds between two requests while waiting.
_POLL_SECONDS = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    sessions.add_name(parser)
    parser.add_argument(
        'action', metavar='ACTION', nargs='?', default=STATUS,
        choices=(*ACTIONS, STATUS),
        help='on, off (as by pulling the plug), cycle or reset (off and on), '
             'shutdown (asks the guest), status (the default)')
    parser.add_argument('--wait', action='store_true',
                        help='wait until the state is reached')
    sessions.add_timeout(parser, 300)


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Request the action and print the power state."""
    client = session.redfish(options.name)
    system = client.get()
    if options.action != STATUS:
        reset_type, state = ACTIONS[options.action]
        before = system.get('LastResetTime')
        client.reset(reset_type)
        system = client.get()
        deadline = time.monotonic() + options.timeout
        while options.wait and (
                system['PowerState'] != state or options.action in _RESTARTS
                and system.get('LastResetTime') == before):
            problem = '\n'.join(_conditions(system))
            if time.monotonic() > deadline:
                raise client.error(
                    problem or f'it is {system["PowerState"]} after '
                    f'{options.timeout} s. A guest may ignore "shutdown", not '
                    '"off"')
            if system.get('Status', {}).get('Health') == 'Critical':
                raise client.error(problem)
            time.sleep(_POLL_SECONDS)
            system = client.get()
    sessions.show(system['PowerState'])
    for text in _conditions(system):
        sessions.show(text, sys.stderr)
    return 0


def _conditions(system: objects.Json) -> list[str]:
    return [condition['Message'] for condition
            in system.get('Status', {}).get('Conditions') or ()]
