# SPDX-License-Identifier: Apache-2.0
"""Validation of core/v1 Events.

Source: ``legacyValidateEvent`` in pkg/apis/core/validation/events.go of
Kubernetes 1.36: an Event with ``eventTime`` needs more fields than one
without.
"""
import json
import re

from kubevirt_sandbox.api import errors

#: Largest number of bytes of fields of an Event with ``eventTime``.
LIMITS = {'reportingInstance': 128, 'action': 128, 'reason': 128,
          'message': 1024}

_REQUIRED = ('reportingComponent', 'reportingInstance', 'action', 'reason')
_QUALIFIED_NAME = re.compile(
    r'([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?'
    r'[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?')


def checker(kind):
    """Make the hook that refuses invalid Events.

    :param kind: function that returns the Kind.
    """
    def check(admission):
        if admission.new is not None:
            found = list(_faults(admission.new))
            if found:
                raise errors.invalid(
                    kind(), admission.new['metadata'].get('name'), found)
    return check


def _faults(event):
    own = event['metadata'].get('namespace', '')
    about = (event.get('involvedObject') or {}).get('namespace', '')
    if event.get('eventTime'):
        wrong = not about and own not in ('default', 'kube-system')
    else:
        wrong = own not in ('', 'default') if not about else own != about
    if wrong:
        yield _invalid('involvedObject.namespace', about,
                       'does not match event.namespace')
    if not event.get('eventTime'):
        return
    for name in _REQUIRED:
        if not event.get(name):
            yield errors.Cause('FieldValueRequired', 'Required value', (
                'reportingController' if name == 'reportingComponent'
                else name))
    reporter = event.get('reportingComponent', '')
    if not _QUALIFIED_NAME.fullmatch(reporter):
        yield _invalid('reportingController', reporter,
                       'name part must consist of alphanumeric characters')
    for name, limit in LIMITS.items():
        if len(event.get(name, '').encode()) > limit:
            yield _invalid(name, '', f'can have at most {limit} characters')


def _invalid(field, value, why):
    return errors.Cause(
        'FieldValueInvalid', f'Invalid value: {json.dumps(value)}: {why}',
        field)
