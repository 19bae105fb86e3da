# SPDX-License-Identifier: Apache-2.0
"""The page while the BMC or the API server is away, and afterwards."""

import pathlib

import fixtures

from kubevirt_sandbox.testing import ports
from tests.web import case

SYSTEM = '/redfish/v1/Systems/1'
RESET = SYSTEM + '/Actions/ComputerSystem.Reset'


class RecoveryTestCase(case.WebPodTestCase):
    """The network to the BMC is away for a time."""

    UPLOADS = True

    def setUp(self):
        super().setUp()
        # While it is away, and a port that is just opened.
        self.tab.allow_error('net::ERR_|status of 50')
        # A task that ends between the reads of its device and of itself.
        self.tab.allow_error('status of 404 .*/TaskService/Tasks/')
        self.lost = self.page.get_by_text('The BMC does not answer. What is')
        self.log_in()

    def disconnect(self):
        self.page.context.set_offline(True)
        self.addCleanup(self.connect)
        self.expect(self.lost).to_be_visible()

    def connect(self):
        self.page.context.set_offline(False)

    def test_overview(self):
        power = self.page.locator('#power')
        self.expect(power).to_be_visible()
        self.disconnect()
        # An action says what to do, and what is shown stays.
        self.page.get_by_role('button', name='Power on', exact=True).click()
        self.expect(self.page.locator('.messages .bad')).to_contain_text(
            'Check that its pod runs')
        self.expect(power).to_be_visible()
        self.connect()
        self.expect(self.lost).to_be_hidden()
        # The session has survived, and changes are shown.
        self.expect(self.page.get_by_role(
            'button', name='Log out')).to_be_visible()
        off = self.sandbox.vmi('vm-0') is None
        self.sandbox.do('vm-0', 'start' if off else 'stop')
        self.expect(power).to_have_text('On' if off else 'Off')
        self.expect(self.page.locator('main .bad')).to_have_count(0)

    def test_form_of_an_upload(self):
        self.page.get_by_role('link', name='Media', exact=True).click()
        panel = self.page.get_by_role('region', name='Virtual CD')
        path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'boot.iso'
        path.write_bytes(b'\0CD001' + bytes(2 ** 20))
        panel.get_by_label('Image file').set_input_files(path)
        panel.get_by_label('Write-protected').last.uncheck()
        self.disconnect()
        panel.get_by_role('button', name='Upload', exact=True).click()
        self.expect(self.page.locator('.messages .bad')).to_contain_text(
            'Check that its pod runs')
        self.connect()
        self.expect(self.lost).to_be_hidden()
        # What was filled in is still there.
        self.assertEqual('boot.iso', panel.get_by_label(
            'Image file').evaluate('one => one.files[0]?.name'))
        self.expect(panel.get_by_label(
            'Write-protected').last).not_to_be_checked()
        panel.get_by_role('button', name='Upload', exact=True).click()
        self.expect(panel).to_contain_text('Complete')
        self.pod.request('POST', SYSTEM + '/VirtualMedia/Cd/Actions/'
                         'VirtualMedia.EjectMedia', {}, 204)

    def test_log(self):
        self.page.get_by_role('link', name='Log', exact=True).click()
        self.page.get_by_label('Search').fill('power')
        entries = self.page.get_by_role(
            'list', name='Log').get_by_role('listitem')
        self.pod.request('POST', RESET, {'ResetType': 'ForceOff'}, 204)
        self.sandbox.wait_stopped('vm-0')
        self.disconnect()
        self.connect()
        self.expect(self.lost).to_be_hidden()
        before = entries.filter(has_text='has powered on').count()
        self.pod.request('POST', RESET, {'ResetType': 'On'}, 204)
        self.expect(entries.filter(has_text='has powered on')
                    ).to_have_count(before + 1)
        self.expect(self.page.get_by_label('Search')).to_have_value('power')
        self.expect(self.page.locator('main .bad')).to_have_count(0)

    def test_page_that_is_loaded_while_it_is_away(self):
        self.page.get_by_role('link', name='Firmware').click()
        self.disconnect()
        self.page.get_by_role('link', name='Log', exact=True).click()
        self.expect(self.page.get_by_role(
            'heading', name='This view cannot be shown')).to_be_visible()
        self.connect()
        # It opens by itself.
        self.expect(self.page.get_by_label('Severity')).to_be_visible()


