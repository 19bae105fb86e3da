# SPDX-License-Identifier: Apache-2.0
"""Virtual media: by URL and from the computer of the browser."""

import os
import pathlib
import re
import time

import fixtures

from kubevirt_sandbox.testing import certificates
from tests.fixtures import image_server
from tests.web import case

#: Bytes of the large upload, and of it per second where it must not end.
LARGE = 200 * 2 ** 20
SLOW = 2 ** 20

SESSIONS = '/redfish/v1/SessionService'


class MediaCase(case.WebPodTestCase):
    """Shows the media of the machine."""

    SETTINGS = 'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK = True\n'
    UPLOADS = True

    @classmethod
    def setUpClass(cls):
        cls.storage = pathlib.Path(cls.share(fixtures.TempDir()).path)
        cls.SANDBOX_ARGUMENTS = ('--storage', cls.storage)
        super().setUpClass()
        cls.images = cls.share(image_server.ImageServer())
        cls.folder = pathlib.Path(cls.share(fixtures.TempDir()).path)

    def setUp(self):
        super().setUp()
        self.addCleanup(self.sandbox.request, 'DELETE', '/sandbox/imports')
        self.addCleanup(self.eject)
        self.debugging = None
        # A task that ends between the reads of its device and of itself.
        self.tab.allow_error('status of 404 .*/TaskService/Tasks/')
        self.log_in()
        self.page.get_by_role('link', name='Media', exact=True).click()
        self.panel = self.page.get_by_role('region', name='Virtual CD')

    def device(self):
        return self.pod.request(
            'GET', '/redfish/v1/Systems/1/VirtualMedia/Cd').json()

    def eject(self):
        self.pod.request('POST', '/redfish/v1/Systems/1/VirtualMedia/Cd/'
                         'Actions/VirtualMedia.EjectMedia', {})
        self.until(lambda: not [
            one for one in self.sandbox.list('persistentvolumeclaims')
            if '-bmc-' in one['metadata']['name']])

    def insert(self, url, **more):
        self.panel.get_by_label('URL of the image').fill(url)
        if more:
            self.panel.get_by_text('Login at the image server').click()
        for label, text in more.items():
            self.panel.get_by_label(f'{label} for the image server').fill(
                text)
        self.panel.get_by_role('button', name='Insert', exact=True).click()

    def file(self, name, size, content=b'\0CD001'):
        path = self.folder / name
        with path.open('wb') as stream:
            stream.write(content)
            stream.truncate(size)
        return path

    def upload(self, path, panel=None):
        panel = panel or self.panel
        panel.get_by_label('Image file').set_input_files(path)
        panel.get_by_role('button', name='Upload', exact=True).click()

    def throttle(self, rate):
        """Limit what the page sends.

        :param rate: bytes per second; -1 for no limit
        """
        # The limit is that of the debugging session.
        self.debugging = self.debugging or self.page.context.new_cdp_session(
            self.page)
        self.debugging.send('Network.emulateNetworkConditions', {
            'offline': False, 'latency': 0, 'downloadThroughput': -1,
            'uploadThroughput': rate})

    def begin_upload(self, name):
        """Upload a file that takes minutes; return when a part was sent."""
        path = self.file(name, LARGE)
        self.addCleanup(path.unlink)
        self.throttle(SLOW)
        self.upload(path)
        self.bar = self.panel.get_by_role(
            'progressbar', name='Upload to the BMC')
        self.expect(self.bar).to_be_visible()
        self.until(lambda: 0 < self.progress() < 100)

    def progress(self):
        """Return the value of the progress bar; 0 without one."""
        return float(self.bar.get_attribute('value') or 0)

    def confirm_eject(self, name):
        self.panel.get_by_role('button', name='Eject').click()
        dialog = self.page.get_by_role('dialog')
        self.expect(dialog).to_contain_text(
            f'Eject {name}? A running guest loses it.')
        dialog.get_by_role('button', name='Eject').click()
        self.expect(self.panel).to_contain_text('No medium is inserted.')


