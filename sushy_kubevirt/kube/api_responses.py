# SPDX-License-Identifier: Apache-2.0
"""Parse responses of the Kubernetes API and map its errors.

Independent of the HTTP library.
"""

from __future__ import annotations

from collections import abc
import json
import re
import typing

from sushy_kubevirt.kube import errors

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources

#: End of the message that refuses objects in a namespace being deleted
#: (apiserver, admission plug-in NamespaceLifecycle).
_TERMINATING = ' because it is being terminated'

#: The message about an object that does not exist, also if a write refers to
#: it: the namespace of an object, or the Role of a RoleBinding.
_NO_OBJECT = '[a-z0-9.-]+ "[^"]*" not found'

#: Nesting levels of a response that are parsed; deeper values become null.
_DEEPEST = 200

_TOKEN = rb'(?s)"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]'

#: The message that refuses to apply a field which its kind does not have, or
#: that has another type; its status is 500 (kubernetes issues 122480, 139253).
_UNDECLARED = ('(?s)failed to create typed patch object .*: (field not '
               'declared in schema|expected )')

_DENIED = 'admission webhook "[^"]*" denied the request: '


def parse(data: bytes) -> typing.Any:
    """Parse a response.

    Users may nest managedFields up to 10,000 levels (apimachinery,
    ``maxDepth``), which exceeds the recursion limit of Python's parser.
    Values below `_DEEPEST` levels are then replaced by None.

    :raises: ValueError if it is not JSON
    """
    try:
        return json.loads(data)
    except RecursionError:
        return json.loads(_shallow(data))


def _shallow(data: bytes) -> bytes:
    """Replace values below `_DEEPEST` levels by null, without parsing."""
    kept: list[bytes] = []
    begin = depth = 0
    for token in re.finditer(_TOKEN, data):
        if token[0] in (b'[', b'{'):
            depth += 1
            if depth == _DEEPEST:
                kept += [data[begin:token.start()], b'null']
        elif token[0] in (b']', b'}'):
            if depth == _DEEPEST:
                begin = token.end()
            depth -= 1
    return b''.join([*kept, data[begin:]])


class ApiCall:
    """Verb, resource and object of a request.

    :param verb: Kubernetes verb, such as ``patch``
    :param namespace: None or '' for all namespaces
    :param name: of the object, None for a collection
    :param sub: a subresource
    :param group: of a subresource that is served in another group
    :ivar path: URL path
    """

    def __init__(self, verb: str,
                 resource: api_resources.AnyResource,
                 namespace: str | None, name: str | None = None,
                 sub: str | None = None, group: str | None = None) -> None:
        self.verb = verb
        self.path = resource.path(namespace, name, sub, group)
        plural = f'{resource.plural}/{sub}' if sub else resource.plural
        self.resource = f'{plural}.{group or resource.group}'.rstrip('.')
        self.namespace = namespace or ''
        self.name = name

    def __str__(self) -> str:
        where = self.namespace or 'all namespaces'
        if self.name:
            where = '/'.join(filter(None, (self.namespace, self.name)))
        return f'{self.verb} {self.resource} of {where}'


def error_from_response(code: int, data: bytes,
                        headers: abc.Mapping[str, str],
                        call: ApiCall) -> errors.MachineError:
    """Return the exception for a response with status 300 or more.

    :param code: HTTP status
    :param data: body, possibly incomplete
    :param headers: case-insensitive
    """
    text = f'HTTP {code}'
    status: typing.Any = {}
    try:
        status = json.loads(data)
    except (ValueError, RecursionError):
        # Proxies, and servers behind the API server, send plain text.
        if data and headers.get('Content-Type', '').startswith('text/plain'):
            text += ': ' + data[:200].decode(errors='replace').strip()
    if isinstance(status, dict):
        text = status.get('message') or text
    return error_from_status(code, text, _seconds(
        headers.get('Retry-After')), call)


def error_from_status(code: int, text: str, retry_after: float | None,
                      call: ApiCall) -> errors.MachineError:
    """Return the exception for a status.

    :param code: HTTP status, or the code of a watch's ``ERROR`` event
    :param text: the server's message
    :param retry_after: seconds, or None
    """
    if code == 401:
        return errors.AccessDenied(
            f'The API server does not accept the credentials ({call}): {text}',
            call.verb, call.resource, call.namespace)
    if code == 403 and text.endswith(_TERMINATING):
        return errors.NamespaceTerminating(text)
    if code == 403 and not _is_admission(text):
        return errors.AccessDenied(
            f'The account lacks the right to {call}: {text}',
            call.verb, call.resource, call.namespace)
    if code == 404 and call.name is None and not re.match(
            _NO_OBJECT, text):
        return errors.Unavailable(
            f'The API server does not serve {call.resource}: install '
            f'{_provider(call.resource)} ({text})')
    if code == 404:
        return errors.ObjectNotFound(text)
    if code == 409 or code == 422 and _is_failed_patch(text):
        return errors.Conflict(f'{call}: {text}')
    if code == 410:
        return errors.WatchExpired(text)
    if code == 429:
        return errors.TooManyRequests(f'{call}: {text}', retry_after)
    if code >= 500 and not re.search(_UNDECLARED, text):
        return errors.ServerError(f'{call}: {text}', retry_after)
    return errors.Rejected(re.sub(_DENIED, '', text))


def _provider(resource: str) -> str:
    """Return what has to be installed for a resource to exist."""
    if '.bmc.kubevirt.io' in resource:
        return 'its CustomResourceDefinition'
    if '.k8s.cni.cncf.io' in resource:
        return 'Multus'
    return 'CDI' if 'cdi.' in resource else 'KubeVirt'


def _is_admission(text: str) -> bool:
    """Return whether a 403 comes from admission or a quota, not RBAC."""
    return ('denied the request' in text or 'denied request' in text
            or 'exceeded quota' in text)


def _is_failed_patch(text: str) -> bool:
    """Return whether a 422 means that a patch did not fit the object.

    These are the API server's messages for a JSON patch (apiserver's patch
    handler with NewGenericServerResponse), and for a uid in another patch
    (apimachinery, ValidateObjectMetaUpdate). Other messages come from
    admission or validation.
    """
    return (text.startswith('the server rejected our request due to an error')
            or ' is invalid: metadata.uid: Invalid value: ' in text)


def _seconds(retry_after: str | None) -> float | None:
    try:
        return float(retry_after or '')
    except ValueError:
        return None
