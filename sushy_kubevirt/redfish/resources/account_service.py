# SPDX-License-Identifier: Apache-2.0
"""AccountService v1.15: accounts and roles, read-only.

Accounts are read from files and Secrets (`redfish.services.account_files`) and
are changed there; PATCH is refused.
"""

import re

import flask

from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import authorization
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.services import account_files

ROOT = '/redfish/v1/AccountService'
ACCOUNTS = ROOT + '/Accounts'
ROLES = ROOT + '/Roles'
_ONE = ACCOUNTS + '/<account_id>'

ROOT_LINKS = {'AccountService': ROOT}

_READ_ONLY_REASON = (
    'Accounts come from files or Secrets and are changed there.'
)

_SERVICE = payload.read_only(
    'Id', 'Name', 'Description', 'ServiceEnabled', 'Status', 'Accounts',
    'Roles', 'AccountLockoutThreshold', 'AuthFailureLoggingThreshold',
    'LocalAccountAuth', 'HTTPBasicAuth', 'SupportedAccountTypes')
_ACCOUNT = {name: payload.ReadOnly(_READ_ONLY_REASON) for name in (
    'Id', 'Name', 'Description', 'UserName', 'Password', 'RoleId', 'Enabled',
    'Locked', 'AccountTypes', 'PasswordChangeRequired', 'Links')}
_ROLE = payload.read_only(
    'Id', 'Name', 'Description', 'RoleId', 'IsPredefined',
    'AssignedPrivileges', 'OemPrivileges')

#: Account names that serve as Id unchanged.
_URL_SAFE = re.compile(r'[A-Za-z0-9_.-]{1,64}')


def _login():
    return authentication.services().login


def service():
    """GET, PATCH /redfish/v1/AccountService

    ServiceEnabled is false if no accounts are configured; no login is
    required then.
    """
    if flask.request.method == 'PATCH':
        payload.properties(_SERVICE)
    required = _login().required
    return responses.resource({
        '@odata.id': ROOT,
        '@odata.type': '#AccountService.v1_15_1.AccountService',
        'Id': 'AccountService',
        'Name': 'Account Service',
        'Description': _READ_ONLY_REASON if required else
        'No accounts are configured: no login is required',
        'ServiceEnabled': required,
        'Status': {'State': 'Enabled', 'Health': 'OK'} if required
        else {'State': 'Disabled'},
        # Failed logins are delayed; accounts are never locked.
        'AccountLockoutThreshold': 0,
        'AuthFailureLoggingThreshold': 1,
        'LocalAccountAuth': 'Enabled' if required else 'Disabled',
        'HTTPBasicAuth': 'Enabled',
        'SupportedAccountTypes': ['Redfish'],
        'Accounts': responses.link(ACCOUNTS),
        'Roles': responses.link(ROLES),
    })


def resource_id(account):
    """Convert an account's name to its Id, which is usable in a URL.

    :param account: `account_files.Account`
    :returns: the name if it is URL-safe, else ``name-`` and the name's UTF-8
        bytes in hexadecimal
    """
    if _URL_SAFE.fullmatch(account.name) and account.name.strip('.'):
        return account.name
    return 'name-' + account.name.encode().hex()


def collection():
    """GET /redfish/v1/AccountService/Accounts"""
    return responses.collection(
        'ManagerAccountCollection', 'Accounts', ACCOUNTS,
        [f'{ACCOUNTS}/{resource_id(account)}'
         for account in _login().accounts()])


def _find(account_id):
    for account in _login().accounts():
        if resource_id(account) == account_id:
            return account
    return None


def _owner(account_id):
    account = _find(account_id)
    return account and account.name


def resource(account_id):
    """GET, PATCH /redfish/v1/AccountService/Accounts/<account_id>"""
    account = _find(account_id)
    if account is None:
        raise error_responses.resource_not_found('ManagerAccount', account_id)
    if flask.request.method == 'PATCH':
        payload.properties(_ACCOUNT)
    return responses.resource({
        '@odata.id': f'{ACCOUNTS}/{account_id}',
        '@odata.type': '#ManagerAccount.v1_12_1.ManagerAccount',
        'Id': account_id,
        'Name': f'Account {account.name}',
        'Description': _READ_ONLY_REASON,
        'UserName': account.name,
        'Password': None,
        'RoleId': account.role,
        'Enabled': True,
        'Locked': False,
        'PasswordChangeRequired': False,
        'AccountTypes': ['Redfish'],
        'Links': {'Role': responses.link(f'{ROLES}/{account.role}')},
    })


def roles():
    """GET /redfish/v1/AccountService/Roles"""
    return responses.collection(
        'RoleCollection', 'Roles', ROLES,
        [f'{ROLES}/{name}' for name in account_files.ROLES])


def role(role_id):
    """GET, PATCH /redfish/v1/AccountService/Roles/<role_id>"""
    if role_id not in account_files.ROLES:
        raise error_responses.resource_not_found('Role', role_id)
    if flask.request.method == 'PATCH':
        payload.properties(_ROLE)
    return responses.resource({
        '@odata.id': f'{ROLES}/{role_id}',
        '@odata.type': '#Role.v1_3_2.Role',
        'Id': role_id,
        'Name': f'Role {role_id}',
        'Description': 'One of the roles that Redfish defines',
        'RoleId': role_id,
        'IsPredefined': True,
        'AssignedPrivileges': list(account_files.ROLES[role_id]),
        'OemPrivileges': [],
    })


authorization.register_owner(_ONE, _owner)

ROUTES = (
    routing.add(ROOT, service, ('GET', 'PATCH')),
    routing.add(ACCOUNTS, collection),
    routing.add(_ONE, resource, ('GET', 'PATCH')),
    routing.add(ROLES, roles),
    routing.add(ROLES + '/<role_id>', role, ('GET', 'PATCH')),
)
