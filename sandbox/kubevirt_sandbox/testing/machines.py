# SPDX-License-Identifier: Apache-2.0
"""VMs for tests: one that has every class of boot device."""

import uuid


def vm(name, run_strategy='RerunOnFailure', namespace='default', **spec):
    """Make a VM with a disk, a CD-ROM that holds something, and a NIC.

    It boots from its disk: no device has a number, and that is the first.

    :param run_strategy: ``Halted`` for one that is off; None leaves it out.
    :param spec: further members of ``spec``, ``running`` for instance.
    :returns: dictionary, for the API.
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
                            'image': 'registry.invalid/installer:1'}},
                    ],
                },
            },
        },
    }


def uuid_of(obj):
    """Read the firmware UUID of a VM."""
    return obj['spec']['template']['spec']['domain']['firmware']['uuid']
