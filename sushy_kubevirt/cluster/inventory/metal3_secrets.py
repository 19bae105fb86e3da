# SPDX-License-Identifier: Apache-2.0
"""The Secrets of the hosts of `metal3`, to pipe into ``kubectl apply``.

They are copies of the BMCs' credentials.
"""

from __future__ import annotations

import base64

from sushy_kubevirt.cluster.inventory import metal3

TEXT = 'the Secrets of these objects; has passwords'


def make(wanted, owner):
    """Make the file: see `metal3.make`."""
    return metal3.documents(wanted, owner, _secret)


def _secret(wanted, namespace):
    return {'apiVersion': 'v1', 'kind': 'Secret', 'type': 'Opaque',
            'metadata': {'name': metal3.secret_name(wanted.node.name),
                         'namespace': namespace},
            'data': {key: base64.b64encode(value.encode()).decode()
                     for key, value in (('username', wanted.bmc.username),
                                        ('password', wanted.bmc.password))}}