class MediaTestCase(MediaCase):

    def test_insert_and_eject(self):
        url = self.images.url + '/boot.iso'
        self.insert(url)
        self.expect(self.panel).to_contain_text('Complete')
        self.expect(self.panel).to_contain_text(url)
        self.assertTrue(self.device()['WriteProtected'])
        [volume] = self.sandbox.list('datavolumes')
        self.assertEqual(url, volume['spec']['source']['http']['url'])
        self.confirm_eject('boot.iso')
        self.assertFalse(self.device()['Inserted'])
        self.until(lambda: not self.sandbox.list('datavolumes'))

    def test_progress_of_an_import(self):
        self.sandbox.request('POST', '/sandbox/imports', {
            'url': '.*slow.*', 'rate': 20000}).raise_for_status()
        self.insert(self.images.url + '/slow-size-1000000.iso')
        bar = self.panel.get_by_role('progressbar')
        self.expect(bar).to_have_accessible_name('Import into the cluster')
        self.until(lambda: 0 < (bar.get_attribute('value') and float(
            bar.get_attribute('value')) or 0) < 100)
        # Another user sees the same, and cancels it.
        other = self.open_tab()
        other.allow_error('status of 404 .*/TaskService/Tasks/')
        self.log_in(other)
        other.page.get_by_role('link', name='Tasks').click()
        other.page.get_by_role('button', name='Cancel').click()
        other.page.get_by_role('dialog').get_by_role(
            'button', name='Cancel').last.click()
        self.expect(self.panel).to_contain_text('No medium is inserted.')

    def test_credentials(self):
        self.insert(self.images.url + '/private/boot.iso',
                    **{'User name': self.images.USER,
                       'Password': self.images.PASSWORD})
        self.expect(self.panel).to_contain_text('Complete')
        self.assertIn(('GET', '/private/boot.iso'), self.images.requests)
        self.assertNotIn(self.images.PASSWORD, self.page.content())

    def test_failure_says_what_to_do(self):
        self.tab.allow_error('status of 400')
        self.insert(self.images.url + '/absent')
        self.expect(self.page.locator('.messages .bad')).to_contain_text(
            '404')
        # What was typed is still there, to be corrected.
        self.insert(self.images.url + '/boot.iso')
        self.expect(self.panel).to_contain_text('Complete')

    def test_http_boot(self):
        url = self.images.url + '/boot.iso'
        self.page.get_by_role('link', name='Overview').click()
        panel = self.page.get_by_role('region', name='Boot override')
        panel.get_by_label('Boot from', exact=True).select_option(
            'HTTP boot')
        panel.get_by_label('Firmware').select_option('UEFI')
        panel.get_by_label('URL to boot from').fill(url)
        panel.get_by_role('button', name='Save').click()
        self.addCleanup(
            self.pod.request, 'PATCH', '/redfish/v1/Systems/1', {'Boot': {
                'BootSourceOverrideEnabled': 'Disabled'}}, 204)
        self.expect(self.page.locator('.messages')).to_contain_text('Saved.')
        boot = self.pod.request('GET', '/redfish/v1/Systems/1').json()['Boot']
        self.assertEqual(('UefiHttp', url, 'Once', 'UEFI'), (
            boot['BootSourceOverrideTarget'], boot['HttpBootUri'],
            boot['BootSourceOverrideEnabled'],
            boot['BootSourceOverrideMode']))

    def test_verification_can_be_switched_off(self):
        own = self.useFixture(certificates.Certificate())
        server = self.useFixture(image_server.ImageServer(
            tls=(own.certificate, own.key)))
        self.tab.allow_error('status of 400')
        self.insert(server.url + '/boot.iso')
        self.expect(self.page.locator('.messages .bad')).to_contain_text(
            'certificate')
        self.panel.get_by_label('Verify the certificate').uncheck()
        self.insert(server.url + '/boot.iso')
        self.expect(self.panel).to_contain_text('Complete')
        self.assertFalse(self.device()['VerifyCertificate'])

    def test_upload(self):
        content = os.urandom(2 ** 20)
        path = self.file('my image.iso', 2 ** 20, content)
        stick = self.page.get_by_role('region', name='Virtual USB Stick')
        self.addCleanup(
            self.pod.request, 'POST', '/redfish/v1/Systems/1/VirtualMedia/'
            'USBStick/Actions/VirtualMedia.EjectMedia', {})
        stick.get_by_label('Write-protected').last.uncheck()
        self.upload(path, stick)
        self.expect(self.page.locator('.messages')).to_contain_text(
            'my image.iso was uploaded.')
        self.expect(stick).to_contain_text('Complete')
        device = self.pod.request(
            'GET', '/redfish/v1/Systems/1/VirtualMedia/USBStick').json()
        self.assertEqual(('my image.iso', 'Applet', False), (
            device['ImageName'], device['ConnectedVia'],
            device['WriteProtected']))
        [volume] = self.sandbox.list('datavolumes')
        disk = (self.storage / 'default' / volume['metadata']['name']
                / 'disk.img').read_bytes()
        self.assertEqual(content, disk[:len(content)])

    def test_large_upload_shows_its_progress(self):
        self.begin_upload('large.iso')
        begun = self.progress()
        self.until(lambda: begun < self.progress() < 100)
        # It continues while another view is shown.
        shown = self.progress()
        self.page.get_by_role('link', name='Log', exact=True).click()
        self.page.get_by_role('link', name='Media', exact=True).click()
        self.until(lambda: shown < self.progress() < 100)
        self.throttle(-1)
        self.expect(self.page.locator('.messages')).to_contain_text(
            'large.iso was uploaded.', timeout=120_000)
        self.expect(self.panel).to_contain_text('Complete')
        [volume] = self.sandbox.list('datavolumes')
        self.assertEqual('Succeeded', volume['status']['phase'])

    def test_eject_ends_an_upload(self):
        self.begin_upload('ended.iso')
        self.until(lambda: self.sandbox.list('datavolumes'))
        [volume] = self.sandbox.list('datavolumes')
        self.assertNotEqual('Succeeded', volume.get('status', {}).get('phase'))
        self.confirm_eject('ended.iso')
        self.until(lambda: not self.sandbox.list('datavolumes'))
        self.expect(self.page.locator('.messages')).to_have_text(
            re.compile('^The medium was ejected'))

    def test_eject_before_an_upload_has_begun(self):
        # The BMC does not get it.
        self.page.route('**/Upload', lambda route: None)
        self.upload(self.file('early.iso', 2 ** 20))
        self.confirm_eject('early.iso')

    def test_upload_of_a_hidden_page(self):
        self.begin_upload('hidden.iso')
        self.page.get_by_role('link', name='Log', exact=True).click()
        self.expect(self.page.get_by_label('Severity')).to_be_visible()
        self.hide(True)
        # The upload is use of the session, which would end without it.
        self.pod.request('PATCH', SESSIONS, {'SessionTimeout': 30})
        self.addCleanup(self.pod.request, 'PATCH', SESSIONS,
                        {'SessionTimeout': 1800})
        begun = time.monotonic()
        self.until(lambda: time.monotonic() - begun > 35)
        self.hide(False)
        self.throttle(-1)
        self.expect(self.page.locator('.messages')).to_contain_text(
            'hidden.iso was uploaded.', timeout=120_000)

    def test_hidden_page_does_not_use_its_session(self):
        self.sandbox.request('POST', '/sandbox/imports', {
            'url': '.*slow.*', 'rate': 100}).raise_for_status()
        self.insert(self.images.url + '/slow-size-1000000.iso')
        other = self.open_tab()
        other.allow_error('status of 404 .*/TaskService/Tasks/')
        self.log_in(other)
        for view, region in ('Media', 'Virtual CD'), ('Tasks', 'Tasks'):
            for tab in self.tab, other:
                tab.page.get_by_role('link', name=view, exact=True).click()
                self.expect(tab.page.get_by_role(
                    'region', name=region, exact=True).get_by_role(
                        'progressbar').first).to_be_visible()
            self.hide(True)
            # What it had begun to read ends while the other one reads.
            self.wait_for_reads(other)
            self.page.evaluate('0')
            before = list(self.tab.requests)
            self.wait_for_reads(other)
            self.page.evaluate('0')
            self.assertEqual(before, self.tab.requests)
            self.hide(False)
            self.until(lambda: self.page.evaluate('1') and len(
                self.tab.requests) > len(before) + 2)

    def wait_for_reads(self, tab):
        """Wait until a page has read tasks three times."""
        def reads():
            tab.page.evaluate('0')
            return len([one for one in tab.requests if '/Tasks' in one])

        before = reads()
        self.until(lambda: reads() >= before + 3)

    def test_hostile_file_name(self):
        name = '"><img src=x onerror=alert(1)> &amp;.iso'
        self.upload(self.file(name, 2 ** 20))
        self.expect(self.panel).to_contain_text('Complete')
        self.expect(self.panel).to_contain_text(name)
        self.assertEqual(name, self.device()['ImageName'])


