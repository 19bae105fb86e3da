# SPDX-License-Identifier: Apache-2.0
"""Which of KubeVirt's optional features this cluster has switched on.

A BMC may be denied the KubeVirt object, which is no object of its VM; then
every feature counts as off and the version as unknown.
"""

import logging
import re
import threading
import time

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors

LOG = logging.getLogger(__name__)

#: Gate: the versions of KubeVirt it came as alpha (off unless named) and
#: became beta (on unless disabled) in, None for never;
#: pkg/virt-config/featuregate/active.go and inactive.go of 1.9.
GATES = {
    'RebootPolicy': ((1, 8), (1, 9)),
    'DeclarativeHotplugVolumes': ((1, 6), (1, 9)),
    'HotplugVolumes': ((0, 31), None),
}

#: The version is asked for again after this long; while it is not known,
#: after the second.
VERSION_SECONDS = 300
UNKNOWN_SECONDS = 60


class Gates:
    """The KubeVirt object's feature gates and version.

    :param client: a `client.Client`
    :param options: an `options.Options`
    """

    def __init__(self, client, options):
        self._client = client
        self._options = options
        self._warned = False
        self.after_fork()

    def after_fork(self):
        self._lock = threading.Lock()
        self._refreshing = False
        self._refreshed_at = None
        self._version = None
        self._named = self._disabled = ()

    @property
    def version(self):
        """KubeVirt's version, such as ``v1.9.0``; None while not known.

        Costs no call: what was heard last, asked for again now and then by a
        thread of its own.
        """
        if self._older_than(
                VERSION_SECONDS if self._version else UNKNOWN_SECONDS):
            self.refresh_in_background()
        return self._version

    def refresh_in_background(self):
        """Have a thread ask the API, if none does."""
        with self._lock:
            if self._refreshing:
                return
            self._refreshing = True
        threading.Thread(target=self._refresh_quietly, daemon=True,
                         name='kubevirt-version').start()

    def enabled(self, name):
        """Whether a feature gate is on.

        Asks the API if the last answer is older than Options.gates_seconds.

        :param name: one of `GATES`
        :raises: `errors.Unavailable` if the API does not answer
        """
        if self._older_than(self._options.gates_seconds):
            self._refresh()
        alpha, beta = GATES[name]
        version = _number(self._version)
        if name in self._named:
            # A gate that this version has never heard of opens nothing.
            return version is None or version >= alpha
        return (name not in self._disabled
                and None not in (version, beta) and version >= beta)

    def hotplugs_cdroms(self):
        """Whether KubeVirt fills and empties CD-ROMs of running guests.

        Its older way of hotplugging switches that off
        (``handleDeclarativeVolumeHotplug`` in vm.go of 1.9).

        :raises: see `enabled`
        """
        return (self.enabled('DeclarativeHotplugVolumes')
                and not self.enabled('HotplugVolumes'))

    def _older_than(self, seconds):
        return (self._refreshed_at is None
                or time.monotonic() - self._refreshed_at > seconds)

    def _refresh_quietly(self):
        try:
            self._refresh()
        except errors.MachineError as e:
            LOG.debug('KubeVirt\'s version: %s', e)
            # Not again at once, with each read of the version.
            self._refreshed_at = self._refreshed_at or time.monotonic()
        finally:
            self._refreshing = False

    def _refresh(self):
        try:
            found = [item for items, _ in self._client.pages(
                api_resources.KUBEVIRT) for item in items]
        except (errors.AccessDenied, errors.ObjectNotFound) as e:
            if not self._warned:
                LOG.warning('KubeVirt\'s optional features count as off: %s',
                            e)
                self._warned = True
            found = []
        kubevirt = found[0] if found else {}
        config = kubevirt.get('spec', {}).get('configuration') or {}
        developer = config.get('developerConfiguration') or {}
        self._named = tuple(developer.get('featureGates') or ())
        self._disabled = tuple(developer.get('disabledFeatureGates') or ())
        self._version = (kubevirt.get('status') or {}).get(
            'observedKubeVirtVersion')
        self._refreshed_at = time.monotonic()


def _number(version):
    """(major, minor) of a version; None if it does not tell.

    KubeVirt built from its sources without its own tools says v0.0.0.
    """
    match = re.match(r'v?(\d+)\.(\d+)', version or '')
    number = match and (int(match[1]), int(match[2]))
    return None if number == (0, 0) else number
