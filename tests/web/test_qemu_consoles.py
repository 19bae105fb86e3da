# SPDX-License-Identifier: Apache-2.0
"""Consoles of a real guest: a login on its serial port, and its picture."""

from kubevirt_sandbox.testing import qemu
from tests.web import case

RESET = '/redfish/v1/Systems/1/Actions/ComputerSystem.Reset'

#: Milliseconds for a guest whose processor is emulated.
BOOT = 150_000


class QemuConsoleTestCase(case.WebQemuTestCase):

    def setUp(self):
        super().setUp()
        self.log_in()

    def reset(self, kind):
        self.pod.request('POST', RESET, {'ResetType': kind}, 204)

    def open_view(self, name):
        self.page.get_by_role('link', name=name).click()
        self.notice = self.page.locator('#notice')

    def shows(self, text):
        self.expect(self.page.locator('.xterm-rows')).to_contain_text(
            text, timeout=BOOT)

    def type(self, text):
        self.page.get_by_role('textbox', name='Terminal input').focus()
        self.page.keyboard.type(text)

    def log_into_guest(self):
        self.type('login\n')
        self.shows('login:')
        self.type('root\n')
        self.shows('Password:')
        self.type('console\n')

    def test_login_from_power_on_and_reboot(self):
        self.open_view('Serial console')
        self.expect(self.notice).to_contain_text('is off')
        self.reset('On')
        self.shows(qemu.DISK)
        self.log_into_guest()
        self.shows('~ #')
        self.type('echo $((6 * 7))-answer\n')
        self.shows('42-answer')
        # The guest restarts; its console stays.
        self.type('clear; reboot -f\n')
        self.shows(qemu.DISK)

    def test_pasted_text(self):
        text = '''aZ09 ~!@#$%^&*()_+{}|:"<>? `-=[];'\\,./'''
        self.open_view('Serial console')
        self.reset('On')
        self.shows(qemu.DISK)
        # The guest's software takes any key for the power button.
        self.type('deaf\n')
        self.shows('deaf now')
        self.log_into_guest()
        self.shows('~ #')
        # What is typed on the display goes to the first terminal.
        self.type("IFS= read -r line < /dev/tty1; echo \"got-$line-\"\n")
        self.open_view('Display')
        self.until(self.picture)
        self.page.get_by_text('Paste text').click()
        self.page.get_by_label('Text', exact=True).fill(text + '\n')
        self.page.get_by_role('button', name='Type the text').click()
        self.until(lambda: f'got-{text}-' in self.log(), describe=self.log)

    def log(self):
        """Return what the VMI's serial port has printed."""
        return self.sandbox.request(
            'GET', f'/sandbox/guests/default/{self.name}/console').text

    def picture(self):
        """Return the size of the picture and its number of colours."""
        return self.page.evaluate("""() => {
            const canvas = document.querySelector('#screen canvas');
            if (!canvas || !canvas.width) {
                return null;
            }
            const {data} = canvas.getContext('2d').getImageData(
                0, 0, canvas.width, canvas.height);
            const colours = new Set();
            let bright = 0;
            for (let i = 0; i < data.length; i += 4) {
                colours.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
                bright += data[i] > 100;
            }
            return {width: canvas.width, height: canvas.height,
                    colours: colours.size, bright};
        }""")

    def boots(self):
        return self.log().count(qemu.DISK)

    def test_picture_and_keys(self):
        self.open_view('Display')
        self.expect(self.notice).to_contain_text('is off')
        self.reset('On')
        # The firmware writes its name on the screen.
        found = self.until(lambda: (one := self.picture())
                           and one['bright'] > 500 and one, 150)
        self.assertGreaterEqual(found['width'], 640)
        self.expect(self.notice).to_contain_text('is connected')
        # Linux restarts with these keys.
        self.until(lambda: self.boots() == 1, 150)
        self.page.get_by_role('button', name='Ctrl+Alt+Del').click()
        self.until(lambda: self.boots() == 2, 150)
        self.page.get_by_role('button', name='Full screen').click()
        self.until(lambda: self.page.evaluate(
            'document.fullscreenElement?.id') == 'console')
        self.page.evaluate('document.exitFullscreen()')
        # It connects again by itself to the next instance of the machine.
        self.reset('PowerCycle')
        self.until(lambda: self.boots() == 1, 150)
        self.until(lambda: (one := self.picture())
                   and one['bright'] > 500, 150)
        # A second user takes the display.
        other = self.open_tab()
        self.log_in(other)
        other.page.get_by_role('link', name='Display').click()
        self.expect(self.notice).to_contain_text('Another client')
        self.page.get_by_role('button', name='Connect again').click()
        self.expect(other.page.locator('#notice')).to_contain_text(
            'Another client')
