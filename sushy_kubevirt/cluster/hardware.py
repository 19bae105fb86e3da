# SPDX-License-Identifier: Apache-2.0
"""The networks, node types and outlets of a cluster file.

The functions take what `checks.Checker.check` has returned, and the checker,
to which they report further problems. What they return is complete only if
the checker has no problems.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import re
import typing

from sushy_kubevirt.cluster import fields
from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster.nova import switch
from sushy_kubevirt.cluster import raw
from sushy_kubevirt.cluster import wording
from sushy_kubevirt.pdu import config as pdu_config

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import checks
    from sushy_kubevirt.cluster import document

#: CNI configuration of a network that is created without one. Where the
#: namespace is known, the bridge is named.
BRIDGE = {'cniVersion': '0.3.1', 'type': 'bridge'}

#: Longest physical network of a port in Ironic.
_MAX_NETWORK_LENGTH = 64

_IMAGE = re.compile(r'(https?|docker)://\S+')
_PLACEHOLDER = re.compile(r'\{(node|index)\}')


def networks(cluster: str, values: checks.Values,
             checker: checks.Checker) -> dict[str, model.Network]:
    """Make the networks."""
    mappings, more = values['physnet_mappings'], values['networks']
    result = {}
    for name in dict.fromkeys((*mappings, *more)):
        where = (('networks', name) if name in more
                 else ('physnet_mappings', name))
        if not 0 < len(name) <= _MAX_NETWORK_LENGTH:
            checker.problem(where, 'the name of a network has 1 to '
                            f'{_MAX_NETWORK_LENGTH} characters')
        result[name] = _network(cluster, name, mappings.get(name),
                                more.get(name, {}), where, checker)
    _check_created(result, checker)
    return result


def _check_created(networks: dict[str, model.Network],
                   checker: checks.Checker) -> None:
    # A shared one may have the name of one of this cluster's own.
    by_attachment: dict[str | None, str] = {}
    for name, network in networks.items():
        if network.config is None:
            continue
        other = by_attachment.setdefault(network.attachment, name)
        if other != name:
            checker.problem(
                ('networks', name), f'"{name}" and "{other}" would both '
                f'create the definition "{network.attachment}"; rename one')


def _network(cluster: str, name: str, mapping: str | None,
             more: checks.Values, where: document.ValuePath,
             checker: checks.Checker) -> model.Network:
    attachment = more.get('attachment')
    if mapping and attachment:
        checker.problem((*where, 'attachment'), f'"{name}" is in '
                        '"physnet_mappings" already')
    path = (*where, 'attachment') if attachment else ('physnet_mappings', name)
    attachment = attachment or mapping
    if attachment:
        for key in 'config', 'shared':
            if more.get(key):
                checker.problem((*where, key), f'"{key}" is for networks that '
                                'are created; this one is attached to '
                                f'"{attachment}"')
        _check_reference(attachment, path, 'NetworkAttachmentDefinition',
                         checker)
    config = more.get('config')
    if config is not None and 'type' not in config and 'plugins' not in config:
        checker.problem((*where, 'config'), 'a CNI configuration has "type", '
                        'or "plugins"')
    if attachment:
        config = None
    elif not checker.reported(*path):
        attachment = identity.valid_name(
            name if more.get('shared') else f'{cluster}-{name}')
        config = config or dict(BRIDGE)
    options = {key: more[key]
               for key in ('shared', 'switch_id', 'switch_options')
               if key in more}
    for key, value in options.get('switch_options', {}).items():
        if reason := switch.refused(key, value):
            checker.problem((*where, 'switch_options', key), reason)
    return model.Network(
        name, attachment=None if attachment == fields.POD else attachment,
        config=config, switch_info=more.get('switch_info') or name, **options)


def _check_reference(text: str, path: document.ValuePath, kind: str,
                     checker: checks.Checker) -> None:
    parts = text.split('/')
    if len(parts) > 2 or not all(map(identity.is_object_name, parts)):
        checker.problem(path, f'"{text}" does not name a {kind}; write name '
                        'or namespace/name')


def types(values: checks.Values, known: dict[str, model.Network],
          checker: checks.Checker) -> dict[str, model.NodeType]:
    """Make the node types.

    :param known: networks by name
    """
    return {name: _type(name, value, values, known, checker)
            for name, value in values['node_types'].items()}


def _type(name: str, value: checks.Values, values: checks.Values,
          known: dict[str, model.Network],
          checker: checks.Checker) -> model.NodeType:
    where = 'node_types', name
    _check_size(value, where, checker)
    raw.check(value['vm'], (*where, 'vm'), checker)
    raw.check_bmc(value['bmc'], (*where, 'bmc'), checker)
    boot_mode = value['boot_mode'] or values['default_boot_mode']
    return model.NodeType(
        name=name, vcpus=value['vcpus'], memory_mb=value['memory_mb'],
        volumes=tuple(
            _volume(volume, (*where, 'volumes', index), checker)
            for index, volume in enumerate(value['volumes'])
            if volume is not None),
        networks=_networks_of(value, known, where, checker),
        driver=value['ironic_driver'] or values['default_ironic_driver'],
        boot_mode=boot_mode, secure_boot=value['secure_boot'],
        tpm=value['tpm'], console_log=value['console_log_enabled'],
        instancetype=value['instancetype'], preference=value['preference'],
        placement=_placement(value, values, where, checker),
        vm=value['vm'], bmc=value['bmc'])


def _check_size(value: checks.Values, where: document.ValuePath,
                checker: checks.Checker) -> None:
    if checker.reported(*where):
        return
    for key in 'vcpus', 'memory_mb':
        if value['instancetype']:
            if value[key] is not None:
                checker.problem((*where, key), f'"{key}" follows from '
                                '"instancetype"; give one of the two')
        elif value[key] is None and not checker.reported(*where, key):
            checker.problem(where, f'"{key}" is missing in node type '
                            f'"{where[-1]}"')


def unknown_network(name: str, known: abc.Iterable[str]) -> str:
    """Make the sentence about a network that does not exist.

    :param known: names of those that do
    """
    return wording.unknown('physical network', name, known,
                           '"physnet_mappings" or "networks"')


def _networks_of(value: checks.Values, known: dict[str, model.Network],
                 where: document.ValuePath,
                 checker: checks.Checker) -> tuple[str, ...]:
    pods: list[str] = []
    for index, name in enumerate(value['physical_networks']):
        path = *where, 'physical_networks', index
        if name not in known:
            checker.problem(path, unknown_network(name, known))
        elif known[name].attachment is None:
            pods.append(name)
            if len(pods) == 2:
                checker.problem(path, f'"{pods[0]}" and "{name}" are both the '
                                'pod network, to which a VM has one interface')
    return tuple(name for name in value['physical_networks'] if name in known)


def _placement(value: checks.Values, values: checks.Values,
               where: document.ValuePath,
               checker: checks.Checker) -> model.Placement:
    placement = dict(value['placement'])
    where = *where, 'placement'
    selector = dict(placement['node_selector'])
    for name in value['physical_networks']:
        needed = values['networks'].get(name, {}).get('node_selector', {})
        for label, content in needed.items():
            if selector.setdefault(label, content) != content:
                checker.problem(where, f'the network "{name}" needs nodes '
                                f'with the label {label}={content}, others '
                                f'{label}={selector[label]}')
    if placement['numa']:
        for key in 'dedicated_cpus', 'huge_pages':
            if not placement[key] and not checker.reported(*where, key):
                checker.problem((*where, 'numa'), f'"numa" needs "{key}"')
    if placement['spread'] == fields.NO_SPREAD:
        placement['spread'] = None
    return model.Placement(**{**placement, 'node_selector': selector})


def _volume(value: checks.Values, where: document.ValuePath,
            checker: checks.Checker) -> model.Volume:
    sources = [key for key in ('image', 'claim', 'clone') if value[key]]
    if len(sources) > 1:
        checker.problem((*where, sources[1]),
                        'a volume has one source, not '
                        + ' and '.join(f'"{source}"' for source in sources))
    key = sources[0] if sources else None
    location = value[key] if key else ''
    source = key or 'blank'
    if key == 'image':
        source, location = _image(location, (*where, key), checker)
    elif key == 'clone':
        _check_reference(location, (*where, key), 'PersistentVolumeClaim',
                         checker)
    elif key == 'claim':
        _check_claim(value, where, checker)
    if (value['capacity'] is None and key not in ('claim', 'clone')
            and not any(checker.reported(*where, given)
                        for given in ('capacity', 'claim', 'clone'))):
        checker.problem(where, '"capacity" is missing in a volume')
    if value['ephemeral']:
        for refused in (*sources, 'storage_class', 'access_mode',
                        'volume_mode'):
            if value[refused]:
                checker.problem((*where, refused), f'an ephemeral volume has '
                                f'no "{refused}"')
    return model.Volume(
        capacity=value['capacity'], source=source, location=location,
        **{same: value[same] for same in (
            'storage_class', 'access_mode', 'volume_mode', 'bus',
            'ephemeral')})


def _image(url: str, path: document.ValuePath,
           checker: checks.Checker) -> tuple[str, str]:
    match = _IMAGE.fullmatch(url)
    if not match:
        checker.problem(path, 'the URL of an image begins with http://, '
                        f'https:// or docker://, unlike "{url}"')
    registry = match and match[1] == 'docker'
    return 'registry' if registry else 'http', url


def _check_claim(value: checks.Values, where: document.ValuePath,
                 checker: checks.Checker) -> None:
    name = _PLACEHOLDER.sub('0', value['claim'])
    if not identity.is_object_name(name):
        checker.problem((*where, 'claim'), f'"{value["claim"]}" does not name '
                        'a PersistentVolumeClaim of the namespace; {node} and '
                        '{index} are replaced in it')
    for key in 'capacity', 'storage_class', 'access_mode', 'volume_mode':
        if value[key]:
            checker.problem((*where, key), 'an existing claim has its own '
                            f'"{key}"')


def with_outlets(nodes: tuple[model.Node, ...], value: checks.Values,
                 checker: checks.Checker) -> tuple[model.Node, ...]:
    """Give the nodes with the driver ``snmp`` that are enrolled an outlet.

    :param value: of ``pdu``
    """
    count = 0
    result = []
    for node in nodes:
        if node.type.driver == 'snmp' and node.ironic is not None:
            pdu, outlet = divmod(count, pdu_config.OUTLETS)
            count += 1
            node = dataclasses.replace(node, outlet=model.Outlet(
                value['address'], value['port'] + pdu, value['community'],
                outlet + 1))
        result.append(node)
    if count:
        _check_pdu(value, result, checker)
    return tuple(result)


def _check_pdu(value: checks.Values, nodes: list[model.Node],
               checker: checks.Checker) -> None:
    for key, pattern, text in (
            ('address', r'[\w.-]+', 'an IPv4 address or a name'),
            ('community', r'[!-~]+', 'text without blanks')):
        given = value[key]
        if not given and not checker.reported('pdu', key):
            checker.problem(('pdu',), f'"{key}" is missing in "pdu", which '
                            'nodes with the ironic_driver "snmp" need')
        elif given and not re.fullmatch(pattern, given, re.ASCII):
            checker.problem(('pdu', key), f'"{key}" has to be {text}')
    if any(node.outlet and node.outlet.port > 65535 for node in nodes):
        checker.problem(('pdu', 'port'), 'there are not enough ports after '
                        f'{value["port"]} for all PDUs')
