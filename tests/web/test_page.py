# SPDX-License-Identifier: Apache-2.0
"""The page is served, loads from its own host only, and shows a machine."""

import re

from tests.web import case

POLICY = {
    "default-src 'none'", "script-src 'self'", "connect-src 'self'",
    "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"}


class PodTestCase(case.WebPodTestCase):

    def test_headers(self):
        self.tab.allow_error('status of 401')
        answer = self.page.goto('/')
        self.assertEqual(200, answer.status)
        policy = answer.headers['content-security-policy']
        self.assertLess(POLICY, set(policy.split('; ')))
        self.assertNotIn('unsafe', policy)
        self.assertEqual('DENY', answer.headers['x-frame-options'])

    def test_login_and_logout(self):
        self.log_in()
        self.expect(self.page).to_have_title(re.compile(r'^vm-0\b'))
        self.page.get_by_role('button', name='Log out').click()
        self.expect(self.page.get_by_text(
            'You have logged out.')).to_be_visible()
        self.expect(self.page.get_by_label('User name')).to_be_focused()

    def test_wrong_password(self):
        self.tab.allow_error('status of 401')
        self.page.goto('/')
        self.page.get_by_label('User name').fill('admin')
        self.page.get_by_label('Password').fill('another')
        self.page.get_by_role('button', name='Log in').click()
        self.expect(self.page.get_by_role('alert')).to_contain_text(
            'User name or password is wrong.')

    def test_two_users(self):
        other = self.open_tab()
        self.log_in()
        self.log_in(other)
        self.page.get_by_role('button', name='Log out').click()
        self.expect(self.page.get_by_text(
            'You have logged out.')).to_be_visible()
        other.page.reload()
        self.expect(other.page.get_by_role(
            'button', name='Log out')).to_be_visible()

    def test_modules_of_consoles(self):
        self.tab.allow_error('status of 401')
        self.page.goto('/')
        for path, name in (('xterm/xterm.mjs', 'Terminal'),
                           ('xterm/addon-fit.mjs', 'FitAddon'),
                           ('novnc/core/rfb.js', 'default')):
            self.assertEqual('function', self.page.evaluate(
                f'async () => typeof (await import("/web/modules/{path}"))'
                f'.{name}'))

    def test_all_files_come_from_the_service(self):
        # The end of the page checks that no other host was asked.
        self.log_in()
        self.assertLess({self.pod.url + '/', self.pod.url + '/web/main.js'},
                        set(self.tab.requests))


class EmulatorTestCase(case.WebEmulatorTestCase):

    VMS = 3

    def test_all_machines_are_listed(self):
        self.page.goto('/')
        for name in 'vm-0', 'vm-1', 'vm-2':
            self.expect(self.page.get_by_role(
                'link', name=name)).to_be_visible()
        self.assertEqual([], self.tab.axe())


class DisabledTestCase(case.WebPodTestCase):

    SETTINGS = 'SUSHY_EMULATOR_KUBEVIRT_WEB_PAGE = False\n'

    def test_no_page(self):
        # Chromium also asks for an icon.
        self.tab.allow_error('status of 40[14]')
        self.assertEqual(404, self.page.goto('/').status)
