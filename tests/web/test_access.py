# SPDX-License-Identifier: Apache-2.0
"""Roles, sessions, accounts, certificates and tasks."""

import re

import requests

from tests.fixtures import file_servers
from tests.web import case

ACCOUNTS = '/redfish/v1/AccountService/Accounts'
SESSIONS = '/redfish/v1/SessionService/Sessions'
SYSTEM = '/redfish/v1/Systems/1'
RESET = SYSTEM + '/Actions/ComputerSystem.Reset'
CD = SYSTEM + '/VirtualMedia/Cd'
PASSWORD = 'a pass word 1'

LOOPBACK = 'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK = True\n'

#: Views, and what each shows to the role ReadOnly when it is complete.
VIEWS = {
    'Overview': ('region', 'Boot override'),
    'Serial console': ('heading', 'Serial console'),
    'Display': ('heading', 'Display'),
    'Media': ('region', 'Virtual CD'),
    'Firmware': ('region', 'Secure Boot'),
    'Log': ('list', 'Log'),
    'Certificates': ('heading', 'vm-0'),
    'Tasks': ('region', 'Tasks'),
    'Sessions': ('region', 'Settings'),
    'Accounts': ('region', 'Accounts'),
}


class AccessTestCase(case.WebPodTestCase):
    """Accounts that a test creates are deleted at its end."""

    SETTINGS = LOOPBACK

    def setUp(self):
        super().setUp()
        self.addCleanup(self.delete_accounts)
        self.messages = self.page.locator('.messages')
        self.dialog = self.page.get_by_role('dialog')

    def delete_accounts(self):
        for one in self.members(ACCOUNTS):
            if one['@odata.id'].rpartition('/')[2].isdigit():
                self.pod.request('DELETE', one['@odata.id'], expect=204)

    def members(self, path):
        return self.pod.request('GET', path, expect=200).json()['Members']

    def account(self, name, role, **more):
        return self.pod.request('POST', ACCOUNTS, dict(
            more, UserName=name, Password=PASSWORD, RoleId=role), 201).json()

    def show(self, view, page=None):
        """Open a view; return when all of it is drawn."""
        page = page or self.page
        page.get_by_role('link', name=view, exact=True).click()
        self.expect(page).to_have_title(re.compile(view))
        role, name = VIEWS[view]
        self.expect(page.get_by_role('main').get_by_role(
            role, name=name).first).to_be_visible()
        self.expect(page.get_by_text('Loading…')).to_have_count(0)

    def start_import(self):
        """Insert an image, ``slow.iso``, whose import lasts."""
        server = self.useFixture(file_servers.Server(
            file_servers.image(b'x' * 5000)))
        self.addCleanup(self.sandbox.request, 'DELETE', '/sandbox/imports')
        self.sandbox.request('POST', '/sandbox/imports', {
            'url': server.url + '/slow.iso', 'rate': 100}).raise_for_status()
        self.addCleanup(self.eject)
        self.pod.request(
            'POST', CD + '/Actions/VirtualMedia.InsertMedia',
            {'Image': server.url + '/slow.iso'}, 202,
            headers={'Prefer': 'respond-async'})

    def eject(self):
        self.pod.request('POST', CD + '/Actions/VirtualMedia.EjectMedia', {})
        self.until(lambda: not self.sandbox.list('datavolumes'))

    def panel(self, name):
        return self.page.get_by_role('region', name=name).first

    def confirm(self, name):
        self.dialog.get_by_role('button', name=name, exact=True).last.click()

    def status(self, name, password, path=SYSTEM):
        """Return the status code of a request with an account's password."""
        with requests.Session() as session:
            session.trust_env = False
            return session.get(
                self.pod.url + path, auth=(name, password),
                verify=str(self.pod.ca), timeout=30).status_code

    def as_page(self, method, path, body=None):
        """Return the status code of a request that the page's user sends."""
        return self.page.evaluate(
            '''async ([method, path, body]) => (await fetch(path, {
            method, body: body && JSON.stringify(body), headers: {
              'Content-Type': 'application/json', 'X-Auth-Token': JSON.parse(
                sessionStorage.getItem('sushy-kubevirt.session')).token},
            })).status''', [method, path, body])


