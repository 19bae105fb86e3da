# SPDX-License-Identifier: Apache-2.0
"""What the operator writes about BMCs, for unit tests."""

import base64

from sushy_kubevirt.operator import naming
from tests.unit.cluster import nodes

CA = '-----BEGIN CERTIFICATE-----\n'


def serve(api, obj, address='10.96.0.7', **endpoints):
    """Be the controllers: set the status that they set at last.

    :param api: a `memory.Memory`
    :param obj: dict, an object that was written; is changed
    """
    nodes.ready(obj)
    if obj['kind'] != 'VirtualMachineBMC':
        return
    name = obj['metadata']['name']
    obj['status'].update(
        authSecret=obj['spec']['authSecret']['name'], serviceIP=address,
        endpoints={
            'redfish': {
                'url': f'https://{address}/redfish/v1/Systems/1',
                'certificateAuthority': {
                    'configMap': naming.authority(name), 'key': 'ca.crt'}},
            'ipmi': {'address': f'{address}:623', 'host': address,
                     'port': 623}, **endpoints})
    api.objects['configmaps', naming.authority(name)] = {
        'metadata': {'name': naming.authority(name),
                     'labels': {naming.MANAGED_BY: naming.OPERATOR}},
        'data': {'ca.crt': CA}}


def password(api, node):
    """:returns: text, the password in the Secret of a node"""
    data = api.find('secrets', node + '-bmc')['data']
    return base64.b64decode(data['password']).decode()
