# SPDX-License-Identifier: Apache-2.0
"""Power and boot of a machine: what the buttons do to the guest."""

from tests.web import case

RESET = '/redfish/v1/Systems/1/Actions/ComputerSystem.Reset'

#: Buttons that interrupt a guest, and what they do to one that runs.
RESTARTS = 'Force restart', 'Restart', 'Power cycle'
STOPS = 'Force off', 'Shut down', 'Push power button'


class PowerTestCase(case.WebPodTestCase):

    def setUp(self):
        super().setUp()
        self.log_in()
        self.state = self.page.locator('#power')
        if self.sandbox.vmi('vm-0'):
            self.pod.request('POST', RESET, {'ResetType': 'ForceOff'}, 204)
            self.sandbox.wait_stopped('vm-0')
        self.pod.request('PATCH', '/redfish/v1/Systems/1', {'Boot': {
            'BootSourceOverrideEnabled': 'Disabled'}}, 204)
        self.expect(self.state).to_have_text('Off')
        self.boots = len(self.sandbox.boots('vm-0'))

    def click(self, name):
        self.page.get_by_role('button', name=name, exact=True).click()

    def confirm(self, name):
        self.click(name)
        dialog = self.page.get_by_role('dialog')
        self.expect(dialog).to_contain_text('vm-0')
        dialog.get_by_role('button', name=name, exact=True).click()

    def switch_on(self):
        self.click('Power on')
        self.expect(self.state).to_have_text('On')
        self.boots += 1
        return self.sandbox.wait_boot('vm-0', self.boots)

    def test_every_reset_type(self):
        self.switch_on()
        for name in RESTARTS:
            self.confirm(name)
            self.boots += 1
            self.sandbox.wait_boot('vm-0', self.boots)
            self.expect(self.state).to_have_text('On')
        for name in STOPS:
            self.confirm(name)
            self.sandbox.wait_stopped('vm-0')
            self.expect(self.state).to_have_text('Off')
            self.switch_on()
        self.confirm('Force off')
        self.sandbox.wait_stopped('vm-0')
        self.expect(self.state).to_have_text('Off')
        self.click('Force on')
        self.boots += 1
        self.sandbox.wait_boot('vm-0', self.boots)
        self.expect(self.state).to_have_text('On')
        self.click('Pause')
        self.expect(self.state).to_have_text('Paused')
        self.assertEqual('True', next(
            one['status'] for one in self.sandbox.vmi('vm-0')['status'][
                'conditions'] if one['type'] == 'Paused'))
        self.click('Resume')
        self.expect(self.state).to_have_text('On')

    def test_nothing_happens_without_confirmation(self):
        self.switch_on()
        before = self.sandbox.vmi('vm-0')['metadata']['uid']
        self.click('Force off')
        dialog = self.page.get_by_role('dialog')
        self.expect(dialog.get_by_role(
            'button', name='Cancel')).to_be_focused()
        self.page.keyboard.press('Enter')
        self.expect(dialog).to_be_hidden()
        self.click('Power cycle')
        self.expect(dialog).to_be_visible()
        self.page.keyboard.press('Escape')
        self.expect(dialog).to_be_hidden()
        self.click('Pause')
        self.expect(self.state).to_have_text('Paused')
        self.assertEqual(before, self.sandbox.vmi('vm-0')['metadata']['uid'])

    def test_changes_of_others_are_shown(self):
        self.sandbox.do('vm-0', 'start')
        self.expect(self.state).to_have_text('On')
        other = self.open_tab()
        self.log_in(other)
        self.expect(other.page.locator('#power')).to_have_text('On')
        self.confirm('Force off')
        self.expect(other.page.locator('#power')).to_have_text('Off')

    def save(self, panel):
        self.page.get_by_role('region', name=panel).get_by_role(
            'button', name='Save').click()
        self.expect(self.page.locator('.messages')).to_contain_text('Saved.')

    def test_boot_override(self):
        self.page.get_by_label('Boot from', exact=True).select_option(
            'Network (PXE)')
        self.expect(self.page.get_by_label(
            'Override', exact=True)).to_have_value('Once')
        self.save('Boot override')
        self.assertEqual('Pxe', self.switch_on()['class'])
        # It is gone, and the page shows that.
        self.expect(self.page.get_by_label(
            'Override', exact=True)).to_have_value('Disabled')
        self.confirm('Power cycle')
        self.boots += 1
        self.assertEqual('Hdd', self.sandbox.wait_boot(
            'vm-0', self.boots)['class'])

    def test_boot_override_for_every_start(self):
        self.page.get_by_label('Override', exact=True).select_option('Always')
        self.page.get_by_label('Boot from', exact=True).select_option(
            'Network (PXE)')
        self.save('Boot override')
        self.assertEqual('Pxe', self.switch_on()['class'])
        self.confirm('Power cycle')
        self.boots += 1
        self.assertEqual('Pxe', self.sandbox.wait_boot(
            'vm-0', self.boots)['class'])
        self.expect(self.page.get_by_label(
            'Override', exact=True)).to_have_value('Continuous')

    def test_boot_order(self):
        panel = self.page.get_by_role('region', name='Boot order')
        entries = panel.locator('li span')
        self.expect(entries.nth(1)).to_be_visible()
        first, second = entries.all_text_contents()[:2]
        panel.get_by_role('button', name=f'Move {second} up').click()
        self.assertEqual([second, first], entries.all_text_contents()[:2])
        self.save('Boot order')
        self.assertEqual('Pxe', self.switch_on()['class'])
        panel.get_by_role('button', name='Restore the default order').click()
        self.expect(entries.first).to_have_text(first)

    def test_settings(self):
        panel = self.page.get_by_role('region', name='Settings')
        text = '<b>tag</b> & "quotes"'
        panel.get_by_label('Asset tag').fill(text)
        panel.get_by_label('Indicator').select_option('Blinking')
        panel.get_by_label('After a power loss').select_option(
            'Restore the last state')
        self.save('Settings')
        found = self.pod.request('GET', '/redfish/v1/Systems/1').json()
        self.assertEqual((text, 'Blinking', 'LastState'), (
            found['AssetTag'], found['IndicatorLED'],
            found['PowerRestorePolicy']))
        self.page.reload()
        self.expect(panel.get_by_label('Asset tag')).to_have_value(text)

    def test_reason_why_a_machine_cannot_start(self):
        self.sandbox.patch('virtualmachines', 'vm-0', {'spec': {'template': {
            'spec': {'nodeSelector': {'kubernetes.io/hostname': 'none'}}}}})
        self.addCleanup(
            self.sandbox.patch, 'virtualmachines', 'vm-0', {'spec': {
                'template': {'spec': {'nodeSelector': None}}}})
        self.click('Power on')
        trouble = self.page.get_by_text('cannot run')
        self.expect(trouble).to_contain_text('Unschedulable')
        # It is off, so that nothing asks for a confirmation.
        self.click('Force off')
        self.expect(trouble).to_be_hidden()

    def test_inventory(self):
        self.switch_on()
        panel = self.page.get_by_role('region', name='Inventory')
        vmi = self.sandbox.vmi('vm-0')
        for text in (vmi['status']['nodeName'],
                     vmi['status']['interfaces'][0]['mac'], 'KubeVirt v',
                     'sushy-kubevirt', 'root', '2 GiB'):
            self.expect(panel).to_contain_text(text)

    def test_refused_change_says_what_to_do(self):
        self.tab.allow_error('status of 4')
        self.page.get_by_label('Boot from', exact=True).select_option(
            'HTTP boot')
        self.page.get_by_label('URL to boot from').fill('ftp://x/y.efi')
        self.page.get_by_role('region', name='Boot override').get_by_role(
            'button', name='Save').click()
        self.expect(self.page.locator('.messages .bad')).to_contain_text(
            'http')
