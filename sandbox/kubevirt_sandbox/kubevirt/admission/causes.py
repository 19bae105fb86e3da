# SPDX-License-Identifier: Apache-2.0
"""Causes of refused objects, and the response with them."""

import dataclasses

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.api import schema_walks
from kubevirt_sandbox.api import schemas

INVALID = 'FieldValueInvalid'
REQUIRED = 'FieldValueRequired'
NOT_FOUND = 'FieldValueNotFound'
DUPLICATE = 'FieldValueDuplicate'
NOT_SUPPORTED = 'FieldValueNotSupported'

_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class Cause:
    """One cause of a refusal.

    :param message: KubeVirt's sentence.
    :param field: the path of the field, or ''.
    :param reason: a ``metav1.CauseType``, or ''.
    """

    message: str
    field: str = ''
    reason: str = INVALID

    def to_dict(self):
        """Return the entry of ``details.causes`` in a ``Status``."""
        return {key: value for key, value in (
            ('reason', self.reason), ('message', self.message),
            ('field', self.field)) if value}


def refuse(webhook, causes):
    """Refuse an object if there are causes.

    :param webhook: the webhook's name without its domain.
    :param causes: a list of :class:`Cause`; empty: nothing is refused.
    :raises: ApiError 422
    """
    if not causes:
        return
    shown = causes[:_SHOWN]
    text = ', '.join(cause.message for cause in shown)
    if len(causes) > _SHOWN:
        text += f', and {len(causes) - _SHOWN} more validation errors'
    raise errors.ApiError(
        422, 'Invalid', f'{_denied(webhook)}: {text}',
        {'causes': [cause.to_dict() for cause in shown]})


def check_schema(webhook, schema, obj, old=None):
    """Refuse an object that its schema does not allow.

    The API server does so, too, but only after the webhooks have made their
    changes, which need an object of the right shape.

    :param old: the object before; what is equal was checked then.
    :raises: ApiError 422
    """
    if not schema_walks.work(schema, obj, old) & schema_walks.INVALID:
        return
    refuse(webhook, [Cause(str(cause), reason='')
                     for cause in schemas.causes(schema, obj)])


def bad(webhook, why):
    """Make the error for an object that virt-api cannot decode.

    :returns: an ApiError 400 to raise.
    """
    return errors.ApiError(400, '', f'{_denied(webhook)}: {why}')


def _denied(webhook):
    return (f'admission webhook "{webhook}.kubevirt.io" denied the request')


def label_errors(value):
    """List what is wrong with a DNS label, as sentences."""
    fault = metadata.name_fault(value, label=True)
    return [fault] if fault else []


def subdomain_errors(value):
    """List what is wrong with a DNS subdomain, as sentences."""
    fault = metadata.name_fault(value)
    return [fault] if fault else []
