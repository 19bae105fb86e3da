# SPDX-License-Identifier: Apache-2.0
"""Checks versions, and the state of KubeVirt and CDI."""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import feature_gates
from sushy_kubevirt.kube import objects
from sushy_kubevirt.machine.media import cdi as media_cdi
from sushy_kubevirt.machine import options
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator.diagnose import kinds

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.diagnose import reader as readers

KUBERNETES, KUBEVIRT, CDI = 'Kubernetes', 'KubeVirt', 'CDI'

# doc/source/operator/compatibility.rst has the same table, with what was
# tested. A newer version than that is no reason to refuse it.

#: Oldest Kubernetes, and newest that was tested, (major, minor). Validating-
#: AdmissionPolicies are served as v1 from 1.30 on.
KUBERNETES_VERSIONS = (1, 30), (1, 37)

#: By KubeVirt version: the oldest and the newest Kubernetes that KubeVirt
#: supports (kubevirt/sig-release, releases/k8s-support-matrix.md, 2026-07), or
#: that it was tested with: 1.9 on 1.37.
KUBEVIRT_VERSIONS = {
    (1, 5): ((1, 30), (1, 32)),
    (1, 6): ((1, 31), (1, 33)),
    (1, 7): ((1, 32), (1, 34)),
    (1, 8): ((1, 33), (1, 35)),
    (1, 9): ((1, 34), (1, 37)),
}

#: Oldest and newest CDI.
CDI_VERSIONS = (1, 63), (1, 66)

#: What a BMC cannot do without a feature gate; see doc/source/cluster.rst.
_GATES = {
    'RebootPolicy': 'a one-time boot does not end when the guest reboots by '
    'itself, only with the next power cycle by the BMC',
    'DeclarativeHotplugVolumes': 'a running guest gets a medium that is '
    'inserted only at its next start',
}


_WAIT = ("Wait until its operator is done; if that lasts, see that operator's "
         'log.')


def kubernetes(reader: readers.Reader) -> abc.Iterator[findings.Finding]:
    """Check the version of Kubernetes.

    :raises: `errors.Unavailable` if the credentials are refused, too
    """
    try:
        version = _kubernetes(reader)
    except errors.AccessDenied as e:
        # Everybody may read it: the credentials are refused.
        raise errors.Unavailable(str(e)) from None
    number = feature_gates.number(version)
    oldest, newest = KUBERNETES_VERSIONS
    if number is not None and number < oldest:
        yield findings.problem(
            'VersionTooOld', f'The version is {version}. Before '
            f'{_text(oldest)} the policies that limit BMCs (Validating'
            'AdmissionPolicy v1) do not exist.', 'Upgrade Kubernetes.')
    else:
        yield _version(KUBERNETES, version, KUBERNETES_VERSIONS)


def kubevirt(reader: readers.Reader) -> abc.Iterator[findings.Finding]:
    """Check KubeVirt: its version, its state and its feature gates."""
    if not reader.client.serves_group(api_resources.KUBEVIRT.group):
        yield findings.problem(
            'KubeVirtMissing', 'KubeVirt is not installed.',
            'Install it: https://kubevirt.io/user-guide/cluster_admin/'
            'installation/')
        return
    installed = reader.list(api_resources.KUBEVIRT)
    if not installed:
        yield findings.problem(
            'KubeVirtMissing',
            "There is no KubeVirt object: KubeVirt's operator has nothing to "
            'deploy.', 'Create one, as in KubeVirt\'s installation guide.')
        return
    status = installed[0].get('status') or {}
    version = feature_gates.version(status) or ''
    yield _version(KUBEVIRT, version, tuple(KUBEVIRT_VERSIONS))
    yield from _pair(_kubernetes(reader), version)
    yield from _deployed(installed[0])
    yield from _gates(reader, version)


def cdi(reader: readers.Reader) -> abc.Iterator[findings.Finding]:
    """Check CDI: whether it is there, its version and its state."""
    if not reader.client.serves_group(api_resources.DATA_VOLUME.group):
        yield findings.warning('CDIMissing', f'{media_cdi.NO_CDI}.')
        return
    installed = reader.list(kinds.CDI)
    if not installed:
        yield findings.warning(
            'CDIMissing', "There is no CDI object: CDI's operator has "
            'nothing to deploy.', "Create one, as in CDI's guide.")
        return
    status = installed[0].get('status') or {}
    # As KubeVirt, CDI writes the observed version when it is deployed.
    yield _version(CDI, status.get('observedVersion')
                   or status.get('targetVersion') or '', CDI_VERSIONS)
    yield from _deployed(installed[0])


