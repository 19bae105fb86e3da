# SPDX-License-Identifier: Apache-2.0
"""Authentication of requests (DSP0266, "Authentication").

`authenticate` runs before every route, including sushy-emulator's and unknown
URLs. It accepts HTTP Basic (RFC 7617) and X-Auth-Token. Once credentials are
configured, only the requests in `_UNAUTHENTICATED` need no login. Passwords
are checked by `sushy_kubevirt.redfish.services.authenticator`, privileges by
`authorization`.
"""

import base64
import binascii
import ipaddress

import flask

from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.services import authenticator

SESSIONS = '/redfish/v1/SessionService/Sessions'

#: What a client may do to find out how to log in, and to do so.
_UNAUTHENTICATED = {
    **dict.fromkeys(('/redfish', '/redfish/v1', '/redfish/v1/odata',
                     '/redfish/v1/$metadata'), ('GET', 'HEAD')),
    SESSIONS: ('POST',),
}

_CHALLENGE = {'WWW-Authenticate': 'Basic realm="Redfish", charset="UTF-8"'}

#: In the environ: the account, for requests made within this one.
_ACCOUNT_KEY = 'sushy_kubevirt.account'


def authenticate():
    """Put who it is into ``flask.g``: for Flask's before_request.

    ``g.account`` is a `credentials.Account`, or None where everybody may
    come.

    :raises: `errors.RedfishError`, 400, 401 or 503
    """
    environ = flask.request.environ
    found = environ.get(_ACCOUNT_KEY)
    if found is None:
        found = _account(environ)
        if found is not None:
            # What was open to nobody in particular is not noted: a request
            # made within it may be for what is not.
            environ[_ACCOUNT_KEY] = found
    flask.g.account = found


def services():
    """The `services.site.Services` of this application."""
    return flask.current_app.sushy_kubevirt.services


def _account(environ):
    login = services().login
    if not login.required:
        return None
    token = environ.get('HTTP_X_AUTH_TOKEN')
    header = environ.get('HTTP_AUTHORIZATION')
    path = environ['PATH_INFO'].rstrip('/')
    if environ['REQUEST_METHOD'] in _UNAUTHENTICATED.get(path, ()):
        return None
    if token is not None:
        session = services().sessions.find(token)
        account = session and login.account(session.user)
        if account is None:
            raise _no_valid_session()
        return account
    if header is not None:
        return check_password(*_parse_basic(header))
    raise _no_valid_session()


def _no_valid_session():
    return errors.RedfishError(401, messages.message('NoValidSession'),
                               headers=_CHALLENGE)


def _parse_basic(header):
    """User and password of the header Authorization.

    :returns: (text, bytes)
    :raises: `errors.RedfishError`, 400
    """
    scheme, _space, value = header.strip().partition(' ')
    if scheme.lower() != 'basic':
        # The header may hold a secret; the scheme does not.
        raise _invalid_header('Only the scheme Basic is understood.')
    try:
        name, colon, password = base64.b64decode(
            value.strip(), validate=True).partition(b':')
        name = name.decode()
    except (binascii.Error, ValueError):
        colon = b''
    if not colon:
        raise _invalid_header('After Basic, it has user:password in base64.')
    return name, password


def _invalid_header(why):
    return errors.RedfishError(400, messages.message(
        'HeaderInvalid', 'Authorization', detail=why))


def check_password(name, password):
    """Find the account a client means.

    :param name: text
    :param password: bytes
    :returns: `credentials.Account`
    :raises: `errors.RedfishError`: 401, without a word of which was wrong,
        or 503 for who has guessed too often
    """
    try:
        return services().login.check(name, password, client_address())
    except authenticator.Refused:
        raise errors.RedfishError(401, messages.message(
            'ResourceAtUriUnauthorized', flask.request.path,
            'Invalid user name or password'), headers=_CHALLENGE) from None
    except authenticator.Slowed as exc:
        # 503 and not 429, which clients of Redfish (sushy, for one) take for
        # a mistake of theirs and do not try again.
        raise errors.unavailable(
            'Too many logins failed, or come at once.',
            exc.retry_after) from None


def client_address():
    """The address a request comes from, text; empty for a Unix socket.

    What proxies write of it is believed of those that are configured, and
    then also of one on a Unix socket: its file says who may be that.
    """
    environ = flask.request.environ
    address = environ.get('REMOTE_ADDR') or ''
    trusted = services().settings.trusted_proxies
    if not trusted:
        return address
    behind = environ.get('HTTP_X_FORWARDED_FOR', '').split(',')
    # Each proxy has added, at the end, whom it was asked by.
    while behind and (not address or _in_networks(address, trusted)):
        before = behind.pop().strip()
        if _parse_address(before) is None:
            break
        address = before
    return address


def _in_networks(address, networks):
    address = _parse_address(address)
    return address is not None and any(
        address in network for network in networks)


def _parse_address(text):
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, 'ipv4_mapped', None) or found
