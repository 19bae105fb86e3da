# SPDX-License-Identifier: Apache-2.0
"""Checks what ``kubectl apply -k etc/kubernetes`` installs for all BMCs: the
definition of the resource, and the admission policies."""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator.diagnose import kinds
from sushy_kubevirt.operator.diagnose import manifests
from sushy_kubevirt.operator import naming

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.diagnose import reader as readers

DEFINITION, POLICIES = 'Definition', 'Policies'

#: Reason of a finding: no BMC can exist.
MISSING = 'DefinitionMissing'


def remedy() -> str:
    """Return what to do when a part of it is missing or old."""
    return ('Apply the manifests of this version: kubectl apply -k '
            f'{manifests.where()}, or the overlay that was installed; or use '
            'helm upgrade.')


def definition(reader: readers.Reader) -> abc.Iterator[findings.Finding]:
    """Check the CustomResourceDefinition."""
    name = f'{naming.PLURAL}.{naming.GROUP}'
    try:
        installed = reader.get(kinds.DEFINITION, None, name)
    except errors.AccessDenied:
        yield _listable(reader)
        raise
    if installed is None:
        yield findings.problem(
            MISSING, f'The CustomResourceDefinition {name} is not installed.',
            remedy())
        return
    if not objects.holds(installed, 'Established'):
        yield findings.problem(
            'DefinitionNotEstablished',
            f'The CustomResourceDefinition {name} is not established.',
            f'kubectl describe crd {name} says why.')
        return
    [wanted] = manifests.read(manifests.DEFINITION)
    missing = fields(wanted) - fields(installed)
    more = fields(installed) - fields(wanted)
    if missing:
        yield findings.problem(
            'DefinitionOutdated',
            'The CustomResourceDefinition is of another version than this '
            f'program: it lacks {_some(missing)}.',
            'Apply that of this version: kubectl apply -k '
            f"{manifests.where('crd')}")
    elif more:
        yield findings.warning(
            'DefinitionNewer',
            'The CustomResourceDefinition has fields that this program does '
            f'not know: {_some(more)}.',
            "Use the program of the operator's version.")
    else:
        yield findings.ok(
            'DefinitionInstalled',
            f'The CustomResourceDefinition {name} is that of this version.')


def fields(definition: objects.Json) -> set[str]:
    """List the fields of a CustomResourceDefinition's version.

    :returns: paths, such as ``spec.service.type``
    """
    for version in definition['spec']['versions']:
        if version['name'] == naming.VERSION and version.get('served'):
            schema = (version.get('schema') or {}).get('openAPIV3Schema') or {}
            return set(_paths(schema, ()))
    return set()


def _paths(schema: objects.Json, path: tuple[str, ...]) -> abc.Iterator[str]:
    for name, property_ in (schema.get('properties') or {}).items():
        here = (*path, name)
        if path or name in ('spec', 'status'):
            yield '.'.join(here)
        yield from _paths(property_, here)
    items = schema.get('items')
    if isinstance(items, dict):
        yield from _paths(items, path)


def _some(paths: abc.Collection[str]) -> str:
    """Name the outermost fields of a set, a few of them."""
    outer = sorted(path for path in paths
                   if path.rpartition('.')[0] not in paths)
    return ', '.join(outer[:5]) + (
        f' and {len(outer) - 5} more' if len(outer) > 5 else '')


def _listable(reader: readers.Reader) -> findings.Finding:
    try:
        next(reader.iterate(bmc_resources.BMC), None)
    except errors.Unavailable as e:
        return findings.problem(
            MISSING, f'{e}.', remedy())
    return findings.ok('DefinitionInstalled', f'{naming.KIND} is served.')


def policies(reader: readers.Reader) -> abc.Iterator[findings.Finding]:
    """Check the ValidatingAdmissionPolicies and their bindings."""
    wanted = manifests.read(manifests.ADMISSION)
    missing, other = [], []
    for resource, prefix in ((kinds.POLICY, ''),
                             (kinds.POLICY_BINDING, 'the binding of ')):
        installed = {policy['metadata']['name']: policy
                     for policy in reader.list(resource)}
        for policy in manifests.of_kind(wanted, resource.kind):
            name = policy['metadata']['name']
            if name not in installed:
                missing.append(prefix + name)
            elif not _same(policy['spec'], installed[name]['spec']):
                other.append(prefix + name)
    if missing:
        yield findings.problem(
            'PolicyMissing',
            f"Not installed: {', '.join(missing)}. An attacker who controls "
            "a BMC's pod could read Secrets and volumes of its namespace.",
            remedy())
    if other:
        yield findings.problem(
            'PolicyDiffers',
            f"Not as in this version: {', '.join(other)}.", remedy())
    if not missing and not other:
        yield findings.ok('PoliciesInstalled',
                          'The admission policies are those of this version.')


def _same(wanted: typing.Any, present: typing.Any) -> bool:
    """Compare a policy with one that the API server has completed.

    Defaults are added to dicts, never to lists of expressions.
    """
    if isinstance(wanted, dict):
        return isinstance(present, dict) and all(
            _same(value, present.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (isinstance(present, list) and len(wanted) == len(present)
                and all(map(_same, wanted, present)))
    return bool(wanted == present)
