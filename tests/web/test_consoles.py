# SPDX-License-Identifier: Apache-2.0
"""Consoles in the page, with guests that are simulated.

Their serial port echoes; they have no display. Guests in QEMU are in
test_qemu_consoles.
"""

import re

from tests.web import case

RESET = '/redfish/v1/Systems/1/Actions/ComputerSystem.Reset'


class ConsoleTestCase(case.WebPodTestCase):

    def setUp(self):
        super().setUp()
        # Its connection ends with the session.
        self.tab.allow_error('WebSocket connection to')
        self.log_in()
        self.addCleanup(self.reset, 'ForceOff')
        self.open_console(self.page)

    def reset(self, kind):
        self.pod.request('POST', RESET, {'ResetType': kind}, 204)

    def open_console(self, page):
        page.get_by_role('link', name='Serial console').click()
        self.expect(page.locator('.xterm-rows')).to_be_visible()

    def notice(self, text, page=None):
        self.expect((page or self.page).locator('#notice')).to_contain_text(
            text)

    def shows(self, text, page=None):
        self.expect((page or self.page).locator(
            '.xterm-rows')).to_contain_text(text)

    def type(self, text, page=None):
        page = page or self.page
        page.get_by_role('textbox', name='Terminal input').focus()
        page.keyboard.type(text)

    def connected(self):
        self.reset('On')
        self.notice('is connected')

    def test_connects_when_the_machine_starts(self):
        self.notice('vm-0 is off. The console connects when it starts.')
        self.connected()
        self.type('echo of a line\n')
        self.shows(re.compile('echo of a line.*#'))

    def test_survives_restarts_of_the_guest_and_of_the_machine(self):
        self.connected()
        self.type('before\n')
        self.shows('before')
        self.type('reboot\n')
        self.shows(re.compile('reboot.*boot.*#', re.S))
        self.type('between\n')
        self.shows('between')
        boots = len(self.sandbox.boots('vm-0'))
        self.reset('PowerCycle')
        self.sandbox.wait_boot('vm-0', boots + 1)

        def answers():
            # Input is not kept while there is no connection.
            self.type('after\n')
            return 'after' in self.page.locator('.xterm-rows').text_content()

        # Another VMI, and another connection to it.
        self.until(answers)
        self.notice('is connected')

    def test_much_output(self):
        self.connected()
        self.type('print 640000\n')
        self.shows('0000009999')

    def test_second_user_takes_the_console(self):
        self.connected()
        self.type('first\n')
        self.shows('first')
        other = self.open_tab()
        self.log_in(other)
        self.open_console(other.page)
        # Keys before the connection is open are lost.
        self.expect(other.page.locator('#notice')).to_have_text('')
        self.type('second\n', other.page)
        self.shows('second', other.page)
        self.notice('another client has connected')
        # A key takes it back, as the notice says.
        self.type('x')
        self.notice('another client has connected', other.page)
        self.type('third\n')
        self.shows('third')

    def test_ends_with_the_session(self):
        self.connected()
        self.tab.allow_error('status of 401')
        uri = self.page.evaluate(
            'JSON.parse(sessionStorage["sushy-kubevirt.session"]).uri')
        self.pod.request('DELETE', uri, expect=204)
        self.expect(self.page.get_by_text(
            'Your session has ended.')).to_be_visible()
        # Another view of the URL needs the login, too.
        self.page.go_back()
        # Handlers of hashchange run before this task.
        self.page.evaluate('new Promise((resolve) => setTimeout(resolve))')
        self.expect(self.page.get_by_label('User name')).to_be_visible()
        self.page.get_by_label('User name').fill('admin')
        self.page.get_by_label('Password').fill(self.pod.password)
        self.page.get_by_role('button', name='Log in').click()
        self.expect(self.page.locator('#power')).to_be_visible()

    def test_handshake_that_is_refused(self):
        # As by a proxy that passes on no WebSockets.
        tab = self.open_tab()
        tab.allow_error('WebSocket connection to')
        tab.page.add_init_script("""
            window.WebSocket = class extends WebSocket {
                constructor(url, protocols) {
                    super(new URL('/redfish/v1', url), protocols);
                }
            };""")
        self.log_in(tab)
        self.open_console(tab.page)
        self.notice('The BMC does not open the console', tab.page)

    def test_leave_by_keyboard(self):
        self.connected()
        self.type('x')
        self.page.keyboard.press('Control+F6')
        self.expect(self.page.get_by_role(
            'button', name='Use keyboard in the console')).to_be_focused()

    def test_display_of_a_machine_without_one(self):
        self.page.get_by_role('link', name='Display').click()
        # The console before has the same notice.
        self.expect(self.page.locator('#screen')).to_have_count(1)
        self.notice('vm-0 is off')
        self.reset('On')
        self.notice('have no display')


class ModulesMissingTestCase(case.WebPodTestCase):

    SETTINGS = "SUSHY_EMULATOR_KUBEVIRT_WEB_MODULES = '/nonexistent'\n"

    def test_the_page_says_what_is_missing(self):
        self.tab.allow_error('status of 404')
        self.log_in()
        for view, name in (('Serial console', 'xterm.js'),
                           ('Display', 'noVNC')):
            self.page.get_by_role('link', name=view).click()
            self.expect(self.page.get_by_text(
                f'{name} is not installed')).to_be_visible()
        self.page.get_by_role('link', name='Log', exact=True).click()
        self.expect(self.page.get_by_role('list', name='Log')).to_be_visible()
