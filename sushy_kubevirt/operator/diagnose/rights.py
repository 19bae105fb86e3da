# SPDX-License-Identifier: Apache-2.0
"""Checks the access rights of the accounts of the operator and of BMCs.

The API server is asked about each right, so that it does not matter by which
roles it is granted, or by which authorizer.
"""

from __future__ import annotations

from collections import abc
from concurrent import futures
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator.diagnose import installation
from sushy_kubevirt.operator.diagnose import manifests
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import rbac

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.diagnose import operator_state
    from sushy_kubevirt.operator.diagnose import reader as readers
    from sushy_kubevirt.operator import spec

AREA = 'Rights'

#: Requests at a time.
_THREADS = 8

#: Missing rights that a finding lists.
_LISTED = 6

#: Of the request that an access review is about.
Attributes: typing.TypeAlias = dict[str, str]


def operator(reader: readers.Reader, settings: operator_state.Settings
             ) -> abc.Iterator[findings.Finding]:
    """Check the rights of the operator's account."""
    roles = manifests.read(manifests.ACCESS)
    [everywhere] = manifests.of_kind(roles, 'ClusterRole')
    [own] = manifests.of_kind(roles, 'Role')
    rules = list(everywhere['rules'])
    if settings.auto_create:
        rules += manifests.added_rules(manifests.AUTO_CREATE)
    if reader.client.serves_group(bmc_resources.ROUTE.group):
        rules += manifests.added_rules(manifests.OPENSHIFT)
    asked = [request for namespace in settings.namespaces or ('',)
             for request in attributes(rules, namespace)]
    asked += attributes(own['rules'], settings.namespace)
    [networks] = manifests.of_kind(
        manifests.read(manifests.NETWORKS), 'ClusterRole')
    asked += attributes(networks['rules'], '')
    yield from _check(
        reader, objects.ObjectKey(settings.namespace, settings.account),
        asked, installation.remedy())


def bmc(reader: readers.Reader, bmc: spec.Bmc, name: str,
        settings: operator_state.Settings) -> abc.Iterator[findings.Finding]:
    """Check the rights of the account of a BMC's pod.

    :param name: of its pod's ServiceAccount
    """
    if reader.get(bmc_resources.ACCOUNT, bmc.namespace, name) is None:
        yield findings.problem(
            'AccountMissing',
            f'ServiceAccount {bmc.namespace}/{name} does not exist.',
            'The operator creates it; see the findings about the operator, '
            'and its log.')
        return
    shared = naming.shard_number(name) is not None
    role = (f'{name}-vms-N' if shared and bmc.vm.namespace == bmc.namespace
            else naming.access(bmc.name, bmc.namespace, bmc.vm.namespace))
    yield from _check(
        reader, objects.ObjectKey(bmc.namespace, name), attributes(
            rbac.rules(bmc, settings.uploads), bmc.vm.namespace),
        f'The operator keeps Role and RoleBinding {bmc.vm.namespace}/{role}; '
        'see the findings about the operator, and its log.')


def attributes(rules: abc.Iterable[objects.Json],
               namespace: str) -> list[Attributes]:
    """List the requests that rules allow.

    :param rules: as in a Role
    :param namespace: '' for all
    """
    requests: list[Attributes] = []
    for rule in rules:
        for group in rule['apiGroups']:
            for full in rule['resources']:
                resource, _, sub = full.partition('/')
                requests += [
                    {'verb': verb, 'group': group, 'resource': resource,
                     'subresource': sub, 'namespace': namespace, 'name': name}
                    for name in rule.get('resourceNames') or ('',)
                    for verb in rule['verbs']]
    return requests


def _check(reader: readers.Reader, account: objects.ObjectKey,
           asked: list[Attributes], remedy: str
           ) -> abc.Iterator[findings.Finding]:
    namespace, name = account
    user = f'system:serviceaccount:{namespace}:{name}'
    reader.progress(f'Asking for {len(asked)} rights of {namespace}/{name}')
    # An account may ask about itself without a right to ask about others.
    itself = reader.user() == user
    missing = _denied(reader, asked, None if itself else account)
    if not missing:
        yield findings.ok(
            'RightsGranted',
            f'{user} has all {len(asked)} rights that it needs.')
        return
    lines = _lines(missing)
    more = len(lines) - _LISTED
    yield findings.problem(
        'RightsMissing', f"{user} may not {'; '.join(lines[:_LISTED])}"
        + (f'; and so on, {more} more.' if more > 0 else '.'), remedy)


def _denied(reader: readers.Reader, asked: list[Attributes],
            account: objects.ObjectKey | None) -> list[Attributes]:
    """Return the requests that are not allowed."""
    with futures.ThreadPoolExecutor(_THREADS) as pool:
        allowed = pool.map(
            lambda request: reader.allowed(request, account), asked)
        return [request for request, yes in zip(asked, allowed, strict=True)
                if not yes]


def _lines(missing: abc.Iterable[Attributes]) -> list[str]:
    """Describe missing rights, all verbs for an object together."""
    verbs: dict[str, list[str]] = {}
    for request in missing:
        resource = '/'.join(filter(None, (
            request['resource'], request['subresource'])))
        subject = '.'.join(filter(None, (resource, request['group'])))
        if request['name']:
            subject += f" {request['name']}"
        subject += (f" in namespace {request['namespace']}"
                    if request['namespace'] else ' in all namespaces')
        verbs.setdefault(subject, []).append(request['verb'])
    return [f"{', '.join(given)} {subject}"
            for subject, given in verbs.items()]
