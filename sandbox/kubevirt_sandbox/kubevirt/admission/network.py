# SPDX-License-Identifier: Apache-2.0
"""Admission of networks and network interfaces.

Source: pkg/network/admitter (KubeVirt 1.9).
"""

import ipaddress
import re

from kubevirt_sandbox.kubevirt.admission import causes
from kubevirt_sandbox.kubevirt.admission import storage
from kubevirt_sandbox.kubevirt import paths

MODELS = ('e1000', 'e1000e', 'igb', 'ne2k_pci', 'pcnet', 'rtl8139', 'virtio')
BINDINGS = ('bridge', 'masquerade', 'sriov', 'passtBinding', 'binding')

_RESERVED_MAC = '02:00:00:00:00:00'
_NAME = re.compile(r'^[A-Za-z0-9-_]+$')
_PORT_NAME = re.compile(r'^(?=.*[a-z])(?!.*--)[a-z0-9]([a-z0-9-]{0,13}'
                        r'[a-z0-9])?$')
_MACS = (re.compile(r'^[0-9a-fA-F]{2}(([:-])[0-9a-fA-F]{2})'
                    r'(\2[0-9a-fA-F]{2})*$'),
         re.compile(r'^[0-9a-fA-F]{4}(\.[0-9a-fA-F]{4})+$'))


def check(field, spec, config):
    """List causes to refuse networks and interfaces.

    :param field: the path of the VMI's spec.
    """
    networks, cards = paths.networks(spec), paths.interfaces(spec)
    by_name = paths.named(networks)
    found = [*_check_default(field, networks), *_check_sources(
        field, networks)]
    for index, card in enumerate(cards):
        where = f'{field}.domain.devices.interfaces[{index}]'
        found += _check_state(where, card, networks)
    for index, card in enumerate(cards):
        where = f'{field}.domain.devices.interfaces[{index}]'
        found += _check_binding(where, card,
                                by_name.get(card.get('name')) or {}, config)
    found += _check_names(field, networks, cards)
    for index, card in enumerate(cards):
        where = f'{field}.domain.devices.interfaces[{index}]'
        found += _check_card(field, where, card)
        if by_name.get(card.get('name'), {}).get('pod') is not None:
            found += _check_ports(where, card)
        found += _check_dhcp(field, where, card)
    return found


def check_new(field, spec):
    """Check for fields that new machines may no longer use."""
    for index, card in enumerate(paths.interfaces(spec)):
        if card.get('passt') is not None:
            yield causes.Cause(
                'Passt network binding has been discontinued since v1.3',
                f'{field}.domain.devices.interfaces[{index}].passt')


def _check_default(field, networks):
    pods = [n for n in networks if n.get('pod') is not None]
    multus = [n for n in networks if paths.at(n, 'multus', 'default')]
    if len(pods) > 1:
        yield causes.Cause('more than one interface is connected to a pod '
                           f'network in {field}.interfaces',
                           f'{field}.interfaces', causes.DUPLICATE)
    if len(multus) > 1:
        yield causes.Cause('Multus CNI should only have one default network',
                           f'{field}.networks')
    if pods and multus:
        yield causes.Cause('Pod network cannot be defined when Multus default '
                           'network is defined', f'{field}.networks')


def _check_sources(field, networks):
    for index, network in enumerate(networks):
        number = sum(network.get(k) is not None
                     for k in ('pod', 'multus', 'resourceClaim'))
        where = f'{field}.networks[{index}]'
        if number == 0:
            yield causes.Cause('should have a network type', where,
                               causes.REQUIRED)
        elif number > 1:
            yield causes.Cause('should have only one network type', where,
                               causes.REQUIRED)
    for index, network in enumerate(networks):
        if (network.get('multus') is not None
                and not network['multus'].get('networkName')):
            yield causes.Cause('CNI delegating plugin must have a networkName',
                               f'{field}.networks[{index}]', causes.REQUIRED)
            return


def _check_state(where, card, networks):
    name, state = card.get('name', ''), card.get('state', '')
    field = f'{where}.state'
    if state not in ('', 'absent', 'up', 'down'):
        yield causes.Cause(
            f'logical {name} interface state value is unsupported:'
            f' {state}', field)
    if card.get('sriov') is not None and state in ('up', 'down'):
        yield causes.Cause(f'"{name}" interface\'s state "{state}" is not '
                           'supported for SR-IOV NICs', field)
    if state != 'absent':
        return
    if card.get('bridge') is None:
        yield causes.Cause(
            f'"{name}" interface\'s state "{state}" is supported '
            'only for bridge binding', field)
    if any(n.get('name') == name and (
            n.get('pod') is not None or paths.at(n, 'multus', 'default'))
           for n in networks):
        yield causes.Cause(f'"{name}" interface\'s state "{state}" is not '
                           'supported on default networks', field)


