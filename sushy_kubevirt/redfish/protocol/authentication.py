# SPDX-License-Identifier: Apache-2.0
"""Authentication of requests (DSP0266, "Authentication").

`authenticate` runs before every route, including sushy-emulator's and unknown
URLs. It accepts HTTP Basic (RFC 7617), X-Auth-Token and, for WebSockets, the
subprotocol ``x-auth-token.<token>``. Once accounts are
configured, only the requests in `_UNAUTHENTICATED` need no login. Passwords
are checked by `sushy_kubevirt.redfish.services.authenticator`, privileges by
`authorization`.
"""

from __future__ import annotations

import base64
from collections import abc
import ipaddress
import typing

import flask

from sushy_kubevirt.bmc import shares
from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.services import account_files
from sushy_kubevirt.redfish.services import authenticator

if typing.TYPE_CHECKING:
    from wsgiref import types

    from sushy_kubevirt.redfish.services import service_context

SESSIONS = '/redfish/v1/SessionService/Sessions'

#: Requests that need no login: path to HTTP methods.
_UNAUTHENTICATED = {
    **dict.fromkeys(('/redfish', '/redfish/v1', '/redfish/v1/odata',
                     '/redfish/v1/$metadata'), ('GET', 'HEAD')),
    SESSIONS: ('POST',),
    # The web page, which asks for the login itself.
    '': ('GET', 'HEAD'),
}

#: WSGI environ key of a function of the name of an account, which tells the
#: server who has sent the request. Only `pod.http_server` has it.
IDENTIFY = 'sushy_kubevirt.identify'

#: Start of the paths of the web page's files, which need no login either.
WEB_FILES = '/web/'

_CHALLENGE = {'WWW-Authenticate': 'Basic realm="Redfish", charset="UTF-8"'}

#: What precedes the token in a subprotocol.
_TOKEN_PROTOCOL = 'x-auth-token.'

#: WSGI environ key of the account, for internal requests.
_ACCOUNT_KEY = 'sushy_kubevirt.account'

_Address: typing.TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: typing.TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def authenticate() -> None:
    """Store the account of the request in ``flask.g.account``.

    For Flask's before_request. The account is None if no accounts are
    configured or the request needs no login.

    :raises: `error_responses.RedfishError`: 401 wrong, missing or unusable
        credentials, 503 too many simultaneous logins
    """
    environ = flask.request.environ
    account = environ.get(_ACCOUNT_KEY)
    if account is None:
        account = _account(environ)
        if account is not None:
            # None is not stored: an internal request made within this one
            # may need a login.
            environ[_ACCOUNT_KEY] = account
            identify(environ, account)
    flask.g.account = account


def wants_websocket() -> bool:
    """Tell whether the request asks for a WebSocket that its route has."""
    rule = flask.request.url_rule
    return rule is not None and rule.websocket


def subprotocols(environ: types.WSGIEnvironment) -> list[str]:
    """Return the values of Sec-WebSocket-Protocol."""
    return [name.strip() for name in environ.get(
        'HTTP_SEC_WEBSOCKET_PROTOCOL', '').split(',')]


def token() -> str | None:
    """Return the token of the request's session.

    A browser cannot set X-Auth-Token of a WebSocket; there the token is also
    accepted as a subprotocol.
    """
    environ = flask.request.environ
    if 'HTTP_X_AUTH_TOKEN' not in environ and wants_websocket():
        for name in subprotocols(environ):
            if name.startswith(_TOKEN_PROTOCOL):
                return name.removeprefix(_TOKEN_PROTOCOL)
    return environ.get('HTTP_X_AUTH_TOKEN')


def still_authorized() -> abc.Callable[[], bool]:
    """Return a function that tells whether the client is still logged in.

    For responses that last. Each call counts as use of the session and extends
    it. It may block.
    """
    login, sessions = services().login, services().sessions
    account: account_files.Account | None = flask.g.account
    secret = token()
    if account is None:
        return lambda: True

    def authorized() -> bool:
        now = login.account(account.name)
        return (now is not None and now.signature == account.signature
                and (secret is None or sessions.find(secret) is not None))

    return authorized


def owner() -> str:
    """Return to whose share the request belongs, see `shares`.

    :returns: name of its account; without one, the network of the client
        behind a colon, which no name contains
    """
    account: account_files.Account | None = flask.g.account
    return ':' + shares.network(client_address()) if account is None else (
        account.name)