class InterruptedUploadTestCase(MediaCase):

    def eject(self):
        """Do nothing: the BMC is gone."""

    def test_killed_bmc(self):
        self.tab.allow_error('net::ERR_')
        self.begin_upload('interrupted.iso')
        self.pod.process.kill()
        self.expect(self.page.locator('.messages .bad')).to_contain_text(
            'The BMC does not answer.')
        self.expect(self.panel.get_by_role('button', name='Eject')
                    ).to_be_visible()
        self.expect(self.bar).to_have_count(0)


class RolesTestCase(case.WebPodTestCase):

    def test_operator_cannot_change_media(self):
        self.pod.request('POST', '/redfish/v1/AccountService/Accounts', {
            'UserName': 'operator', 'Password': 'password-1',
            'RoleId': 'Operator'}, 201)
        self.login(self.tab, 'operator', 'password-1')
        self.page.get_by_role('link', name='Media', exact=True).click()
        panel = self.page.get_by_role('region', name='Virtual CD')
        self.expect(panel).to_contain_text('Changes need the role')
        self.expect(panel.get_by_role('textbox')).to_have_count(0)

    def test_without_upload_proxy(self):
        self.log_in()
        self.page.get_by_role('link', name='Media', exact=True).click()
        self.expect(self.page.get_by_role(
            'region', name='Virtual CD')).to_contain_text('upload proxy')
