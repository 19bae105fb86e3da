# SPDX-License-Identifier: Apache-2.0
"""The objects of a shard: the pod of shared BMCs, its account and its rights.

They belong to no single BMC, so they have no owner, and are found by a label.
The rights to the VMs and Secrets of some dozens of BMCs are in one Role: one
for each BMC would cost two requests for each, and one for all would be large,
and written as a whole for each BMC that comes or goes. For a VM in another
namespace, the BMC has a Role there; see `rbac`.
"""

from __future__ import annotations

import collections
from collections import abc
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import quantity
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.pod import options_file

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.shared import shard_state
    from sushy_kubevirt.operator import spec

#: Name of the container.
CONTAINER = 'bmc'

#: MiB of memory that a pod requests, and the limit of its memory: for the
#: process, and for each BMC that it has room for.
_MEMORY, _MEMORY_PER_BMC = 48, 1
_LIMIT, _LIMIT_PER_BMC = 160, 2
#: A pod requests the CPU of one BMC and a thousandth more for this many.
_BMCS_PER_MILLICPU = 5

#: Slots whose BMCs have one Role. It has about 2 KiB for each of them.
_SLOTS_PER_ROLE = 50

#: Kinds of the objects, in the order in which they are deleted: the pod and
#: its rights, and the record of the members last.
KINDS = (bmc_resources.DEPLOYMENT, bmc_resources.BINDING, bmc_resources.ROLE,
         bmc_resources.ACCOUNT, bmc_resources.POLICY,
         bmc_resources.CONFIG_MAP)


def served(shard: int) -> str:
    """Return the name of the ConfigMap in which the pod reports."""
    return naming.shared(shard) + '-served'


def config(shard: int) -> str:
    """Return the name of the ConfigMap that the pod mounts."""
    return naming.shared(shard) + '-config'


def metadata(namespace: str, shard: int,
             name: str | None = None) -> objects.ObjectMeta:
    """Make the metadata of an object.

    :param shard: number of the shard
    :param name: default: that of most of its objects
    """
    return {'name': name or naming.shared(shard), 'namespace': namespace,
            'labels': naming.shared_labels(shard)}


def account(namespace: str, shard: int) -> objects.Json:
    """Make the ServiceAccount."""
    return {'apiVersion': 'v1', 'kind': 'ServiceAccount',
            'metadata': metadata(namespace, shard),
            'automountServiceAccountToken': False}


