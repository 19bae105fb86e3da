# SPDX-License-Identifier: Apache-2.0
"""Messages of DMTF's Base registry (DSP8011) that this service sends.

A message has the registry's text with its arguments filled in. Details, such
as Kubernetes' error text or the allowed values, follow as a sentence.
"""

from __future__ import annotations

import json
import typing

if typing.TYPE_CHECKING:
    from collections import abc

REGISTRY = 'Base.1.18'

#: An entry of @Message.ExtendedInfo (Message v1.1.2).
Message = typing.TypedDict('Message', {
    '@odata.type': str,
    'MessageId': str,
    'Message': str,
    'MessageArgs': list[str],
    'MessageSeverity': str,
    'Severity': str,
    'Resolution': str,
    'RelatedProperties': typing.NotRequired[list[str]],
})

#: Characters of a request's value that are repeated in a response.
_MAX_LENGTH = 200

_RESUBMIT = 'correct it and send the request again.'

# Key: severity, text, resolution.
_MESSAGES = {
    'GeneralError': (
        'Critical', 'A general error has occurred.',
        'See the message.'),
    'AccessDenied': (
        'Critical',
        "While attempting to establish a connection to '%1', the service "
        'denied access.',
        'Check the credentials of this service and the RBAC permissions of '
        'its account in the cluster.'),
    'ActionNotSupported': (
        'Critical', 'The action %1 is not supported by the resource.',
        'Use an action that the resource lists under Actions.'),
    'ActionParameterMissing': (
        'Critical',
        'The action %1 requires the parameter %2 to be present in the '
        'request body.',
        'Supply the parameter and send the request again.'),
    'ActionParameterUnknown': (
        'Warning',
        'The action %1 was submitted with the invalid parameter %2.',
        'Remove the parameter and send the request again.'),
    'ActionParameterValueError': (
        'Warning',
        'The value for the parameter %1 in the action %2 is invalid.',
        'Choose another value; ' + _RESUBMIT),
    'ActionParameterValueFormatError': (
        'Warning',
        "The value '%1' for the parameter %2 in the action %3 is not a format "
        'that the parameter can accept.',
        'Change the format of the value; ' + _RESUBMIT),
    'ActionParameterValueNotInList': (
        'Warning',
        "The value '%1' for the parameter %2 in the action %3 is not in the "
        'list of acceptable values.',
        'Choose one of the allowable values.'),
    'ActionParameterValueTypeError': (
        'Warning',
        "The value '%1' for the parameter %2 in the action %3 is not a type "
        'that the parameter can accept.',
        'Change the type of the value; ' + _RESUBMIT),
    'CouldNotEstablishConnection': (
        'Critical',
        "The service failed to establish a connection with the URI '%1'.",
        'Check that the URI is correct and that its server can be reached '
        'from this service.'),
    'CreateLimitReachedForResource': (
        'Critical',
        'The create operation failed because the resource has reached the '
        'limit of possible resources.',
        'Delete a resource that is no longer needed, if that is supported.'),
    'HeaderInvalid': (
        'Critical', "Header '%1' is invalid.",
        'Send the request with a valid header.'),
    'InsufficientStorage': (
        'Critical',
        'Insufficient storage or memory available to complete the request.',
        'Request fewer resources; ' + _RESUBMIT),
    'InsufficientPrivilege': (
        'Critical',
        'There are insufficient privileges for the account or credentials '
        'associated with the current session to perform the requested '
        'operation.',
        'Log in with an account whose role has the privilege.'),
    'InternalError': (
        'Critical',
        'The request failed due to an internal service error.  The service '
        'is still operational.',
        'Send the request again; if the problem persists, see the log of '
        'the service.'),
    'MalformedJSON': (
        'Critical',
        'The request body submitted was malformed JSON and could not be '
        'parsed by the receiving service.',
        'Send a JSON object.'),
    'NoOperation': (
        'Warning',
        'The request body submitted contain no data to act upon and no '
        'changes to the resource took place.',
        'Add properties and send the request again.'),
    'NoValidSession': (
        'Critical',
        'There is no valid session established with the implementation.',
        'Log in at /redfish/v1/SessionService/Sessions, or send user name '
        'and password with HTTP Basic authentication.'),
    'OperationNotAllowed': (
        'Critical', 'The HTTP method is not allowed on this resource.',
        'Use a method that the header Allow lists.'),
    'PasswordChangeRequired': (
        'Critical',
        'The password provided for this account must be changed before access '
        "is granted.  PATCH the Password property for this account located at "
        "the target URI '%1' to complete this process.",
        'Change the password of the account with a PATCH.'),
    'PayloadTooLarge': (
        'Critical',
        'The supplied payload exceeds the maximum size supported by the '
        'service.',
        'Send a smaller request body.'),
    'PreconditionFailed': (
        'Critical',
        'The ETag supplied did not match the ETag required to change this '
        'resource.',
        'Read the resource again and send the request with its ETag.'),
    'PropertyMissing': (
        'Warning',
        'The property %1 is a required property and must be included in the '
        'request.',
        'Supply the property and send the request again.'),
    'PropertyNotWritable': (
        'Warning',
        'The property %1 is a read-only property and cannot be assigned a '
        'value.',
        'Remove the property and send the request again.'),
    'PropertyUnknown': (
        'Warning',
        'The property %1 is not in the list of valid properties for the '
        'resource.',
        'Remove the property and send the request again.'),
    'PropertyValueConflict': (
        'Warning',
        "The property '%1' could not be written because its value would "
        "conflict with the value of the '%2' property.",
        'Leave one of them out, or make them agree.'),
    'PropertyValueFormatError': (
        'Warning',
        "The value '%1' for the property %2 is not a format that the "
        'property can accept.',
        'Change the value; ' + _RESUBMIT),
    'PropertyValueIncorrect': (
        'Warning',
        "The property '%1' with the requested value of '%2' could not be "
        'written because the value does not meet the constraints of the '
        'implementation.',
        'Choose another value; ' + _RESUBMIT),
    'PropertyValueNotInList': (
        'Warning',
        "The value '%1' for the property %2 is not in the list of "
        'acceptable values.',
        'Choose one of the allowable values.'),
    'PropertyValueOutOfRange': (
        'Warning',
        "The value '%1' for the property %2 is not in the supported range of "
        'acceptable values.',
        'Choose a value within the range; ' + _RESUBMIT),
    'PropertyValueResourceConflict': (
        'Warning',
        "The property '%1' with the requested value of '%2' could not be "
        'written because the value conflicts with the state or '
        "configuration of the resource at '%3'.",
        'Change the state or configuration of the resource, or the value.'),
    'PropertyValueTypeError': (
        'Warning',
        "The value '%1' for the property %2 is not a type that the property "
        'can accept.',
        'Change the type of the value; ' + _RESUBMIT),
    'QueryCombinationInvalid': (
        'Warning',
        'Two or more query parameters in the request cannot be used '
        'together.',
        'Remove one or more of the query parameters and send the request '
        'again.'),
    'QueryNotSupportedOnOperation': (
        'Warning', 'Querying is not supported with the requested operation.',
        'Remove the query parameters and send the request again.'),
    'QueryNotSupportedOnResource': (
        'Warning', 'Querying is not supported on the requested resource.',
        'Remove the query parameters and send the request again.'),
    'QueryParameterOutOfRange': (
        'Warning',
        "The value '%1' for the query parameter %2 is out of range %3.",
        'Choose a value within the range and send the request again.'),
    'QueryParameterUnsupported': (
        'Warning', "Query parameter '%1' is not supported.",
        'Remove the query parameter and send the request again.'),
    'QueryParameterValueFormatError': (
        'Warning',
        "The value '%1' for the parameter %2 is not a format that the "
        'parameter can accept.',
        'Change the format of the value; ' + _RESUBMIT),
    'QueryParameterValueTypeError': (
        'Warning',
        "The value '%1' for the query parameter %2 is not a type that the "
        'parameter can accept.',
        'Change the type of the value; ' + _RESUBMIT),
    'ResetRequired': (
        'Warning',
        'In order to complete the operation, a component reset is required '
        "with the Reset action URI '%1' and ResetType '%2'.",
        'Perform the reset; the change takes effect with it.'),
    'Success': (
        'OK', 'The request completed successfully.', 'None.'),
    'ResourceAlreadyExists': (
        'Critical',
        "The requested resource of type %1 with the property %2 with the "
        "value '%3' already exists.",
        'Choose another value; ' + _RESUBMIT),
    'ResourceAtUriUnauthorized': (
        'Critical',
        "While accessing the resource at '%1', the service received an "
        "authorization error '%2'.",
        'Send a valid user name and password.'),
    'ResourceCannotBeDeleted': (
        'Critical',
        'The delete request failed because the resource requested cannot be '
        'deleted.',
        'Do not send the request again.'),
    'ResourceMissingAtURI': (
        'Critical', "The resource at the URI '%1' was not found.",
        'Start at /redfish/v1/ and follow the links.'),
    'ResourceNotFound': (
        'Critical',
        "The requested resource of type %1 named '%2' was not found.",
        'Look the resource up in its collection.'),
    'ServiceTemporarilyUnavailable': (
        'Critical',
        'The service is temporarily unavailable.  Retry in %1 seconds.',
        'Wait that long and send the request again.'),
}


