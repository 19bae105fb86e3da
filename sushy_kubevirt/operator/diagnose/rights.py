# SPDX-License-Identifier: Apache-2.0
"""Checks the access rights of the accounts of the operator and of BMCs.

The API server is asked about each right, so that it does not matter by which
roles it is granted, or by which authorizer.
"""

from __future__ import annotations

from concurrent import futures

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator.diagnose import installation
from sushy_kubevirt.operator.diagnose import manifests
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import rbac

AREA = 'Rights'

#: Requests at a time.
_THREADS = 8

#: Missing rights that a finding lists.
_LISTED = 6


def operator(reader, settings, progress, path=manifests.ACCESS):
    """Check the rights of the operator's account.

    :param reader: a `reader.Reader`
    :param settings: `operator_state.Settings`
    :param progress: function of a sentence, called before a slow step
    :param path: manifest with the operator's roles
    :returns: iterator of `findings.Finding`
    """
    roles = manifests.read(path)
    [everywhere] = manifests.of_kind(roles, 'ClusterRole')
    [own] = manifests.of_kind(roles, 'Role')
    rules = list(everywhere['rules'])
    if settings.auto_create:
        rules += manifests.added_rules(manifests.AUTO_CREATE)
    if reader.serves(bmc_resources.ROUTE.group):
        rules += manifests.added_rules(manifests.OPENSHIFT)
    asked = [one for namespace in settings.namespaces or ('',)
             for one in attributes(rules, namespace)]
    asked += attributes(own['rules'], settings.namespace)
    [networks] = manifests.of_kind(
        manifests.read(manifests.NETWORKS), 'ClusterRole')
    asked += attributes(networks['rules'], '')
    yield from _check(
        reader, AREA, (settings.namespace, settings.account), asked, progress,
        installation.remedy())


def bmc(reader, area, bmc, name, settings, progress):
    """Check the rights of the account of a BMC's pod.

    :param reader: a `reader.Reader`
    :param area: of the findings
    :param bmc: a `spec.Bmc`
    :param name: of its pod's ServiceAccount
    :param settings: `operator_state.Settings`
    :param progress: function of a sentence, called before a slow step
    :returns: iterator of `findings.Finding`
    """
    if reader.get(bmc_resources.ACCOUNT, bmc.namespace, name) is None:
        yield findings.problem(
            area, 'AccountMissing',
            f'ServiceAccount {bmc.namespace}/{name} does not exist.',
            'The operator creates it; see the findings about the operator, '
            'and its log.')
        return
    shared = naming.shard_number(name) is not None
    role = (f'{name}-vms-N' if shared and bmc.vm.namespace == bmc.namespace
            else naming.access(bmc.name, bmc.namespace, bmc.vm.namespace))
    yield from _check(
        reader, area, (bmc.namespace, name), list(attributes(
            rbac.rules(bmc, settings.uploads), bmc.vm.namespace)), progress,
        f'The operator keeps Role and RoleBinding {bmc.vm.namespace}/{role}; '
        'see the findings about the operator, and its log.')


def attributes(rules, namespace):
    """List the requests that rules allow.

    :param rules: list of dicts, as in a Role
    :param namespace: '' for all
    :returns: list of dicts, the attributes of access reviews
    """
    found = []
    for rule in rules:
        for group in rule['apiGroups']:
            for full in rule['resources']:
                resource, _, sub = full.partition('/')
                found += [
                    {'verb': verb, 'group': group, 'resource': resource,
                     'subresource': sub, 'namespace': namespace, 'name': name}
                    for name in rule.get('resourceNames') or ('',)
                    for verb in rule['verbs']]
    return found


def _check(reader, area, account, asked, progress, remedy):
    namespace, name = account
    user = f'system:serviceaccount:{namespace}:{name}'
    progress(f'Asking for {len(asked)} rights of {namespace}/{name}')
    try:
        # An account may ask about itself without a right to ask about others.
        itself = reader.user() == user
        missing = _denied(reader, asked, None if itself else account)
    except errors.AccessDenied as e:
        yield findings.denied(area, e)
        return
    if not missing:
        yield findings.ok(
            area, 'RightsGranted',
            f'{user} has all {len(asked)} rights that it needs.')
        return
    lines = _lines(missing)
    more = len(lines) - _LISTED
    yield findings.problem(
        area, 'RightsMissing',
        f"{user} may not {'; '.join(lines[:_LISTED])}"
        + (f'; and so on, {more} more.' if more > 0 else '.'), remedy)


def _denied(reader, asked, account):
    """:returns: list of the attributes of requests that are not allowed"""
    with futures.ThreadPoolExecutor(_THREADS) as pool:
        allowed = pool.map(lambda one: reader.allowed(one, account), asked)
        return [one for one, yes in zip(asked, allowed, strict=True)
                if not yes]


def _lines(missing):
    """Describe missing rights, all verbs for an object together."""
    verbs = {}
    for one in missing:
        resource = '/'.join(filter(None, (
            one['resource'], one['subresource'])))
        what = '.'.join(filter(None, (resource, one['group'])))
        if one['name']:
            what += f" {one['name']}"
        what += (f" in namespace {one['namespace']}" if one['namespace']
                 else ' in all namespaces')
        verbs.setdefault(what, []).append(one['verb'])
    return [f"{', '.join(given)} {what}" for what, given in verbs.items()]
