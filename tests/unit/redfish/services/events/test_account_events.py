# SPDX-License-Identifier: Apache-2.0
"""Events of accounts that any process has changed."""

from sushy_kubevirt.bmc import accounts
from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.redfish.services.events import account_events
from tests.unit.redfish.services.events import test_dispatcher


class AccountEventsTestCase(test_dispatcher.DispatcherTestCase):

    def dispatcher(self):
        events, streamed = super().dispatcher()
        account_events.AccountEvents(
            accounts.Accounts(self.state), self.state, events.emit)
        return events, streamed

    def change(self):
        """Change accounts in another process."""
        state = state_secret.StateSecret(self.cluster, ('default', 's'))
        store = accounts.Accounts(state)
        store.create('admin over IPMI', name='bob', role='Operator',
                     password='secret-of-bob')
        store.change(3, 'bob over Redfish', password='secret-new')
        store.delete(3, 'admin over IPMI')

    def test_each_change_is_published_once(self):
        events, streamed = self.started()
        self.change()
        for _twice in range(2):
            self.state.read('', fresh=True)
        found = [streamed.get(timeout=30) for _ in range(3)]
        self.assertEqual([
            "The account 'bob' (3) was created by admin over IPMI.",
            "The account 'bob' (3) was changed by bob over Redfish: "
            'password.',
            "The account 'bob' (3) was deleted by admin over IPMI."],
            [record.text for record in found])
        self.assertEqual({'/redfish/v1/AccountService/Accounts/3'},
                         {record.origin for record in found})
        self.assertNotIn('secret-', str(found))
        events.emit(self.record('last'))
        self.assertEqual(['TestMessage'], self.keys(streamed, 1))

    def test_changes_before_the_start_are_not_published(self):
        self.useFixture(test_dispatcher.fixtures.MockPatchObject(
            accounts.time, 'time', lambda: 1000))
        self.change()
        self.useFixture(test_dispatcher.fixtures.MockPatchObject(
            accounts.time, 'time', lambda: 2000))
        events, streamed = self.started()
        self.state.read('', fresh=True)
        events.emit(self.record('last'))
        self.assertEqual(['TestMessage'], self.keys(streamed, 1))
