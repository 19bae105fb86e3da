# SPDX-License-Identifier: Apache-2.0
"""Check that Ironic's DevStack plugin can use a cluster file.

    hardware.py FILE NAME DRIVER BOOT_MODE

It prints the number of CPUs, the memory in MiB and the disk in GiB that all
nodes have at least: the plugin has one size, driver and boot mode for all; and
the memory of the largest node. If it cannot use the file, the exit status is 2
and stderr has the reasons.
"""

import sys

from sushy_kubevirt.cluster import config
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster import problems


def unsuitable(cluster, driver, boot_mode):
    """Yield why the plugin cannot use a cluster.

    :param cluster: a `model.Cluster`
    :param driver: IRONIC_DEPLOY_DRIVER
    :param boot_mode: IRONIC_BOOT_MODE
    """
    if not cluster.nodes:
        yield 'the cluster file has no nodes'
    for one in cluster.nodes:
        if one.ironic is None:
            yield f'{one.name} has no "ironic_config", so that it is no node'
        if one.type.driver != driver:
            yield (f'{one.name} has the driver {one.type.driver}, but '
                   f'IRONIC_DEPLOY_DRIVER is {driver}')
        if one.type.boot_mode != boot_mode:
            yield (f'{one.name} has the boot mode {one.type.boot_mode}, but '
                   f'IRONIC_BOOT_MODE is {boot_mode}')
        if not one.interfaces:
            yield f'{one.name} has no "physical_networks"'
        if not one.type.vcpus or not one.type.memory_mb:
            yield (f'{one.name} has an instance type: DevStack needs "vcpus" '
                   'and "memory_mb"')


def main(path, name, driver, boot_mode):
    """Run; see the head of this module. :returns: exit status"""
    try:
        cluster = config.read(path, name)
    except (problems.InvalidFile, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for one in cluster.warnings:
        print(f'warning: {one}', file=sys.stderr)
    found = list(unsuitable(cluster, driver, boot_mode))
    for text in found:
        print(f'{path}: {text}', file=sys.stderr)
    if found:
        return 2
    types = [one.type for one in cluster.nodes]
    print(min(one.vcpus for one in types), min(
        one.memory_mb for one in types), min(
            nodes.disk_gb(one) or 0 for one in types), max(
                one.memory_mb for one in types))
    return 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
