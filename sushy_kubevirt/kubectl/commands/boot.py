# SPDX-License-Identifier: Apache-2.0
"""Show or change what a VM boots from.

A change applies to the next start: "kubectl bmc power NAME reset".
"""

from __future__ import annotations

import argparse

from sushy_kubevirt.kubectl import session as sessions
from sushy_kubevirt.machine import boot

EXAMPLES = """\
kubectl bmc boot node-0
kubectl bmc boot node-0 pxe
kubectl bmc boot node-0 http https://images.example.com/live.iso --mode uefi
kubectl bmc boot node-0 disk --always
kubectl bmc boot node-0 none
"""

NONE, HTTP = 'none', 'http'

#: Targets of the command line, and Redfish's.
TARGETS = {'pxe': boot.Target.PXE, 'disk': boot.Target.HDD,
           'cd': boot.Target.CD, 'usb': boot.Target.USB,
           HTTP: boot.Target.UEFI_HTTP, NONE: boot.Target.NONE}

_NAMES = {target.value: name for name, target in TARGETS.items()}

#: Words for how long an override lasts, and Redfish's.
_ENABLED = {'once': boot.Enabled.ONCE, 'always': boot.Enabled.CONTINUOUS}

_DURATIONS = {value.value: word for word, value in _ENABLED.items()}

_MODES = {'uefi': 'UEFI', 'legacy': 'Legacy'}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    sessions.add_name(parser)
    parser.add_argument(
        'target', metavar='TARGET', nargs='?', choices=TARGETS,
        help=', '.join(TARGETS) + ' (the order of the VM); without it, show '
             'the settings')
    parser.add_argument('url', metavar='URL', nargs='?',
                        help='image that "http" boots')
    duration = parser.add_mutually_exclusive_group()
    duration.add_argument('--once', dest='duration', action='store_const',
                          const='once', default='once',
                          help='for the next start only (the default)')
    duration.add_argument('--always', dest='duration', action='store_const',
                          const='always', help='for all starts')
    parser.add_argument('--mode', choices=_MODES,
                        help="the VM's firmware, from its next start on")


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Change what is asked for, and print the settings."""
    if (options.target == HTTP) != bool(options.url):
        raise sessions.UsageError('URL goes with "http", and only with it')
    client = session.redfish(options.name)
    change = {}
    if options.target == NONE:
        change['BootSourceOverrideEnabled'] = boot.Enabled.DISABLED.value
    elif options.target:
        change['BootSourceOverrideTarget'] = TARGETS[options.target].value
        change['BootSourceOverrideEnabled'] = _ENABLED[options.duration].value
    if options.url:
        change['HttpBootUri'] = options.url
    if options.mode:
        change['BootSourceOverrideMode'] = _MODES[options.mode]
    if change:
        client.patch({'Boot': change})
    settings = client.get()['Boot']
    sessions.show(', '.join(filter(None, (
        described(settings['BootSourceOverrideTarget'],
                  settings['BootSourceOverrideEnabled'],
                  settings.get('HttpBootUri') or ''),
        settings.get('BootSourceOverrideMode', '').lower()))))
    return 0


def described(target: str, enabled: str, url: str = '') -> str:
    """Describe an override.

    :param target: Redfish's ``BootSourceOverrideTarget``
    :param enabled: Redfish's ``BootSourceOverrideEnabled``
    :returns: such as ``pxe, once``
    """
    if enabled == boot.Enabled.DISABLED.value:
        return NONE
    name = _NAMES.get(target, target)
    if name == HTTP:
        name = f'{name} {url}'.strip()
    return f'{name}, {_DURATIONS[enabled]}'
