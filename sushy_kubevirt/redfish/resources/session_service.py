# SPDX-License-Identifier: Apache-2.0
"""SessionService v1.1 and Session v1.7 (DSP0266, "Redfish session login").

Sessions are stored by `sushy_kubevirt.redfish.services.sessions`. If no
accounts are configured, a session can be opened with any user name, for
clients that require one.
"""

from __future__ import annotations

import datetime

import flask

from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import authorization
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.services import sessions

ROOT = '/redfish/v1/SessionService'
SESSIONS = authentication.SESSIONS
_RULE = SESSIONS + '/<session_id>'

ROOT_LINKS = {'SessionService': ROOT, 'Links/Sessions': SESSIONS}

#: Maximum length of Session.Context, in characters.
_MAX_CONTEXT = 256

_SHAPE: payload.Shape = {
    'SessionTimeout': int,
    **payload.read_only('Id', 'Name', 'Description', 'ServiceEnabled',
                        'Sessions', 'Status'),
}


def _sessions() -> sessions.Sessions:
    return authentication.services().sessions


def service() -> flask.Response:
    """GET, PATCH /redfish/v1/SessionService

    SessionTimeout can be set.
    """
    if flask.request.method == 'PATCH':
        _set_timeout(payload.properties(_SHAPE)['SessionTimeout'])
    return responses.resource({
        '@odata.id': ROOT,
        '@odata.type': '#SessionService.v1_1_9.SessionService',
        'Id': 'SessionService',
        'Name': 'Session Service',
        'Description': 'Sessions of logged-in clients',
        'ServiceEnabled': True,
        'SessionTimeout': _sessions().timeout,
        'Sessions': responses.link(SESSIONS),
        'Status': {'State': 'Enabled', 'Health': 'OK'},
    })


def _set_timeout(seconds: int) -> None:
    if isinstance(seconds, bool):
        raise error_responses.RedfishError(400, messages.message(
            'PropertyValueTypeError', seconds, 'SessionTimeout',
            related=['#/SessionTimeout']))
    if not sessions.MIN_TIMEOUT <= seconds <= sessions.MAX_TIMEOUT:
        raise error_responses.RedfishError(400, messages.message(
            'PropertyValueOutOfRange', seconds, 'SessionTimeout',
            detail=f'Allowed values: {sessions.MIN_TIMEOUT} to '
            f'{sessions.MAX_TIMEOUT} seconds.',
            related=['#/SessionTimeout']))
    _sessions().set_timeout(seconds)


def _path(session: sessions.Session) -> str:
    return f'{SESSIONS}/{session.id}'


def _body(session: sessions.Session) -> responses.Json:
    created = datetime.datetime.fromtimestamp(
        session.created, datetime.timezone.utc)
    login = authentication.services().login
    account = login.account(session.user) if login.required else None
    body = {
        '@odata.id': _path(session),
        '@odata.type': '#Session.v1_7_2.Session',
        'Id': session.id,
        'Name': 'Session',
        'Description': 'A login with user name and password',
        'UserName': session.user,
        'Password': None,
        'SessionType': 'Redfish',
        'ClientOriginIPAddress': session.source,
        'CreatedTime': created.isoformat(timespec='seconds'),
        'Context': session.context,
        'Roles': account and [account.role],
    }
    return {name: value for name, value in body.items()
            if value is not None or name == 'Password'}


def collection() -> flask.Response:
    """GET, POST /redfish/v1/SessionService/Sessions"""
    if flask.request.method == 'POST':
        return _login()
    return responses.collection(
        'SessionCollection', 'Session Collection', SESSIONS,
        [_path(session) for session in _sessions().all()])


def _login() -> flask.Response:
    values = _credentials()
    user = values['UserName']
    services = authentication.services()
    account = None
    if services.login.required:
        account = authentication.check_password(
            user, values['Password'].encode(errors='surrogatepass'))
        authentication.identify(flask.request.environ, account)
    session, token = services.sessions.open(
        user, account, authentication.client_address(), values.get('Context'))
    body = _body(session)
    if account is not None and account.change_required:
        body['@Message.ExtendedInfo'] = [
            authorization.password_change_required(account)]
    return responses.created(body, {
        'X-Auth-Token': token, 'Cache-Control': 'no-store'})


def _credentials() -> dict[str, str]:
    """Read and validate the body of a login.

    :returns: UserName, Password and, if sent, Context
    :raises: `error_responses.RedfishError`, 400. The messages contain no
        values, because the client may have sent the password in another
        property.
    """
    body, problems = payload.body(), []
    values: dict[str, str] = {}
    shape = {'UserName': 256, 'Password': 4096, 'Context': _MAX_CONTEXT}
    for name in ('UserName', 'Password'):
        if name not in body:
            problems.append(messages.message('PropertyMissing', name,
                                             related=['#/' + name]))
    for name, value in body.items():
        pointer = ['#/' + name]
        if payload.is_annotation(name):
            continue
        if name not in shape:
            problems.append(messages.message('PropertyUnknown', name,
                                             related=pointer))
        elif not isinstance(value, str):
            problems.append(messages.message('PropertyValueTypeError', '…',
                                             name, related=pointer))
        elif len(value) > shape[name] or not _is_text(value):
            problems.append(messages.message('PropertyValueFormatError', '…',
                                             name, related=pointer))
        else:
            values[name] = value
    if problems:
        raise error_responses.RedfishError(400, *problems)
    return values


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _find(session_id: str) -> sessions.Session:
    session = _sessions().get(session_id)
    if session is None:
        raise error_responses.resource_not_found('Session', session_id)
    return session


def _owner(session_id: str) -> str | None:
    session = _sessions().get(session_id)
    return None if session is None else session.user


def resource(session_id: str) -> flask.Response:
    """GET, DELETE /redfish/v1/SessionService/Sessions/<session_id>

    DELETE closes the session (logout).
    """
    session = _find(session_id)
    if flask.request.method == 'DELETE':
        _sessions().close(session)
        return responses.no_content()
    return responses.resource(_body(session))


authorization.register_owner(_RULE, _owner)

ROUTES = (
    routing.add(ROOT, service, ('GET', 'PATCH'), 'minimum'),
    routing.add(SESSIONS, collection, ('GET', 'POST'), 'minimum'),
    routing.add(_RULE, resource, ('GET', 'DELETE'), 'minimum'),
)
