# SPDX-License-Identifier: Apache-2.0
"""The Secrets of the hosts of `metal3`, to pipe into ``kubectl apply``.

They are copies of the BMCs' credentials.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.cluster.inventory import metal3
from sushy_kubevirt.operator import credentials

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster.ironic import nodes
    from sushy_kubevirt.kube import objects

TEXT = 'the Secrets of these objects; has passwords'


def make(declared: list[nodes.Wanted], owner: str) -> str:
    """Make the file: see `metal3.make`."""
    return metal3.documents(declared, owner, _secret)


def _secret(wanted: nodes.Wanted, namespace: str) -> objects.Json:
    return {'apiVersion': 'v1', 'kind': 'Secret', 'type': 'Opaque',
            'metadata': {'name': metal3.secret_name(wanted.node.name),
                         'namespace': namespace},
            'data': {key: credentials.encoded(value)
                     for key, value in (('username', wanted.bmc.username),
                                        ('password', wanted.bmc.password))}}
