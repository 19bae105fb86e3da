# SPDX-License-Identifier: Apache-2.0
"""ManagerAccount v1.12 and its collection.

Accounts of files and Secrets are read-only here. Others are created, changed
and deleted by clients, and stored by `sushy_kubevirt.bmc.accounts`; their Id
is the user id of IPMI.
"""

from __future__ import annotations

import contextlib
import re
import typing

import flask

from sushy_kubevirt.bmc import accounts
from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import authorization
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import etags
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import resource_paths
from sushy_kubevirt.redfish.services.events import account_events

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.redfish.services import account_files
    from sushy_kubevirt.redfish.services import authenticator

ACCOUNTS = account_events.ACCOUNTS
ROLES = '/redfish/v1/AccountService/Roles'
_RULE = ACCOUNTS + '/<account_id>'

CONFIGURED_REASON = (
    'This account comes from a file or Secret and is changed there.')
DISABLED_REASON = (
    'Accounts come from files or Secrets and are changed there: account '
    'management is disabled.')

#: Property: field of `accounts.Account`.
_FIELDS = {
    'UserName': 'name',
    'Password': 'password',
    'RoleId': 'role',
    'Enabled': 'enabled',
    'Locked': 'locked',
    'PasswordChangeRequired': 'change_required',
}
_PROPERTIES = {field: name for name, field in _FIELDS.items()}

_READ_ONLY = ('Id', 'Name', 'Description', 'Links')
_STORED: payload.Shape = {
    **payload.read_only(*_READ_ONLY),
    'UserName': str,
    'Password': str,
    'RoleId': accounts.ROLES,
    'Enabled': bool,
    'Locked': bool,
    'PasswordChangeRequired': bool,
}
_CONFIGURED: payload.Shape = {
    name: payload.ReadOnly(CONFIGURED_REASON)
    for name in (*_STORED, 'AccountTypes')}
_REQUIRED = ('UserName', 'Password', 'RoleId')

#: Names that serve as Id unchanged. Numbers are Ids of stored accounts.
_URL_SAFE = '(?![0-9]+$)[A-Za-z0-9_.-]{1,64}'

_NO_DELETE = {'Allow': 'GET, HEAD, OPTIONS, PATCH'}


def _login() -> authenticator.Authenticator:
    return authentication.services().login


def _store() -> accounts.Accounts:
    """Return the accounts that clients manage.

    :raises: `error_responses.RedfishError`, 405 if this is disabled
    """
    store = authentication.services().accounts
    if store is None:
        raise error_responses.base_error(
            405, 'OperationNotAllowed', detail=DISABLED_REASON,
            headers={'Allow': 'GET, HEAD, OPTIONS'})
    return store


def _stored() -> list[accounts.Account]:
    """Return the stored accounts that have a name."""
    services = authentication.services()
    if services.accounts is None:
        return []
    services.state.catch_up()
    return [stored for stored in services.accounts.all() if stored.name]


def account_types(redfish: bool = True, ipmi: bool = True) -> list[str]:
    """List the protocols that an account is valid for, as AccountTypes.

    :param redfish: whether the account may use Redfish
    :param ipmi: whether it may use IPMI, if this BMC serves it
    """
    served = dict(authentication.services().settings.service_ports)
    return [name for name, present in (
        ('Redfish', redfish), ('IPMI', ipmi and 'IPMI' in served)) if present]


def _shape() -> payload.Shape:
    return {**_STORED, 'AccountTypes': payload.ListOf(tuple(account_types()))}


def resource_id(account: account_files.Account) -> str:
    """Convert the name of an account of a file or Secret to its Id.

    :returns: the name if it is usable in a URL, else ``name-`` and the name's
        UTF-8 bytes in hexadecimal
    """
    if re.fullmatch(_URL_SAFE, account.name) and account.name.strip('.'):
        return account.name
    return 'name-' + account.name.encode().hex()


def _all() -> dict[str, account_files.Account | accounts.Account]:
    """Return all accounts by their Ids."""
    return {
        **{resource_id(account): account
           for account in _login().configured()},
        **{str(stored.id): stored for stored in _stored()},
    }


def _find(account_id: str) -> account_files.Account | accounts.Account:
    return resource_paths.member('ManagerAccount', account_id, _all())


def _owner(account_id: str) -> str | None:
    account = _all().get(account_id)
    if isinstance(account, accounts.Account):
        active = _login().account(account.name)
        # Not the account of a Secret that was given the same name.
        if active is None or active.stored_id != account.id:
            return None
    return None if account is None else account.name


def _body(account_id: str, account: account_files.Account | accounts.Account
          ) -> responses.Json:
    if isinstance(account, accounts.Account):
        description = 'This account is stored by this service.'
        state = {'Enabled': account.enabled, 'Locked': account.locked,
                 'PasswordChangeRequired': account.change_required}
        types = account_types(account.redfish, account.ipmi)
    else:
        description = CONFIGURED_REASON
        state = {'Enabled': True, 'Locked': False,
                 'PasswordChangeRequired': False}
        types = account_types(ipmi=account.ipmi)
    body: responses.Json = {
        '@odata.id': f'{ACCOUNTS}/{account_id}',
        '@odata.type': '#ManagerAccount.v1_12_1.ManagerAccount',
        'Id': account_id,
        'Name': f'Account {account.name}',
        'Description': description,
        'UserName': account.name,
        'Password': None,
        **state,
        'AccountTypes': types,
        # An account without access over IPMI has no role.
        'RoleId': account.role or '',
    }
    if account.role:
        body['Links'] = {'Role': responses.link(f'{ROLES}/{account.role}')}
    return body


