# SPDX-License-Identifier: Apache-2.0
"""Conditions in the status of KubeVirt's objects."""

from kubevirt_sandbox.api import metadata


def find(obj, kind):
    """Return the condition of a type, or None.

    :param obj: an object with ``status.conditions``, or None.
    :param kind: the condition's type.
    """
    for condition in ((obj or {}).get('status') or {}).get(
            'conditions') or ():
        if condition['type'] == kind:
            return condition
    return None


def is_true(obj, kind):
    """Tell whether a condition exists with status True."""
    condition = find(obj, kind)
    return condition is not None and condition['status'] == 'True'


def has(obj, kind, status, reason=None):
    """Tell whether a condition exists with this status (and reason)."""
    condition = find(obj, kind)
    return (condition is not None and condition['status'] == status
            and (reason is None or condition.get('reason') == reason))


def put(obj, kind, status, reason='', message='', probed=False):
    """Set a condition; its times move only when it becomes another one.

    :param obj: the object, changed in place.
    :param kind: the condition's type.
    :param status: a bool, or 'True', 'False', 'Unknown'.
    :param probed: whether it carries lastProbeTime too.
    """
    if isinstance(status, bool):
        status = 'True' if status else 'False'
    stamp = metadata.now()
    condition = {'type': kind, 'status': status,
                 'lastProbeTime': stamp if probed else None,
                 'lastTransitionTime': stamp}
    if reason:
        condition['reason'] = reason
    if message:
        condition['message'] = message
    copy(obj, condition)


def copy(obj, condition):
    """Copy a condition to an object, unless it is already there.

    A different message alone changes nothing: KubeVirt keeps the first one.

    :param obj: the object, changed in place.
    :param condition: a condition, not changed.
    """
    conditions = obj.setdefault('status', {}).setdefault('conditions', [])
    for index, old in enumerate(conditions):
        if old['type'] != condition['type']:
            continue
        if _facts(old) != _facts(condition):
            conditions[index] = dict(condition)
        return
    conditions.append(dict(condition))


def drop(obj, kind):
    """Remove a condition, if it is there."""
    status = obj.get('status') or {}
    if find(obj, kind) is None:
        return
    status['conditions'] = [c for c in status['conditions']
                            if c['type'] != kind]
    if not status['conditions']:
        del status['conditions']


def _facts(condition):
    return condition['status'], condition.get('reason') or ''
