# SPDX-License-Identifier: Apache-2.0
"""Builds a VirtualMachine with every class of boot device, for tests."""

import os
import uuid

from kubevirt_sandbox.testing import sandbox

#: Container disk of the medium. A sandbox pulls no images.
MEDIUM = os.environ.get('KUBEVIRT_MEDIUM') or 'registry.invalid/installer:1'


def vm(name, run_strategy='RerunOnFailure', namespace=sandbox.NAMESPACE,
       **spec):
    """Make a VM with a disk, a CD-ROM drive with a medium, and a NIC.

    It boots from the disk: no device has a ``bootOrder``, and the disk comes
    first.

    :param name: name of the VM.
    :param run_strategy: e.g. ``Halted`` for a VM that is off; None leaves
        the field out.
    :param namespace: namespace of the VM.
    :param spec: further fields of ``spec``, e.g. ``running``.
    :returns: the VM as a dictionary for the API.
    """
    if run_strategy is not None:
        spec['runStrategy'] = run_strategy
    return {
        'apiVersion': 'kubevirt.io/v1',
        'kind': 'VirtualMachine',
        'metadata': {'name': name, 'namespace': namespace},
        'spec': {
            **spec,
            'template': {
                'metadata': {'labels': {'machine': name}},
                'spec': {
                    'terminationGracePeriodSeconds': 5,
                    'domain': {
                        'cpu': {'sockets': 1, 'cores': 2, 'threads': 1},
                        'memory': {'guest': '1Gi'},
                        'firmware': {'uuid': str(uuid.uuid4())},
                        'devices': {
                            'disks': [
                                {'name': 'root', 'disk': {'bus': 'virtio'}},
                                {'name': 'cd', 'cdrom': {'bus': 'sata'}},
                            ],
                            'interfaces': [
                                {'name': 'default', 'masquerade': {}},
                            ],
                        },
                    },
                    'networks': [{'name': 'default', 'pod': {}}],
                    'volumes': [
                        {'name': 'root',
                         'emptyDisk': {'capacity': '10Gi'}},
                        {'name': 'cd', 'containerDisk': {
                            'image': MEDIUM}},
                    ],
                },
            },
        },
    }


def uuid_of(obj):
    """Read the firmware UUID of a VM."""
    return obj['spec']['template']['spec']['domain']['firmware']['uuid']
