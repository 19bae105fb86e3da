# SPDX-License-Identifier: Apache-2.0
"""``openstack baremetal create FILE.json``, of python-ironicclient.

``enrol`` finds nodes that were created by it, and sets their traits, which
such a file cannot have.
"""

from __future__ import annotations

import json

from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.ironic import ports

TEXT = 'nodes and ports for "openstack baremetal create"; has passwords'


def make(wanted, owner):
    """Make the file.

    :param wanted: list of `nodes.Wanted`
    :param owner: the cluster, an `identity.owner`
    :returns: text, JSON
    """
    return json.dumps(
        {'nodes': [_node(one, owner) for one in wanted]}, indent=2) + '\n'


def _node(wanted, owner):
    node = nodes.creation(wanted, owner, {})
    made = [_without(one.body)
            for one in ports.changes(wanted, None, owner, (), ())]
    groups = [_without(one.body)
              for one in ports.group_changes(wanted, None, owner, ())]
    if not groups:
        return {**node, 'ports': made}
    # A port group is of one physical network, see `ports`.
    first = made[0]['physical_network']
    return {**node,
            'portgroups': [{**groups[0], 'ports': [
                one for one in made if one['physical_network'] == first]}],
            'ports': [one for one in made
                      if one['physical_network'] != first]}


def _without(body):
    # The client adds what depends on UUIDs.
    return {key: value for key, value in body.items()
            if key not in ('node_uuid', 'portgroup_uuid')}