def _kubernetes(reader: readers.Reader) -> str:
    """Return the version of the API server, such as ``v1.34.4``."""
    return reader.client.version().get('gitVersion', '')


def _version(project: str, version: str,
             known: abc.Sequence[feature_gates.Version]) -> findings.Finding:
    """Compare a version with the first and the last of those known."""
    number = feature_gates.number(version)
    if number is None:
        return findings.warning(
            'VersionUnknown', f'The version is {version or "not known"}'
            f'; this program is made for {_span(known)}.')
    if known[0] <= number <= known[-1]:
        return findings.ok('VersionSupported', f'The version is {version}.')
    if number < known[0]:
        return findings.warning(
            'VersionTooOld', f'The version is {version}; this program '
            f'is made for {_span(known)}.', f'Upgrade {project}.')
    return findings.warning(
        'VersionNotTested', f'The version is {version}; the newest '
        f'that this program was tested with is '
        f'{_text(known[-1])}. It uses stable parts of the API, '
        'so a newer version should work.')


def _pair(kubernetes: str, kubevirt: str) -> abc.Iterator[findings.Finding]:
    """Check whether KubeVirt is known to work with this Kubernetes."""
    version = feature_gates.number(kubevirt)
    supported = KUBEVIRT_VERSIONS.get(version) if version else None
    number = feature_gates.number(kubernetes)
    if supported and number and not supported[0] <= number <= supported[1]:
        yield findings.warning(
            'KubernetesNotSupported',
            f'KubeVirt {kubevirt} is supported by its project, or was tested, '
            f'with Kubernetes {_span(supported)}, and this is {kubernetes}.',
            "Upgrade the older of the two; see KubeVirt's support matrix.")


def _deployed(installed: objects.AnyObject) -> abc.Iterator[findings.Finding]:
    """Check the conditions that the operators of KubeVirt and CDI write.

    While they deploy or update, with condition Progressing, Available may be
    False and Degraded True though VMs run (``UpdateConditionsDeploying`` and
    ``UpdateConditionsUpdating`` in pkg/virt-operator/util/client.go of
    KubeVirt 1.9).
    """
    said = objects.conditions_of(installed)
    if objects.holds(installed, 'Progressing'):
        yield findings.warning(
            'NotDeployed', 'Its operator is at work: '
            f"{said['Progressing'].get('message', '')}", _WAIT)
        return
    for type_, bad in (('Available', 'False'), ('Degraded', 'True')):
        condition: objects.Condition = said.get(type_, {})
        if condition.get('status') == bad:
            yield findings.problem(
                'NotAvailable', f'Its condition {type_} is {bad}: '
                f"{condition.get('message', '')}",
                'See the pods of its namespace.')
            return
    phase = (installed.get('status') or {}).get('phase')
    if phase == 'Deployed':
        yield findings.ok('Deployed', 'It is deployed.')
    else:
        yield findings.warning(
            'NotDeployed', f'Its phase is {phase or "not known"}, not '
            'Deployed.', _WAIT)


def _gates(reader: readers.Reader,
           version: str) -> abc.Iterator[findings.Finding]:
    gates = feature_gates.Gates(reader.client,
                                options.Options().gates_seconds)
    number = feature_gates.number(version)
    for name, consequence in _GATES.items():
        alpha, _ = feature_gates.GATES[name]
        if gates.enabled(name):
            yield findings.ok('FeatureGateOn', f'Feature gate {name} is on.')
        elif number and number < alpha:
            yield findings.ok(
                'FeatureGateUnknown',
                f'Feature gate {name} came with {_text(alpha)}. '
                f'Without it, {consequence}.')
        else:
            yield findings.warning(
                'FeatureGateOff',
                f'Feature gate {name} is off: {consequence}.',
                f'To enable it, add {name} to spec.configuration.'
                'developerConfiguration.featureGates of the KubeVirt object, '
                'and remove it from disabledFeatureGates.')
    if gates.enabled('HotplugVolumes') and gates.enabled(
            'DeclarativeHotplugVolumes'):
        yield findings.warning(
            'FeatureGateConflict',
            'Feature gate HotplugVolumes is on, which disables '
            'DeclarativeHotplugVolumes: '
            f"{_GATES['DeclarativeHotplugVolumes']}.",
            'Remove HotplugVolumes from featureGates of the KubeVirt object.')


def _text(version: feature_gates.Version) -> str:
    """Return ``1.34`` for (1, 34)."""
    return '.'.join(map(str, version))


def _span(versions: abc.Sequence[feature_gates.Version]) -> str:
    """Return ``1.30 to 1.37``."""
    return f'{_text(versions[0])} to {_text(versions[-1])}'