class RolesTestCase(AccessTestCase):

    def login_as(self, role):
        self.account(role.lower(), role)
        self.login(self.tab, role.lower(), PASSWORD)
        self.expect(self.page.locator('header')).to_contain_text(
            f'{role.lower()} ({role})')

    def test_read_only(self):
        # A task and a session that others could end.
        self.start_import()
        self.pod.request('POST', SESSIONS, {
            'UserName': 'admin', 'Password': self.pod.password}, 201)
        self.login_as('ReadOnly')
        self.tab.allow_error('status of 403')
        for view in VIEWS:
            self.show(view)
            # Its own session and password are its own to change.
            forms = self.page.locator('main').locator(
                'button, input, select, textarea')
            if view not in ('Accounts', 'Log'):
                self.expect(forms.locator('visible=true').and_(
                    self.page.locator(':enabled'))).to_have_count(0)
            self.expect(self.page.locator('.bad:visible')).to_have_count(0)
        self.expect(self.page.locator('details button')).to_have_text(
            ['Change password'])
        self.show('Log')
        self.expect(self.page.get_by_role('button', name='Clear log')
                    ).to_have_count(0)
        for method, path, body in (
                ('POST', RESET, {'ResetType': 'On'}),
                ('PATCH', SYSTEM, {'AssetTag': 'x'}),
                ('POST', SYSTEM + '/LogServices/Events/Actions/'
                 'LogService.ClearLog', {}),
                ('POST', CD + '/Actions/VirtualMedia.InsertMedia',
                 {'Image': 'http://127.0.0.1/x'}),
                ('POST', ACCOUNTS, {'UserName': 'x', 'Password': PASSWORD,
                                    'RoleId': 'Administrator'}),
                ('GET', SYSTEM + '/SerialConsole', None),
                ('GET', SYSTEM + '/GraphicalConsole', None)):
            self.assertEqual(403, self.as_page(method, path, body), path)

    def test_operator(self):
        self.login_as('Operator')
        self.tab.allow_error('status of 403')
        self.expect(self.page.get_by_role(
            'button', name='Power on')).to_be_visible()
        self.show('Log')
        self.expect(self.page.get_by_role(
            'button', name='Clear log')).to_be_visible()
        self.show('Serial console')
        self.expect(self.page.locator('#console')).to_be_visible()
        self.show('Certificates')
        self.expect(self.page.locator('main')).to_contain_text(
            'Changes need the role Administrator.')
        self.show('Accounts')
        self.expect(self.page.get_by_role('row')).to_have_count(2)
        self.expect(self.page.get_by_role(
            'region', name='New account')).to_have_count(0)
        self.show('Sessions')
        self.expect(self.page.get_by_label(
            'Seconds until an unused')).to_be_disabled()
        for method, path, body in (
                ('POST', CD + '/Actions/VirtualMedia.EjectMedia', {}),
                ('GET', CD + '/Certificates', None),
                ('PATCH', '/redfish/v1/SessionService',
                 {'SessionTimeout': 60}),
                ('DELETE', ACCOUNTS + '/admin', None)):
            self.assertEqual(403, self.as_page(method, path, body), path)
        self.assertEqual(204, self.as_page('POST', RESET, {
            'ResetType': 'On'}))
        self.expect(self.page.locator('.bad:visible')).to_have_count(0)
        # Its own password.
        self.show('Accounts')
        self.page.get_by_text('Change', exact=True).click()
        self.page.get_by_label('New password').fill('another one 2')
        self.page.get_by_role('button', name='Change password').click()
        self.expect(self.messages).to_contain_text('Saved.')
        self.assertEqual(401, self.status('operator', PASSWORD))
        self.assertEqual(200, self.status('operator', 'another one 2'))
        # The session continues.
        self.show('Overview')
        self.expect(self.page.locator('#power')).to_be_visible()

    def test_administrator(self):
        self.login_as('Administrator')
        for view, region in (('Accounts', 'New account'),
                             ('Certificates', 'Add certificate')):
            self.show(view)
            self.expect(self.panel(region)).to_be_visible()
        self.show('Media')
        self.expect(self.panel('Virtual CD').get_by_role(
            'button', name='Insert', exact=True)).to_be_visible()

    def test_role_that_is_changed_meanwhile(self):
        made = self.account('changed', 'Operator')
        self.login(self.tab, 'changed', PASSWORD)
        self.tab.allow_error('status of 401')
        self.pod.request('PATCH', made['@odata.id'],
                         {'RoleId': 'ReadOnly'}, 200)
        # That ends its sessions, which the page notices by itself.
        self.expect(self.page.get_by_text(
            'Your session has ended.')).to_be_visible()
        self.page.get_by_label('User name').fill('changed')
        self.page.get_by_label('Password').fill(PASSWORD)
        self.page.get_by_role('button', name='Log in').click()
        self.expect(self.page.locator('header')).to_contain_text('ReadOnly')


