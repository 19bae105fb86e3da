#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dynamic inventory for Bifrost's playbooks: the nodes of a cluster file.

It prints what Bifrost's bifrost_inventory.py prints for the file that
"sushy-kubevirt-cluster inventory --format bifrost" writes, so that no file
with passwords is needed. Environment variables:

SUSHY_KUBEVIRT_CLUSTER_FILE   the cluster file
SUSHY_KUBEVIRT_COMMAND        sushy-kubevirt-cluster, with options if need be
BIFROST_NODE_NAMES            names of the nodes to list, with commas between;
                              without it, all
DEFAULT_HOST_GROUPS           further groups of all nodes, with blanks between
"""

import argparse
import json
import os
import shlex
import subprocess
import sys


def read(file, command):
    """Run ``sushy-kubevirt-cluster inventory``.

    :param file: path of the cluster file
    :param command: text, the command and its options
    :returns: dict of name to dict of the node, as in ``baremetal_json_file``
    :raises SystemExit: with the command's status; it has printed the reason
    """
    words = shlex.split(command)
    try:
        done = subprocess.run(
            [*words[:1], 'inventory', file, '--format', 'bifrost',
             *words[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except FileNotFoundError:
        sys.exit(f'{words[0]} is not installed; SUSHY_KUBEVIRT_COMMAND can '
                 'name its path')
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def inventory(nodes, names, more):
    """Make what ``--list`` prints.

    :param nodes: as of `read`
    :param names: of the nodes to list; empty for all
    :param more: further groups of all nodes
    :returns: dict
    """
    hosts = {'127.0.0.1': {'ansible_connection': 'local'}}
    groups = {'localhost': {'hosts': ['127.0.0.1']}}
    for name, node in nodes.items():
        if names and name not in names:
            continue
        # To Bifrost, this is the interface of the host of Ironic.
        node.pop('network_interface', None)
        node['host_groups'] = sorted({*node['host_groups'], *more})
        hosts[name] = {**node, 'addressing_mode': 'dhcp'}
        for group in node['host_groups']:
            groups.setdefault(group, {'hosts': []})['hosts'].append(name)
    return {'_meta': {'hostvars': hosts}, **groups}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--list', action='store_true', required=True,
                        help='print all hosts and their variables')
    parser.parse_args()
    file = os.environ.get('SUSHY_KUBEVIRT_CLUSTER_FILE')
    if not file:
        sys.exit('SUSHY_KUBEVIRT_CLUSTER_FILE has to name a cluster file')
    nodes = read(file, os.environ.get('SUSHY_KUBEVIRT_COMMAND')
                 or 'sushy-kubevirt-cluster')
    print(json.dumps(inventory(nodes, [
        one for one in os.environ.get('BIFROST_NODE_NAMES', '').split(',')
        if one], os.environ.get('DEFAULT_HOST_GROUPS', '').split()), indent=2))


if __name__ == '__main__':
    main()
