# SPDX-License-Identifier: Apache-2.0
"""The accounts that clients create."""

import json
import time
from unittest import mock

import fixtures
from oslotest import base

from sushy_kubevirt.bmc import accounts
from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.services import account_files
from tests.unit.bmc import test_state_secret

BOB = {'name': 'bob', 'password': 'secret-of-bob', 'role': 'Operator'}


class AccountsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.cluster = test_state_secret.Cluster()
        self.client = self.cluster.client
        self.accounts = self.another()

    def another(self):
        """Return the accounts as another process sees them."""
        state = state_secret.StateSecret(self.cluster, ('default', 's'))
        state.read('accounts')
        return accounts.Accounts(state, lambda: {'admin'})

    def create(self, **values):
        return self.accounts.create('admin over Redfish', **{**BOB, **values})

    def test_creates_account_with_first_free_id(self):
        bob = self.create()
        self.assertEqual((3, 'bob', 'secret-of-bob', 'Operator', True), (
            bob.id, bob.name, bob.password, bob.role, bob.enabled))
        self.assertTrue(bob.usable)
        self.assertEqual(4, self.create(name='eve').id)
        self.accounts.delete(3, 'x')
        self.assertEqual(3, self.create().id)
        self.assertEqual(['bob', 'eve'],
                         [one.name for one in self.another().all()])

    def test_has_limited_number(self):
        for number in range(13):
            self.assertEqual(3 + number, self.create(name=f'u{number}').id)
        self.assertRaises(accounts.Full, self.create)
        self.assertEqual(13, len(self.another().all()))

    def test_replaces_account_without_name_if_all_ids_are_in_use(self):
        self.accounts.change(4, 'x', password='old secret', ipmi=False)
        for number in range(12):
            self.assertNotEqual(4, self.create(name=f'u{number}').id)
        # A client may still be creating it.
        self.assertRaises(accounts.Full, self.create)
        now = time.time()
        with mock.patch.object(accounts.time, 'time',
                               return_value=now + 290):
            self.assertRaises(accounts.Full, self.create)
        with mock.patch.object(accounts.time, 'time',
                               return_value=now + 310):
            bob = self.create()
        self.assertEqual((4, 'secret-of-bob', True), (
            bob.id, bob.password, bob.ipmi))
        self.assertEqual('created', self.accounts.changes()[-1].action)
        self.assertRaises(accounts.Full, self.create, name='eve')

    def test_refuses_name_of_another_account(self):
        self.create()
        for name in 'bob', 'admin':
            self.assertRaises(accounts.NameTaken, self.create, name=name)
        eve = self.create(name='eve')
        self.assertRaises(accounts.NameTaken, self.accounts.change, eve.id,
                          'x', name='bob')
        self.accounts.change(eve.id, 'x', name='eve')

    def test_two_processes_create_the_same_name(self):
        other = self.another()
        self.create()
        self.assertRaises(accounts.NameTaken, other.create, 'x', **BOB)
        self.assertEqual(4, other.create('x', **{**BOB, 'name': 'eve'}).id)

    def test_checks_values(self):
        for name in ('x' * 17, 'ä' * 9, 'a:b', 'a\n', '\ud800', ' a', 'a\0'):
            self.assertRaises(errors.InvalidValue, self.create, name=name)
        for password in ('short-7', 'x' * 21, 'ä' * 11, 'line\nbreak',
                         'secret-\ud800', 'secret-1\0'):
            exc = self.assertRaises(errors.InvalidValue, self.create,
                                    password=password)
            self.assertNotIn(password, f'{exc} {exc.value}')
        self.assertRaises(errors.InvalidValue, self.create, role='root')
        self.create(name='x' * 16, password='ä' * 10)
        self.create(name='y', password='x' * 20)
        self.assertEqual(set(account_files.ROLES), set(accounts.ROLES))

    def test_change(self):
        bob = self.create(change_required=True)
        changed = self.accounts.change(3, 'x', role='ReadOnly')
        self.assertEqual(('ReadOnly', 'secret-of-bob', True), (
            changed.role, changed.password, changed.change_required))
        self.assertNotEqual(bob.version, changed.version)
        again = self.accounts.change(3, 'x', role='ReadOnly')
        self.assertEqual(changed, again)
        exc = self.assertRaises(errors.InvalidValue, self.accounts.change, 3,
                                'x', password='secret-of-bob')
        self.assertNotIn('secret-of-bob', f'{exc} {exc.value}')
        self.assertFalse(self.accounts.change(
            3, 'x', password='another secret').change_required)
        self.accounts.change(3, 'x', password='another secret')
        self.accounts.change(3, 'x', change_required=True)
        self.assertFalse(self.accounts.change(
            3, 'x', password='another secret', change_required=False
        ).change_required)
        self.assertTrue(self.accounts.change(
            3, 'x', password='a third secret', change_required=True
        ).change_required)

    def test_usable(self):
        self.create()
        for field, value in (('enabled', False), ('locked', True),
                             ('role', None), ('password', None),
                             ('name', '')):
            before = getattr(self.accounts.get(3), field)
            self.assertFalse(self.accounts.change(
                3, 'x', **{field: value}).usable, field)
            self.assertTrue(self.accounts.change(
                3, 'x', **{field: before}).usable, field)

    def test_change_creates_incomplete_account(self):
        """IPMI sets name, password and privilege in any order."""
        for values in ({'password': 'secret-of-bob'}, {'role': 'Operator'},
                       {'name': 'bob'}):
            self.assertFalse(self.accounts.change(5, 'x', **values).usable)
        self.assertTrue(self.accounts.change(5, 'x', enabled=True).usable)

    def test_delete(self):
        self.create()
        self.accounts.delete(3, 'x')
        self.assertEqual((), self.another().all())
        self.assertRaises(accounts.NotFound, self.accounts.delete, 3, 'x')

    def test_writes_only_to_the_account_that_is_meant(self):
        bob = self.create()
        other = self.another()
        other.delete(3, 'x')
        self.assertRaises(accounts.NotFound, self.accounts.change, 3, 'x',
                          {'name': 'bob'}, role='ReadOnly')
        self.assertEqual((), self.accounts.all())
        boss = other.create('x', **{**BOB, 'name': 'boss'})
        for expected in {'name': 'bob'}, {'version': bob.version}:
            self.assertRaises(accounts.Replaced, self.accounts.change, 3, 'x',
                              expected, password='another secret')
            self.assertRaises(accounts.Replaced, self.accounts.delete, 3, 'x',
                              expected)
        self.assertEqual((boss,), self.another().all())
        self.accounts.change(3, 'x', {'version': boss.version}, role=None)
        # An id without an account has no version.
        self.assertRaises(accounts.Replaced, self.accounts.change, 3, 'x',
                          {'version': ''}, role='Operator')
        self.accounts.change(4, 'x', {'version': ''}, role='Operator')
        self.accounts.delete(3, 'x', {'name': 'boss'})

    def test_records_changes(self):
        self.create()
        self.accounts.change(3, 'eve over IPMI', password='another secret',
                             role='ReadOnly')
        self.accounts.delete(3, 'admin over IPMI')
        found = self.another().changes()
        self.assertEqual([
            (3, 'bob', 'created', '', 'admin over Redfish'),
            (3, 'bob', 'changed', 'password, role', 'eve over IPMI'),
            (3, 'bob', 'deleted', '', 'admin over IPMI'),
        ], [(one.account, one.name, one.action, one.fields, one.by)
            for one in found])
        self.assertEqual(3, len({one.id for one in found}))
        for line in ('Account 3 (bob) created by admin over Redfish',
                     'Account 3 (bob) changed by eve over IPMI: password, ro',
                     'Account 3 (bob) deleted by admin over IPMI'):
            self.assertIn(line, self.log.output)
        for number in range(30):
            self.create()
            self.accounts.delete(3, 'x')
        self.assertEqual(20, len(self.another().changes()))

    def test_passwords_are_in_the_account_alone(self):
        bob = self.create()
        self.accounts.change(3, 'x', password='another secret')
        text = json.dumps([one._asdict() for one in self.accounts.changes()])
        for secret in 'secret-of-bob', 'another secret':
            self.assertNotIn(secret, self.log.output + text + repr(bob) + repr(
                self.accounts.all()))

    def test_recognizes_own_write_after_lost_response(self):
        self.create(name='eve')
        patch = self.client.patch

        def lost(*args):
            patch(*args)
            self.client.patch = patch
            raise errors.ConnectionLost('gone', maybe_done=True)

        for write in (self.create,
                      lambda: self.accounts.change(4, 'x', role='ReadOnly')):
            self.client.patch = lost
            write()
        self.client.patch = lost
        self.accounts.delete(4, 'x')
        self.assertEqual([3], [one.id for one in self.another().all()])
        self.assertEqual(['created', 'created', 'changed', 'deleted'], [
            one.action for one in self.accounts.changes()])

    def test_same_accounts_are_the_same_object(self):
        self.create()
        before = self.accounts.all()
        self.accounts._state.update('other', lambda other: other.update(x=1))
        self.assertIs(before, self.accounts.all())
        self.accounts.change(3, 'x', role='ReadOnly')
        self.assertIsNot(before, self.accounts.all())

    def test_ignores_invalid_entries(self):
        self.client.put('accounts', {
            '3': {'name': 7}, '4': 'bob', '5': {'unknown': 'x'},
            '6': {'name': 'eve'}, '16': {'name': 'eve'}, '2': {'name': 'eve'},
            'changes': [1, {'id': 2}]})
        found = self.another()
        self.assertEqual([6], [one.id for one in found.all()])
        self.assertFalse(found.all()[0].usable)
        self.assertEqual([], found.changes())
        self.assertEqual(3, found.create('x', **BOB).id)