def services() -> service_context.Services:
    """Return the services of this application: accounts, sessions, events."""
    return application.current().sushy_kubevirt.services


def _account(environ: types.WSGIEnvironment) -> account_files.Account | None:
    login = services().login
    if not login.required:
        return None
    secret = token()
    header = environ.get('HTTP_AUTHORIZATION')
    path = environ['PATH_INFO']
    if path.startswith(WEB_FILES):
        path = '/'
    if environ['REQUEST_METHOD'] in _UNAUTHENTICATED.get(
            path.rstrip('/'), ()):
        return None
    if secret is not None:
        session = services().sessions.find(secret)
        account = login.account(session.user) if session else None
        if account is None:
            raise _no_valid_session()
        return account
    if header is not None:
        return check_password(*_parse_basic(header))
    raise _no_valid_session()


def _no_valid_session() -> error_responses.RedfishError:
    return error_responses.base_error(
        401, 'NoValidSession', headers=_CHALLENGE)


def _parse_basic(header: str) -> tuple[str, bytes]:
    """Parse the header Authorization of HTTP Basic (RFC 7617).

    User name and password are UTF-8, as the challenge asks for, or Latin-1:
    ``requests``, and with it sushy, has no other encoding.

    :returns: user name, password in UTF-8
    :raises: `error_responses.RedfishError`, 401 with the challenge (RFC 9110,
        section 11.6.1)
    """
    scheme, _space, value = header.strip().partition(' ')
    if scheme.lower() != 'basic':
        # The header may hold a secret; the scheme does not.
        raise _invalid_header('Only the scheme Basic is supported.')
    try:
        name, colon, password = base64.b64decode(
            value.strip(), validate=True).partition(b':')
    except ValueError:
        colon = b''
    if not colon:
        raise _invalid_header('Basic must be followed by user:password in '
                              'base64.')
    return (account_files.utf8(name).decode(),
            account_files.utf8(password))


def _invalid_header(why: str) -> error_responses.RedfishError:
    return error_responses.base_error(
        401, 'HeaderInvalid', 'Authorization', detail=why, headers=_CHALLENGE)


def identify(environ: types.WSGIEnvironment, account: account_files.Account
             ) -> None:
    """Tell the server whose connection and request it is.

    :raises: `error_responses.RedfishError`, 503 if the account has too many
        requests in progress
    """
    if not environ.get(IDENTIFY, lambda name: True)(account.name):
        raise error_responses.unavailable(
            'Too many requests of this account are in progress.', 1)


def check_password(name: str, password: bytes) -> account_files.Account:
    """Authenticate a user.

    :raises: `error_responses.RedfishError`: 401, which does not tell
        whether the name or the password is wrong; 503 if the password was
        not checked, because too many others wait for it
    """
    try:
        return services().login.check(name, password, client_address())
    except authenticator.LoginRefused:
        raise error_responses.base_error(
            401, 'ResourceAtUriUnauthorized', flask.request.path,
            'Invalid user name or password', headers=_CHALLENGE) from None
    except authenticator.LoginThrottled:
        # Not 429: Redfish clients such as sushy treat it as a client error
        # and do not retry.
        raise error_responses.unavailable(
            'Too many simultaneous logins.',
            authenticator.RETRY_SECONDS) from None


def client_address() -> str:
    """Return the IP address of the client; empty for a Unix socket.

    X-Forwarded-For is trusted from the configured proxies. If any are
    configured, it is also trusted on a Unix socket, whose file permissions
    decide who can connect.
    """
    environ = flask.request.environ
    address = environ.get('REMOTE_ADDR') or ''
    trusted = services().settings.trusted_proxies
    if not trusted:
        return address
    behind = environ.get('HTTP_X_FORWARDED_FOR', '').split(',')
    # Each proxy appends the address of its own client.
    while behind and (not address or _in_networks(address, trusted)):
        before = behind.pop().strip()
        if _parse_address(before) is None:
            break
        address = before
    return address


def _in_networks(address: str, networks: abc.Iterable[_Network]) -> bool:
    parsed = _parse_address(address)
    return parsed is not None and any(
        parsed in network for network in networks)


def _parse_address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, 'ipv4_mapped', None) or address
