# SPDX-License-Identifier: Apache-2.0
"""Validation of Secrets and ConfigMaps.

Source: kubernetes/pkg/apis/core/validation/validation.go (1.36):
ValidateSecret, ValidateSecretUpdate, ValidateConfigMap and its update.
"""
import base64
import json
import re

from kubevirt_sandbox.api import errors

#: Bytes that the values may have together.
LARGEST = 1024 * 1024

_KEY = re.compile(r'[-._a-zA-Z0-9]+')
_FIXED = 'field is immutable when `immutable` is set'

#: Keys that a type must have.
_ACCOUNT = 'kubernetes.io/service-account.name'
_NEEDED = {'kubernetes.io/tls': ('tls.crt', 'tls.key'),
           'kubernetes.io/dockerconfigjson': ('.dockerconfigjson',),
           'kubernetes.io/dockercfg': ('.dockercfg',),
           'kubernetes.io/ssh-auth': ('ssh-privatekey',)}
_JSON = ('.dockerconfigjson', '.dockercfg')
_BASIC = ('username', 'password')


def checker(kind):
    """Make the hook that refuses invalid objects.

    :param kind: function that returns the Kind.
    """
    def check(admission):
        new, old = admission.new, admission.old
        if new is None:
            return
        found = [*faults(new), *(changes(new, old) if old else ())]
        if found:
            raise errors.invalid(kind(), new['metadata'].get('name'), found)
    return check


def _bytes(obj):
    """Return the total size of an object's values in bytes."""
    encoded = obj.get('binaryData') if 'type' not in obj else obj.get('data')
    plain = obj.get('data') if 'type' not in obj else None
    return (sum(len(value) * 3 // 4 - value[-2:].count('=')
                for value in (encoded or {}).values())
            + sum(len(value.encode()) for value in (plain or {}).values()))


def faults(obj):
    """List what is wrong with an object, as :class:`errors.Cause`."""
    found = []
    for field in ('data', 'binaryData'):
        for key in obj.get(field) or {}:
            if not _KEY.fullmatch(key) or len(key) > 253 or key in (
                    '.', '..') or key.startswith('..'):
                found.append(errors.Cause(
                    'FieldValueInvalid', f'Invalid value: "{key}": a valid '
                    'config key must consist of alphanumeric characters, '
                    '\'-\', \'_\' or \'.\'', f'{field}[{key}]'))
    if _bytes(obj) > LARGEST:
        found.append(errors.Cause(
            'FieldValueTooLong', f'Too long: may not be more than {LARGEST} '
            'bytes', 'data' if 'type' in obj else ''))
    data, kind = obj.get('data') or {}, obj.get('type')
    for key in _NEEDED.get(kind, ()):
        if key not in data or key == 'ssh-privatekey' and not data[key]:
            found.append(errors.Cause('FieldValueRequired', 'Required value',
                                      f'data[{key}]'))
        elif key in _JSON and not _is_json(base64.b64decode(data[key])):
            found.append(errors.Cause(
                'FieldValueInvalid', 'Invalid value: "<secret contents '
                'redacted>": invalid JSON', f'data[{key}]'))
    if kind == 'kubernetes.io/service-account-token' and not (
            obj['metadata'].get('annotations') or {}).get(_ACCOUNT):
        found.append(errors.Cause('FieldValueRequired', 'Required value',
                                  f'metadata.annotations[{_ACCOUNT}]'))
    if 'type' not in obj:
        found += [errors.Cause(
            'FieldValueInvalid', f'Invalid value: "{key}": duplicate of key '
            'present in binaryData', f'data[{key}]')
            for key in data if key in (obj.get('binaryData') or {})]
    if kind == 'kubernetes.io/basic-auth' and not data.keys() & set(_BASIC):
        found += [errors.Cause('FieldValueRequired', 'Required value',
                               f'data[{key}]') for key in _BASIC]
    return found


def _is_json(text):
    try:
        json.loads(text)
        return True
    except ValueError:
        return False


def changes(new, old):
    """List forbidden changes, as :class:`errors.Cause`."""
    found = []
    if new.get('type') != old.get('type'):
        found.append(errors.Cause(
            'FieldValueInvalid', f'Invalid value: "{new.get("type")}": field '
            'is immutable', 'type'))
    if old.get('immutable'):
        if not new.get('immutable'):
            found.append(errors.Cause('FieldValueForbidden',
                                      f'Forbidden: {_FIXED}', 'immutable'))
        found += [
            errors.Cause('FieldValueForbidden', f'Forbidden: {_FIXED}', field)
            for field in ('data', 'binaryData')
            if (new.get(field) or {}) != (old.get(field) or {})]
    return found
