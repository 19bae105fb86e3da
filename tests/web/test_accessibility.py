# SPDX-License-Identifier: Apache-2.0
"""Keyboard, assistive technology, narrow and wide windows, dark and light."""

import pathlib
import re

import fixtures

from tests.fixtures import image_server
from tests.fixtures import redfish_pod
from tests.web import case

SYSTEM = '/redfish/v1/Systems/1'
RESET = SYSTEM + '/Actions/ComputerSystem.Reset'
CD = SYSTEM + '/VirtualMedia/Cd'

VIEWS = ('Overview', 'Serial console', 'Display', 'Media', 'Firmware', 'Log',
         'Certificates', 'Tasks', 'Sessions', 'Accounts')

#: Pixels that something is wider than the window.
OVERFLOW = '''document.documentElement.scrollWidth
    - document.documentElement.clientWidth'''


class AccessibilityTestCase(case.WebPodTestCase):

    SETTINGS = 'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK = True\n'
    UPLOADS = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        images = cls.share(image_server.ImageServer())
        cls.pod.request('POST', RESET, {'ResetType': 'On'}, 204)
        # A running import with a task, and entries of the log.
        url = images.url + '/a-long-name-' + 'x' * 80 + '.iso'
        cls.sandbox.request('POST', '/sandbox/imports', {
            'url': url, 'rate': 10}).raise_for_status()
        cls.pod.request('POST', CD + '/Actions/VirtualMedia.InsertMedia',
                        {'Image': url}, 202,
                        headers={'Prefer': 'respond-async'})

    def show(self, page, view):
        page.get_by_role('link', name=view, exact=True).click()
        self.expect(page).to_have_title(re.compile(view))
        self.expect(page.get_by_text('Loading…')).to_have_count(0)

    def check_views(self, **options):
        tab = self.open_tab(**options)
        self.log_in(tab)
        for view in VIEWS:
            self.show(tab.page, view)
            self.assertEqual([], tab.axe(), view)
            self.assertEqual(0, tab.page.evaluate(OVERFLOW), view)
            self.assertEqual(1, tab.page.get_by_role(
                'heading', level=1).count(), view)
            self.assertEqual(1, tab.page.get_by_role('main').count())
        return tab

    def test_light(self):
        self.check_views(color_scheme='light',
                         viewport={'width': 3840, 'height': 2160})

    def test_dark_and_narrow_with_dialog_and_error(self):
        tab = self.check_views(color_scheme='dark',
                               viewport={'width': 360, 'height': 640})
        page = tab.page
        tab.allow_error('status of 400')
        self.show(page, 'Overview')
        page.get_by_label('Boot from', exact=True).select_option('HTTP boot')
        page.get_by_label('URL to boot from').fill('ftp://x/' + 'y' * 200)
        page.get_by_role('region', name='Boot override').get_by_role(
            'button', name='Save').click()
        self.expect(page.locator('.messages .bad')).to_be_visible()
        page.get_by_role('button', name='Force off').click()
        self.expect(page.get_by_role('dialog')).to_be_visible()
        self.assertEqual([], tab.axe())
        self.assertEqual(0, page.evaluate(OVERFLOW))
        page.keyboard.press('Escape')

    def test_login(self):
        self.tab.allow_error('status of 401')
        self.page.goto('/')
        self.expect(self.page.get_by_label('User name')).to_be_focused()
        self.assertEqual([], self.tab.axe())

    def test_zoom(self):
        # A zoom of 200 % is a window of half the size.
        tab = self.open_tab(viewport={'width': 640, 'height': 400},
                            device_scale_factor=2)
        self.log_in(tab)
        for view in VIEWS:
            self.show(tab.page, view)
            self.assertEqual(0, tab.page.evaluate(OVERFLOW), view)


