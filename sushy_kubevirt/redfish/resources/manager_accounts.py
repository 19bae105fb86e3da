# SPDX-License-Identifier: Apache-2.0
"""ManagerAccount v1.12 and its collection.

Accounts of files and Secrets are read-only here. Others are created, changed
and deleted by clients, and stored by `sushy_kubevirt.bmc.accounts`; their Id
is the user id of IPMI.
"""

from __future__ import annotations

import re

import flask

from sushy_kubevirt.bmc import accounts
from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import authorization
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import etags
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.services.events import account_events

ACCOUNTS = account_events.ACCOUNTS
ROLES = '/redfish/v1/AccountService/Roles'
_ONE = ACCOUNTS + '/<account_id>'

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
_STORED = {
    **payload.read_only(*_READ_ONLY),
    'UserName': str,
    'Password': str,
    'RoleId': accounts.ROLES,
    'Enabled': bool,
    'Locked': bool,
    'PasswordChangeRequired': bool,
    'AccountTypes': list,
}
_CONFIGURED = {name: payload.ReadOnly(CONFIGURED_REASON)
               for name in (*_READ_ONLY, *_STORED)}
_REQUIRED = ('UserName', 'Password', 'RoleId')

#: Names that serve as Id unchanged. Numbers are Ids of stored accounts.
_URL_SAFE = re.compile(r'(?![0-9]+$)[A-Za-z0-9_.-]{1,64}')

_NO_DELETE = {'Allow': 'GET, HEAD, OPTIONS, PATCH'}


def _login():
    return authentication.services().login


def _stored():
    """Return the stored accounts that have a name."""
    services = authentication.services()
    if services.accounts is None:
        return []
    services.state.catch_up()
    return [one for one in services.accounts.all() if one.name]


def account_types(redfish: bool = True, ipmi: bool = True):
    """List the protocols that an account is valid for, as AccountTypes.

    :param redfish: whether the account may use Redfish
    :param ipmi: whether it may use IPMI, if this BMC serves it
    """
    served = dict(authentication.services().settings.service_ports)
    return [name for name, present in (
        ('Redfish', redfish), ('IPMI', ipmi and 'IPMI' in served)) if present]


def resource_id(account):
    """Convert the name of an account of a file or Secret to its Id.

    :param account: `account_files.Account`
    :returns: the name if it is usable in a URL, else ``name-`` and the name's
        UTF-8 bytes in hexadecimal
    """
    if _URL_SAFE.fullmatch(account.name) and account.name.strip('.'):
        return account.name
    return 'name-' + account.name.encode().hex()


def _find(account_id):
    """Find an account by its Id.

    :returns: (`account_files.Account` or None, `accounts.Account` or None),
        one of which is None
    :raises: `error_responses.RedfishError`, 404
    """
    for account in _login().configured():
        if resource_id(account) == account_id:
            return account, None
    for stored in _stored():
        if str(stored.id) == account_id:
            return None, stored
    raise error_responses.resource_not_found('ManagerAccount', account_id)


def _owner(account_id):
    for account in _login().configured():
        if resource_id(account) == account_id:
            return account.name
    for stored in _stored():
        if str(stored.id) == account_id:
            account = _login().account(stored.name)
            # Not the account of a Secret that was given the same name.
            return (stored.name if account is not None
                    and account.stored_id == stored.id else None)
    return None


def _body(account_id, configured, stored):
    name, role = (configured or stored).name, (configured or stored).role
    body = {
        '@odata.id': f'{ACCOUNTS}/{account_id}',
        '@odata.type': '#ManagerAccount.v1_12_1.ManagerAccount',
        'Id': account_id,
        'Name': f'Account {name}',
        'Description': CONFIGURED_REASON if stored is None
        else 'This account is stored by this service.',
        'UserName': name,
        'Password': None,
        'Enabled': stored is None or stored.enabled,
        'Locked': stored is not None and stored.locked,
        'PasswordChangeRequired': stored is not None
        and stored.change_required,
        'AccountTypes': account_types(ipmi=configured.ipmi)
        if stored is None else account_types(stored.redfish, stored.ipmi),
        # An account without access over IPMI has no role.
        'RoleId': role or '',
    }
    if role:
        body['Links'] = {'Role': responses.link(f'{ROLES}/{role}')}
    return body


def collection():
    """GET, POST /redfish/v1/AccountService/Accounts"""
    if flask.request.method == 'POST':
        return _create()
    found = responses.collection(
        'ManagerAccountCollection', 'Accounts', ACCOUNTS,
        [f'{ACCOUNTS}/{resource_id(account)}'
         for account in _login().configured()]
        + [f'{ACCOUNTS}/{one.id}' for one in _stored()])
    if authentication.services().accounts is None:
        found.headers['Allow'] = 'GET, HEAD, OPTIONS'
    return found


def _create():
    store = authentication.services().accounts
    if store is None:
        raise error_responses.RedfishError(
            405, messages.message('OperationNotAllowed',
                                  detail=DISABLED_REASON),
            headers={'Allow': 'GET, HEAD, OPTIONS'})
    values = payload.properties(_STORED)
    missing = [name for name in _REQUIRED if name not in values]
    if missing:
        raise error_responses.RedfishError(400, *(messages.message(
            'PropertyMissing', name, related=['#/' + name])
            for name in missing))
    account = _apply(lambda fields: store.create(_actor(), **fields), values)
    return responses.created(_body(str(account.id), None, account))


