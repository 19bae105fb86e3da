# SPDX-License-Identifier: Apache-2.0
"""Read a cluster file.

All that can be said about it without asking Kubernetes or OpenStack is said
here, and all at once.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import itertools
import os
import pathlib

from sushy_kubevirt.cluster import checks
from sushy_kubevirt.cluster import document
from sushy_kubevirt.cluster import fields
from sushy_kubevirt.cluster import hardware
from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster.ironic import nodes as ironic_nodes
from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cluster import wording
from sushy_kubevirt.machine import architecture

#: Most nodes in one file.
MAX_NODES = 10_000

_TENKS_PREFIX = 'tk'
_BOOT_MODES = 'uefi', 'bios'
_ATTRIBUTES = ('conductor_group', 'shard', 'owner', 'lessee', 'description',
               'extra')
_SAME = ('resource_class', 'traits', 'port_group', 'pxe_networks', 'ca_file',
         'inspect', 'provide')


def read(path: str | os.PathLike[str], name: str | None = None,
         namespace: str | None = None) -> model.Cluster:
    """Read a cluster file.

    :param name: of the cluster, instead of that in the file
    :param namespace: likewise
    :raises InvalidFile: with all problems of the file
    """
    return of_document(document.read(path), name, namespace)


def of_document(read_document: document.Document, name: str | None = None,
                namespace: str | None = None) -> model.Cluster:
    """Likewise, of a document that was read."""
    checker = checks.Checker(read_document)
    values = checker.check()
    whole = values['cluster']
    declared = name or whole['name']
    name = declared or identity.cluster_name(
        pathlib.PurePath(read_document.path).name.partition('.')[0])
    namespace = namespace or whole['namespace']
    _check_names(name, namespace, checker)
    networks = hardware.networks(name, values, checker)
    types = hardware.types(values, networks, checker)
    maker = _Nodes(name, values, networks, types, checker)
    nodes = hardware.with_outlets(
        maker.nodes(f'{name}-' if declared else _TENKS_PREFIX),
        values['pdu'], checker)
    flavors = _flavors(values, types, checker)
    if checker.problems:
        raise problems.InvalidFile(checker.problems)
    return model.Cluster(
        name=name, namespace=namespace, types=types, networks=networks,
        nodes=nodes, flavors=flavors,
        credentials=whole['credentials_generation'],
        wait_for_placement=values['wait_for_placement'],
        warnings=tuple(checker.warnings))


def _check_names(name: str, namespace: str | None,
                 checker: checks.Checker) -> None:
    if not identity.is_name(name, identity.MAX_CLUSTER_LENGTH):
        checker.problem(
            ('cluster', 'name'), f'"{name}" cannot name a cluster: it takes '
            'lower-case letters, digits and hyphens, at most '
            f'{identity.MAX_CLUSTER_LENGTH}. Set "name" in "cluster"')
    if namespace and not identity.is_name(namespace):
        checker.problem(('cluster', 'namespace'),
                        f'"{namespace}" cannot name a namespace')


class _Nodes:
    """Makes the nodes of the specs."""

    def __init__(self, cluster: str, values: checks.Values,
                 networks: dict[str, model.Network],
                 types: dict[str, model.NodeType],
                 checker: checks.Checker) -> None:
        self._cluster = cluster
        self._values = values
        self._networks = networks
        self._types = types
        self._checker = checker
        self._names: set[str] = set()
        self._volumes: set[str] = set()
        self._macs: set[str] = set()

    def nodes(self, prefix: str) -> tuple[model.Node, ...]:
        """Make all nodes.

        :param prefix: of their names, where the file has none
        """
        specs = [(('specs', index), spec)
                 for index, spec in enumerate(self._values['specs'])
                 if spec is not None]
        if sum(spec['count'] or 0 for _, spec in specs) > MAX_NODES:
            self._checker.problem(('specs',),
                                  f'there are more than {MAX_NODES} nodes')
            return ()
        prefix = self._values['node_name_prefix'] or prefix
        nodes: list[model.Node] = []
        earlier: dict[str, list[checks.Values]] = {}    # by prefix
        for where, spec in specs:
            if spec['node_names'] is not None:
                nodes += self._of_spec(where, spec, tuple(enumerate(
                    self._given_names(where, spec))))
                continue
            spec = {**spec,
                    'node_name_prefix': spec['node_name_prefix'] or prefix}
            before = earlier.setdefault(spec['node_name_prefix'], [])
            self._warn_of_shared_prefix(where, spec, before)
            first = sum(other['count'] or 0 for other in before)
            before.append(spec)
            nodes += self._of_spec(where, spec, tuple(
                (index, f"{spec['node_name_prefix']}{index}")
                for index in range(first, first + (spec['count'] or 0))))
        return tuple(nodes)

    def _given_names(self, where: document.ValuePath,
                     spec: checks.Values) -> list[str]:
        names, where = spec['node_names'], (*where, 'node_names')
        if spec['count'] not in (None, len(names)):
            self._checker.problem(
                where, f'"node_names" has {len(names)} names, and "count" is '
                f'{spec["count"]}')
        if spec['node_name_prefix']:
            self._checker.problem(
                where, '"node_name_prefix" has no effect with "node_names"')
        for index, name in enumerate(names):
            if not identity.is_name(name):
                self._checker.problem(
                    (*where, index), f'"{name}" cannot name a node: names '
                    'have lower-case letters, digits and hyphens, at most '
                    f'{identity.MAX_LENGTH}')
        return [name for name in names if identity.is_name(name)]

    def _warn_of_shared_prefix(self, where: document.ValuePath,
                               spec: checks.Values,
                               before: list[checks.Values]) -> None:
        for other in before:
            if any(other[key] != spec[key]
                   for key in ('type', 'ironic_config')):
                self._checker.warn(
                    where, 'nodes of this spec share the prefix '
                    f'"{spec["node_name_prefix"]}" with different ones: if '
                    'the count of an earlier spec changes, they are renamed. '
                    'Give it a "node_name_prefix" of its own')
                return

    def _of_spec(self, where: tuple[str, int], spec: checks.Values,
                 names: tuple[tuple[int, str], ...]
                 ) -> abc.Iterator[model.Node]:
        kind = self._type(where, spec)
        ironic = self._ironic(where, spec['ironic_config'])
        if kind is None or not self._check_prefixes(where, spec):
            return
        if ironic is not None:
            mode = ironic.capabilities.get('boot_mode', kind.boot_mode)
            kind = dataclasses.replace(kind, boot_mode=mode)
        self._check_type(where, kind, spec)
        for index, name in names:
            volumes = tuple(
                identity.valid_name(
                    f'{name}{self._volume_prefix(spec)}{number}')
                for number in range(len(kind.volumes)))
            if not self._check_unique(where, name, volumes):
                return
            yield model.Node(
                name=name, index=index, type=kind, volume_names=volumes,
                interfaces=tuple(self._interface(name, network)
                                 for network in kind.networks),
                ironic=ironic)

    def _type(self, where: document.ValuePath,
              spec: checks.Values) -> model.NodeType | None:
        name = spec['type']
        if name in self._types:
            return self._types[name]
        if name is not None:
            self._checker.problem((*where, 'type'),
                                  _unknown_type(name, self._types))
        return None

    def _check_type(self, where: document.ValuePath, kind: model.NodeType,
                    spec: checks.Values) -> None:
        if kind.secure_boot and kind.boot_mode != 'uefi':
            self._checker.problem(where, f'node type "{kind.name}" has '
                                  '"secure_boot", which needs the boot mode '
                                  f'uefi, not {kind.boot_mode}')
        self._check_architecture(where, kind)
        if (spec['count'] or 0) > 1 and any(
                volume.source == 'claim' and '{' not in volume.location
                for volume in kind.volumes):
            self._checker.problem(
                where, f'nodes of the type "{kind.name}" cannot share one '
                'claim; put {node} or {index} into its name')

    def _check_architecture(self, where: document.ValuePath,
                            kind: model.NodeType) -> None:
        has = architecture.named(kind.architecture)
        buses = ('virtio', 'scsi') if not has.usb else (
            'virtio', 'scsi', 'sata', 'usb')
        for key, value, valid in (
                ('boot_mode', kind.boot_mode,
                 {'uefi': 'efi'}.get(kind.boot_mode, 'bios') in has.firmware),
                ('secure_boot', 'true',
                 has.secure_boot or not kind.secure_boot),
                *(('bus', volume.bus, volume.bus in (None, *buses))
                  for volume in kind.volumes)):
            if not valid:
                self._checker.problem(
                    where, f'node type "{kind.name}" has "{key}" {value}, '
                    'which KubeVirt does not have for the architecture '
                    f'{kind.architecture}')

    def _volume_prefix(self, spec: checks.Values) -> str:
        return spec['vol_name_prefix'] or self._values['vol_name_prefix']

    def _check_prefixes(self, where: tuple[str, int],
                        spec: checks.Values) -> bool:
        valid = True
        for key, text, before in (
                ('node_name_prefix', spec['node_name_prefix'] or 'a', ''),
                ('vol_name_prefix', self._volume_prefix(spec), 'a')):
            if not identity.is_name(f'{before}{text}0'):
                # Say it once if it is the file's.
                path: document.ValuePath = (
                    (*where, key) if self._values['specs'][where[1]][key]
                    else (key,))
                if not self._checker.reported(*path):
                    self._checker.problem(
                        path, f'"{text}" cannot begin a name: names have '
                        'lower-case letters, digits and hyphens, at most '
                        f'{identity.MAX_LENGTH}')
                valid = False
        return valid

    def _check_unique(self, where: document.ValuePath, node: str,
                      volumes: tuple[str, ...]) -> bool:
        for name, known in ((node, self._names), *(
                (volume, self._volumes) for volume in volumes)):
            if name in known or not identity.is_name(name):
                self._checker.problem(
                    where, f'the name "{name}" is too long'
                    if name not in known else 'a second one gets the name '
                    f'"{name}"; choose another "node_name_prefix", or other '
                    '"node_names"')
                return False
            known.add(name)
        return True

    def _interface(self, node: str, network: str) -> model.Interface:
        for attempt in itertools.count():
            mac = identity.mac(self._cluster, node, network, attempt)
            if mac not in self._macs:
                break
        self._macs.add(mac)
        return model.Interface(identity.valid_name(network),
                               self._networks[network], mac)

    def _ironic(self, where: document.ValuePath,
                value: checks.Values | None) -> model.IronicConfig | None:
        if value is None:
            return None
        where = *where, 'ironic_config'
        for index, name in enumerate(value['pxe_networks'] or ()):
            if name not in self._networks:
                self._checker.problem(
                    (*where, 'pxe_networks', index),
                    hardware.unknown_network(name, self._networks))
        if value['ca_file'] and not value['verify_ca']:
            self._checker.problem((*where, 'ca_file'), '"ca_file" has no '
                                  'effect, as "verify_ca" is false')
        if ironic_nodes.RECORD in value['extra']:
            self._checker.problem(
                (*where, 'extra', ironic_nodes.RECORD),
                f'"{ironic_nodes.RECORD}" is kept for this command, which '
                'knows its nodes by it')
        # Ironic removes a property by null, so it can have none.
        properties = {key: content
                      for key, content in value['properties'].items()
                      if content is not None}
        capabilities = self._capabilities(
            where, properties.pop('capabilities', None))
        self._check_capabilities(where, value['capabilities'])
        capabilities.update(value['capabilities'])
        self._check_boot_mode(where, capabilities)
        return model.IronicConfig(
            properties=properties, capabilities=capabilities,
            interfaces={key: value[key] for key in fields.INTERFACES
                        if value[key]},
            attributes={key: value[key] for key in _ATTRIBUTES if value[key]},
            verify=value['verify_ca'],
            **{key: value[key] or self._values[key]
               for key in ('deploy_kernel', 'deploy_ramdisk')},
            **{key: value[key] for key in _SAME})

    def _capabilities(self, where: document.ValuePath,
                      text: object) -> dict[str, str]:
        if text is None or text == '':
            return {}
        pairs = [pair.partition(':') for pair in str(text).split(',')]
        if not isinstance(text, str) or not all(map(all, pairs)):
            self._checker.problem(
                (*where, 'properties', 'capabilities'), '"capabilities" is '
                'text such as "boot_mode:uefi,raid_level:1"')
            return {}
        return {key.strip(): value.strip() for key, _, value in pairs}

    def _check_capabilities(self, where: document.ValuePath,
                            capabilities: dict[str, str]) -> None:
        # Ironic keeps all of them in one text.
        for key, value in capabilities.items():
            pair = f'{key}:{value}'
            if (not key or ':' in key or ',' in pair
                    or [key, value] != [key.strip(), value.strip()]):
                self._checker.problem(
                    (*where, 'capabilities', key),
                    f'"{wording.short(pair)}" cannot be a capability: it has '
                    'a name, no comma, no colon in its name, and no blanks '
                    'around name and value')

    def _check_boot_mode(self, where: document.ValuePath,
                         capabilities: dict[str, str]) -> None:
        mode = capabilities.get('boot_mode')
        if mode is not None and mode not in _BOOT_MODES:
            self._checker.problem(where, 'the capability "boot_mode" has to '
                                  f'be one of {", ".join(_BOOT_MODES)}, not '
                                  f'"{mode}"')


def _unknown_type(name: str, types: dict[str, model.NodeType]) -> str:
    return wording.unknown('node type', name, types, '"node_types"')


def _flavors(values: checks.Values, types: dict[str, model.NodeType],
             checker: checks.Checker) -> tuple[model.Flavor, ...]:
    result: dict[str, model.Flavor] = {}
    for index, value in enumerate(values['nova_flavors']):
        where = 'nova_flavors', index
        if value is None:
            continue
        kind, name = value['node_type'], value['name']
        if kind is not None and kind not in types:
            checker.problem((*where, 'node_type'),
                            _unknown_type(kind, types))
        name = name or value['resource_class']
        if name is not None and name in result:
            checker.problem(where, f'there is a flavor "{name}" already; '
                            'choose another "name"')
        for trait in value['required_traits']:
            if trait in value['forbidden_traits']:
                checker.problem(where, f'the trait {trait} is both required '
                                'and forbidden')
        result[name] = model.Flavor(
            name=name, type=types.get(kind) or model.NodeType(''),
            **{key: value[key] for key in (
                'resource_class', 'required_traits', 'forbidden_traits',
                'custom_specs')})
    return tuple(result.values())
