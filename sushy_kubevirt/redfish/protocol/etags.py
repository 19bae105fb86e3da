# SPDX-License-Identifier: Apache-2.0
"""ETags and conditional requests (DSP0266, "ETags"; RFC 9110, section 13).

A tag is a hash of the resource as shown, so nothing is stored. Tags are weak,
because properties that change by themselves (`VOLATILE`) are left out.

A conditional change is compared with the current resource, which is read by an
internal request. Concurrent conditional changes of one resource wait for each
other. The state Secret, which another process of the BMC may have written, is
read again before.
"""

from __future__ import annotations

import hashlib
import json
import threading
import typing

import flask

from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import internal_requests

if typing.TYPE_CHECKING:
    from wsgiref import types

    from sushy_kubevirt.redfish.protocol import responses

#: Top-level properties that change by themselves, left out of the tag.
VOLATILE = ('DateTime',)

#: Methods whose conditions hold. POST is not among them: an action changes
#: no resource by itself, and gofish sends with each action the ETag of its
#: last GET, which the action before may have changed. Of GET and HEAD,
#: `postprocessing` honours If-None-Match only.
_CONDITIONAL = ('PATCH', 'PUT', 'DELETE')

_LOCK = internal_requests.PREFIX + 'etag_lock'

# Seconds.
_LOCK_TIMEOUT = 60

# Selected by a hash of the path: a fixed number of locks for all resources.
_locks = tuple(threading.Lock() for _ in range(64))


def compute(document: responses.Json, text: str | None = None) -> str:
    """Compute the ETag of a resource.

    :param text: the same as JSON text, if available
    :returns: with quotes, such as ``W/"0123456789abcdef"``
    """
    if text is None or not document.keys().isdisjoint(VOLATILE):
        text = json.dumps({name: value for name, value in document.items()
                           if name not in VOLATILE})
    digest = hashlib.blake2b(text.encode(), digest_size=8)
    return f'W/"{digest.hexdigest()}"'


def render(document: responses.Json) -> tuple[str, str]:
    """Serialize a resource and compute its ETag.

    :returns: JSON text, ETag
    """
    text = json.dumps(document)
    return text, compute(document, text)


def match(header: str, tag: str) -> bool:
    """Check whether a header contains a tag, by weak comparison.

    :param header: value of If-Match or If-None-Match
    :param tag: made by `compute`
    """
    if header.strip() == '*':
        return True
    opaque = tag.removeprefix('W/')
    return any(listed.strip().removeprefix('W/') == opaque
               for listed in header.split(','))


def check_preconditions() -> None:
    """Refuse a change whose If-Match or If-None-Match does not hold.

    POST, to an action or a collection, is not conditional. For Flask's
    before_request. Takes a lock; `release_lock` must be called at the end of
    the request.

    :raises: `error_responses.RedfishError`: 412 precondition failed, 503
        lock not obtained within 60 s
    """
    request = application.request()
    environ = request.environ
    if_match = environ.get('HTTP_IF_MATCH')
    if_none_match = environ.get('HTTP_IF_NONE_MATCH')
    if ((if_match is None and if_none_match is None)
            or request.method not in _CONDITIONAL):
        return
    path = request.path
    lock = _locks[hash((*_owner_path(), *path.rstrip('/').split('/')[5:]))
                  % len(_locks)]
    if not lock.acquire(timeout=_LOCK_TIMEOUT):
        raise error_responses.unavailable(
            'Another conditional change of this resource is in progress.')
    environ[_LOCK] = lock
    if flask.g.machine is None:
        # Accounts, subscriptions and settings.
        authentication.services().state.refresh(0, trust_watch=False)
    document = internal_requests.get(path)
    tag = None if document is None else compute(document)
    if if_match is not None:
        refused = tag is None or not match(if_match, tag)
    else:
        refused = tag is not None and match(if_none_match or '', tag)
    if refused:
        raise precondition_failed()


def _owner_path() -> tuple[str, ...]:
    """Return two path segments, the same for all names of a system."""
    machine = flask.g.machine
    start = flask.request.path.split('/')[3:5]
    return tuple(start) if machine is None else (start[0], machine.uuid)


def precondition_failed() -> error_responses.RedfishError:
    """Create the error 412: If-Match or If-None-Match does not hold."""
    return error_responses.base_error(412, 'PreconditionFailed')


def release_lock(environ: types.WSGIEnvironment) -> None:
    """Release the lock that `check_preconditions` took, if it took one."""
    lock = environ.pop(_LOCK, None)
    if lock is not None:
        lock.release()