class RestartTestCase(case.WebPodTestCase):
    """The BMC is killed, and starts again at the same port."""

    @classmethod
    def setUpClass(cls):
        port = ports.Port()
        port.setUp()
        cls.addClassCleanup(port.cleanUp)
        cls.SETTINGS = f'SUSHY_EMULATOR_LISTEN_PORT = {port.number}\n'
        super().setUpClass()

    def setUp(self):
        super().setUp()
        # While it is away, a port that is just opened, and the session, which
        # has ended with the process.
        self.tab.allow_error('net::ERR_|status of 50|status of 401')
        self.log_in()

    def kill(self):
        self.pod.process.kill()
        self.addCleanup(self.restart)

    def restart(self):
        if self.pod.process.returncode is not None:
            self.pod.process.restart()

    def expect_login(self):
        """Log in again, as the page asks for it."""
        self.expect(self.page.get_by_role('main')).to_contain_text(
            'Your session has ended. Log in again.')
        self.log_in()

    def test_overview(self):
        power = self.page.locator('#power')
        self.expect(power).to_be_visible()
        self.kill()
        self.restart()
        self.expect_login()
        off = self.sandbox.vmi('vm-0') is None
        self.sandbox.do('vm-0', 'start' if off else 'stop')
        self.expect(power).to_have_text('On' if off else 'Off')
        self.expect(self.page.locator('main .bad')).to_have_count(0)

    def test_serial_console(self):
        self.pod.request('POST', RESET, {'ResetType': 'On'}, 204)
        self.addCleanup(self.pod.request, 'POST', RESET,
                        {'ResetType': 'ForceOff'}, 204)
        self.tab.allow_error('WebSocket connection to')
        self.page.get_by_role('link', name='Serial console').click()
        notice = self.page.locator('#notice')
        output = self.page.locator('.xterm-rows')

        def answers(word):
            # Input is not kept while there is no connection.
            self.page.get_by_role('textbox', name='Terminal input').focus()
            self.page.keyboard.type(word + '\n')
            return word in output.text_content()

        self.until(lambda: answers('before'))
        self.kill()
        self.expect(notice).to_have_text(
            'The BMC does not answer; the console connects again when it '
            'does.')
        self.restart()
        self.expect_login()
        self.page.get_by_role('link', name='Serial console').click()
        # Nothing is to be said about a console that is connected.
        self.expect(notice).to_have_text('')
        # The BMC may not have reached the guest yet.
        self.until(lambda: answers('after'))
        # What the guest prints from now on.
        boots = output.text_content().count('boot')
        self.sandbox.guest_does('vm-0', 'reboot')
        self.until(lambda: output.text_content().count('boot') > boots,
                   describe=output.text_content)


class PollingTestCase(case.WebPodTestCase):
    """A service without streams of events."""

    SETTINGS = 'SUSHY_EMULATOR_KUBEVIRT_EVENT_STREAMS = 0\n'

    def test_changes_are_shown(self):
        self.tab.allow_error('status of [45]')
        self.log_in()
        power = self.page.locator('#power')
        self.expect(power).to_have_text('Off')
        self.sandbox.do('vm-0', 'start')
        self.expect(power).to_have_text('On')
        self.expect(self.page.get_by_role(
            'button', name='Log out')).to_be_visible()


class ClusterTestCase(case.WebPodTestCase):
    """The API server is away, the BMC is not."""

    SETTINGS = 'SUSHY_EMULATOR_KUBEVIRT_WRITE_DEADLINE = 1\n'

    def test_error_and_recovery(self):
        self.tab.allow_error('status of 50')
        self.log_in()
        power = self.page.locator('#power')
        self.pod.request('POST', RESET, {'ResetType': 'ForceOff'})
        self.expect(power).to_have_text('Off')
        self.sandbox.fault('503', where='/apis/', count=10 ** 6)
        on = self.page.get_by_role('button', name='Power on', exact=True)
        on.click()
        error = self.page.locator('.messages .bad')
        self.expect(error).to_contain_text('send the request again')
        self.expect(power).to_have_text('Off')
        self.sandbox.clear_faults()
        on.click()
        self.expect(power).to_have_text('On')
        self.expect(error).to_have_count(0)
