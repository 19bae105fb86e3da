# SPDX-License-Identifier: Apache-2.0
"""ETags: what they are made of, and the requests that depend on them.

DSP0266, "ETags"; RFC 9110, section 13. A tag is made of the resource as it is
shown and nothing is remembered, so all workers have the same. It is weak:
what changes of itself (`VOLATILE`) is not part of it.

A request that changes something if it still has a certain tag is compared
with the resource as it is now, read here within the service. Two of them
that come at the same time to the same worker wait for each other. Two that
come at the same time to two workers do not: what one has written the other
reads once it is written (`services.writes`), and until then it may let a
request through.
"""

import hashlib
import json
import threading

import flask

from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import internal_requests
from sushy_kubevirt.redfish.protocol import messages

#: Top-level properties that change without anybody having changed anything.
VOLATILE = ('DateTime',)

_WRITES = ('PATCH', 'POST', 'PUT', 'DELETE')

_LOCK = internal_requests.PREFIX + 'etag_lock'

# Seconds.
_LOCK_TIMEOUT = 60

# By a part of the path's hash, so that there need not be one for each.
_locks = tuple(threading.Lock() for _ in range(64))


def compute(document, text=None):
    """The tag of a resource.

    :param document: dict
    :param text: the same as JSON, if it is at hand
    :returns: `str`, with quotes and all
    """
    if text is None or not document.keys().isdisjoint(VOLATILE):
        text = json.dumps({name: value for name, value in document.items()
                           if name not in VOLATILE})
    digest = hashlib.blake2b(text.encode(), digest_size=8)
    return f'W/"{digest.hexdigest()}"'


def match(header, tag):
    """Whether a tag is among those of a header, by weak comparison.

    :param header: text of If-Match or If-None-Match
    """
    if header.strip() == '*':
        return True
    opaque = tag.removeprefix('W/')
    return any(one.strip().removeprefix('W/') == opaque
               for one in header.split(','))


def check_preconditions():
    """Hold back a change whose conditions are not met.

    For Flask's before_request; `release_lock` has to be called at the end.

    :raises: `errors.RedfishError`, 412 or 503
    """
    request = flask.request._get_current_object()
    environ = request.environ
    if_match = environ.get('HTTP_IF_MATCH')
    if_none_match = environ.get('HTTP_IF_NONE_MATCH')
    if ((if_match is None and if_none_match is None)
            or request.method not in _WRITES):
        return
    # The tag for an action is that of the resource that has it.
    path = request.path.partition('/Actions/')[0]
    lock = _locks[hash((_owner_path(), *path.rstrip('/').split('/')[5:]))
                  % len(_locks)]
    if not lock.acquire(timeout=_LOCK_TIMEOUT):
        raise errors.unavailable('Another change is being carried out.')
    environ[_LOCK] = lock
    found = internal_requests.get(path)
    tag = None if found is None else compute(found)
    if if_match is not None:
        refused = tag is None or not match(if_match, tag)
    else:
        refused = tag is not None and match(if_none_match, tag)
    if refused:
        raise precondition_failed()


def _owner_path():
    """Beginning of the path, the same for all names of a system."""
    machine = flask.g.machine
    start = flask.request.path.split('/')[3:5]
    return tuple(start) if machine is None else (start[0], machine.uuid)


def precondition_failed():
    """A condition is not met: 412."""
    return errors.RedfishError(412, messages.message('PreconditionFailed'))


def release_lock(environ):
    """Let the next conditional change go on."""
    lock = environ.pop(_LOCK, None)
    if lock is not None:
        lock.release()