def resource(account_id):
    """GET, PATCH, DELETE /redfish/v1/AccountService/Accounts/<account_id>

    With the privilege ConfigureSelf alone, an account can change its password;
    so can one that must change it first.
    """
    configured, stored = _find(account_id)
    if flask.request.method == 'PATCH':
        if stored is None:
            payload.properties(_CONFIGURED)
        stored = _change(stored)
    elif flask.request.method == 'DELETE':
        return _delete(stored)
    found = responses.resource(_body(account_id, configured, stored))
    if stored is None:
        found.headers.update(_NO_DELETE)
    return found


def _change(stored):
    services = authentication.services()
    account = flask.g.account
    values = payload.properties(_STORED)
    if account.change_required and set(values) != {'Password'}:
        raise error_responses.RedfishError(
            403, authorization.password_change_required(account))
    manages = authorization.has(authorization.USERS)
    if not manages and set(values) != {'Password'}:
        raise error_responses.RedfishError(
            403, messages.message('InsufficientPrivilege'))
    # Who changes itself must still be the one that was authenticated.
    expected = {'name': stored.name} \
        if manages and not account.change_required \
        else {'version': account.version}
    token = flask.request.headers.get('X-Auth-Token')
    session = None
    if token and account.stored_id == stored.id:
        session = services.sessions.find(token)
    with services.sessions.changes_account(session):
        changed = _apply(lambda fields: services.accounts.change(
            stored.id, _actor(), expected, **fields), values)
        if session is not None:
            # Other sessions of the account end, as it has another signature.
            renewed = services.login.account(changed.name, recheck=True)
            if (renewed is not None and renewed.name == session.user
                    and renewed.version == changed.version):
                services.sessions.renew(session, renewed)
    return changed


def _delete(stored):
    if stored is None:
        raise error_responses.RedfishError(
            405, messages.message('ResourceCannotBeDeleted',
                                  detail=CONFIGURED_REASON),
            headers=_NO_DELETE)
    account = flask.g.account
    if account.change_required:
        raise error_responses.RedfishError(
            403, authorization.password_change_required(account))
    if not authorization.has(authorization.USERS):
        raise error_responses.RedfishError(
            403, messages.message('InsufficientPrivilege'))
    try:
        authentication.services().accounts.delete(
            stored.id, _actor(), {'name': stored.name})
    except (accounts.NotFound, accounts.Replaced) as exc:
        raise _gone(exc) from None
    return responses.no_content()


def _actor() -> str:
    return f'{flask.g.account.name} over Redfish'


def _apply(write, values):
    """Write an account, and translate the store's errors.

    :param write: function of the fields of `accounts.Account`
    :param values: dict of property to value
    :returns: the `accounts.Account`
    :raises: `error_responses.RedfishError`: 400, 404, 409, 412
    """
    if values.get('UserName') == '':
        raise _wrong_format('UserName', '')
    fields = {_FIELDS[name]: value for name, value in values.items()
              if name in _FIELDS}
    if 'AccountTypes' in values:
        fields |= _access(values['AccountTypes'])
    try:
        return write(fields)
    except (accounts.NotFound, accounts.Replaced) as exc:
        raise _gone(exc) from None
    except accounts.NameTaken as exc:
        raise error_responses.RedfishError(409, messages.message(
            'ResourceAlreadyExists', 'ManagerAccount', 'UserName', exc.value,
            related=['#/UserName'])) from None
    except accounts.Full as exc:
        raise error_responses.RedfishError(400, messages.message(
            'CreateLimitReachedForResource', detail=f'{exc}.')) from None
    except errors.InvalidValue as exc:
        raise _wrong_format(_PROPERTIES.get(exc.property, exc.property),
                            exc.value, f'{exc}.') from None


def _gone(error):
    """Convert the error that the account is not the one that was meant."""
    if isinstance(error, accounts.Replaced):
        return etags.precondition_failed()
    return error_responses.resource_not_found(
        'ManagerAccount', flask.request.view_args['account_id'])


def _access(names):
    """Convert AccountTypes to fields of `accounts.Account`."""
    allowed = account_types()
    for name in names:
        if not isinstance(name, str) or name not in allowed:
            raise error_responses.RedfishError(400, payload.not_in_list(
                'AccountTypes', name, allowed, '#/AccountTypes'))
    if not names:
        raise _wrong_format('AccountTypes', names,
                            f"Use one or more of {', '.join(allowed)}.")
    return {'redfish': 'Redfish' in names, 'ipmi': 'IPMI' in names}


def _wrong_format(name, value, detail: str = ''):
    return error_responses.RedfishError(400, messages.message(
        'PropertyValueFormatError', '…' if name == 'Password' else value,
        name, detail=detail, related=['#/' + name]))


authorization.register_owner(_ONE, _owner)

ROUTES = (
    routing.add(ACCOUNTS, collection, ('GET', 'POST')),
    routing.add(_ONE, resource, ('GET', 'PATCH', 'DELETE')),
)