def _check_binding(where, card, network, config):
    name, on_pod = card.get('name', ''), network.get('pod') is not None
    if sum(card.get(k) is not None for k in BINDINGS) != 1:
        yield causes.Cause(f'logical {name} interface must have exactly one '
                           'binding method or binding plugin', where)
    if card.get('masquerade') is not None:
        if not on_pod:
            yield causes.Cause(
                'Masquerade interface only implemented with pod '
                'network', f'{where}.name')
        if card.get('macAddress') == _RESERVED_MAC:
            yield causes.Cause('The requested MAC address is reserved for the '
                               'in-pod bridge. Please choose another one.',
                               f'{where}.macAddress')
    if (card.get('bridge') is not None and on_pod
            and not config.bridge_on_pod_network):
        yield causes.Cause(
            'Bridge on pod network configuration is not enabled '
            'under kubevirt-config', f'{where}.name')
    if card.get('passtBinding') is not None:
        if not config.enabled('PasstBinding'):
            yield causes.Cause('PasstBinding feature gate is not enabled',
                               f'{where}.name')
        if not on_pod:
            yield causes.Cause(
                'PasstBinding interface only implemented with pod '
                'network', f'{where}.name')


def _check_names(field, networks, cards):
    seen = set()
    for index, network in enumerate(networks):
        name = network.get('name', '')
        if name in seen:
            yield causes.Cause(f'Network with name "{name}" already exists, '
                               'every network must have a unique name',
                               f'{field}.networks[{index}].name',
                               causes.DUPLICATE)
        seen.add(name)
    on = {card.get('name') for card in cards}
    for index, network in enumerate(networks):
        if network.get('name') not in on:
            where = f'{field}.networks[{index}].name'
            yield causes.Cause(
                f"{where} '{network.get('name', '')}' not found.",
                where, causes.REQUIRED)
    seen_cards = set()
    where = f'{field}.domain.devices.interfaces'
    for index, card in enumerate(cards):
        if card.get('name') in seen_cards:
            yield causes.Cause('Only one interface can be connected to one '
                               'specific network', f'{where}[{index}].name',
                               causes.DUPLICATE)
        seen_cards.add(card.get('name'))
    for index, card in enumerate(cards):
        if card.get('name') not in seen:
            yield causes.Cause(
                f"{where}[{index}].name '{card.get('name', '')}' "
                'not found.', f'{where}[{index}].name')


def _check_card(field, where, card):
    if not _NAME.match(card.get('name', '')):
        yield causes.Cause(
            'Network interface name can only contain alphabetical '
            'characters, numbers, dashes (-) or underscores (_)',
            f'{where}.name')
    model = card.get('model')
    if model and model not in MODELS:
        yield causes.Cause(
            f'interface {where}.name uses model {model} that is '
            'not supported.', f'{where}.model', causes.NOT_SUPPORTED)
    mac = card.get('macAddress')
    if mac:
        wrong = _mac_error(mac)
        if wrong:
            yield causes.Cause(f'interface {where}.name has {wrong} ({mac}).',
                               f'{where}.macAddress')
    address = card.get('pciAddress')
    if address and not storage.is_pci_address(address):
        yield causes.Cause(f'interface {where}.name has malformed PCI address '
                           f'({address}).', f'{where}.pciAddress')


def _mac_error(mac):
    # net.ParseMAC takes 6, 8 and 20 bytes
    length = len(re.sub('[^0-9a-fA-F]', '', mac)) // 2
    if not any(p.match(mac) for p in _MACS) or length not in (6, 8, 20):
        return 'malformed MAC address'
    return 'too long MAC address' if length > 6 else ''


def _check_ports(where, card):
    names = set()
    for index, port in enumerate(card.get('ports') or ()):
        field = f'{where}.ports[{index}]'
        name = port.get('name')
        if name:
            if name in names:
                yield causes.Cause(f'Duplicate name of the port: {name}',
                                   f'{field}.name', causes.DUPLICATE)
            if not _PORT_NAME.match(name):
                yield causes.Cause(f'Invalid name of the port: {name}',
                                   f'{field}.name')
            names.add(name)
        number = port.get('port', 0)
        if number == 0:
            yield causes.Cause('Port field is mandatory.', f'{field}.port',
                               causes.REQUIRED)
        if not 0 <= number < 65536:
            yield causes.Cause('Port field must be in range 0 < x < 65536.',
                               f'{field}.port')
        if port.get('protocol', '') not in ('', 'TCP', 'UDP'):
            yield causes.Cause('Unknown protocol, only TCP or UDP allowed',
                               f'{field}.protocol')


def _check_dhcp(field, where, card):
    options = card.get('dhcpOptions')
    if options is None:
        return
    private = options.get('privateOptions') or []
    if len({o.get('option') for o in private}) < len(private):
        yield causes.Cause('Found Duplicates: you have provided duplicate '
                           'DHCPPrivateOptions', field)
    for option in private:
        if not 224 <= option.get('option', 0) <= 254:
            yield causes.Cause('provided DHCPPrivateOptions are out of range, '
                               'must be in range 224 to 254', field)
    for index, server in enumerate(options.get('ntpServers') or ()):
        try:
            ipaddress.IPv4Address(server)
        except ValueError:
            yield causes.Cause('NTP servers must be a list of valid IPv4 '
                               'addresses.',
                               f'{where}.dhcpOptions.ntpServers[{index}]')
