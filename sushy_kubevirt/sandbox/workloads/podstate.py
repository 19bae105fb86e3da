# SPDX-License-Identifier: Apache-2.0
"""What the status of a pod says, in the eyes of controllers."""

import datetime


def condition(obj, kind):
    """A condition of an object, or None."""
    for one in (obj.get('status') or {}).get('conditions') or ():
        if one.get('type') == kind:
            return one
    return None


def ready(pod):
    """Whether a pod is Ready."""
    return (condition(pod, 'Ready') or {}).get('status') == 'True'


def available(pod, seconds, now=None):
    """How long until a pod has been Ready long enough.

    :param seconds: ``minReadySeconds``.
    :param now: the time, aware; None: the clock's.
    :returns: 0 when it has, seconds to wait, or None when it is not Ready.
    """
    found = condition(pod, 'Ready')
    if not found or found.get('status') != 'True':
        return None
    if not seconds:
        return 0
    since = datetime.datetime.fromisoformat(found['lastTransitionTime'])
    now = now or datetime.datetime.now(datetime.UTC)
    return max(0, seconds - (now - since).total_seconds())


def over(pod):
    """Whether all of a pod has ended for good."""
    return (pod.get('status') or {}).get('phase') in ('Succeeded', 'Failed')
