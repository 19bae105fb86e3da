# SPDX-License-Identifier: Apache-2.0
"""Networks of Multus."""

from kubevirt_sandbox.kubevirt import network_attachments
from kubevirt_sandbox.kubevirt import vmi_status
from kubevirt_sandbox.testing import server
from tests.unit.kubevirt import objects

PATH = ('/apis/k8s.cni.cncf.io/v1/namespaces/{}/'
        'network-attachment-definitions')
DEVICE = 'bridge.network.kubevirt.io/br1'


def definition(name, **annotations):
    return {'apiVersion': 'k8s.cni.cncf.io/v1',
            'kind': 'NetworkAttachmentDefinition', 'metadata': {
                'name': name, 'annotations': annotations},
            'spec': {'config': '{"type": "bridge"}'}}


class DefinitionsTestCase(server.ServerTestCase):

    def cluster(self):
        return server.cluster(network_attachments.KIND)

    async def post(self, obj, namespace='default'):
        async with self.client.post(PATH.format(namespace),
                                    json=obj) as answer:
            return answer.status, await answer.json()

    async def test_definition(self):
        code, made = await self.post(definition('blue'))
        self.assertEqual(201, code)
        self.assertEqual('{"type": "bridge"}', made['spec']['config'])
        code, made = await self.post(
            {**definition('red'), 'spec': {'config': {'type': 'bridge'}}})
        self.assertEqual((422, 'Invalid'), (code, made['reason']))
        async with self.client.get('/apis/k8s.cni.cncf.io/v1') as answer:
            [resource] = (await answer.json())['resources']
        self.assertEqual(
            ('network-attachment-definition', ['net-attach-def'], True),
            (resource['singularName'], resource['shortNames'],
             resource['namespaced']))

    async def test_devices_of_networks(self):
        vmi = objects.vmi(networks=[
            {'name': 'a', 'pod': {}},
            {'name': 'b', 'multus': {'networkName': 'blue'}},
            {'name': 'c', 'multus': {'networkName': 'kube-system/red'}}])

        def missing():
            with self.assertRaises(network_attachments.Missing) as caught:
                network_attachments.resources(self.store, vmi)
            return str(caught.exception)
        self.assertEqual('failed to locate network attachment definition '
                         'default/blue', missing())
        await self.post(definition('blue'))
        await self.post(definition('red'))
        self.assertEqual('failed to locate network attachment definition '
                         'kube-system/red', missing())
        await self.post(definition('red', **{
            'k8s.v1.cni.cncf.io/resourceName': DEVICE}), 'kube-system')
        self.assertEqual([DEVICE], network_attachments.resources(
            self.store, vmi))

    async def test_status_of_interfaces(self):
        vmi = objects.vmi(networks=[
            {'name': 'default', 'multus': {'networkName': 'blue'}}])
        for agent, source in ((False, 'domain, multus-status'),
                              (True, 'domain, guest-agent, multus-status')):
            vmi_status.set_interfaces(vmi, None, agent)
            [card] = vmi['status']['interfaces']
            self.assertEqual(source, card['infoSource'])
            self.assertRegex(card['podInterfaceName'], '^pod[0-9a-f]{11}$')
            self.assertEqual(agent, 'ipAddress' in card)