def access(shard: int) -> tuple[str, ...]:
    """List the names of the Roles and RoleBindings that a shard may have."""
    name = naming.shared(shard)
    return name, *(f'{name}-vms-{number}' for number in range(
        -(-placement.SLOTS // _SLOTS_PER_ROLE)))


def roles(namespace: str, shard: int,
          members: abc.Iterable[shard_state.Member],
          uploads: bool) -> list[objects.Json]:
    """Make the Roles, in the BMCs' namespace.

    :param uploads: whether BMCs can upload images
    """
    name, *names = access(shard)
    parts: dict[int, list[shard_state.Member]] = collections.defaultdict(list)
    for member in members:
        parts[member.slot // _SLOTS_PER_ROLE].append(member)
    rules = {name: [
        rbac.rule('', ['configmaps'], ['list', 'watch'], [name]),
        rbac.rule('', ['configmaps'], ['get', 'patch'], [served(shard)]),
        # One pair of watches for all VMs: names cannot be listed in one.
        rbac.rule('kubevirt.io', ['virtualmachines',
                                  'virtualmachineinstances'],
                  ['list', 'watch'])]}
    for number, part in sorted(parts.items()):
        rules[names[number]] = _rules(part, uploads)
    return [{'apiVersion': rbac.RBAC + '/v1', 'kind': 'Role',
             'metadata': metadata(namespace, shard, role_name),
             'rules': role_rules}
            for role_name, role_rules in rules.items() if role_rules]


def _rules(members: abc.Collection[shard_state.Member],
           uploads: bool) -> list[objects.Json]:
    needed = [member.rights for member in members]
    secrets = sorted({name for rights in needed for name in rights.secrets})
    # Without names, a rule would be about all objects.
    rules = [rbac.rule('', ['secrets'], ['get'], secrets)] if secrets else []
    with_vm = [rights for rights in needed if rights.vm]
    if with_vm:
        rules += rbac.rules_for(
            sorted({rights.vm for rights in with_vm}),
            sorted({rights.vm for rights in with_vm if rights.redfish}),
            sorted({rights.vm for rights in with_vm if rights.display}),
            uploads, sorted({name for rights in with_vm
                             for name in rights.authorities}))
    return rules


def granted(role: objects.Json | None,
            plural: str = bmc_resources.VM.plural) -> set[str]:
    """Return the names of objects in one of `roles`.

    :param plural: of their resource
    """
    return {name for rule in (role or {}).get('rules') or ()
            if plural in rule.get('resources', ())
            for name in rule.get('resourceNames', ())}


def binding(role: objects.Json) -> objects.Json:
    """Make the RoleBinding of one of `roles`."""
    metadata = role['metadata']
    shard = int(metadata['labels'][stored_names.SHARD])
    return {'apiVersion': rbac.RBAC + '/v1', 'kind': 'RoleBinding',
            'metadata': metadata,
            'roleRef': {'apiGroup': rbac.RBAC, 'kind': 'Role',
                        'name': metadata['name']},
            'subjects': [{'kind': 'ServiceAccount',
                          'name': naming.shared(shard),
                          'namespace': metadata['namespace']}]}


def policy(namespace: str, shard: int,
           members: abc.Mapping[int, spec.NetworkPolicy]) -> objects.Json:
    """Make the NetworkPolicy of a shard whose BMCs have one.

    :param members: those of the BMCs, by the numbers of their slots
    """
    rules = []
    for slot, wanted in sorted(members.items()):
        rules += network.rules(wanted, [
            {'protocol': 'TCP', 'port': placement.REDFISH_PORT + slot},
            {'protocol': 'TCP', 'port': placement.HTTP_PORT + slot},
            {'protocol': 'UDP', 'port': placement.IPMI_PORT + slot}])
    return {
        'apiVersion': 'networking.k8s.io/v1', 'kind': 'NetworkPolicy',
        'metadata': metadata(namespace, shard),
        'spec': {
            'podSelector': {'matchLabels': naming.shared_selector(shard)},
            'policyTypes': ['Ingress'], 'ingress': rules}}


def config_maps(namespace: str, shard: int,
                defaults: deployments.Defaults) -> list[objects.Json]:
    """Make the ConfigMaps whose content is the operator's, or empty.

    :returns: that in which the pod reports, and that of `config`
    """
    bodies: list[objects.Json] = [{
        'apiVersion': 'v1', 'kind': 'ConfigMap',
        'metadata': metadata(namespace, shard, served(shard))}]
    data = _files(defaults)
    if data:
        bodies.append({
            'apiVersion': 'v1', 'kind': 'ConfigMap',
            'metadata': metadata(namespace, shard, config(shard)),
            'data': data})
    return bodies


def _files(defaults: deployments.Defaults) -> dict[str, str]:
    """Return the files that the pod reads again when they change."""
    files = {options_file.PROXY_FILE:
             defaults.proxy and defaults.proxy.authorities,
             options_file.HOSTS_FILE: defaults.denied.file}
    return {name: text for name, text in files.items() if text}


def deployment(namespace: str, shard: int, defaults: deployments.Defaults,
               bmcs_per_pod: int, uid: str) -> objects.Json:
    """Make the Deployment.

    :param bmcs_per_pod: number of BMCs that the pod has room for
    :param uid: of its ServiceAccount
    """
    name = naming.shared(shard)
    mounts: list[objects.Json] = []
    volumes = [deployments.temporary_folder()]
    env = [{'name': 'VIRTBMC_SHARED', 'value': f'{namespace}/{name}'}]
    if _files(defaults):
        env.append({'name': options_file.FOLDER_VARIABLE,
                    'value': options_file.FOLDER})
        mounts.append(deployments.mount('config', options_file.FOLDER))
        volumes.append({'name': 'config',
                        'configMap': {'name': config(shard)}})
    container = deployments.container(
        CONTAINER, defaults.image, defaults, ['sushy-kubevirt-bmc'],
        env, mounts, [], deployments.HEALTH_PORT,
        _resources(bmcs_per_pod, defaults.cpu))
    return deployments.whole(
        metadata(namespace, shard), naming.shared_selector(shard),
        {'labels': {**defaults.labels, **naming.shared_labels(shard)},
         'annotations': {**defaults.annotations, stored_names.ACCOUNT: uid}},
        deployments.pod_spec(name, defaults, [container], volumes))


def _resources(bmcs: int, cpu: str) -> objects.Json:
    return {
        'requests': {
            'cpu': quantity.total([cpu, f'{bmcs // _BMCS_PER_MILLICPU}m']),
            'memory': f'{_MEMORY + bmcs * _MEMORY_PER_BMC}Mi'},
        'limits': {'memory': f'{_LIMIT + bmcs * _LIMIT_PER_BMC}Mi'}}