class KeyboardTestCase(case.WebPodTestCase):
    """No pointer is used."""

    UPLOADS = True

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def tab_to(self, locator):
        """Press Tab until an element has the focus, which is visible."""
        for _ in range(100):
            self.press('Tab')
            outline = locator.evaluate(
                '''one => one === document.activeElement
                && getComputedStyle(one).outlineStyle''')
            if outline:
                self.assertNotEqual('none', outline)
                return
        self.fail(f'{locator} is not reached')

    def button(self, name):
        return self.page.get_by_role('button', name=name, exact=True)

    def link(self, name):
        return self.page.get_by_role('link', name=name, exact=True)

    def follow(self, name):
        """Follow a link of the navigation, from the top of the page."""
        self.link('Skip to content').focus()
        self.tab_to(self.link(name))
        self.press('Enter')

    def test_everything(self):
        self.tab.allow_error('status of 401')
        self.page.goto('/')
        self.expect(self.page.get_by_label('User name')).to_be_focused()
        self.page.keyboard.type(redfish_pod.USER)
        self.press('Tab')
        self.page.keyboard.type(self.pod.password)
        self.press('Enter')
        power = self.page.locator('#power')
        self.expect(power).to_have_text('Off')
        self.expect(self.button('Power on')).to_be_visible()

        self.tab_to(self.button('Power on'))
        self.press('Enter')
        self.expect(power).to_have_text('On')
        self.sandbox.wait_running('vm-0')
        # The result is announced, and the focus stays.
        self.expect(self.page.get_by_role('status').filter(
            has_text='Power on: sent to vm-0.')).to_have_count(1)
        self.expect(self.button('Power on')).to_be_focused()

        off = self.button('Force off')
        self.tab_to(off)
        self.press('Enter')
        dialog = self.page.get_by_role('dialog')
        self.expect(dialog.get_by_role('button', name='Cancel')
                    ).to_be_focused()
        # The focus stays inside.
        self.press('Tab', 'Tab', 'Tab')
        self.assertTrue(dialog.evaluate(
            '''one => one.contains(document.activeElement)
            || document.activeElement === document.body'''))
        self.press('Escape')
        self.expect(dialog).to_have_count(0)
        self.expect(off).to_be_focused()
        self.press('Enter')
        self.expect(dialog).to_be_visible()
        self.press('Tab', 'Enter')
        self.expect(power).to_have_text('Off')

        # From the bottom of the page back to its top.
        self.page.evaluate('document.activeElement.blur()')
        self.link('Skip to content').focus()
        self.press('Enter')
        main = self.page.get_by_role('main')
        self.expect(main).to_be_focused()
        leave = self.button('Use keyboard in the console')
        self.follow('Serial console')
        self.expect(self.page.locator(
            '.xterm-helper-textarea')).to_be_focused()
        self.press('Control+F6')
        self.expect(leave).to_be_focused()
        # The machine is off: its display has no keyboard to leave, which
        # test_qemu_consoles does.
        self.follow('Display')
        self.expect(main).to_be_focused()
        self.tab_to(leave)

        self.follow('Media')
        self.expect(main).to_be_focused()
        panel = self.page.get_by_role('region', name='Virtual CD')
        self.expect(panel).to_contain_text('Upload')
        path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'boot.iso'
        path.write_bytes(b'\0CD001' + bytes(2 ** 20))
        file = panel.get_by_label('Image file')
        # Registered early: Playwright does not wait until Chromium passes on
        # the dialog.
        self.page.on('filechooser', lambda one: one.set_files(path))
        self.tab_to(file)
        self.press('Enter')
        self.until(lambda: file.evaluate('(one) => one.files.length'))
        self.tab_to(panel.get_by_role('button', name='Upload', exact=True))
        self.press('Enter')
        self.expect(panel).to_contain_text('Complete')
        self.link('Skip to content').focus()
        self.tab_to(self.button('Log out'))
        self.press('Enter')
        self.expect(self.page.get_by_role('status').filter(
            has_text='You have logged out.')).to_be_visible()
