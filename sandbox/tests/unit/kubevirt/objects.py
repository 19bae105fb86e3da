# SPDX-License-Identifier: Apache-2.0
"""Objects for unit tests."""

from kubevirt_sandbox.kubevirt import config
from kubevirt_sandbox.kubevirt import samples


def vmi(uid='uid-1', annotations=None, phase='Running', **spec):
    """A VMI with the sample machine's spec.

    :param spec: members of the spec instead of the sample's.
    """
    template = samples.sample_vm('one')['spec']['template']
    return {'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachineInstance',
            'metadata': {'name': 'one', 'namespace': 'default', 'uid': uid,
                         'annotations': dict(annotations or {})},
            'spec': {**template['spec'], **spec},
            'status': {'phase': phase}}


def cluster_config(on=('RebootPolicy', 'DeclarativeHotplugVolumes'), off=(),
                   **configuration):
    """A configuration as a KubeVirt object would give it."""
    kubevirt = {'spec': {'configuration': {
        'developerConfiguration': {'featureGates': list(on),
                                   'disabledFeatureGates': list(off)},
        **configuration}}}
    return config.ClusterConfig(lambda: kubevirt)
