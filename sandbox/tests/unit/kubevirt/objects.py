# SPDX-License-Identifier: Apache-2.0
"""Objects for unit tests."""

from kubevirt_sandbox.kubevirt import config
from kubevirt_sandbox.kubevirt import samples


def vmi(uid='uid-1', annotations=None, phase='Running', **spec):
    """Return a VMI with the spec of the sample VM.

    :param spec: replacements of members of the spec
    """
    template = samples.sample_vm('one')['spec']['template']
    return {'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachineInstance',
            'metadata': {'name': 'one', 'namespace': 'default', 'uid': uid,
                         'annotations': dict(annotations or {})},
            'spec': {**template['spec'], **spec},
            'status': {'phase': phase}}


def cluster_config(on=('RebootPolicy', 'DeclarativeHotplugVolumes'), off=(),
                   **configuration):
    """Return the configuration of a KubeVirt object."""
    kubevirt = {'spec': {'configuration': {
        'developerConfiguration': {'featureGates': list(on),
                                   'disabledFeatureGates': list(off)},
        **configuration}}}
    return config.ClusterConfig(lambda: kubevirt)
