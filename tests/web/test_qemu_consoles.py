# SPDX-License-Identifier: Apache-2.0
"""Consoles of a real guest: a login on its serial port, and its picture."""

import re

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
        # The guest restarts; its console stays. There is no prompt in between:
        # BusyBox 1.35 takes its position in the first line for a key, and
        # drops what is typed.
        self.type('clear; read line; reboot -f\n')
        self.expect(self.page.locator('.xterm-rows')).not_to_contain_text(
            qemu.DISK)
        self.type('\n')
        self.shows(qemu.DISK)

    def guest_reads(self, command):
        """Let the guest print what is typed on the display; show that.

        :param command: of the guest's shell, whose input is the terminal of
            the display
        """
        self.open_view('Serial console')
        self.reset('On')
        self.shows(qemu.DISK)
        # The guest's software takes any key for the power button.
        self.type('deaf\n')
        self.shows('deaf now')
        self.log_into_guest()
        self.shows('~ #')
        self.type(command + ' < /dev/tty1\n')
        self.shows('< /dev/tty1')
        self.show_display()

    def show_display(self):
        self.open_view('Display')
        self.until(self.picture)

    def paste(self, text):
        if not self.page.get_by_label('Text', exact=True).is_visible():
            self.page.get_by_text('Paste text').click()
        self.page.get_by_label('Text', exact=True).fill(text)
        self.button('Type the text').click()

    def button(self, name):
        return self.page.get_by_role('button', name=name, exact=True)

    def until_read(self, text):
        self.until(lambda: text in self.log(), 60, describe=self.log)

    def focused(self):
        """Return the name of the element that has the focus."""
        return self.page.evaluate('document.activeElement.tagName')

    def test_pasted_text(self):
        self.guest_reads('while IFS= read -r line; do echo "got-$line-"; done')
        text = '''aZ09 ~!@#$%^&*()_+{}|:"<>? `-=[];'\\,./'''
        self.paste(text + '\n')
        self.until_read(f'got-{text}-')
        # The next keys are for the guest, too.
        self.until(lambda: self.focused() == 'CANVAS')
        # More than QEMU keeps of keys that have not reached the guest.
        text = ' '.join(f'{n}:The{n}th_word' for n in range(40))
        self.assertGreater(len(text), 500)
        self.paste(text + '\n')
        # A busy button has "…" in its name.
        send = self.page.locator('#type-text')
        self.expect(send).to_have_attribute('aria-disabled', 'true')
        self.expect(self.page.get_by_text(re.compile(
            rf'Typed: [1-9]\d* of {len(text) + 1} characters'))
        ).to_be_visible()
        # The user goes on with something else, and keeps the focus.
        field = self.page.get_by_label('Text', exact=True)
        field.focus()
        self.until_read(f'got-{text}-')
        self.expect(send).not_to_have_attribute('aria-disabled', 'true')
        self.expect(field).to_be_focused()
        error = self.page.locator('.messages .bad')
        self.expect(error).to_have_count(0)
        typed = self.page.get_by_text(re.compile(r'Typed: \d+ of 500'))
        for stop in (self.button('Stop typing').click,
                     lambda: self.open_view('Serial console')):
            self.paste('x' * 500)
            self.expect(typed).to_be_visible()
            stop()
            self.expect(error).to_contain_text(
                re.compile(r'Only \d+ of 500 characters were typed'))
            error.get_by_role('button').click()
            self.expect(error).to_have_count(0)
        self.show_display()
        self.paste('y' * 500)
        self.expect(typed).to_be_visible()
        self.reset('ForceOff')
        self.expect(error).to_contain_text(
            re.compile(r'Only \d+ of 500 characters were typed'))

    def test_keys_are_released(self):
        events = []     # (key pressed, whether down)

        def sent(data):
            # KeyEvent of RFC 6143; QEMU's extension has the keysym as well.
            if len(data) == 8 and data[0] == 4:
                events.append((int.from_bytes(data[4:8]), data[1]))
            elif len(data) == 12 and data[:2] == b'\xff\0':
                events.append((int.from_bytes(data[4:8]),
                               int.from_bytes(data[2:4])))

        self.page.on('websocket', lambda one: one.on('framesent', sent))
        self.reset('On')
        self.show_display()
        self.until(lambda: self.focused() == 'CANVAS')
        # Playwright reports the frames while it waits.
        self.page.keyboard.press('Control+F6')
        self.expect(self.button('Use keyboard in the console')
                    ).to_be_focused()
        control, shift = 0xffe3, 0xffe1
        self.until(lambda: self.focused() and len(events) >= 2,
                   describe=lambda: str(events))
        self.assertEqual([(control, 1), (control, 0)], events)
        # Wherever the focus goes, and however.
        self.button('Use keyboard in the console').click()
        self.page.keyboard.down('Shift')
        self.button('Use keyboard in the console').focus()
        self.page.keyboard.up('Shift')
        self.until(lambda: self.focused() and len(events) >= 4,
                   describe=lambda: str(events))
        self.assertEqual([(shift, 1), (shift, 0)], events[2:])

    def test_focus_stays_when_it_connects_again(self):
        self.reset('On')
        self.show_display()
        self.until(lambda: self.focused() == 'CANVAS')

        def connects_again():
            canvas = self.page.locator('#screen canvas').element_handle()
            self.reset('PowerCycle')
            self.until(lambda: not canvas.is_visible())
            self.until(self.picture)

        # The next instance of the machine has the keyboard as well.
        connects_again()
        self.until(lambda: self.focused() == 'CANVAS')
        self.page.get_by_text('Paste text').click()
        field = self.page.get_by_label('Text', exact=True)
        field.fill('begun')
        connects_again()
        self.expect(field).to_be_focused()

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
        # Linux restarts with these keys, if its software does not take the
        # first one for the power button.
        self.until(lambda: self.boots() == 1, 150)
        self.open_view('Serial console')
        # Neither that of the display nor the one while it connects.
        self.expect(self.notice).to_have_text('')
        self.type('deaf\n')
        self.shows('deaf now')
        self.show_display()
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
