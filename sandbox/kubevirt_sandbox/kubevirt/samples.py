# SPDX-License-Identifier: Apache-2.0
"""A sample VM for demonstrations and tests."""


def sample_vm(name, namespace='default', *, run_strategy='Halted',
              labels=None, annotations=None):
    """Make a VirtualMachine that boots from its disk, then the network.

    It has a root disk, a network card and an empty CD-ROM drive, one socket
    with two cores, and 2 GiB of memory.

    :param labels: labels of the VM, or None.
    :param annotations: annotations of its instances, or None.
    :returns: the object, as a dict.
    """
    return {
        'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
        'metadata': {'name': name, 'namespace': namespace,
                     'labels': dict(labels or {})},
        'spec': {
            'runStrategy': run_strategy,
            'template': {
                'metadata': {'labels': {'kubevirt.io/domain': name},
                             'annotations': dict(annotations or {})},
                'spec': {
                    'terminationGracePeriodSeconds': 30,
                    'domain': {
                        'cpu': {'sockets': 1, 'cores': 2, 'threads': 1},
                        'memory': {'guest': '2Gi'},
                        'devices': {
                            'disks': [
                                {'name': 'root', 'bootOrder': 1,
                                 'disk': {'bus': 'virtio'}},
                                {'name': 'cd', 'cdrom': {'bus': 'sata'}}],
                            'interfaces': [
                                {'name': 'default', 'bootOrder': 2,
                                 'masquerade': {}, 'model': 'virtio'}]}},
                    'networks': [{'name': 'default', 'pod': {}}],
                    'volumes': [{'name': 'root', 'containerDisk': {
                        'image': 'quay.io/containerdisks/debian:13'}}],
                },
            },
        },
    }
