# SPDX-License-Identifier: Apache-2.0
"""The samples for Harvester and Seeder fit together."""

import json
import pathlib

from oslotest import base
import yaml

from sushy_kubevirt.operator import spec

SAMPLES = pathlib.Path(__file__).parents[2] / 'etc/kubernetes/samples'

#: Required fields of Seeder's objects: chart/seeder-crd/templates of
#: harvester/seeder, commit e70ca233. Its own samples lack ``events``.
REQUIRED = {
    'AddressPool': {'cidr', 'gateway'},
    'Inventory': {'baseboardSpec', 'events', 'managementInterfaceMacAddress',
                  'primaryDisk'},
    'Cluster': {'nodes', 'version', 'vipConfig'},
}


def objects(name):
    """Return {(kind, name): object} of a sample."""
    found = yaml.safe_load_all((SAMPLES / name).read_text())
    return {(one['kind'], one['metadata']['name']): one for one in found}


class SamplesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.harvester = objects('harvester.yaml')
        self.seeder = objects('seeder.yaml')
        self.vm = self.harvester['VirtualMachine', 'node-0']
        self.inventory = self.seeder['Inventory', 'node-0']['spec']

    def test_objects_have_required_fields(self):
        for (kind, _), one in self.seeder.items():
            if kind in REQUIRED:
                self.assertEqual('metal.harvesterhci.io/v1alpha1',
                                 one['apiVersion'])
                self.assertTrue(REQUIRED[kind] <= set(one['spec']), kind)

    def test_references(self):
        cluster = self.seeder['Cluster', 'nested']['spec']
        [node] = cluster['nodes']
        for kind, reference in (
                ('Inventory', node['inventoryReference']),
                ('AddressPool', node['addressPoolReference']),
                ('AddressPool', cluster['vipConfig']['addressPoolReference']),
                ('Secret', self.inventory['baseboardSpec']['connection'][
                    'authSecretRef'])):
            found = self.seeder[kind, reference['name']]
            self.assertEqual(reference['namespace'],
                             found['metadata']['namespace'])

    def test_inventory_names_the_bmc(self):
        made = self.harvester['VirtualMachineBMC', 'node-0']
        made['metadata']['uid'] = 'u'
        bmc = spec.read(made)
        connection = self.inventory['baseboardSpec']['connection']
        self.assertEqual(
            bmc.service.annotations['kube-vip.io/loadbalancerIPs'],
            connection['host'])
        # Rufio 0.3.2 takes no other ports.
        self.assertEqual(
            ('LoadBalancer', 443, 623, connection['port']),
            (bmc.service.type, bmc.service.redfish_port,
             bmc.service.ipmi_port, 623))
        self.assertEqual(
            self.harvester['Secret', 'node-0-bmc']['stringData'],
            self.seeder['Secret', 'node-0']['stringData'])

    def test_inventory_names_the_vm(self):
        template = self.vm['spec']['template']['spec']
        [interface] = template['domain']['devices']['interfaces']
        self.assertEqual(interface['macAddress'],
                         self.inventory['managementInterfaceMacAddress'])
        disk = template['domain']['devices']['disks'][0]
        self.assertEqual(('virtio', '/dev/vda'), (
            disk['disk']['bus'], self.inventory['primaryDisk']))
        # One-time boots of Seeder's jobs are legacy boots.
        self.assertNotIn('efi', template['domain']['firmware']['bootloader'])

    def test_claims_of_vm(self):
        [claim] = json.loads(self.vm['metadata']['annotations'][
            'harvesterhci.io/volumeClaimTemplates'])
        [volume] = self.vm['spec']['template']['spec']['volumes']
        self.assertEqual(volume['persistentVolumeClaim']['claimName'],
                         claim['metadata']['name'])
