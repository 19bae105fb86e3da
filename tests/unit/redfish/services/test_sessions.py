# SPDX-License-Identifier: Apache-2.0
"""Sessions and their end."""

import dataclasses
import threading

import bcrypt
import fixtures
from oslotest import base

from sushy_kubevirt.kube import blocking
from sushy_kubevirt.redfish.services import account_files
from sushy_kubevirt.redfish.services import sessions

HERE = '10.0.0.1'


class State:
    """Fake of `state_secret.StateSecret`."""

    def __init__(self):
        self.section = {}

    def cached(self, section):
        return self.section

    def update(self, section, edit):
        edit(self.section)


class Login:
    """Fake of `authenticator.Authenticator` with the given accounts."""

    required = True

    def __init__(self, *given):
        self.given = {account.name: account for account in given}
        # Outdated accounts, found without recheck.
        self.behind = None

    def account(self, name, recheck=False):
        if self.behind is not None and not recheck:
            return self.behind.get(name)
        return self.given.get(name)


def account(name='admin', password=b'secret', role='Administrator'):
    return account_files.Account(name, role, bcrypt.hashpw(
        password, bcrypt.gensalt(4)))


class SessionsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.admin, self.bob = account(), account('bob')
        self.login = Login(self.admin, self.bob)
        self.state = State()
        self.sessions = sessions.Sessions(self.login, self.state)

    def open(self, who=None, source=HERE):
        who = who or self.admin
        return self.sessions.open(who.name, who, source)

    def age(self, session, seconds):
        self.sessions._open[session.id].used -= seconds

    def assert_none_left(self):
        self.assertEqual({}, self.sessions._open)

    def test_finds_open_sessions(self):
        session, token = self.open()
        self.assertEqual(session, self.sessions.find(token))
        self.assertEqual(session, self.sessions.get(session.id))
        self.assertEqual(('admin', HERE), (session.user, session.source))
        other, _token = self.open(self.bob)
        self.assertEqual([session, other], self.sessions.all())

    def test_tokens_are_random(self):
        tokens = {self.open()[1] for _ in range(20)}
        self.assertEqual(20, len(tokens))
        self.assertEqual({43}, set(map(len, tokens)))

    def test_rejects_invalid_tokens_and_ids(self):
        session, token = self.open()
        for text in ('', token[:-1], token + 'x', session.id, '../' + token,
                     '\ud800', 'x' * 10 ** 5):
            self.assertIsNone(self.sessions.find(text))
        for text in ('', '..', '../x', session.id + '/', 'é' * 16, '.' * 16,
                     '0' * 16, session.digest):
            self.assertIsNone(self.sessions.get(text))

    def test_stores_no_secret(self):
        session, token = self.open()
        text = str(vars(session))
        for secret in (token, self.admin.digest.decode(), 'secret'):
            self.assertNotIn(secret, text)
            self.assertNotIn(secret, repr(session))
        self.assertNotIn(session.digest, repr(session))

    def test_close_is_idempotent(self):
        session, token = self.open()
        for _twice in range(2):
            self.sessions.close(session)
            self.assertIsNone(self.sessions.find(token))
            self.assertEqual([], self.sessions.all())

    def test_expires_after_timeout(self):
        session, token = self.open()
        self.age(session, sessions.DEFAULT_TIMEOUT - 5)
        self.assertIsNotNone(self.sessions.find(token))
        # find() extended the session.
        self.age(session, sessions.DEFAULT_TIMEOUT - 5)
        self.assertIsNotNone(self.sessions.find(token))
        self.age(session, sessions.DEFAULT_TIMEOUT + 1)
        self.assertIsNone(self.sessions.find(token))
        self.assert_none_left()

    def test_listing_does_not_extend_session(self):
        session, token = self.open()
        self.age(session, sessions.DEFAULT_TIMEOUT - 5)
        self.sessions.all()
        self.sessions.get(session.id)
        self.age(session, 6)
        self.assertIsNone(self.sessions.find(token))

    def test_set_timeout(self):
        session, token = self.open()
        self.age(session, 40)
        self.sessions.set_timeout(60)
        self.assertEqual(60, self.sessions.timeout)
        self.assertIsNotNone(self.sessions.find(token))
        self.age(session, 40)
        self.sessions.set_timeout(30)
        self.assertIsNone(self.sessions.find(token))

    def test_ignores_invalid_timeout(self):
        for value in 'x', None, True, 5, 10 ** 9, 40.5:
            self.state.section['SessionTimeout'] = value
            self.assertEqual(sessions.DEFAULT_TIMEOUT, self.sessions.timeout)

    def test_ends_when_password_or_role_changes(self):
        for changed in (account(password=b'new'),
                        dataclasses.replace(self.admin, role='ReadOnly')):
            session, token = self.open()
            self.login.given['admin'] = changed
            self.assertIsNone(self.sessions.find(token))
            self.assert_none_left()
            self.login.given['admin'] = self.admin
            self.assertIsNone(self.sessions.find(token))

    def test_survives_temporary_loss_of_account(self):
        """The accounts file was missing for a moment."""
        _session, token = self.open()
        del self.login.given['admin']
        self.assertIsNone(self.sessions.find(token))
        self.assertEqual([], self.sessions.all())
        self.login.given['admin'] = self.admin
        self.assertIsNotNone(self.sessions.find(token))

    def test_reads_accounts_again_before_it_ends(self):
        self.login.behind = {'admin': account(password=b'old')}
        _session, token = self.open()
        self.assertIsNotNone(self.sessions.find(token))

    def test_renewal_does_not_bring_back_a_closed_session(self):
        session, token = self.open()
        self.sessions.close(session)
        self.sessions.renew(session, self.admin)
        self.assertIsNone(self.sessions.find(token))
        self.assert_none_left()

    def stored(self, version):
        return dataclasses.replace(self.admin, digest=version, stored_id=3)

    def finds_while(self, change, token):
        """Find a session in another thread while it changes its account.

        :param change: function that ends the change
        :returns: what the thread has found
        """
        found = []
        finding = threading.Thread(
            target=lambda: found.append(self.sessions.find(token)))
        with self.sessions.changes_account(self.sessions.find(token)):
            self.login.given['admin'] = self.stored(b'2')
            finding.start()
            finding.join(0.1)   # it has to wait for the change
            self.assertEqual([], found)
            # Metrics are not late.
            self.assertEqual(1, len(self.sessions.all()))
            change()
        finding.join(10)
        return found

    def test_other_requests_wait_while_it_changes_its_account(self):
        session, token = self.open(self.stored(b'1'))
        self.login.given['admin'] = self.stored(b'1')
        after = self.stored(b'2')
        self.assertEqual(
            [session.id], [one.id for one in self.finds_while(
                lambda: self.sessions.renew(session, after), token)])

    def test_ends_with_a_change_that_does_not_renew_it(self):
        session, token = self.open(self.stored(b'1'))
        self.login.given['admin'] = self.stored(b'1')
        self.assertEqual([None], self.finds_while(lambda: None, token))
        self.assert_none_left()

    def test_changes_of_one_session_wait_for_each_other(self):
        session, _token = self.open()
        order = []

        def change():
            with self.sessions.changes_account(session):
                order.append('second')

        second = threading.Thread(target=change)
        with self.sessions.changes_account(session):
            second.start()
            second.join(0.1)    # it has to wait
            self.sessions.renew(session, self.admin)
            order.append('first')
        second.join(10)
        self.assertEqual(['first', 'second'], order)

    def test_event_loop_does_not_wait_for_a_change(self):
        session, token = self.open(self.stored(b'1'))
        self.login.given['admin'] = self.stored(b'2')
        for function, argument in (
                (self.sessions.find, token),
                (self.sessions.changes_account(session).__enter__, None)):
            self.assertRaises(blocking.WouldBlock, blocking.attempt, function,
                              *([argument] if argument else ()))

    def test_change_of_a_session_that_was_closed(self):
        session, _token = self.open()
        self.sessions.close(session)
        for one in session, None:
            with self.sessions.changes_account(one):
                pass

    def renewed_meanwhile(self, user, recheck=False):
        """Replace `Login.account`: the session is used and renewed then."""
        if recheck and self.renewal:
            self.renewal.pop()()
        return Login.account(self.login, user)

    def test_continues_if_renewed_before_its_end(self):
        before, after = self.stored(b'1'), self.stored(b'2')
        session, token = self.open(before)
        self.login.given['admin'] = after
        self.renewal = [lambda: self.sessions.renew(session, after)]
        self.login.account = self.renewed_meanwhile
        self.assertIsNotNone(self.sessions.find(token))
        self.assertEqual([], self.renewal)

    def test_removes_session_of_changed_account(self):
        session, token = self.open(self.stored(b'1'))
        self.login.given['admin'] = self.stored(b'2')
        self.assertIsNone(self.sessions.find(token))
        self.assertEqual([], self.sessions.all())
        self.assert_none_left()

    def test_limits_sessions_of_one_user(self):
        first, token = self.open()
        second, second_token = self.open()
        others = self.open(self.bob)[1]
        self.age(first, 10)
        self.age(second, 20)
        for _ in range(sessions.MAX_PER_ACCOUNT - 1):
            self.open()
        # The least recently used session ended, not the oldest.
        self.assertIsNone(self.sessions.find(second_token))
        self.assertIsNotNone(self.sessions.find(token))
        self.assertIsNotNone(self.sessions.find(others))

    def test_address_with_most_sessions_of_a_user_loses_one(self):
        kept, token = self.open()
        self.age(kept, 20)
        first = self.open(source='192.0.2.2')[1]
        for _ in range(sessions.MAX_PER_ACCOUNT):
            self.open(source='192.0.2.2')
        self.assertIsNone(self.sessions.find(first))
        self.assertIsNotNone(self.sessions.find(token))

    def test_account_with_most_sessions_loses_one(self):
        self.useFixture(fixtures.MockPatchObject(sessions, 'MAX_SESSIONS', 5))
        kept = [self.open() for _ in range(2)]
        for session, _token in kept:
            self.age(session, 20)
        found = [self.open(self.bob)[1] for _ in range(5)]
        for _session, token in kept:
            self.assertIsNotNone(self.sessions.find(token))
        self.assertEqual([True, True, False, False, False], [
            self.sessions.find(token) is None for token in found])

    def test_without_accounts_addresses_have_shares(self):
        """Clients choose any name."""
        self.login.required = False
        self.useFixture(fixtures.MockPatchObject(
            sessions, 'MAX_PER_ACCOUNT', 3))
        kept = self.sessions.open('admin', None, '192.0.2.1')[1]
        for number in range(5):
            self.sessions.open(f'name-{number}', None, '192.0.2.2')
        self.assertIsNotNone(self.sessions.find(kept))
        self.assertEqual(4, len(self.sessions.all()))

    def test_sessions_without_credentials(self):
        self.login.required = False
        session, token = self.sessions.open('who', None, HERE)
        self.assertEqual('who', self.sessions.find(token).user)
        # They are invalid once credentials are required.
        self.login.required = True
        self.login.given['who'] = account('who')
        self.assertIsNone(self.sessions.find(token))
