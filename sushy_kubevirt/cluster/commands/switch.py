# SPDX-License-Identifier: Apache-2.0
"""``switch``."""

from __future__ import annotations

import argparse
import pathlib
import sys

from sushy_kubevirt.cluster.commands import base
from sushy_kubevirt.cluster.commands import files
from sushy_kubevirt.cluster.nova import switch
from sushy_kubevirt.cluster import problems

_HEADING = '# Written by sushy-kubevirt-cluster for the cluster '


class Switch(base.Command):
    """Print the networks as switches of networking-generic-switch.

    With --output-file, write the file instead, if it differs. Neutron reads
    it at its start, if it is given by --config-file, or is in a folder that
    is given by --config-dir and its name ends in ".conf". Neither Kubernetes
    nor OpenStack is asked.
    """

    arguments = (*base.FILE, base.argument(
        '--output-file', metavar='PATH',
        help='write this file, such as '
             '/etc/neutron/plugins/ml2/ml2_conf_genericswitch.ini; one that '
             'is not of this cluster is not overwritten'))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print or write."""
        cluster = base.read(parsed_args)
        heading = _HEADING + cluster.name
        text = f'{heading}\n{switch.configuration(cluster.networks.values())}'
        path = parsed_args.output_file
        if not path:
            self.app.stdout.write(text)
            return
        file = pathlib.Path(path)
        existing = file.read_text() if file.is_file() else None
        if existing and existing.partition('\n')[0] != heading:
            raise problems.Unsuitable(
                f'{path} was not written for the cluster {cluster.name}: '
                'give the path of a new file')
        if existing == text:
            self.app.stdout.write(base.NOTHING + '\n')
            return
        files.write(path, text, files.PUBLIC)
        print(f'{path} is written. Restart Neutron to make it read this file',
              file=sys.stderr)
