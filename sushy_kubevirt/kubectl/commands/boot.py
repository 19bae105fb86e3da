# SPDX-License-Identifier: Apache-2.0
"""Show or change what a VM boots from.

A change applies to the next start: "kubectl bmc power NAME reset".
"""

from __future__ import annotations

import argparse

from sushy_kubevirt.kubectl import session as sessions

EXAMPLES = """\
kubectl bmc boot node-0
kubectl bmc boot node-0 pxe
kubectl bmc boot node-0 http https://images.example.com/live.iso --mode uefi
kubectl bmc boot node-0 disk --always
kubectl bmc boot node-0 none
"""

NONE, HTTP = 'none', 'http'

#: Words of the command line, and Redfish's BootSourceOverrideTarget,
#: BootSourceOverrideEnabled and BootSourceOverrideMode.
TARGETS = {'pxe': 'Pxe', 'disk': 'Hdd', 'cd': 'Cd', 'usb': 'Usb',
           HTTP: 'UefiHttp', NONE: 'None'}
DURATIONS = {'once': 'Once', 'always': 'Continuous', NONE: 'Disabled'}
MODES = {'uefi': 'UEFI', 'legacy': 'Legacy'}


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
    for word, text in (('once', 'for the next start only (the default)'),
                       ('always', 'for all starts')):
        duration.add_argument(
            f'--{word}', dest='duration', action='store_const', const=word,
            default='once', help=text)
    parser.add_argument('--mode', choices=MODES,
                        help="the VM's firmware, from its next start on")


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Change what is asked for, and print the settings."""
    if (options.target == HTTP) != bool(options.url):
        raise sessions.UsageError('URL goes with "http", and only with it')
    client = session.redfish(options.name)
    change = {}
    if options.target:
        change['BootSourceOverrideEnabled'] = DURATIONS[
            NONE if options.target == NONE else options.duration]
    if options.target not in (None, NONE):
        change['BootSourceOverrideTarget'] = TARGETS[options.target]
    if options.url:
        change['HttpBootUri'] = options.url
    if options.mode:
        change['BootSourceOverrideMode'] = MODES[options.mode]
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
    if enabled == DURATIONS[NONE]:
        return NONE
    words = {value: word for words in (TARGETS, DURATIONS)
             for word, value in words.items()}
    return (words.get(target, target) + (f' {url}' if url else '')
            + f', {words.get(enabled, enabled)}')
