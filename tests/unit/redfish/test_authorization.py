# SPDX-License-Identifier: Apache-2.0
"""Privileges of each role, by route."""

import re

from sushy_kubevirt.redfish.protocol import authorization
from sushy_kubevirt.redfish.services import account_files
from tests.unit.redfish import base
from tests.unit.redfish import fakes

ALL_ROLES = ('Administrator', 'Operator', 'ReadOnly')
OPERATORS = ('Administrator', 'Operator')
ADMINISTRATOR = ('Administrator',)

# Path below /redfish/v1/, method, allowed roles; as in DMTF's privilege
# registry.
EXPECTED = (
    ('Systems', 'GET', ALL_ROLES),
    ('Systems/<identity>', 'GET', ALL_ROLES),
    ('Systems/<identity>', 'HEAD', ALL_ROLES),
    ('Systems/<identity>', 'PATCH', OPERATORS),
    ('Systems/<identity>/Actions/ComputerSystem.Reset', 'POST', OPERATORS),
    ('Systems/<identity>/BIOS/Settings', 'PATCH', OPERATORS),
    ('Systems/<identity>/LogServices/Log', 'PATCH', OPERATORS),
    ('Managers/<identity>/LogServices/Log', 'PATCH', OPERATORS),
    ('Systems/<identity>/VirtualMedia/<device>', 'GET', ALL_ROLES),
    ('Systems/<identity>/VirtualMedia/<device>', 'PATCH', ADMINISTRATOR),
    ('<string:resource>/<identity>/VirtualMedia/<device>', 'PATCH',
     ADMINISTRATOR),
    ('Managers/<identity>/VirtualMedia/<device>/Actions/'
     'VirtualMedia.InsertMedia', 'POST', ADMINISTRATOR),
    ('Systems/<identity>/VirtualMedia/<device>/Certificates', 'GET',
     ADMINISTRATOR),
    ('Systems/<identity>/VirtualMedia/<device>/Certificates/<certificate>',
     'DELETE', ADMINISTRATOR),
    ('CertificateService', 'GET', ALL_ROLES),
    ('CertificateService/CertificateLocations', 'GET', ADMINISTRATOR),
    ('CertificateService/Actions/CertificateService.ReplaceCertificate',
     'POST', ADMINISTRATOR),
    ('Managers/<identity>', 'GET', ALL_ROLES),
    ('Managers/<identity>', 'PATCH', ADMINISTRATOR),
    ('Managers/<identity>/Actions/Manager.Reset', 'POST', ADMINISTRATOR),
    ('Managers/<identity>/EthernetInterfaces/<one>', 'PATCH', ADMINISTRATOR),
    ('Chassis/<identity>', 'PATCH', OPERATORS),
    ('UpdateService/Actions/UpdateService.SimpleUpdate', 'POST', OPERATORS),
    ('SessionService', 'GET', ALL_ROLES),
    ('SessionService', 'PATCH', ADMINISTRATOR),
    ('SessionService/Sessions', 'GET', ALL_ROLES),
    ('AccountService', 'GET', ALL_ROLES),
    ('AccountService', 'PATCH', ADMINISTRATOR),
    ('AccountService/Accounts', 'GET', ALL_ROLES),
    ('AccountService/Accounts', 'POST', ADMINISTRATOR),
    ('AccountService/Roles/<role_id>', 'GET', ALL_ROLES),
    ('AccountService/Roles/<role_id>', 'PATCH', ADMINISTRATOR),
    ('EventService', 'PATCH', ADMINISTRATOR),
    ('EventService/Actions/EventService.SubmitTestEvent', 'POST',
     ADMINISTRATOR),
    ('EventService/Subscriptions', 'POST', OPERATORS),
    ('EventService/SSE', 'GET', ALL_ROLES),
    ('TaskService/Tasks/<task>', 'GET', ALL_ROLES),
    ('TaskService/Tasks/<task>', 'DELETE', ADMINISTRATOR),
    ('Registries', 'GET', ALL_ROLES),
    ('SystemsAndMore', 'PATCH', ADMINISTRATOR),
    ('Unheard/Of', 'POST', ADMINISTRATOR),
)


class TestPrivileges(base.AccountsTestCase):

    def test_roles_match_privilege_registry(self):
        for path, method, roles in EXPECTED:
            needed = authorization.required_privileges(
                '/redfish/v1/' + path, method)
            self.assertEqual(set(roles), {
                role for role, privileges in account_files.ROLES.items()
                if not set(needed).isdisjoint(privileges)},
                f'{method} {path}')

    def test_read_only_role_cannot_reset(self):
        reset = self.path + '/Actions/ComputerSystem.Reset'
        for role, code in (('ReadOnly', 403), ('Operator', 204),
                           ('Administrator', 204)):
            for headers in self.auth(role), self.token(role):
                answer = self.ask(reset, code, 'POST', headers=headers,
                                  json={'ResetType': 'ForceRestart'})
                if code == 403:
                    self.assertIn('InsufficientPrivilege', answer.text)
                    self.assertNotIn('WWW-Authenticate', answer.headers)
                self.ask(self.path, 200, headers=headers)
        self.assertEqual(4, len(self.machine.calls))

    def test_resources_of_system_and_manager_need_the_same_privileges(self):
        # Interfaces of both are different ones.
        compared = 0
        for rule in self.rules():
            if re.match('/redfish/v1/Managers/<identity>/'
                        '(LogServices|VirtualMedia)', rule.rule):
                for method in rule.methods:
                    compared += 1
                    self.assertEqual(*(
                        authorization.required_privileges(path, method)
                        for path in (rule.rule, rule.rule.replace(
                            '/Managers/', '/Systems/'))), rule.rule)
        self.assertGreater(compared, 20)

    def test_privilege_is_checked_before_lookup_and_body(self):
        for path in self.path, '/redfish/v1/Systems/none':
            self.ask(path, 403, 'PATCH', headers=self.auth('ReadOnly'),
                     json={'Boot': 'nonsense'})

    def test_unknown_routes_get_404_before_403(self):
        headers = self.auth('ReadOnly')
        self.ask('/redfish/v1/none', 404, headers=headers)
        self.ask('/redfish/v1/none', 404, 'POST', headers=headers)
        self.ask('/redfish/v1/Systems', 405, 'DELETE', headers=headers)

    def test_read_only_role_cannot_write(self):
        for rule in self.rules():
            for method in rule.methods - {'GET', 'HEAD', 'OPTIONS'}:
                if (rule.rule, method) == (base.SESSIONS, 'POST'):
                    continue
                path = rule.rule.replace('<identity>', fakes.A).replace(
                    '<', '').replace('>', '')
                self.ask(path, 403, method, headers=self.auth('ReadOnly'),
                         json={})
        self.assertEqual([], self.machine.calls)

    def test_role_change_takes_effect(self):
        headers = self.auth('Operator')
        body = {'json': {'ResetType': 'ForceRestart'}, 'headers': headers}
        reset = self.path + '/Actions/ComputerSystem.Reset'
        self.ask(reset, 204, 'POST', **body)
        text = self.accounts.read_text()
        self.accounts.write_text(text.replace(':Operator\n', ':ReadOnly\n'))
        self.app.sushy_kubevirt.services.login.account('x', recheck=True)
        self.ask(reset, 403, 'POST', **body)
