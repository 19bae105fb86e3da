# SPDX-License-Identifier: Apache-2.0
"""BIOS attributes and Secure Boot."""

from tests.web import case


class FirmwareTestCase(case.WebPodTestCase):

    def setUp(self):
        super().setUp()
        self.log_in()
        self.page.get_by_role('link', name='Firmware', exact=True).click()
        self.bios = self.page.get_by_role('region', name='BIOS attributes')

    def save(self, panel):
        panel.get_by_role('button', name='Save').click()
        self.expect(self.page.locator('.messages')).to_contain_text(
            'Saved for the next start')

    def restart(self, kind):
        self.pod.request(
            'POST', '/redfish/v1/Systems/1/Actions/ComputerSystem.Reset',
            {'ResetType': kind}, 204)

    def test_attribute_is_pending_until_the_next_start(self):
        self.restart('On')
        self.sandbox.wait_running('vm-0')
        self.addCleanup(self.restart, 'ForceOff')
        mode = self.bios.get_by_label('Boot Mode')
        mode.select_option('UEFI')
        self.save(self.bios)
        self.expect(self.bios).to_contain_text(
            'until the next start the value is Legacy')
        boots = len(self.sandbox.boots('vm-0'))
        self.restart('PowerCycle')
        found = self.sandbox.wait_boot('vm-0', boots + 1)
        self.assertEqual('efi', found['firmware'])
        self.expect(self.bios).not_to_contain_text('Pending')
        self.expect(mode).to_have_value('UEFI')
        # Secure Boot, which needs UEFI.
        panel = self.page.get_by_role('region', name='Secure Boot')
        panel.get_by_label('Enable Secure Boot').check()
        self.save(panel)
        self.expect(panel).to_contain_text('next start of the machine')
        self.restart('PowerCycle')
        self.sandbox.wait_boot('vm-0', boots + 2)
        self.expect(panel).to_contain_text('In the running guestEnabled')

    def test_attributes_of_clients(self):
        self.pod.request('PATCH', '/redfish/v1/Systems/1/Bios/Settings', {
            'Attributes': {'Custom<b>': 'x'}}, expect=None)
        attribute = self.bios.get_by_label('Custom<b>')
        self.expect(attribute).to_have_value('x')
        attribute.fill('y')
        self.save(self.bios)
        self.assertEqual('y', self.pod.request(
            'GET', '/redfish/v1/Systems/1/Bios/Settings').json()[
                'Attributes']['Custom<b>'])
        self.bios.get_by_role('button', name='Reset to defaults').click()
        self.page.get_by_role('dialog').get_by_role(
            'button', name='Reset to defaults').click()
        self.expect(attribute).to_have_count(0)

    def test_read_only_attributes_cannot_be_changed(self):
        self.expect(self.bios.get_by_label('TPM')).to_have_text('None')
        self.expect(self.bios.get_by_role('combobox')).to_have_count(2)