def collection() -> flask.Response:
    """GET /redfish/v1/AccountService/Accounts"""
    managed = authentication.services().accounts is not None
    return responses.Document(
        responses.collection('ManagerAccount', 'Accounts', ACCOUNTS, _all()),
        headers={} if managed else {'Allow': 'GET, HEAD, OPTIONS'})


def create() -> flask.Response:
    """POST /redfish/v1/AccountService/Accounts"""
    store = _store()
    values = payload.properties(_shape(), required=_REQUIRED)
    with _store_errors():
        account = store.create(_actor(), **_fields(values))
    return responses.created(_body(str(account.id), account))


def resource(account_id: str) -> flask.Response:
    """GET /redfish/v1/AccountService/Accounts/<account_id>"""
    account = _find(account_id)
    stored = isinstance(account, accounts.Account)
    return responses.Document(_body(account_id, account),
                              headers={} if stored else _NO_DELETE)


def patch(account_id: str) -> responses.Json:
    """PATCH /redfish/v1/AccountService/Accounts/<account_id>

    With the privilege ConfigureSelf alone, an account can change its password;
    so can one that must change it first.
    """
    stored = _find(account_id)
    if not isinstance(stored, accounts.Account):
        return payload.properties(_CONFIGURED)      # refuses all
    services = authentication.services()
    account = flask.g.account
    values = payload.properties(_shape())
    manages = _check_rights(only_password=set(values) == {'Password'})
    # Who changes itself must still be the one that was authenticated.
    expected = {'name': stored.name} \
        if manages and not account.change_required \
        else {'version': account.version}
    token = flask.request.headers.get('X-Auth-Token')
    session = None
    if token and account.stored_id == stored.id:
        session = services.sessions.find(token)
    with services.sessions.changes_account(session):
        with _store_errors():
            changed = _store().change(stored.id, _actor(), expected,
                                      **_fields(values))
        if session is not None:
            # Other sessions of the account end, as it has another signature.
            renewed = services.login.account(changed.name, recheck=True)
            if (renewed is not None and renewed.name == session.user
                    and renewed.version == changed.version):
                services.sessions.renew(session, renewed)
    return _body(account_id, changed)


def delete(account_id: str) -> None:
    """DELETE /redfish/v1/AccountService/Accounts/<account_id>"""
    stored = _find(account_id)
    if not isinstance(stored, accounts.Account):
        raise error_responses.base_error(
            405, 'ResourceCannotBeDeleted', detail=CONFIGURED_REASON,
            headers=_NO_DELETE)
    _check_rights()
    with _store_errors():
        _store().delete(stored.id, _actor(), {'name': stored.name})


def _check_rights(only_password: bool = False) -> bool:
    """Check what the account of the request may do to an account.

    :param only_password: whether it changes nothing but its password
    :returns: whether it may manage accounts
    :raises: `error_responses.RedfishError`, 403
    """
    account, manages = flask.g.account, authorization.has(authorization.USERS)
    if not only_password and account.change_required:
        raise error_responses.RedfishError(
            403, authorization.password_change_required(account))
    if not only_password and not manages:
        raise error_responses.base_error(403, 'InsufficientPrivilege')
    return manages


def _actor() -> str:
    return f'{flask.g.account.name} over Redfish'


def _fields(values: responses.Json) -> dict[str, typing.Any]:
    """Convert properties to fields of `accounts.Account`."""
    types = values.get('AccountTypes')
    if values.get('UserName') == '':
        raise _wrong_format('UserName', '')
    if types == []:
        raise _wrong_format('AccountTypes', types, 'Use one or more of '
                            f"{', '.join(account_types())}.")
    access = {} if types is None else {
        'redfish': 'Redfish' in types, 'ipmi': 'IPMI' in types}
    return access | {_FIELDS[name]: value for name, value in values.items()
                     if name in _FIELDS}


@contextlib.contextmanager
def _store_errors() -> abc.Iterator[None]:
    """Convert the store's errors.

    :raises: `error_responses.RedfishError`: 400, 404, 409, 412
    """
    try:
        yield
    except accounts.NotFound:
        raise error_responses.resource_not_found(
            'ManagerAccount', (flask.request.view_args or {})['account_id']
        ) from None
    except accounts.Replaced:
        raise etags.precondition_failed() from None
    except accounts.NameTaken as exc:
        raise error_responses.base_error(
            409, 'ResourceAlreadyExists', 'ManagerAccount', 'UserName',
            exc.value, related=['#/UserName']) from None
    except accounts.Full as exc:
        raise error_responses.base_error(
            400, 'CreateLimitReachedForResource', detail=f'{exc}.') from None
    except errors.InvalidValue as exc:
        raise _wrong_format(_PROPERTIES.get(exc.property, exc.property),
                            exc.value, f'{exc}.') from None


def _wrong_format(name: str, value: typing.Any, detail: str = ''
                  ) -> error_responses.RedfishError:
    return error_responses.base_error(
        400, 'PropertyValueFormatError', '…' if name == 'Password' else value,
        name, detail=detail, related=['#/' + name])


ROUTES = (
    routing.add(ACCOUNTS, collection, post=create),
    routing.add(_RULE, resource, patch=patch, delete=delete, owner=_owner),
)
