# SPDX-License-Identifier: Apache-2.0
"""Authorization of requests (DSP0266, "Privilege model").

`check` runs before every route, after authentication. `_PRIVILEGES` holds
DMTF's privilege registry (Redfish_1.x_PrivilegeRegistry, DSP8011) for the
resources of this service. The registry goes by schema, this table by URL,
because every schema has a fixed place here. A new route needs no entry: the
last row lets every login read it and requires ConfigureManager to change it.
"""

from __future__ import annotations

import functools
import re
import typing

import flask

from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import routing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.redfish.services import account_files

LOGIN = 'Login'
SELF = 'ConfigureSelf'          # only for resources the account owns
COMPONENTS = 'ConfigureComponents'
MANAGER = 'ConfigureManager'
USERS = 'ConfigureUsers'

_READS = ('GET', 'HEAD', 'OPTIONS')

# Pattern of the path below /redfish/v1/ (the first match counts), privileges
# to read, privileges for other methods. Any one of the privileges suffices.
_PRIVILEGES = tuple((re.compile(pattern), reads, writes)
                    for pattern, reads, writes in (
    (r'.+/Certificates(/.*)?', (MANAGER,), (MANAGER,)),
    (r'CertificateService/CertificateLocations', (MANAGER,), (MANAGER,)),
    (r'[^/]+/[^/]+/VirtualMedia(/.*)?', (LOGIN,), (MANAGER,)),
    (r'Systems/[^/]+/(Serial|Graphical)Console', (COMPONENTS,), (COMPONENTS,)),
    (r'(Systems|Chassis|UpdateService)(/.*)?', (LOGIN,), (COMPONENTS,)),
    # The registry wants ConfigureManager. It is the log of the system.
    (r'Managers/[^/]+/LogServices(/.*)?', (LOGIN,), (COMPONENTS,)),
    # With ConfigureSelf alone, the view lets an account change its password.
    (r'AccountService/Accounts/[^/]+', (MANAGER, USERS, SELF), (USERS, SELF)),
    (r'AccountService(/Accounts)?', (LOGIN,), (USERS,)),
    (r'SessionService/Sessions/[^/]+', (MANAGER, SELF), (MANAGER, SELF)),
    (r'EventService/Subscriptions/[^/]+(/.*)?', (LOGIN,), (MANAGER, SELF)),
    (r'EventService/Subscriptions', (LOGIN,), (MANAGER, COMPONENTS)),
    (r'.*', (LOGIN,), (MANAGER,)),
))

#: What an account may use before it changes its password, if it is its own.
_BEFORE_PASSWORD_CHANGE = (
    '(AccountService/Accounts|SessionService/Sessions)/[^/]+')

_PREFIX = '/redfish/v1/'


@functools.cache
def required_privileges(rule: str, method: str) -> tuple[str, ...]:
    """Return the privileges of which a request needs one.

    :param rule: URL rule
    :param method: HTTP method
    :returns: privileges, one of which suffices; `SELF` counts only for a
        resource that the account owns
    """
    path = rule.removeprefix(_PREFIX).strip('/')
    for pattern, reads, writes in _PRIVILEGES:
        if pattern.fullmatch(path):
            return reads if method in _READS else writes
    raise AssertionError('the last row matches everything')


def check() -> None:
    """Refuse a request that the account's role does not allow.

    For Flask's before_request, after `authentication.authenticate`. Unknown
    URLs pass; they are answered with 404 later.

    :raises: `error_responses.RedfishError`, 403
    """
    account: account_files.Account | None = flask.g.account
    if account is None:
        return
    rule = flask.request.url_rule
    if rule is None:
        return
    if account.change_required:
        _require_password_change(account, rule.rule)
    for privilege in required_privileges(rule.rule, flask.request.method):
        if privilege in account.privileges and (
                privilege != SELF or _is_own(account)):
            return
    raise error_responses.base_error(403, 'InsufficientPrivilege')


def has(privilege: str) -> bool:
    """Return whether the account of the request has a privilege.

    True if no accounts are configured.
    """
    account: account_files.Account | None = flask.g.account
    return account is None or privilege in account.privileges


def password_change_required(account: account_files.Account
                             ) -> messages.Message:
    """Create the message that a stored account must change its password."""
    return messages.message(
        'PasswordChangeRequired',
        f'{_PREFIX}AccountService/Accounts/{account.stored_id}')


def _require_password_change(account: account_files.Account, rule: str
                             ) -> None:
    """Refuse what an account may not do before it changes its password.

    It may read and change its own account, and read and close its own sessions
    (DSP0266, "Password change required handling").

    :raises: `error_responses.RedfishError`, 403
    """
    path = rule.removeprefix(_PREFIX)
    if not re.fullmatch(_BEFORE_PASSWORD_CHANGE, path) or not _is_own(account):
        raise error_responses.RedfishError(
            403, password_change_required(account))


def _is_own(account: account_files.Account) -> bool:
    request = flask.request
    owner = routing.current().of(request.endpoint).owner
    return owner(**request.view_args or {}) == account.name
