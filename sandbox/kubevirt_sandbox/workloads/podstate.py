# SPDX-License-Identifier: Apache-2.0
"""The status of a pod: read by controllers, written by nodes."""

import datetime

from kubevirt_sandbox.api import metadata


def condition(obj, kind):
    """Return a condition of an object, or None."""
    for one in (obj.get('status') or {}).get('conditions') or ():
        if one.get('type') == kind:
            return one
    return None


def ready(pod):
    """Tell whether a pod is Ready."""
    return (condition(pod, 'Ready') or {}).get('status') == 'True'


def available(pod, seconds, now=None):
    """Return the seconds until a pod has been Ready long enough.

    :param seconds: ``minReadySeconds``.
    :param now: timezone-aware time; None: the current time.
    :returns: 0 if it has been, or None when it is not Ready.
    """
    found = condition(pod, 'Ready')
    if not found or found.get('status') != 'True':
        return None
    if not seconds:
        return 0
    since = datetime.datetime.fromisoformat(found['lastTransitionTime'])
    now = now or datetime.datetime.now(datetime.UTC)
    return max(0, seconds - (now - since).total_seconds())


def has_ended(pod):
    """Tell whether a pod has ended and is not restarted."""
    return (pod.get('status') or {}).get('phase') in ('Succeeded', 'Failed')


def put(pod, kind, value, reason=None, message=None):
    """Set a condition of a pod, in place."""
    value = 'True' if value else 'False'
    old = condition(pod, kind)
    made = {'type': kind, 'status': value, 'lastProbeTime': None,
            'lastTransitionTime': old['lastTransitionTime']
            if old and old['status'] == value else metadata.now()}
    if reason:
        made['reason'] = reason
    if message:
        made['message'] = message
    conditions = pod.setdefault('status', {}).setdefault('conditions', [])
    conditions[:] = [c for c in conditions if c['type'] != kind] + [made]
    conditions.sort(key=lambda c: c['type'])
