# SPDX-License-Identifier: Apache-2.0
"""Configuration of networking-generic-switch for the networks of a cluster.

Neutron binds the port of a server by the local link of the Ironic port, which
names a switch. A section ``genericswitch:NAME`` declares it; see
networking-generic-switch's documentation, "Switch configuration" (10.2).
"""

from __future__ import annotations

from collections import abc
import re
import typing

from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cluster import wording

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import model

#: Options of a device that logs commands and has no switch. It ignores all
#: but the first; devices of netmiko must have them.
_FAKE = {'device_type': 'netmiko_fake', 'ip': '127.0.0.1',
         'username': 'unused', 'password': 'unused'}

#: What local links have as MAC address of a switch without one.
_NO_MAC = '00:00:00:00:00:00'

_OWN = {'ngs_mac_address', 'ngs_physical_networks'}
_SECRETS = {'password', 'secret'}

_KEY = re.compile(r'[A-Za-z_][A-Za-z0-9_]*')
#: Would end a line, the name of a section, or an item of a list.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f\[\],]')


def refused(key: str, value: str) -> str | None:
    """Tell why an option of a switch is not permitted; None if it is."""
    if key in _SECRETS:
        return ('cluster files have no secrets; let the switch accept a key, '
                'by "key_file" and "use_keys"')
    if key in _OWN:
        return f'"{key}" follows from the networks'
    if not _KEY.fullmatch(key) or re.search(r'[\x00-\x1f\x7f]', value):
        return f'"{wording.short(key)}" is not an option of one line'
    return None


def configuration(networks: abc.Iterable[model.Network]) -> str:
    """Write the sections for Neutron's configuration.

    :returns: an INI file
    :raises: `problems.Unsuitable`
    """
    by_switch: dict[str, list[model.Network]] = {}
    for network in networks:
        by_switch.setdefault(network.switch_info, []).append(network)
    return '\n'.join(_section(name, connected)
                     for name, connected in sorted(by_switch.items()))


def _section(name: str, networks: list[model.Network]) -> str:
    options: dict[str, str] = {}
    for network in networks:
        for text in name, network.name:
            if _UNSAFE.search(text):
                raise problems.Unsuitable(
                    f'{text!r} cannot be written as a name of Neutron\'s '
                    'configuration; choose another without brackets and '
                    'commas')
        for key, value in network.switch_options.items():
            if options.setdefault(key, value) != value:
                raise problems.Unsuitable(
                    f'switch {name} has two values of {key}: '
                    f'{options[key]} and {value}. Networks with the same '
                    'switch_info are on one switch')
    if 'device_type' not in options:
        options = {**_FAKE, **options}
    lines = [f'[genericswitch:{name}]',
             *(f'{key} = {value}' for key, value in options.items())]
    addresses = {network.switch_id.lower()
                 for network in networks} - {_NO_MAC}
    if len(addresses) == 1:
        # A switch is looked for by its MAC address first, then by name.
        lines.append(f'ngs_mac_address = {addresses.pop()}')
    physical = ','.join(sorted(network.name for network in networks))
    return '\n'.join([*lines, f'ngs_physical_networks = {physical}', ''])
