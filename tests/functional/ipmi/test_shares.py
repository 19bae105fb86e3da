# SPDX-License-Identifier: Apache-2.0
"""One user of IPMI does not use up what others need."""

from tests.fixtures import base
from tests.fixtures import bmc_pod
from vbmc_kubevirt.ipmi import session_tables

ACCOUNTS = '/redfish/v1/AccountService/Accounts'


class SessionsTestCase(base.SandboxTestCase):

    def test_read_only_user_ends_no_session_of_others(self):
        pod = self.useFixture(bmc_pod.BmcPod(self.sandbox))
        self.until(lambda: pod.probe('/readyz')[0] == 200)
        guest = {'username': 'guest', 'password': 'secret-of-guest'}
        pod.request('POST', ACCOUNTS, {
            'UserName': 'guest', 'Password': guest['password'],
            'RoleId': 'ReadOnly'}, expect=201)
        with pod.shell() as say:
            self.assertEqual('Chassis Power is off', say('power status'))
            for _ in range(session_tables.ESTABLISHED_MAX + 1):
                with pod.shell(**guest, options=('-L', 'USER')) as other:
                    self.assertEqual('Chassis Power is off',
                                     other('power status'))
            self.assertEqual(session_tables.ESTABLISHED_MAX,
                             pod.metric('virtbmc_ipmi_sessions'))
            self.assertEqual('Chassis Power is off', say('power status'))
