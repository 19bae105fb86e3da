# SPDX-License-Identifier: Apache-2.0
"""What the user does while the page reads, and while it is drawn again."""

import json
import re

from tests.fixtures import redfish_pod
from tests.web import case

SYSTEM = '/redfish/v1/Systems/1'
RESET = SYSTEM + '/Actions/ComputerSystem.Reset'


class LateTestCase(case.WebPodTestCase):

    def setUp(self):
        super().setUp()
        if self.sandbox.vmi('vm-0'):
            self.pod.request('POST', RESET, {'ResetType': 'ForceOff'}, 204)
            self.sandbox.wait_stopped('vm-0')
        self.power = self.page.locator('#power')
        self.messages = self.page.locator('.messages')

    def hold(self, pattern):
        """Hold the first request of a URL pattern back, and let others go.

        :returns: list, which gets Playwright's ``Route``
        """
        held = []
        self.page.route(pattern, lambda route: (
            route.continue_() if held else held.append(route)))
        return held

    def wait_for(self, held):
        def found():
            # Playwright passes on events while it waits for an answer.
            self.page.evaluate('0')
            return held

        self.until(found)
        return held[0]

    def read(self):
        """Make the page read what it shows, as it does from time to time."""
        self.page.evaluate(
            "document.dispatchEvent(new Event('visibilitychange'))")

    def settle(self):
        """Wait until the page has processed what it has received."""
        self.page.evaluate(
            "fetch('/web/icon.svg').then((one) => one.text())")

    def session(self):
        return json.loads(self.page.evaluate(
            'sessionStorage.getItem("sushy-kubevirt.session")'))['uri']

    def save(self, tag):
        panel = self.page.get_by_role('region', name='Settings')
        panel.get_by_label('Asset tag').fill(tag)
        panel.get_by_role('button', name='Save').focus()
        self.page.keyboard.press('Enter')
        self.expect(self.messages).to_contain_text('Saved.')
        self.expect(panel.locator('[aria-busy]')).to_have_count(0)
        return panel

    def test_title_is_that_of_the_present_view(self):
        held = self.hold('**' + SYSTEM)
        self.log_in()
        late = self.wait_for(held)
        self.page.get_by_role('link', name='Accounts').click()
        accounts = re.compile('^Accounts')
        self.expect(self.page).to_have_title(accounts)
        with self.page.expect_response('**' + SYSTEM):
            late.continue_()
        self.settle()
        self.assertRegex(self.page.title(), accounts)

    def test_refused_request_of_the_session_before(self):
        self.log_in()
        self.expect(self.power).to_be_visible()
        held = self.hold('**' + SYSTEM)
        self.read()
        late = self.wait_for(held)
        self.page.get_by_role('button', name='Log out').click()
        self.fill_login(self.tab, redfish_pod.USER, self.pod.password)
        self.expect(self.power).to_be_visible()
        with self.page.expect_response(
                lambda one: one.url.endswith(SYSTEM) and one.status == 401):
            late.continue_()
        self.settle()
        self.expect(self.power).to_be_visible()
        self.expect(self.page.get_by_role(
            'button', name='Log out')).to_be_visible()

    def test_change_while_the_machine_is_read(self):
        self.log_in()
        self.save('old')
        old = self.pod.request('GET', SYSTEM, expect=200).json()
        held = self.hold('**' + SYSTEM)
        self.read()
        late = self.wait_for(held)
        tag = self.save('new').get_by_label('Asset tag')
        self.expect(tag).to_have_value('new')
        late.fulfill(json=old)
        self.settle()
        self.expect(tag).to_have_value('new')
        self.expect(self.page.locator('form[data-changed]')).to_have_count(0)

    def test_state_that_a_later_one_has_overtaken(self):
        self.log_in()
        self.expect(self.power).to_have_text('Off')
        off = self.pod.request('GET', SYSTEM, expect=200).json()
        held = self.hold('**' + SYSTEM)
        self.read()
        late = self.wait_for(held)
        self.page.get_by_role('button', name='Power on', exact=True).click()
        self.expect(self.power).not_to_have_text('Off')
        self.expect(self.page.locator('main [aria-busy]')).to_have_count(0)
        late.fulfill(json=off)
        self.settle()
        self.assertNotEqual('Off', self.power.text_content())
        self.expect(self.power).to_have_text('On')
        # It asks, for the machine runs.
        self.page.get_by_role('button', name='Force off').click()
        self.expect(self.page.get_by_role('dialog')).to_be_visible()

    def test_question_follows_the_state_that_is_shown(self):
        self.log_in()
        self.expect(self.power).to_have_text('Off')
        # Without events the buttons are not drawn again.
        self.hide(True)
        self.pod.request('POST', RESET, {'ResetType': 'On'}, 204)
        self.until(lambda: self.pod.request(
            'GET', SYSTEM).json()['PowerState'] == 'On')
        self.save('tag')
        self.expect(self.power).to_have_text('On')
        self.page.get_by_role('button', name='Force off').click()
        self.expect(self.page.get_by_role('dialog')).to_be_visible()

    def test_focus_is_in_the_present_view(self):
        self.log_in()
        self.expect(self.power).to_be_visible()
        held = self.hold('**' + SYSTEM)
        self.page.get_by_role('link', name='Firmware').click()
        late = self.wait_for(held)
        self.page.get_by_role('link', name='Accounts').click()
        name = self.page.get_by_label('User name')
        name.focus()
        with self.page.expect_response('**' + SYSTEM):
            late.continue_()
        self.settle()
        self.expect(name).to_be_focused()

    def test_view_that_cannot_be_drawn(self):
        system = self.pod.request('GET', SYSTEM, expect=200).json()
        del system['Actions']['#ComputerSystem.Reset'][
            'ResetType@Redfish.AllowableValues']
        self.page.route('**' + SYSTEM, lambda route: route.fulfill(
            json=system))
        self.log_in()
        panel = self.page.get_by_role('region', name='Power')
        self.expect(panel.get_by_role(
            'button', name='Try again')).to_be_visible()
        self.expect(self.page.get_by_label('Asset tag')).to_be_visible()

    def test_logout_from_a_session_that_has_ended(self):
        # Without answers the page does not learn that its session has ended.
        self.page.route(
            re.compile(r'/redfish/v1/(?!Systems\?|SessionService|Account)'),
            lambda route: None)
        self.log_in()
        self.expect(self.power).to_be_visible()
        self.tab.allow_error('status of 401')
        self.pod.request('DELETE', self.session(), expect=204)
        self.page.get_by_role('button', name='Log out').click()
        self.expect(self.page.get_by_role('main')).to_contain_text(
            'You have logged out.')

    def test_question_ends_with_the_session(self):
        self.log_in()
        self.tab.allow_error('status of 401')
        self.pod.request('POST', RESET, {'ResetType': 'On'}, 204)
        self.expect(self.power).to_have_text('On')
        self.page.get_by_role('button', name='Force off').click()
        dialog = self.page.get_by_role('dialog')
        self.expect(dialog).to_be_visible()
        self.pod.request('DELETE', self.session(), expect=204)
        self.expect(self.page.get_by_role('main')).to_contain_text(
            'Your session has ended.')
        self.expect(dialog).to_have_count(0)
        self.expect(self.page.get_by_label('User name')).to_be_focused()

    def test_answer_that_breaks_off(self):
        self.page.route('**/redfish/v1/Broken', lambda route: route.fulfill(
            content_type='application/json', body='{"Name": '))
        self.log_in()
        self.assertEqual(0, self.page.evaluate("""
            import('/web/redfish.js').then((one) => one.get(
                '/redfish/v1/Broken')).catch((error) => error.status)"""))

    def test_focus_stays_after_saving(self):
        self.log_in()
        panel = self.save('one')
        self.expect(panel.get_by_label('Asset tag')).to_have_value('one')
        self.expect(panel.get_by_role('button', name='Save')).to_be_focused()

    def test_scroll_position_stays(self):
        tab = self.open_tab(viewport={'width': 700, 'height': 400})
        self.log_in(tab)
        page = tab.page
        on = page.get_by_role('button', name='Power on', exact=True)
        on.click()
        self.sandbox.wait_running('vm-0')
        self.expect(page.locator('#power')).to_have_text('On')
        # Drawn again: it is not what is probably wanted any more.
        self.expect(on).not_to_have_class('primary')
        self.expect(page.locator('main [aria-busy]')).to_have_count(0)
        page.evaluate('scrollTo(0, 900)')
        before = page.evaluate('scrollY')
        self.assertLess(500, before)
        self.sandbox.do('vm-0', 'stop')
        self.expect(on).to_have_class('primary')
        self.expect(on).to_be_focused()
        # What is above has become a little shorter.
        self.assertLess(before - 200, page.evaluate('scrollY'))

    def test_selection_in_the_log_stays(self):
        self.pod.request('POST', RESET, {'ResetType': 'On'}, 204)
        self.sandbox.wait_running('vm-0')
        # A new entry would draw the list again, without the selection.
        entries = self.pod.request(
            'GET', SYSTEM + '/LogServices/Events/Entries', expect=200).json()
        self.page.route('**/Entries',
                        lambda route: route.fulfill(json=entries))
        self.log_in()
        self.page.get_by_role('link', name='Log', exact=True).click()
        self.expect(self.page.locator('.log li').first).to_be_visible()
        selected = self.page.evaluate("""() => {
            const all = document.querySelectorAll('.log li .what');
            getSelection().selectAllChildren(all[all.length - 1]);
            return String(getSelection());
        }""")
        self.assertNotEqual('', selected)
        with self.page.expect_response('**/Entries'):
            self.read()
        self.settle()
        self.assertEqual(selected, self.page.evaluate(
            'String(getSelection())'))

    def test_events_of_other_machines_are_ignored(self):
        self.log_in()

        def concerns(*origins):
            return self.page.evaluate("""([origins, path]) => import(
                '/web/view.js').then((one) => one.concerns(origins.map(
                    (origin) => (origin === null ? {} : {OriginOfCondition: {
                        '@odata.id': origin}})), path))""",
                                      [origins, SYSTEM])

        for origins in [], [SYSTEM], [SYSTEM + '/VirtualMedia/Cd'], [None], [
                '/redfish/v1/Systems/2', SYSTEM], [
                '/redfish/v1/AccountService/Accounts/1']:
            self.assertTrue(concerns(*origins), origins)
        for origins in ['/redfish/v1/Systems/2'], [
                SYSTEM + '2', '/redfish/v1/Systems/2/VirtualMedia/Cd']:
            self.assertFalse(concerns(*origins), origins)