def truncate(value: typing.Any, longest: int = _MAX_LENGTH) -> str:
    """Shorten a value of a request for a response or a log line.

    :param value: any JSON value
    :param longest: number of characters
    """
    text = value if isinstance(value, str) else _to_json(value)
    return text if len(text) <= longest else text[:longest] + '…'


def _to_json(value: typing.Any) -> str:
    """Return a value as the client sent it (null, not None)."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError):
        # Nested too deeply to be serialized.
        return f'({type(value).__name__})'


def message(key: str, *args: typing.Any, detail: str = '',
            resolution: str = '', related: abc.Iterable[str] = ()) -> Message:
    """Make an entry of @Message.ExtendedInfo.

    :param key: MessageKey in the registry
    :param args: MessageArgs
    :param detail: sentence appended to the registry's text
    :param resolution: replaces the default resolution
    :param related: JSON pointers of the properties concerned
    """
    severity, text, advice = _MESSAGES[key]
    entry = make(f'{REGISTRY}.{key}', severity, text, resolution or advice,
                 *args)
    if detail:
        entry['Message'] += ' ' + detail
    if related:
        entry['RelatedProperties'] = [truncate(path) for path in related]
    return entry


def make(message_id: str, severity: str, text: str, resolution: str,
         *args: typing.Any, longest: int = _MAX_LENGTH) -> Message:
    """Make an entry of @Message.ExtendedInfo, of any registry.

    :param text: with %1, %2 … for the arguments
    :param args: MessageArgs
    :param longest: number of characters of an argument
    """
    texts = [truncate(arg, longest) for arg in args]
    # Split before filling in, so that a %1 in an argument is not replaced.
    first, *parts = text.split('%')
    return {
        '@odata.type': '#Message.v1_1_2.Message',
        'MessageId': message_id,
        'Message': first + ''.join(
            texts[int(part[0]) - 1] + part[1:] for part in parts),
        'MessageArgs': texts,
        'MessageSeverity': severity,
        'Severity': severity,
        'Resolution': resolution,
    }
