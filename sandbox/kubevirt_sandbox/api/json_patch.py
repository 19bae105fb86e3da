# SPDX-License-Identifier: Apache-2.0
"""JSON patch (RFC 6902), with the deviations of Kubernetes' library.

``test`` of null succeeds for an absent member, ``replace`` adds one, indices
may be negative, and a number equals only the same kind of number.

Source: gopkg.in/evanphx/json-patch.v4/patch.go and
apiserver/pkg/endpoints/handlers/patch.go (Kubernetes 1.37).
"""
import re

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import history
from kubevirt_sandbox.api import json_copy

#: As kube-apiserver (``maxJSONPatchOperations``).
MOST_OPERATIONS = 10000

#: What all ``copy`` operations of a patch may copy, bytes of JSON: a few of
#: them could otherwise double an object again and again.
MOST_COPIED = 3 * 1024 * 1024

_INDEX = re.compile('[-+]?[0-9]+')


class _Inapplicable(Exception):
    """An operation cannot be carried out, or its test fails."""


def apply(obj, patch):
    """Apply a JSON patch to a copy of an object.

    :param patch: the decoded body of a request
    :returns: the patched value
    :raises errors.ApiError: 400 for what is no patch, 413 for one that is too
        large, 422 for one that cannot be applied or whose test fails.
    """
    if patch is None:
        patch = []
    if not isinstance(patch, list) or not all(
            isinstance(operation, dict) for operation in patch):
        raise errors.bad_request(
            'json: cannot unmarshal into Go value of type jsonpatch.Patch')
    if len(patch) > MOST_OPERATIONS:
        raise errors.ApiError(
            413, 'RequestEntityTooLarge', 'Request entity too large: The '
            f'allowed maximum operations in a JSON patch is '
            f'{MOST_OPERATIONS}, got {len(patch)}')
    document = _Document(json_copy.copy(obj))
    try:
        for operation in patch:
            document.apply(operation)
    except _Inapplicable:
        # kube-apiserver sends only this message, without a name.
        raise errors.ApiError(
            422, 'Invalid', 'the server rejected our request due to an '
            'error in our request', {}) from None
    return document.root


class _Document:
    """An object while it is patched, in place."""

    def __init__(self, root):
        self.root = root
        self._copied = 0

    def apply(self, operation):
        """Carry out an operation.

        :raises _Inapplicable: it cannot be
        :raises errors.ApiError: 413, too much was copied
        """
        name, value = operation.get('op'), operation.get('value')
        if name in ('move', 'copy'):
            container, key = self._find(_pointer(operation, 'from'))
            value = _get(container, key)
            if name == 'move':
                _remove(container, key)
            else:
                value = self._copy(value)
        path = _pointer(operation, 'path')
        if path == '' and name in ('replace', 'test'):
            self._whole(name, value)
            return
        container, key = self._find(path)
        if name in ('add', 'move', 'copy'):
            _add(container, key, value)
        elif name == 'replace':
            _get(container, key)
            _set(container, key, value)
        elif name == 'remove':
            _remove(container, key)
        elif name != 'test' or not same(_get(container, key), value):
            raise _Inapplicable

    def _whole(self, name, value):
        """Carry out an operation on the root."""
        if name == 'replace' and isinstance(value, (dict, list)):
            self.root = value
        elif name == 'replace' or not same(self.root, value):
            raise _Inapplicable

    def _copy(self, value):
        self._copied += len(history.encode(value)) if value is not None else 0
        if self._copied > MOST_COPIED:
            raise errors.too_large(MOST_COPIED)
        return json_copy.copy(value)

    def _find(self, pointer):
        """Return the container of a member, and the member's key."""
        # What precedes the first slash is ignored.
        parts = [part.replace('~1', '/').replace('~0', '~')
                 for part in pointer.split('/')[1:]]
        if not parts:
            raise _Inapplicable
        container = self.root
        for part in parts[:-1]:
            container = _get(container, part)
            if not isinstance(container, (dict, list)):
                raise _Inapplicable
        return container, parts[-1]


def _pointer(operation, field):
    value = operation.get(field)
    if not isinstance(value, str):
        raise _Inapplicable
    return value


def _index(key, size):
    """Return a key as an index of a list of a size; -1 is the last item."""
    if not _INDEX.fullmatch(key):
        raise _Inapplicable
    index = int(key)
    if not -size <= index < size:
        raise _Inapplicable
    return index % size


def _get(container, key):
    """Return a member; None if an object lacks it."""
    if isinstance(container, dict):
        return container.get(key)
    return container[_index(key, len(container))]


def _set(container, key, value):
    """Set a member of an object, or an item that a list has."""
    if isinstance(container, list):
        key = _index(key, len(container))
    container[key] = value


def _add(container, key, value):
    """Set a member of an object, or insert an item into a list."""
    if isinstance(container, dict):
        container[key] = value
    elif key == '-':
        container.append(value)
    else:
        # One more item: -1 is the place behind the last.
        container.insert(_index(key, len(container) + 1), value)


def _remove(container, key):
    if isinstance(container, list):
        del container[_index(key, len(container))]
    elif key not in container:
        raise _Inapplicable
    else:
        del container[key]


def same(value, other):
    """Compare two JSON values as texts: 1 is neither 1.0 nor true."""
    if type(value) is not type(other):
        return False
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(
            same(member, other[name]) for name, member in value.items())
    if isinstance(value, list):
        return len(value) == len(other) and all(map(same, value, other))
    return value == other