class SessionsTestCase(AccessTestCase):

    def setUp(self):
        super().setUp()
        for one in self.members(SESSIONS):
            self.pod.request('DELETE', one['@odata.id'], expect=204)

    def test_logout_closes_the_session(self):
        self.log_in()
        [session] = self.members(SESSIONS)
        self.page.get_by_role('button', name='Log out').click()
        self.expect(self.page.get_by_text(
            'You have logged out.')).to_be_visible()
        self.assertEqual([], self.members(SESSIONS))
        self.pod.request('GET', session['@odata.id'], expect=404)
        self.page.reload()
        self.expect(self.page.get_by_label('User name')).to_be_visible()

    def test_session_that_an_administrator_closes(self):
        self.account('user', 'Operator')
        self.login(self.tab, 'user', PASSWORD)
        self.tab.allow_error('status of 40[14]')
        self.show('Log')
        self.page.get_by_label('Severity').select_option('Warning')
        other = self.open_tab()
        self.log_in(other)
        self.show('Sessions', other.page)
        row = other.page.get_by_role('row').filter(has=other.page.get_by_role(
            'cell', name='user', exact=True))
        self.expect(row).to_contain_text('web page')
        row.get_by_role('button', name='Close').click()
        other.page.get_by_role('dialog').get_by_role(
            'button', name='Close').click()
        self.expect(other.page.locator('.messages')).to_contain_text(
            'The session was closed.')
        self.expect(row).to_have_count(0)
        # The page notices by itself, at the latest with the next event.
        self.pod.request('POST', RESET, {'ResetType': 'PushPowerButton'})
        self.expect(self.page.get_by_text(
            'Your session has ended.')).to_be_visible()
        self.expect(self.page.get_by_role(
            'button', name='Log out')).to_have_count(0)
        self.page.get_by_label('User name').fill('user')
        self.page.get_by_label('Password').fill(PASSWORD)
        self.page.keyboard.press('Enter')
        # The view is there again.
        self.expect(self.page.get_by_label('Severity')).to_have_value(
            'Warning')

    def test_timeout(self):
        self.log_in()
        self.show('Sessions')
        self.expect(self.page.get_by_role('row').nth(1)).to_contain_text(
            'This session')
        field = self.page.get_by_label('Seconds until an unused')
        field.fill('29')
        self.page.get_by_role('button', name='Save').click()
        # The browser refuses it.
        self.assertFalse(field.evaluate('one => one.checkValidity()'))
        field.fill('900')
        self.page.get_by_role('button', name='Save').click()
        self.expect(self.messages).to_contain_text('Saved.')
        self.assertEqual(900, self.pod.request(
            'GET', '/redfish/v1/SessionService').json()['SessionTimeout'])

    def test_two_browsers_see_the_same(self):
        self.log_in()
        other = self.open_tab()
        self.log_in(other)
        self.show('Accounts')
        self.show('Accounts', other.page)
        self.account('shared', 'ReadOnly')
        for page in self.page, other.page:
            self.expect(page.get_by_role('cell', name='shared', exact=True)
                        ).to_be_visible()
        self.assertEqual(2, len(self.members(SESSIONS)))


