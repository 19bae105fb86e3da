# SPDX-License-Identifier: Apache-2.0
"""AccountService v1.15 and its roles, both read-only."""

from __future__ import annotations

import typing

import flask

from sushy_kubevirt.bmc import accounts
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import manager_accounts
from sushy_kubevirt.redfish.resources import resource_paths
from sushy_kubevirt.redfish.services import account_files

if typing.TYPE_CHECKING:
    from sushy_kubevirt.redfish.services import service_context

ROOT = '/redfish/v1/AccountService'
ACCOUNTS = manager_accounts.ACCOUNTS
ROLES = manager_accounts.ROLES

ROOT_LINKS = {'AccountService': ROOT}

_SERVICE = payload.read_only(
    'Id', 'Name', 'Description', 'ServiceEnabled', 'Status', 'Accounts',
    'Roles', 'AccountLockoutThreshold', 'AuthFailureLoggingThreshold',
    'LocalAccountAuth', 'HTTPBasicAuth', 'SupportedAccountTypes',
    'MinPasswordLength', 'MaxPasswordLength')
_ROLE = payload.read_only(
    'Id', 'Name', 'Description', 'RoleId', 'IsPredefined',
    'AssignedPrivileges', 'OemPrivileges')


def service() -> responses.Json:
    """GET /redfish/v1/AccountService

    ServiceEnabled is false if no accounts are configured; no login is
    required then.
    """
    services = authentication.services()
    required = services.login.required
    body = {
        '@odata.id': ROOT,
        '@odata.type': '#AccountService.v1_15_1.AccountService',
        'Id': 'AccountService',
        'Name': 'Account Service',
        'Description': _description(services),
        'ServiceEnabled': required,
        'Status': {'State': 'Enabled', 'Health': 'OK'} if required
        else {'State': 'Disabled'},
        # Answers to wrong passwords are delayed instead: a lock would let
        # anyone deny an account's owner access.
        'AccountLockoutThreshold': 0,
        'AuthFailureLoggingThreshold': 1,
        'LocalAccountAuth': 'Enabled' if required else 'Disabled',
        'HTTPBasicAuth': 'Enabled',
        'SupportedAccountTypes': manager_accounts.account_types(),
        'Accounts': responses.link(ACCOUNTS),
        'Roles': responses.link(ROLES),
    }
    if services.accounts is not None:
        body.update(MinPasswordLength=accounts.MIN_PASSWORD_BYTES,
                    MaxPasswordLength=accounts.MAX_PASSWORD_BYTES)
    return body


def _description(services: service_context.Services) -> str:
    if not services.login.required:
        return 'No accounts are configured: no login is required'
    if services.accounts is None:
        return manager_accounts.DISABLED_REASON
    return 'Accounts of this service'


def roles() -> responses.Json:
    """GET /redfish/v1/AccountService/Roles"""
    return responses.collection('Role', 'Roles', ROLES, account_files.ROLES)


def role(role_id: str) -> responses.Json:
    """GET, PATCH /redfish/v1/AccountService/Roles/<role_id>"""
    privileges = resource_paths.member('Role', role_id, account_files.ROLES)
    if flask.request.method == 'PATCH':
        payload.properties(_ROLE)
    return {
        '@odata.id': f'{ROLES}/{role_id}',
        '@odata.type': '#Role.v1_3_2.Role',
        'Id': role_id,
        'Name': f'Role {role_id}',
        'Description': 'One of the roles that Redfish defines',
        'RoleId': role_id,
        'IsPredefined': True,
        'AssignedPrivileges': list(privileges),
        'OemPrivileges': [],
    }


ROUTES = (
    # A PATCH of read-only properties is refused.
    routing.add(ROOT, service, patch=lambda: payload.properties(_SERVICE)),
    routing.add(ROLES, roles),
    routing.add(ROLES + '/<role_id>', role, patch=role),
)
