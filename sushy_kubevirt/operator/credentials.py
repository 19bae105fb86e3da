# SPDX-License-Identifier: Apache-2.0
"""The Secret with user name and password: made, copied, or somebody's own."""

import base64
import binascii
import secrets
import string

from sushy_kubevirt.operator import naming

USERNAME, PASSWORD = 'username', 'password'

#: What Redfish lets the account do; it may be left out.
ROLE = 'role'

#: All that pods read of a Secret.
KEYS = (USERNAME, PASSWORD, ROLE)

#: The user of a Secret that the operator makes.
DEFAULT_USERNAME = 'admin'

#: The protocols, which take different ones.
IPMI, REDFISH = 'ipmi', 'redfish'

#: The most bytes of each that IPMI 2.0 has room for (sections 22.28, 22.30).
#: The same numbers and rules as in `vbmc_kubevirt.mounted_secret`, which this
#: package does not import; a test compares them.
_MOST = {USERNAME: 16, PASSWORD: 20}

#: For Redfish, as in `services.credentials`, whose import would be dear; a
#: test compares them, too. Bytes of a user name, and of any file.
_LONGEST_NAME = 128
_LONGEST = 1024
_ROLES = ('Administrator', 'Operator', 'ReadOnly')

# IPMI 2.0 takes at most 20 bytes of a password (section 22.30). Letters and
# digits need no quoting in a shell: 119 bits.
_LENGTH = 20
_LETTERS = string.ascii_letters + string.digits


def password():
    """:returns: a random password that both protocols can use"""
    return ''.join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def made(bmc):
    """The Secret of a BMC that names none; with another password each time.

    :param bmc: a `spec.Bmc`
    """
    return _secret(bmc, {USERNAME: _encoded(DEFAULT_USERNAME),
                         PASSWORD: _encoded(password())})


def copied(bmc, secret):
    """The Secret of a BMC whose own is in another namespace.

    :param bmc: a `spec.Bmc`
    :param secret: dict, the one that is named. Only what pods read is taken
        from it: without its role, an account could do more than its owner
        said.
    """
    return _secret(bmc, {key: secret['data'][key]
                         for key in KEYS if key in secret['data']})


def missing(secret):
    """What a Secret lacks to be one for a BMC.

    :param secret: dict
    :returns: tuple of keys that are not there, empty or no text
    """
    return tuple(key for key in (USERNAME, PASSWORD)
                 if not _text((secret.get('data') or {}).get(key)))


def unfit(secret):
    """What a protocol cannot use of a Secret that lacks nothing.

    :param secret: dict
    :returns: tuple of (protocol, key); the user name has a colon, say, which
        HTTP's Basic authentication has no room for (RFC 7617, section 2)
    """
    data = secret.get('data') or {}
    found = {key: _text(data.get(key)) for key in KEYS if key in data}
    bad = [(IPMI, key) for key, most in _MOST.items()
           if len(found.get(key, '').encode()) > most
           or not found.get(key, '').isprintable()]
    name = found.get(USERNAME, '')
    for key, fits in (
            (USERNAME, len(name.encode()) <= _LONGEST_NAME
             and ':' not in name and name.isprintable()),
            (PASSWORD, True),
            (ROLE, found.get(ROLE, _ROLES[0]) in _ROLES)):
        if not fits or len(_bytes(data.get(key))) > _LONGEST:
            bad.append((REDFISH, key))
    return tuple(bad)


def _text(value):
    try:
        text = _bytes(value).decode()
    except UnicodeDecodeError:
        return ''
    # What an editor leaves at the end of a file is none of it.
    return text.removesuffix('\r\n' if text.endswith('\r\n') else '\n')


def _bytes(value):
    try:
        return base64.b64decode(value or '', validate=True)
    except binascii.Error:
        return b''


def _encoded(text):
    return base64.b64encode(text.encode()).decode()


def _secret(bmc, data):
    return {'apiVersion': 'v1', 'kind': 'Secret', 'type': 'Opaque',
            'metadata': naming.metadata(bmc, naming.auth(bmc.name)),
            'data': data}
