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

from sushy_kubevirt.kube import quantity
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.pod import options_file

#: Name of the container.
CONTAINER = 'bmc'

#: MiB of memory that a pod requests, and the limit of its memory: for the
#: process, and for each BMC that it has room for.
_MEMORY, _MEMORY_PER_BMC = 48, 1
_LIMIT, _LIMIT_PER_BMC = 160, 2
#: A pod requests the CPU of one BMC and a thousandth more for this many.
_BMCS_PER_MILLICPU = 5

#: Upload of images and sessions.
_TMP = '64Mi'

#: Slots whose BMCs have one Role. It has about 2 KiB for each of them.
_SLOTS_PER_ROLE = 50

#: Kinds of the objects, in the order in which they are deleted: the pod and
#: its rights, and the record of the members last.
KINDS = (bmc_resources.DEPLOYMENT, bmc_resources.BINDING, bmc_resources.ROLE,
         bmc_resources.ACCOUNT, bmc_resources.POLICY,
         bmc_resources.CONFIG_MAP)


def served(name):
    """:returns: name of the ConfigMap in which the pod reports"""
    return name + '-served'


def config(name):
    """:returns: name of the ConfigMap that the pod mounts"""
    return name + '-config'


def metadata(namespace, shard, name=None):
    """Make the metadata of an object.

    :param shard: number of the shard
    :param name: default: that of most of its objects
    """
    return {'name': name or naming.shared(shard), 'namespace': namespace,
            'labels': naming.shared_labels(shard)}


def account(namespace, shard):
    """Make the ServiceAccount."""
    return {'apiVersion': 'v1', 'kind': 'ServiceAccount',
            'metadata': metadata(namespace, shard),
            'automountServiceAccountToken': False}


def access(name):
    """List the names of the Roles and RoleBindings that a shard may have.

    :param name: that of most of its objects
    """
    return name, *(f'{name}-vms-{number}' for number in range(
        -(-placement.SLOTS // _SLOTS_PER_ROLE)))


def roles(namespace, shard, members, uploads):
    """Make the Roles, in the BMCs' namespace.

    :param members: iterable of `shard_state.Member`
    :param uploads: whether BMCs can upload images
    :returns: list of dicts
    """
    name, *names = access(naming.shared(shard))
    parts = collections.defaultdict(list)
    for one in members:
        parts[one.slot // _SLOTS_PER_ROLE].append(one)
    rules = {name: [
        rbac.rule('', ['configmaps'], ['list', 'watch'], [name]),
        rbac.rule('', ['configmaps'], ['get', 'patch'], [served(name)]),
        # One pair of watches for all VMs: names cannot be listed in one.
        rbac.rule('kubevirt.io', ['virtualmachines',
                                  'virtualmachineinstances'],
                  ['list', 'watch'])]}
    for number, part in sorted(parts.items()):
        rules[names[number]] = _rules(part, uploads)
    return [{'apiVersion': rbac.RBAC + '/v1', 'kind': 'Role',
             'metadata': metadata(namespace, shard, one), 'rules': each}
            for one, each in rules.items() if each]


def _rules(members, uploads):
    secrets = sorted(frozenset().union(*(one.secrets for one in members)))
    vms = sorted({one.vm for one in members if one.vm})
    # Without names, a rule would be about all objects.
    rules = [rbac.rule('', ['secrets'], ['get'], secrets)] if secrets else []
    if vms:
        rules += rbac.rules_for(vms, *(sorted({
            one.vm for one in members if one.vm and getattr(one, what)})
            for what in ('redfish', 'display')), uploads)
    return rules


def granted(role, plural=bmc_resources.VM.plural):
    """:returns: set of the names of objects in one of `roles`

    :param plural: of their resource
    """
    return {name for rule in (role or {}).get('rules') or ()
            if plural in rule.get('resources', ())
            for name in rule.get('resourceNames', ())}


def binding(role):
    """Make the RoleBinding of one of `roles`."""
    name, namespace = role['metadata']['name'], role['metadata']['namespace']
    return {'apiVersion': rbac.RBAC + '/v1', 'kind': 'RoleBinding',
            'metadata': role['metadata'],
            'roleRef': {'apiGroup': rbac.RBAC, 'kind': 'Role', 'name': name},
            'subjects': [{'kind': 'ServiceAccount',
                          'name': naming.shared(naming.shard_number(name)),
                          'namespace': namespace}]}


def policy(namespace, shard, members):
    """Make the NetworkPolicy of a shard whose BMCs have one.

    :param members: dict of a slot's number and the `spec.NetworkPolicy` of
        its BMC
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


def config_maps(namespace, shard, defaults):
    """Make the ConfigMaps whose content is the operator's, or empty.

    :param defaults: `deployments.Defaults`
    :returns: list: that in which the pod reports, and that of `config`
    """
    name = naming.shared(shard)
    made = [{'apiVersion': 'v1', 'kind': 'ConfigMap',
             'metadata': metadata(namespace, shard, served(name))}]
    data = _files(defaults)
    if data:
        made.append({
            'apiVersion': 'v1', 'kind': 'ConfigMap',
            'metadata': metadata(namespace, shard, config(name)),
            'data': data})
    return made


def _files(defaults):
    """:returns: dict, the files that the pod reads again when they change"""
    files = {options_file.PROXY_FILE:
             defaults.proxy and defaults.proxy.authorities,
             options_file.HOSTS_FILE: defaults.denied.file}
    return {name: text for name, text in files.items() if text}


def deployment(namespace, shard, defaults, bmcs_per_pod, uid):
    """Make the Deployment.

    :param defaults: `deployments.Defaults`
    :param bmcs_per_pod: number of BMCs that the pod has room for
    :param uid: of its ServiceAccount
    """
    name = naming.shared(shard)
    mounts, volumes = [], [{'name': 'tmp', 'emptyDir': {
        'medium': 'Memory', 'sizeLimit': _TMP}}]
    env = [{'name': 'VIRTBMC_SHARED', 'value': f'{namespace}/{name}'}]
    if _files(defaults):
        env.append({'name': options_file.FOLDER_VARIABLE,
                    'value': options_file.FOLDER})
        mounts.append(deployments.mount('config', options_file.FOLDER))
        volumes.append({'name': 'config',
                        'configMap': {'name': config(name)}})
    container = deployments.container(
        CONTAINER, defaults.image, defaults, ['sushy-kubevirt-bmc'],
        env, mounts, [], deployments.HEALTH_PORT,
        _resources(bmcs_per_pod, defaults.cpu))
    return deployments.whole(
        metadata(namespace, shard), naming.shared_selector(shard),
        {'labels': {**defaults.labels, **naming.shared_labels(shard)},
         'annotations': {**defaults.annotations, deployments.ACCOUNT: uid}},
        deployments.pod_spec(name, defaults, [container], volumes))


def _resources(bmcs: int, cpu: str) -> dict:
    return {
        'requests': {
            'cpu': quantity.total([cpu, f'{bmcs // _BMCS_PER_MILLICPU}m']),
            'memory': f'{_MEMORY + bmcs * _MEMORY_PER_BMC}Mi'},
        'limits': {'memory': f'{_LIMIT + bmcs * _LIMIT_PER_BMC}Mi'}}
