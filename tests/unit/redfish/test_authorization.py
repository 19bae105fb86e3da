# SPDX-License-Identifier: Apache-2.0
"""What each role may do, route by route."""

from sushy_kubevirt.redfish.protocol import authorization
from sushy_kubevirt.redfish.services import account_files
from tests.unit.redfish import base
from tests.unit.redfish import fakes

# Path below /redfish/v1/, method: the roles that may.
EVERYBODY = ('Administrator', 'Operator', 'ReadOnly')
CHANGERS = ('Administrator', 'Operator')
ADMINISTRATOR = ('Administrator',)

# As in DMTF's privilege registry.
EXPECTED = (
    ('Systems', 'GET', EVERYBODY),
    ('Systems/<identity>', 'GET', EVERYBODY),
    ('Systems/<identity>', 'HEAD', EVERYBODY),
    ('Systems/<identity>', 'PATCH', CHANGERS),
    ('Systems/<identity>/Actions/ComputerSystem.Reset', 'POST', CHANGERS),
    ('Systems/<identity>/BIOS/Settings', 'PATCH', CHANGERS),
    ('Systems/<identity>/LogServices/Log', 'PATCH', CHANGERS),
    ('Systems/<identity>/VirtualMedia/<device>', 'GET', EVERYBODY),
    ('Systems/<identity>/VirtualMedia/<device>', 'PATCH', ADMINISTRATOR),
    ('<string:resource>/<identity>/VirtualMedia/<device>', 'PATCH',
     ADMINISTRATOR),
    ('Managers/<identity>/VirtualMedia/<device>/Actions/'
     'VirtualMedia.InsertMedia', 'POST', ADMINISTRATOR),
    ('Systems/<identity>/VirtualMedia/<device>/Certificates', 'GET',
     ADMINISTRATOR),
    ('Systems/<identity>/VirtualMedia/<device>/Certificates/<certificate>',
     'DELETE', ADMINISTRATOR),
    ('CertificateService', 'GET', EVERYBODY),
    ('CertificateService/CertificateLocations', 'GET', ADMINISTRATOR),
    ('CertificateService/Actions/CertificateService.ReplaceCertificate',
     'POST', ADMINISTRATOR),
    ('Managers/<identity>', 'GET', EVERYBODY),
    ('Managers/<identity>', 'PATCH', ADMINISTRATOR),
    ('Managers/<identity>/Actions/Manager.Reset', 'POST', ADMINISTRATOR),
    ('Managers/<identity>/EthernetInterfaces/<one>', 'PATCH', ADMINISTRATOR),
    ('Chassis/<identity>', 'PATCH', CHANGERS),
    ('UpdateService/Actions/UpdateService.SimpleUpdate', 'POST', CHANGERS),
    ('SessionService', 'GET', EVERYBODY),
    ('SessionService', 'PATCH', ADMINISTRATOR),
    ('SessionService/Sessions', 'GET', EVERYBODY),
    ('AccountService', 'GET', EVERYBODY),
    ('AccountService', 'PATCH', ADMINISTRATOR),
    ('AccountService/Accounts', 'GET', EVERYBODY),
    ('AccountService/Accounts', 'POST', ADMINISTRATOR),
    ('AccountService/Roles/<role_id>', 'GET', EVERYBODY),
    ('AccountService/Roles/<role_id>', 'PATCH', ADMINISTRATOR),
    ('EventService', 'PATCH', ADMINISTRATOR),
    ('EventService/Actions/EventService.SubmitTestEvent', 'POST',
     ADMINISTRATOR),
    ('EventService/Subscriptions', 'POST', CHANGERS),
    ('EventService/SSE', 'GET', EVERYBODY),
    ('TaskService/Tasks/<task>', 'GET', EVERYBODY),
    ('TaskService/Tasks/<task>', 'DELETE', ADMINISTRATOR),
    ('Registries', 'GET', EVERYBODY),
    ('SystemsAndMore', 'PATCH', ADMINISTRATOR),
    ('Unheard/Of', 'POST', ADMINISTRATOR),
)


class TestPrivileges(base.AccountsTestCase):

    def test_table(self):
        for path, method, roles in EXPECTED:
            needed = authorization.required_privileges(
                '/redfish/v1/' + path, method)
            self.assertEqual(set(roles), {
                role for role, privileges in account_files.ROLES.items()
                if not set(needed).isdisjoint(privileges)},
                f'{method} {path}')

    def test_enforced(self):
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

    def test_before_anything_is_looked_up(self):
        for path in self.path, '/redfish/v1/Systems/none':
            self.ask(path, 403, 'PATCH', headers=self.auth('ReadOnly'),
                     json={'Boot': 'nonsense'})

    def test_what_is_not_there(self):
        headers = self.auth('ReadOnly')
        self.ask('/redfish/v1/none', 404, headers=headers)
        self.ask('/redfish/v1/none', 404, 'POST', headers=headers)
        self.ask('/redfish/v1/Systems', 405, 'DELETE', headers=headers)

    def test_every_write_of_a_reader(self):
        for rule in self.app.url_map.iter_rules():
            for method in rule.methods - {'GET', 'HEAD', 'OPTIONS'}:
                if (rule.rule, method) == (base.SESSIONS, 'POST'):
                    continue
                path = rule.rule.replace('<identity>', fakes.A).replace(
                    '<', '').replace('>', '')
                self.ask(path, 403, method, headers=self.auth('ReadOnly'),
                         json={})
        self.assertEqual([], self.machine.calls)

    def test_role_changes(self):
        headers = self.auth('Operator')
        body = {'json': {'ResetType': 'ForceRestart'}, 'headers': headers}
        reset = self.path + '/Actions/ComputerSystem.Reset'
        self.ask(reset, 204, 'POST', **body)
        text = self.accounts.read_text()
        self.accounts.write_text(text.replace(':Operator\n', ':ReadOnly\n'))
        self.app.sushy_kubevirt.services.login.account('x', sure=True)
        self.ask(reset, 403, 'POST', **body)