class AccountsTestCase(AccessTestCase):

    def setUp(self):
        super().setUp()
        self.log_in()
        self.show('Accounts')

    def row(self, name):
        return self.page.get_by_role('row').filter(has=self.page.get_by_role(
            'cell', name=name, exact=True))

    def create(self, name, password, role='Operator', later=False):
        panel = self.panel('New account')
        panel.get_by_label('User name').fill(name)
        panel.get_by_label('Password', exact=True).fill(password)
        panel.get_by_label('Role').select_option(role)
        panel.get_by_label('Has to change the password').set_checked(later)
        panel.get_by_role('button', name='Create account').click()

    def edit(self, name):
        # The end of the last change draws the list again.
        self.expect(self.page.locator('[aria-busy]')).to_have_count(0)
        # It is open after a change, for the focus is in it.
        if not self.row(name).locator('details[open]').count():
            self.row(name).get_by_text('Change', exact=True).click()
        return self.row(name)

    def test_create_change_delete(self):
        self.create('one', PASSWORD)
        self.expect(self.messages).to_contain_text(
            'The account one was created.')
        self.expect(self.row('one')).to_contain_text('Operator')
        self.assertEqual(200, self.status('one', PASSWORD))
        # The form is empty for the next one.
        self.expect(self.panel('New account').get_by_label(
            'User name')).to_have_value('')
        path = self.page.url
        row = self.edit('one')
        row.get_by_label('Role').select_option('ReadOnly')
        row.get_by_role('button', name='Change role').click()
        self.expect(self.row('one').get_by_role('cell').nth(1)
                    ).to_have_text('ReadOnly')
        row = self.edit('one')
        row.get_by_label('New password').fill('another one 2')
        row.get_by_role('button', name='Change password').click()
        self.expect(self.messages).to_contain_text('Saved.')
        self.until(lambda: self.status('one', 'another one 2') == 200)
        self.assertEqual(401, self.status('one', PASSWORD))
        row = self.edit('one')
        row.get_by_role('button', name='Disable').click()
        self.expect(self.row('one')).to_contain_text('Disabled')
        self.until(lambda: self.status('one', 'another one 2') == 401)
        row = self.edit('one')
        row.get_by_role('button', name='Enable').click()
        self.expect(self.row('one')).to_contain_text('Enabled')
        row = self.edit('one')
        row.get_by_role('button', name='Delete').click()
        self.expect(self.dialog).to_contain_text('Delete the account one?')
        self.confirm('Delete')
        self.expect(self.row('one')).to_have_count(0)
        self.assertEqual(401, self.status('one', 'another one 2'))
        self.assertEqual(path, self.page.url)

    def test_errors_say_what_to_do(self):
        self.tab.allow_error('status of 4')
        self.account('taken', 'ReadOnly')
        self.create('two', 'short')
        password = self.panel('New account').get_by_label(
            'Password', exact=True)
        self.assertIn('8', password.evaluate('one => one.validationMessage'))
        self.assertEqual(0, self.row('two').count())
        # The service has the same limit, in bytes.
        self.create('two', 'ü' * 15)
        self.expect(self.messages.locator('.bad')).to_contain_text(
            '8 to 20')
        self.create('taken', PASSWORD)
        self.expect(self.messages.locator('.bad')).to_contain_text('taken')
        # What was typed is still there, to be corrected.
        self.expect(self.panel('New account').get_by_label(
            'User name')).to_have_value('taken')
        self.create('a' * 40, PASSWORD)
        self.expect(self.messages.locator('.bad')).to_contain_text('a' * 40)

    def test_account_of_a_secret(self):
        self.tab.allow_error('status of 40')
        row = self.row('admin')
        self.expect(row).to_contain_text('comes from a file or Secret')
        self.expect(row.get_by_text('Change', exact=True)).to_have_count(0)
        self.expect(row.get_by_role('button')).to_have_count(0)

    def test_password_change_at_first_login(self):
        self.create('first', PASSWORD, later=True)
        self.expect(self.row('first')).to_be_visible()
        other = self.open_tab()
        other.allow_error('status of 40[013]')
        page = other.page
        page.goto('/#/systems/1/log')
        page.get_by_label('User name').fill('first')
        page.get_by_label('Password').fill(PASSWORD)
        page.get_by_role('button', name='Log in').click()
        self.expect(page.get_by_role(
            'heading', name='Change password')).to_be_visible()
        page.get_by_label('New password', exact=True).fill('another one 2')
        page.get_by_label('New password again').fill('another one 3')
        page.get_by_role('button', name='Change password').click()
        self.expect(page.get_by_role('alert')).to_contain_text('differ')
        for password in 'short', 'another one 2':
            page.get_by_label('New password', exact=True).fill(password)
            page.get_by_label('New password again').fill(password)
            page.get_by_role('button', name='Change password').click()
            if password == 'short':
                self.expect(page.locator('.messages .bad')).to_contain_text(
                    '8 to 20')
        self.expect(page.get_by_text(
            'The password was changed.')).to_be_visible()
        page.get_by_label('User name').fill('first')
        page.get_by_label('Password').fill('another one 2')
        page.get_by_role('button', name='Log in').click()
        self.expect(page.get_by_role('heading', name='Log', exact=True)
                    ).to_be_visible()
        self.assertEqual(401, self.status('first', PASSWORD))

    def test_reload_before_the_password_is_changed(self):
        self.account('later', 'ReadOnly', PasswordChangeRequired=True)
        other = self.open_tab()
        other.allow_error('status of 40[13]')
        page = other.page
        page.goto('/')
        page.get_by_label('User name').fill('later')
        page.get_by_label('Password').fill(PASSWORD)
        page.get_by_role('button', name='Log in').click()
        self.expect(page.get_by_label('New password again')).to_be_visible()
        page.reload()
        self.expect(page.get_by_label('User name')).to_be_visible()


