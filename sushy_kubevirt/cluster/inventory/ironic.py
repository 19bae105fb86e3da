# SPDX-License-Identifier: Apache-2.0
"""``openstack baremetal create FILE.json``, of python-ironicclient.

``enrol`` finds nodes that were created by it, and sets their traits, which
such a file cannot have.
"""

from __future__ import annotations

import json
import typing

from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.ironic import ports

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

TEXT = 'nodes and ports for "openstack baremetal create"; has passwords'


def make(declared: list[nodes.Wanted], owner: str) -> str:
    """Make the file.

    :param owner: the cluster, an `identity.owner`
    :returns: JSON
    """
    return json.dumps(
        {'nodes': [_node(wanted, owner) for wanted in declared]},
        indent=2) + '\n'


def _node(wanted: nodes.Wanted, owner: str) -> objects.Json:
    node = nodes.creation(wanted, owner, {})
    bodies = [_without(change.body)
              for change in ports.changes(wanted, None, owner, (), ())]
    groups = [_without(change.body)
              for change in ports.group_changes(wanted, None, owner, ())]
    if not groups:
        return {**node, 'ports': bodies}
    # A port group is of one physical network, see `ports`.
    first = bodies[0]['physical_network']
    return {**node,
            'portgroups': [{**groups[0], 'ports': [
                port for port in bodies if port['physical_network'] == first]}
            ],
            'ports': [port for port in bodies
                      if port['physical_network'] != first]}


def _without(body: objects.Json) -> objects.Json:
    # The client adds what depends on UUIDs.
    return {key: value for key, value in body.items()
            if key not in ('node_uuid', 'portgroup_uuid')}
