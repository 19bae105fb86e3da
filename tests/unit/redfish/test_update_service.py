# SPDX-License-Identifier: Apache-2.0

from importlib import metadata

from tests.unit.redfish import base
from tests.unit.redfish import fakes

ROOT = '/redfish/v1/UpdateService'
INVENTORY = ROOT + '/FirmwareInventory'


class TestUpdateService(base.RedfishTestCase):

    def members(self):
        return {one['@odata.id'].rpartition('/')[2]
                for one in self.get(path=INVENTORY)['Members']}

    def test_nothing_can_be_updated(self):
        self.assertEqual({'@odata.id': ROOT}, self.get(
            path='/redfish/v1/')['UpdateService'])
        body = self.get(path=ROOT)
        self.assertIs(False, body['ServiceEnabled'])
        [action] = body['Actions'].values()
        self.assertNotIn('HttpPushUri', str(body))
        for name in self.members():
            self.assertIs(False, self.get(
                path=f'{INVENTORY}/{name}')['Updateable'])
        answer = self.client.post(
            action['target'], json={'ImageURI': 'http://host/image'})
        self.assertEqual(501, answer.status_code)
        self.check_error(answer)

    def test_versions(self):
        self.assertEqual({'BMC', 'KubeVirt', 'UEFI'}, self.members())
        found = {name: self.get(path=f'{INVENTORY}/{name}')
                 for name in self.members()}
        self.assertEqual(
            {'BMC': metadata.version('sushy-kubevirt'), 'KubeVirt': 'v1.9.0',
             'UEFI': 'UEFI of KubeVirt v1.9.0'},
            {name: body['Version'] for name, body in found.items()})
        self.assertEqual(self.get()['BiosVersion'], found['UEFI']['Version'])
        self.assertEqual(
            ['/redfish/v1/Managers/' + each for each in (fakes.A, fakes.B)],
            [each['@odata.id'] for each in found['BMC']['RelatedItem']])
        self.get(path=INVENTORY + '/BIOS', code=404)

    def test_firmware_of_each_type(self):
        self.machine._inventory = fakes.INVENTORY._replace(
            firmware='bios', kubevirt_version='')
        self.assertEqual({'BMC', 'KubeVirt', 'UEFI', 'BIOS'}, self.members())
        body = self.get(path=INVENTORY + '/BIOS')
        self.assertEqual([{'@odata.id': self.path}], body['RelatedItem'])
        self.assertEqual('BIOS of KubeVirt', body['Version'])

    def test_without_systems(self):
        self.cluster.all.clear()
        self.assertEqual({'BMC', 'KubeVirt'}, self.members())
        self.assertNotIn('Version', self.get(path=INVENTORY + '/KubeVirt'))

    def test_smaller_feature_sets(self):
        for name in 'minimum', 'vmedia':
            app = fakes.application(self, self.cluster,
                                    SUSHY_EMULATOR_FEATURE_SET=name)
            client = app.test_client()
            self.assertNotIn('UpdateService', client.get('/redfish/v1/').json)
            for path in ROOT, INVENTORY:
                self.assertEqual(404, client.get(path).status_code)