class CertificatesTestCase(AccessTestCase):

    def setUp(self):
        super().setUp()
        self.log_in()
        self.tab.allow_error('status of 400')
        self.show('Certificates')

    def add(self, text):
        panel = self.panel('Add certificate')
        panel.get_by_label('Certificate', exact=True).fill(text)
        panel.get_by_role('button', name='Add certificate').click()

    def insert(self, url):
        return self.pod.request(
            'POST', CD + '/Actions/VirtualMedia.InsertMedia', {'Image': url})

    def test_add_and_remove(self):
        ca = file_servers.pair('An authority', ca=True)
        server = self.useFixture(file_servers.Server(
            file_servers.image(b'x' * 5000), file_servers.pair(issuer=ca)))
        url = server.url + '/a.iso'
        self.assertEqual(400, self.insert(url).status_code)
        for text, why in (('no certificate', 'PEM'),
                          (ca[1], 'send the certificate only')):
            self.add(text)
            self.expect(self.messages.locator('.bad')).to_contain_text(why)
        self.assertNotIn('PRIVATE KEY', self.messages.inner_text())
        self.add(ca[0])
        self.expect(self.messages).to_contain_text(
            'The certificate was added.')
        row = self.page.get_by_role('row').filter(has_text='An authority')
        self.expect(row).to_have_count(1)
        [one] = self.members(CD + '/Certificates')
        self.assertEqual(ca[0], self.pod.request(
            'GET', one['@odata.id']).json()['CertificateString'])
        self.assertIn(self.insert(url).status_code, (200, 204))
        self.pod.request('POST', CD + '/Actions/VirtualMedia.EjectMedia', {})
        row.get_by_role('button', name='Remove').click()
        self.confirm('Remove')
        self.expect(row).to_have_count(0)
        self.assertEqual([], self.members(CD + '/Certificates'))
        self.assertEqual(400, self.insert(url).status_code)


class TasksTestCase(AccessTestCase):

    def test_list_and_cancel(self):
        self.log_in()
        self.show('Tasks')
        main = self.page.locator('main')
        self.expect(main).to_contain_text('No imports of media.')
        self.start_import()
        row = self.page.get_by_role('row').filter(has_text='slow.iso')
        self.expect(row).to_contain_text('Running')
        self.expect(row.get_by_role('progressbar')).to_have_attribute(
            'value', re.compile('[1-9]'))
        row.get_by_role('button', name='Cancel').click()
        self.confirm('Cancel')
        self.expect(main).to_contain_text('No imports of media.')
        self.assertFalse(self.pod.request('GET', CD).json()['Inserted'])
        self.until(lambda: not self.sandbox.list('datavolumes'))
