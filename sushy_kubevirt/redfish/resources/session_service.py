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
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.services import sessions

ROOT = '/redfish/v1/SessionService'
SESSIONS = authentication.SESSIONS
_RULE = SESSIONS + '/<session_id>'

ROOT_LINKS = {'SessionService': ROOT, 'Links/Sessions': SESSIONS}

_SHAPE: payload.Shape = {
    'SessionTimeout': payload.Range(
        sessions.MIN_TIMEOUT, sessions.MAX_TIMEOUT, 'seconds'),
    **payload.read_only('Id', 'Name', 'Description', 'ServiceEnabled',
                        'Sessions', 'Status'),
}

# No message has a value: the client may have sent the password in another
# property.
_LOGIN = {'UserName': payload.Text(256, secret=True),
          'Password': payload.Text(4096, secret=True),
          'Context': payload.Text(256, secret=True)}


def _sessions() -> sessions.Sessions:
    return authentication.services().sessions


def service() -> responses.Json:
    """GET /redfish/v1/SessionService"""
    return {
        '@odata.id': ROOT,
        '@odata.type': '#SessionService.v1_1_9.SessionService',
        'Id': 'SessionService',
        'Name': 'Session Service',
        'Description': 'Sessions of logged-in clients',
        'ServiceEnabled': True,
        'SessionTimeout': _sessions().timeout,
        'Sessions': responses.link(SESSIONS),
        'Status': {'State': 'Enabled', 'Health': 'OK'},
    }


def patch_service() -> responses.Json:
    """PATCH /redfish/v1/SessionService"""
    _sessions().set_timeout(payload.properties(_SHAPE)['SessionTimeout'])
    return service()


def _body(session: sessions.Session) -> responses.Json:
    created = datetime.datetime.fromtimestamp(
        session.created, datetime.timezone.utc)
    login = authentication.services().login
    account = login.account(session.user) if login.required else None
    return {
        '@odata.id': f'{SESSIONS}/{session.id}',
        '@odata.type': '#Session.v1_7_2.Session',
        'Id': session.id,
        'Name': 'Session',
        'Description': 'A login with user name and password',
        'UserName': session.user,
        'Password': None,
        'SessionType': 'Redfish',
        'ClientOriginIPAddress': session.source,
        'CreatedTime': created.isoformat(timespec='seconds'),
        **({} if session.context is None else {'Context': session.context}),
        **responses.present(Roles=account and [account.role]),
    }


def collection() -> responses.Json:
    """GET /redfish/v1/SessionService/Sessions"""
    return responses.collection(
        'Session', 'Session Collection', SESSIONS,
        [session.id for session in _sessions().all()])


def login() -> flask.Response:
    """POST /redfish/v1/SessionService/Sessions"""
    values = payload.properties(_LOGIN, required=('UserName', 'Password'))
    user = values['UserName']
    services = authentication.services()
    account = None
    if services.login.required:
        account = authentication.check_password(
            user, values['Password'].encode())
        authentication.identify(flask.request.environ, account)
    session, token = services.sessions.open(
        user, account, authentication.client_address(), values.get('Context'))
    body = _body(session)
    if account is not None and account.change_required:
        body['@Message.ExtendedInfo'] = [
            authorization.password_change_required(account)]
    return responses.created(body, {
        'X-Auth-Token': token, 'Cache-Control': 'no-store'})


def _find(session_id: str) -> sessions.Session:
    session = _sessions().get(session_id)
    if session is None:
        raise error_responses.resource_not_found('Session', session_id)
    return session


def _owner(session_id: str) -> str | None:
    session = _sessions().get(session_id)
    return None if session is None else session.user


def resource(session_id: str) -> responses.Json:
    """GET /redfish/v1/SessionService/Sessions/<session_id>"""
    return _body(_find(session_id))


def logout(session_id: str) -> None:
    """DELETE /redfish/v1/SessionService/Sessions/<session_id>"""
    _sessions().close(_find(session_id))


ROUTES = (
    routing.add(ROOT, service, 'minimum', patch=patch_service),
    routing.add(SESSIONS, collection, 'minimum', post=login),
    routing.add(_RULE, resource, 'minimum', delete=logout, owner=_owner),
)
