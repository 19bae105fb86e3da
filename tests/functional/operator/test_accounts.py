# SPDX-License-Identifier: Apache-2.0
"""Accounts that clients of a BMC create, over both of its protocols."""

import json
import shutil
import subprocess
import sys
import time

import fixtures

from tests.fixtures import operator

ACCOUNTS = '/redfish/v1/AccountService/Accounts'
SYSTEMS = '/redfish/v1/Systems'

#: Uses pyghmi in a process of its own, as it keeps global state. Arguments:
#: host, port; user name and password on standard input.
PYGHMI = r'''
import sys
from pyghmi.ipmi import command
host, port = sys.argv[1:]
user, password = sys.stdin.read().split()
bmc = command.Command(host, user, password, port=int(port))
assert bmc.get_user_name(2) == 'admin', bmc.get_user_name(2)
bmc.create_user(5, 'eve', 'secret-of-eve', privilege_level='operator')
found = bmc.get_user(5)
assert found['name'] == 'eve', found
assert found['access']['privilege_level'] == 'operator', found
assert set(bmc.get_users()) == {2, 5}, bmc.get_users()
eve = command.Command(host, 'eve', 'secret-of-eve', port=int(port),
                      privlevel=3)
eve.get_power()
bmc.set_user_password(5, 'set_password', 'secret-new')
try:
    eve.get_power()
except Exception as exc:
    print('session ended:', type(exc).__name__)
bmc.user_delete(5)
print(sorted(bmc.get_users()))
'''


