# SPDX-License-Identifier: Apache-2.0
"""The list of 1,000 machines in two namespaces: search, scroll, changes."""

from concurrent import futures
import re

from kubevirt_sandbox.testing import machines
from tests.fixtures import browser
from tests.fixtures import emulator
from tests.web import case

#: Machines of the second namespace; the others are samples.
OTHER = 'tenant'
OTHERS = 50

#: A screenful, and the spare rows of list.js, twice.
MOST_ROWS = 60


def each(function, items):
    """Call a function for each item, several at a time."""
    with futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(function, items))


class ListTestCase(case.WebTestCase):

    VMS = 950

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        account = cls.sandbox.bmc_account(everywhere=True)
        cls.sandbox.create('namespaces', {'metadata': {'name': OTHER}}, None)
        each(lambda number: cls.create(f'guest-{number}'), range(OTHERS))
        cls.emulator = cls.share(emulator.Emulator(
            account, {'SUSHY_EMULATOR_KUBEVIRT_NAMESPACES': '*'},
            server='pod'))
        cls.browser = cls.share(browser.Browser(cls.emulator.url))

    @classmethod
    def create(cls, name):
        return cls.sandbox.create('virtualmachines', machines.vm(
            name, 'Halted', OTHER), OTHER)

    def setUp(self):
        super().setUp()
        self.rows = self.page.locator('.machines a')
        self.count = self.page.get_by_role('status').filter(
            has_text='machines')
        self.search = self.page.get_by_label('Search')
        self.state = self.page.get_by_label('State')

    def open(self, where='/'):
        self.page.goto(where)
        self.expect(self.count).to_contain_text('of 1000 machines')

    def row(self, name):
        return self.rows.filter(has=self.page.get_by_text(name, exact=True))

    def test_search_finds_every_machine(self):
        self.open()
        for name in 'default/vm-0', 'default/vm-949', f'{OTHER}/guest-49':
            self.search.fill(name)
            self.expect(self.row(name)).to_be_visible()
        # Words in any order, in upper case.
        self.search.fill(f'  GUEST-7 {OTHER}')
        self.expect(self.count).to_have_text('1 of 1000 machines')
        uuid = machines.uuid_of(self.sandbox.vm('vm-500'))
        self.search.fill(uuid)
        self.expect(self.rows).to_have_count(1)
        self.expect(self.row('default/vm-500')).to_be_visible()
        self.search.fill('absent')
        self.expect(self.rows).to_have_count(0)
        self.expect(self.count).to_have_text('0 of 1000 machines')

    def test_only_the_visible_rows_exist(self):
        self.open()
        self.expect(self.row('default/vm-0')).to_be_visible()
        self.assertLess(self.rows.count(), MOST_ROWS)
        self.page.locator('.viewport').evaluate(
            'one => { one.scrollTop = one.scrollHeight; }')
        self.expect(self.row(f'{OTHER}/guest-49')).to_be_in_viewport()
        self.assertLess(self.rows.count(), MOST_ROWS)
        last = self.page.get_by_role('listitem').last
        self.expect(last).to_have_attribute('aria-posinset', '1000')
        self.expect(last).to_have_attribute('aria-setsize', '1000')

    def test_keyboard(self):
        self.open()
        self.search.focus()
        self.page.keyboard.press('Tab')
        self.expect(self.state).to_be_focused()
        self.page.keyboard.press('Tab')
        # Chromium lets the keyboard scroll an element that scrolls.
        if self.page.locator('.viewport:focus').count():
            self.page.keyboard.press('Tab')
        self.expect(self.row('default/vm-0')).to_be_focused()
        for key, name in (('ArrowDown', 'default/vm-1'),
                          ('ArrowUp', 'default/vm-0'),
                          ('End', f'{OTHER}/guest-49'),
                          ('ArrowDown', f'{OTHER}/guest-49'),
                          ('PageUp', None), ('PageDown',
                                             f'{OTHER}/guest-49'),
                          ('Home', 'default/vm-0'),
                          ('ArrowDown', 'default/vm-1')):
            self.page.keyboard.press(key)
            if name:
                self.expect(self.row(name)).to_be_focused()
                self.expect(self.row(name)).to_be_in_viewport()
        self.page.keyboard.press('Enter')
        self.expect(self.page.get_by_role(
            'heading', name='default/vm-1')).to_be_visible()
        self.expect(self.page).to_have_title(re.compile(r'^vm-1\b'))

    def scrolled(self):
        return self.page.locator('.viewport').evaluate('one => one.scrollTop')

    def test_wheel_leaves_the_focus(self):
        self.open()
        first = self.row('default/vm-0')
        first.focus()
        box = first.bounding_box()
        self.page.mouse.move(box['x'] + 9, box['y'] + 9)
        for least in 500, 4000:
            self.page.mouse.wheel(0, 4000)
            self.until(lambda: self.scrolled() > least)
            self.expect(first).to_be_focused()
            self.expect(first).not_to_be_in_viewport()
        self.page.keyboard.press('ArrowDown')
        self.expect(self.row('default/vm-1')).to_be_focused()
        self.expect(self.row('default/vm-1')).to_be_in_viewport()
        # Another search begins at the first row.
        self.page.keyboard.press('End')
        self.expect(self.row(f'{OTHER}/guest-49')).to_be_focused()
        self.search.fill('vm')
        self.expect(self.row('default/vm-0')).to_be_in_viewport()
        self.expect(self.row('default/vm-0')).to_have_attribute(
            'tabindex', '0')

    def test_click_while_another_machine_changes(self):
        self.open()
        self.addCleanup(self.sandbox.wait_stopped, 'vm-1')
        self.addCleanup(self.sandbox.do, 'vm-1', 'stop')
        box = self.row('default/vm-5').bounding_box()
        self.page.mouse.move(box['x'] + 9, box['y'] + 9)
        self.page.mouse.down()
        self.sandbox.do('vm-1', 'start')
        self.expect(self.row('default/vm-1')).to_contain_text('On')
        self.page.mouse.up()
        self.expect(self.page.get_by_role(
            'heading', name='default/vm-5')).to_be_visible()

    def test_view_is_in_the_url(self):
        self.open(f'/#/?q={OTHER}+guest-1&state=Off')
        self.expect(self.search).to_have_value(f'{OTHER} guest-1')
        self.expect(self.state).to_have_value('Off')
        self.expect(self.count).to_have_text('11 of 1000 machines')
        self.search.fill('guest-12')
        self.expect(self.rows).to_have_count(1)
        self.page.reload()
        self.expect(self.search).to_have_value('guest-12')
        self.expect(self.rows).to_have_count(1)
        self.rows.click()
        heading = self.page.get_by_role('heading', name=f'{OTHER}/guest-12')
        self.expect(heading).to_be_visible()
        self.page.go_back()
        self.expect(self.search).to_have_value('guest-12')
        self.expect(self.rows).to_have_count(1)
        self.page.go_forward()
        self.expect(heading).to_be_visible()
        # Edited by hand.
        self.page.evaluate('location.hash = "#/?q=vm-94"')
        self.expect(self.count).to_have_text('11 of 1000 machines')
        self.page.evaluate('location.hash = "#/?q=vm-949"')
        self.expect(self.search).to_have_value('vm-949')
        self.expect(self.rows).to_have_count(1)
        # From a filter back to all, again and again.
        for _ in range(2):
            self.page.get_by_role('link', name='Machines').click()
            self.expect(self.count).to_have_text('1000 of 1000 machines')
            self.expect(self.search).to_have_value('')
            self.search.fill('vm-94')
            self.expect(self.count).to_have_text('11 of 1000 machines')
        for wrong in ('#/nothing', '#/systems/1/nothing', '#/%ff%',
                      '#/systems/constructor/toString', '#/constructor',
                      '#/systems', '#/systems/%2e%2e/overview'):
            self.page.evaluate(f'location.hash = "{wrong}"')
            self.expect(self.page.locator('.messages')).to_contain_text(
                'There is no such view.')
            self.page.evaluate('location.hash = "#/"')
            self.expect(self.search).to_be_visible()

    def test_absent_machine(self):
        self.tab.allow_error('status of 404')
        self.page.goto('/#/systems/absent/overview')
        self.expect(self.page.get_by_role('alert')).to_contain_text('absent')
        # It remains one segment of the path.
        self.page.goto('/#/systems/..%2FChassis%2Fx/overview')
        self.expect(self.page.get_by_role('alert')).to_contain_text('Chassis')
        self.assertEqual([], [one for one in self.tab.requests
                              if '/redfish/v1/Chassis' in one])

    def test_changes_are_shown(self):
        self.open(f'/#/?q={OTHER}')
        first = self.row(f'{OTHER}/guest-0')
        self.expect(first).to_contain_text('Off')
        first.focus()
        self.sandbox.do('guest-0', 'start', namespace=OTHER)
        self.expect(first).to_contain_text('On')
        # The keyboard stays where it was.
        self.expect(first).to_be_focused()
        self.state.select_option('On')
        self.expect(self.rows).to_have_count(1)
        self.sandbox.do('guest-0', 'stop', namespace=OTHER)
        self.expect(self.rows).to_have_count(0)
        self.state.select_option('Any state')
        self.create('guest-new')
        self.expect(self.count).to_have_text(
            f'{OTHERS + 1} of 1001 machines')
        self.expect(self.page.get_by_text(
            f'{OTHER}/guest-new')).to_have_count(0)     # not in the screenful
        self.page.keyboard.press('End')
        self.search.fill('guest-new')
        self.expect(self.row(f'{OTHER}/guest-new')).to_be_visible()
        self.sandbox.delete('virtualmachines', 'guest-new', OTHER)
        self.expect(self.count).to_have_text('0 of 1000 machines')

    def test_burst_of_changes(self):
        self.open()
        self.search.fill('vm-')
        self.state.select_option('Off')
        names = [f'vm-{number}' for number in range(200, 400)]
        before = int(self.count.inner_text().split()[0])
        held = []
        self.page.route(re.compile('/redfish/v1/Systems[/?]'), lambda route: (
            route.continue_() if held else held.append(route)))
        each(lambda name: self.sandbox.do(name, 'start'), names)
        self.until(lambda: len(names) == sum(
            vmi.get('status', {}).get('phase') == 'Running'
            for vmi in self.sandbox.list('virtualmachineinstances')))
        self.until(lambda: self.page.evaluate('1') and held)
        requests = len(self.tab.requests)
        held[0].continue_()
        self.expect(self.count).to_have_text(
            f'{before - len(names)} of 1000 machines')
        # What has changed while the page reads is read once: not one request
        # for each change, of which a start has several.
        self.assertLess(len(self.tab.requests) - requests, len(names))
        self.state.select_option('On')
        self.expect(self.row('default/vm-200')).to_be_visible()
        each(lambda name: self.sandbox.do(name, 'stop'), names)
        self.state.select_option('Off')
        self.expect(self.count).to_have_text(f'{before} of 1000 machines')

    def test_machine_with_a_problem(self):
        template = self.sandbox.vm('guest-1', OTHER)['spec']['template']
        template['spec']['nodeSelector'] = {'kubernetes.io/hostname': 'none'}
        self.sandbox.patch('virtualmachines', 'guest-1', {
            'spec': {'template': template}}, OTHER)
        self.sandbox.do('guest-1', 'start', namespace=OTHER)
        self.open('/#/?state=Problem')
        self.expect(self.row(f'{OTHER}/guest-1')).to_contain_text('Critical')
        self.expect(self.rows).to_have_count(1)
        self.sandbox.do('guest-1', 'stop', namespace=OTHER)
        self.expect(self.rows).to_have_count(0)
