# SPDX-License-Identifier: Apache-2.0
"""Admission checks shared by VM templates and VMIs.

Source: ValidateVirtualMachineInstanceSpec of vmi-create-admitter.go
(KubeVirt 1.9).
"""

from kubevirt_sandbox.kubevirt.admission import causes
from kubevirt_sandbox.kubevirt.admission import devices
from kubevirt_sandbox.kubevirt.admission import network
from kubevirt_sandbox.kubevirt.admission import pod
from kubevirt_sandbox.kubevirt.admission import resources
from kubevirt_sandbox.kubevirt.admission import storage
from kubevirt_sandbox.kubevirt.admission import volumes
from kubevirt_sandbox.kubevirt import paths

_RESERVED_LABELS = (
    'kubevirt.io/created-by', 'kubevirt.io/migrationJobUID',
    'kubevirt.io/nodeName', 'kubevirt.io/migrationTargetNodeName',
    'kubevirt.io/schedulable', 'install.kubevirt.io/strategy')


def check(field, spec, config):
    """List causes to refuse the spec of a VMI.

    :param field: the path of the spec.
    :param spec: the spec with its defaults filled in.
    :param config: a :class:`config.ClusterConfig`.
    :returns: a list of :class:`causes.Cause`.
    """
    domain = f'{field}.domain'
    return [
        *resources.check(field, spec, config),
        *devices.check_acpi(field, spec),
        *network.check(field, spec, config),
        *storage.check_boot(field, spec, config),
        *devices.check(field, spec, config),
        *pod.check(field, spec),
        *storage.check_disks(f'{domain}.devices.disks', paths.disks(spec)),
        *devices.check_firmware(domain, spec.get('domain') or {}),
        *volumes.check(f'{field}.volumes', paths.volumes(spec), config),
        *volumes.check_container_disks(f'{field}.volumes',
                                       paths.volumes(spec)),
    ]


def check_metadata(field, meta, trusted):
    """Check for labels that only KubeVirt may set.

    :param field: the path of the metadata.
    :param trusted: whether the write is KubeVirt's own.
    """
    if not trusted and reserved_labels(meta):
        yield causes.Cause('creation of the following reserved kubevirt.io/ '
                           'labels on a VMI object is prohibited',
                           f'{field}.labels', causes.NOT_SUPPORTED)


def reserved_labels(meta):
    """Return the labels that only KubeVirt may set, as a dict."""
    labels = (meta or {}).get('labels') or {}
    return {k: v for k, v in labels.items() if k in _RESERVED_LABELS}