class AccountsTestCase(operator.OperatorTestCase):

    def setUp(self):
        super().setUp()
        self.mark = self.operator.process.mark()
        self.box = self.bmc().ready()
        # The first answer of the watch, which the pod does not wait for.
        self.until('accounts', lambda: self.box.ipmitool(
            'user', 'summary').returncode, 0)

    def tearDown(self):
        self.assert_no_warnings(self.mark, pods=True)
        super().tearDown()

    def as_user(self, name, password):
        """Return the BMC as seen by another user."""
        return operator.Bmc(self.kubectl, 'box', name, password)

    def send(self, method, path, body=None, box=None, code=200):
        words = ('-X', method, '-H', 'Content-Type: application/json')
        if body is not None:
            words += '--data', json.dumps(body)
        answer = (box or self.box).curl(path, *words)
        self.assertEqual(code, answer.code, answer.text)
        self.assertNotIn('secret-', answer.text)
        return answer.json() if answer.text else None

    def codes(self, box, level='OPERATOR'):
        """Log in over both protocols.

        :returns: (HTTP status code, whether ipmitool succeeded)
        """
        done = box.ipmitool('power', 'status', options=('-L', level))
        return box.curl(SYSTEMS).code, done.returncode == 0

    def seconds_until(self, box, expected, level='OPERATOR'):
        begin = time.monotonic()
        self.until('login', lambda: self.codes(box, level), expected)
        return time.monotonic() - begin

    def create(self, **values):
        self.send('POST', ACCOUNTS, {
            'UserName': 'bob', 'Password': 'secret-of-bob',
            'RoleId': 'Operator', **values}, code=201)
        return self.as_user('bob', 'secret-of-bob')

    def users(self):
        """Return the lines of ``user list``, without their spaces."""
        return [tuple(line.split())
                for line in self.box.ipmi('user', 'list', '1').splitlines()]

    def log(self):
        entries = self.box.curl(
            '/redfish/v1/Systems/1/LogServices/Events/Entries').json()
        return [one['Message'] for one in entries['Members']]

    def test_account_of_redfish(self):
        bob = self.create()
        # A failed login of ipmitool takes longer than a second.
        self.assertLess(self.seconds_until(bob, (200, True)), 20)
        self.assertIn(('3', 'bob', 'true', 'false', 'true', 'OPERATOR'),
                      self.users())
        self.assertNotEqual(0, bob.ipmitool('power', 'status').returncode)
        self.send('PATCH', ACCOUNTS + '/3', {'RoleId': 'Administrator'})
        self.seconds_until(bob, (200, True), 'ADMINISTRATOR')
        self.send('PATCH', ACCOUNTS + '/3', {'Password': 'secret-new'})
        self.seconds_until(bob, (401, False))
        bob = self.as_user('bob', 'secret-new')
        self.seconds_until(bob, (200, True))
        for off, on in (({'Enabled': False}, {'Enabled': True}),
                        ({'Locked': True}, {'Locked': False})):
            self.send('PATCH', ACCOUNTS + '/3', off)
            self.seconds_until(bob, (401, False))
            self.send('PATCH', ACCOUNTS + '/3', on)
            self.seconds_until(bob, (200, True))
        for kind, expected in (('IPMI', (401, True)),
                               ('Redfish', (200, False))):
            self.send('PATCH', ACCOUNTS + '/3', {'AccountTypes': [kind]})
            self.seconds_until(bob, expected)
        self.send('DELETE', ACCOUNTS + '/3', code=204)
        self.seconds_until(bob, (401, False))
        self.until('log', lambda: [
            line for line in self.log() if 'was deleted' in line], [
                "The account 'bob' (3) was deleted by admin over Redfish."])

    def test_account_of_ipmi(self):
        for words in (('set', 'name', '3', 'bob'),
                      ('set', 'password', '3', 'secret-of-bob'),
                      ('priv', '3', '3', '1'), ('enable', '3')):
            self.box.ipmi('user', *words)
        bob = self.as_user('bob', 'secret-of-bob')
        self.assertLess(self.seconds_until(bob, (200, True)), 20)
        self.assertEqual(
            ('bob', 'Operator', True, ['Redfish', 'IPMI']), tuple(
                self.send('GET', ACCOUNTS + '/3')[name] for name in (
                    'UserName', 'RoleId', 'Enabled', 'AccountTypes')))
        self.box.ipmi('user', 'test', '3', '16', 'secret-of-bob')
        wrong = self.box.ipmitool('user', 'test', '3', '16', 'secret-wrong')
        self.assertIn('password incorrect', wrong.stdout)
        self.box.ipmi('user', 'set', 'password', '3', 'secret-of-20-bytes-x',
                      '20')
        self.box.ipmi('user', 'test', '3', '20', 'secret-of-20-bytes-x')
        self.seconds_until(bob, (401, False))
        bob = self.as_user('bob', 'secret-of-20-bytes-x')
        self.seconds_until(bob, (200, True))
        self.assertRegex(
            self.box.ipmi('user', 'summary', '1'),
            r'Maximum IDs\s*: 15\nEnabled User Count\s*: 2\n'
            r'Fixed Name Count\s*: 2')
        self.box.ipmi('channel', 'setaccess', '1', '3', 'callin=on',
                      'link=on', 'ipmi=on', 'privilege=4')
        self.seconds_until(bob, (200, True), 'ADMINISTRATOR')
        self.box.ipmi('user', 'disable', '3')
        self.seconds_until(bob, (401, False))
        self.box.ipmi('user', 'enable', '3')
        self.seconds_until(bob, (200, True))
        self.box.ipmi('user', 'set', 'name', '3', '')
        self.seconds_until(bob, (401, False))
        self.assertEqual(1, self.send('GET', ACCOUNTS)[
            'Members@odata.count'])
        for text in ("The account 'bob' (3) was created by admin over IPMI.",
                     "The account 'bob' (3) was deleted by admin over IPMI."):
            self.until('log', lambda: self.log().count(text), 1)
        self.assertNotIn('secret-', str(self.log()))

    def test_account_of_secret_is_read_only(self):
        done = self.box.ipmitool('user', 'set', 'name', '2', 'bob')
        self.assertNotEqual(0, done.returncode)
        self.assertIn('Command not supported in present state', done.stdout)
        answer = self.send('PATCH', ACCOUNTS + '/admin',
                           {'Password': 'secret-new'}, code=400)
        self.assertIn('comes from a file or Secret', str(answer))
        self.assertEqual(
            ['Redfish', 'IPMI'],
            self.send('GET', ACCOUNTS + '/admin')['AccountTypes'])
        self.send('DELETE', ACCOUNTS + '/admin', code=405)
        self.assertEqual('Off', self.box.works())

    def test_password_change_required(self):
        bob = self.create(PasswordChangeRequired=True)
        self.assertEqual((403, False), self.codes(bob))
        self.send('PATCH', ACCOUNTS + '/3', {'Password': 'secret-new'}, bob)
        self.seconds_until(self.as_user('bob', 'secret-new'), (200, True))

    def test_disabled_management(self):
        bob = self.create()
        self.seconds_until(bob, (200, True))
        self.box.patch(accountManagement={'enabled': False})
        self.box.current()
        self.assertEqual((401, False), self.codes(bob))
        self.send('POST', ACCOUNTS, {}, code=405)
        self.assertEqual(
            1, self.send('GET', ACCOUNTS)['Members@odata.count'])
        self.assertNotEqual(0, self.box.ipmitool(
            'user', 'set', 'name', '3', 'eve').returncode)
        self.assertEqual('Off', self.box.works())
        self.box.patch(accountManagement={'enabled': True})
        self.box.current()
        self.seconds_until(bob, (200, True))

    def test_log_without_redfish(self):
        self.box.patch(redfish={'enabled': False})
        self.box.current()
        self.until('name', lambda: self.box.ipmitool(
            'user', 'set', 'name', '3', 'bob').returncode, 0)
        self.until('event', lambda: [
            one['message'] for one in self.kubectl.get('events')['items']
            if one['reason'] == 'AccountCreated'], [
                "The account 'bob' (3) was created by admin over IPMI."])

    def test_bmc_config(self):
        """FreeIPMI reads all users, writes them back, and creates one."""
        if shutil.which('bmc-config') is None:
            self.skipTest('FreeIPMI (freeipmi-tools) is not installed')
        endpoint = self.box.status['endpoints']['ipmi']

        def bmc_config(*words):
            done = subprocess.run(
                ['bmc-config', '-D', 'LAN_2_0', '-I', '3', '-u', 'admin',
                 '-P', '-l', 'ADMIN', '-h',
                 f"{endpoint['host']}:{endpoint['port']}", *words],
                input=self.box.password + '\n', capture_output=True,
                text=True, timeout=120)
            self.assertNotIn('internal IPMI error', done.stderr)
            # A checkout returns 1 as there is no serial channel to read.
            self.assertIn(done.returncode, (0, 1) if '--checkout' in words
                          else (0,), done.stderr)
            return done.stdout

        sections = [word for id_ in (1, 2, 3)
                    for word in ('-S', f'User{id_}')]
        text = bmc_config('--checkout', *sections)
        self.assertRegex(text, r'Username +admin\n')
        path = self.useFixture(fixtures.TempDir()).join('users')
        with open(path, 'w') as stream:
            stream.write(text)
        # What was read can be written: nothing changes.
        bmc_config('--commit', '-n', path)
        self.assertEqual(text, bmc_config('--checkout', *sections))
        with open(path, 'w') as stream:
            stream.write('''Section User3
    Username              bob
    Password              secret-of-bob
    Enable_User           Yes
    Lan_Enable_IPMI_Msgs  Yes
    Lan_Privilege_Limit   Operator
EndSection
''')
        bmc_config('--commit', '-n', path)
        # It tests the password.
        bmc_config('--diff', '-n', path)
        self.seconds_until(self.as_user('bob', 'secret-of-bob'), (200, True))
        self.assertIn(('3', 'bob', 'true', 'false', 'true', 'OPERATOR'),
                      self.users())

    def test_pyghmi(self):
        endpoint = self.box.status['endpoints']['ipmi']
        done = subprocess.run(
            [sys.executable, '-c', PYGHMI, endpoint['host'],
             str(endpoint['port'])], input=f'admin {self.box.password}',
            capture_output=True, text=True, timeout=120)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('session ended', done.stdout)
        self.assertIn('[2]', done.stdout)
