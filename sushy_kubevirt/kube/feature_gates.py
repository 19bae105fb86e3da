# SPDX-License-Identifier: Apache-2.0
"""KubeVirt's version and the feature gates that are enabled in a cluster.

Both come from the KubeVirt object. Where RBAC denies a BMC access to it,
all gates count as disabled and the version as unknown.
"""

from __future__ import annotations

from collections import abc
import logging
import re
import threading
import time
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client as clients

LOG = logging.getLogger(__name__)

#: Major and minor number.
Version: typing.TypeAlias = tuple[int, int]

#: By gate: the KubeVirt versions that introduced it as alpha (off unless
#: listed) and as beta (on unless disabled), None for never;
#: pkg/virt-config/featuregate/active.go and inactive.go of 1.9.
GATES: dict[str, tuple[Version, Version | None]] = {
    'RebootPolicy': ((1, 8), (1, 9)),
    'DeclarativeHotplugVolumes': ((1, 6), (1, 9)),
    'HotplugVolumes': ((0, 31), None),
}

#: Seconds until the version is read again, while it is known and while not.
VERSION_SECONDS = 300
UNKNOWN_SECONDS = 60


def version(status: abc.Mapping[str, typing.Any]) -> str | None:
    """Read KubeVirt's version.

    The observed version is written when all components are ready, which may
    be long after VMs run; on a first deployment it is the target
    (``SetObservedDeploymentConfig`` in pkg/virt-operator/util/config.go of
    1.9). During an update it is the former one, of components that still run.

    :param status: of a KubeVirt object
    :returns: such as ``v1.9.0``; None while not known
    """
    return (status.get('observedKubeVirtVersion')
            or status.get('targetKubeVirtVersion') or None)


class Gates:
    """The KubeVirt object's feature gates and version.

    :param seconds: longest age of what `enabled` relies on
    """

    def __init__(self, client: clients.Client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._denied = False
        self._lock = threading.Lock()
        self._refreshing = False
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._version: str | None = None
        self._named: tuple[str, ...] = ()
        self._disabled: tuple[str, ...] = ()
        self._pod_interface = 'bridge'

    @property
    def version(self) -> str | None:
        """KubeVirt's version, such as ``v1.9.0``; None while not known.

        Makes no API call: returns what was read last. A background thread
        reads it again when it is old.
        """
        if _is_over(self._tried_at, VERSION_SECONDS if self._version
                    else UNKNOWN_SECONDS):
            self.refresh_in_background()
        return self._version

    def refresh_in_background(self) -> None:
        """Read the KubeVirt object in a thread, unless one is doing so."""
        with self._lock:
            if self._refreshing:
                return
            self._refreshing = True
        threading.Thread(target=self._refresh_quietly, daemon=True,
                         name='kubevirt-version').start()

    def enabled(self, name: str) -> bool:
        """Return whether a feature gate is enabled.

        Calls the API if the last read is too old.

        :param name: one of `GATES`
        :raises: `errors.Unavailable` if the API does not respond
        """
        if _is_over(self._read_at, self._seconds):
            self._refresh()
        return self._is_enabled(name)

    def _is_enabled(self, name: str) -> bool:
        alpha, beta = GATES[name]
        current = number(self._version)
        if name in self._named:
            # Listing a gate that this version does not have has no effect.
            return current is None or current >= alpha
        return (name not in self._disabled
                and current is not None and beta is not None
                and current >= beta)

    def hotplugs_cdroms(self) -> bool:
        """Return whether CD-ROM media of running guests can be changed.

        The older gate HotplugVolumes disables that
        (``handleDeclarativeVolumeHotplug`` in vm.go of 1.9).

        :raises: see `enabled`
        """
        return (self.enabled('DeclarativeHotplugVolumes')
                and not self.enabled('HotplugVolumes'))

    def why_no_cdrom_hotplug(self) -> str:
        """Return why CD-ROM media of running guests cannot be changed.

        Makes no API call: returns what was read last, and reads it again in
        a background thread if that is too old for `enabled`.

        :returns: a clause with what to do; '' if they can, or while nothing
            was read
        """
        gate, older = 'DeclarativeHotplugVolumes', 'HotplugVolumes'
        known = self._read_at is not None
        if _is_over(self._tried_at, self._seconds):
            self.refresh_in_background()
        if not known:
            return ''
        if self._denied:
            return ('KubeVirt\'s feature gates cannot be read and count as '
                    'off; grant the BMC\'s account to list '
                    'kubevirts.kubevirt.io')
        alpha, current = GATES[gate][0], number(self._version)
        if current is not None and current < alpha:
            return (f'KubeVirt {self._version} does not have the feature gate '
                    f'{gate}; update it to {".".join(map(str, alpha))} or '
                    'later, and switch the gate on')
        if self._is_enabled(older):
            return (f'KubeVirt\'s feature gate {older}, which excludes {gate},'
                    f' is on; replace it by {gate} in the KubeVirt object')
        if self._is_enabled(gate):
            return ''
        return (f'KubeVirt\'s feature gate {gate} is off; switch it on in '
                'the KubeVirt object')

    def pod_interface(self) -> str:
        """Return the binding of the interface that a VM without any gets.

        Calls the API like `enabled`; KubeVirt's own default is ``bridge``.
        """
        if _is_over(self._read_at, self._seconds):
            self._refresh()
        return self._pod_interface

    def _refresh_quietly(self) -> None:
        try:
            self._refresh()
        except errors.MachineError as e:
            LOG.debug('KubeVirt\'s version cannot be read: %s', e)
            # Keeps each read of the version from starting another attempt.
            self._tried_at = time.monotonic()
        finally:
            self._refreshing = False

    def _refresh(self) -> None:
        try:
            kubevirt: objects.Json = next(
                (item for items, _ in self._client.pages(
                    api_resources.KUBEVIRT) for item in items), {})
            self._denied = False
        except (errors.AccessDenied, errors.ObjectNotFound) as e:
            if not self._denied:
                LOG.warning('KubeVirt\'s feature gates cannot be read and '
                            'count as disabled: %s', e)
            self._denied = True
            kubevirt = {}
        config = kubevirt.get('spec', {}).get('configuration') or {}
        self._pod_interface = (config.get('network') or {}).get(
            'defaultNetworkInterface') or 'bridge'
        developer = config.get('developerConfiguration') or {}
        self._named = tuple(developer.get('featureGates') or ())
        self._disabled = tuple(developer.get('disabledFeatureGates') or ())
        self._version = version(kubevirt.get('status') or {})
        self._read_at = self._tried_at = time.monotonic()


def _is_over(since: float | None, seconds: float) -> bool:
    return since is None or time.monotonic() - since > seconds


def number(version: str | None) -> Version | None:
    """Parse a version of KubeVirt, CDI or Kubernetes.

    :param version: such as ``v1.34.4+k3s1``; or None
    :returns: None if it is not known, as of a KubeVirt that was built without
        its own build tools (v0.0.0)
    """
    match = re.match(r'v?(\d+)\.(\d+)', version or '')
    parsed = match and (int(match[1]), int(match[2]))
    return None if parsed == (0, 0) else parsed
