# SPDX-License-Identifier: Apache-2.0
"""Error responses with the messages of Kubernetes' API server.

``kubectl`` prints these sentences and clients look at ``reason`` and
``details``; both follow ``apimachinery/pkg/api/errors/errors.go`` (1.36).
"""
import dataclasses


class ApiError(Exception):
    """A request is refused; becomes the ``Status`` object of the answer.

    :param code: HTTP status code.
    :param reason: a ``metav1.StatusReason``, e.g. ``NotFound``.
    :param message: the sentence for people.
    :param details: ``status.details``, a dict or None.
    :param headers: HTTP headers to add to the answer, or None.
    """

    def __init__(self, code, reason, message, details=None, headers=None):
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    def status(self):
        """The ``Status`` object that is sent, as a dict."""
        body = {'kind': 'Status', 'apiVersion': 'v1', 'metadata': {},
                'status': 'Failure', 'message': self.message}
        if self.reason:
            body['reason'] = self.reason
        if self.details is not None:
            body['details'] = self.details
        body['code'] = self.code
        return body


@dataclasses.dataclass(frozen=True)
class Cause:
    """One field that is wrong (``metav1.StatusCause``).

    ``message`` is what stands behind the field's path, e.g.
    ``Invalid value: 0: must be greater than 0``.
    """

    reason: str
    message: str
    field: str

    def __str__(self):
        return f'{self.field}: {self.message}'

    def to_dict(self):
        """Return the entry of ``details.causes`` in a ``Status``."""
        return {'reason': self.reason, 'message': self.message,
                'field': self.field}


def qualified(kind):
    """``plural.group`` as messages name a resource."""
    return f'{kind.plural}.{kind.group}' if kind.group else kind.plural


def _details(kind, name):
    details = {}
    if name:
        details['name'] = name
    if kind.group:
        details['group'] = kind.group
    details['kind'] = kind.plural
    return details


def not_found(kind, name):
    """404: there is no object of this name."""
    return ApiError(404, 'NotFound', f'{qualified(kind)} "{name}" not found',
                    _details(kind, name))


def already_exists(kind, name):
    """409: an object of this name is there."""
    return ApiError(409, 'AlreadyExists',
                    f'{qualified(kind)} "{name}" already exists',
                    _details(kind, name))


STALE = ('the object has been modified; please apply your changes to the '
         'latest version and try again')


def conflict(kind, name, why=STALE):
    """409: the object is another than the writer knows."""
    return ApiError(
        409, 'Conflict',
        f'Operation cannot be fulfilled on {qualified(kind)} "{name}": {why}',
        _details(kind, name))


def forbidden(kind, name, why, causes=None):
    """Refused by admission or by access rights."""
    what = f'{qualified(kind)} "{name}"' if name else qualified(kind)
    details = _details(kind, name)
    if causes:
        details['causes'] = causes
    return ApiError(403, 'Forbidden', f'{what} is forbidden: {why}', details)


def invalid(kind, name, causes):
    """422 for wrong fields.

    :param kind: the Kind of the object.
    :param name: its name, as far as it has one.
    :param causes: a list of :class:`Cause` (or dicts with its keys).
    """
    causes = [c if isinstance(c, Cause) else Cause(**c) for c in causes]
    what = f'{kind.kind}.{kind.group}' if kind.group else kind.kind
    said = [str(c) for c in causes]
    text = said[0] if len(said) == 1 else '[' + ', '.join(said) + ']'
    details = {'name': name or ''}
    if kind.group:
        details['group'] = kind.group
    details['kind'] = kind.kind
    details['causes'] = [c.to_dict() for c in causes]
    return ApiError(422, 'Invalid', f'{what} "{name or ""}" is invalid: '
                    f'{text}', details)


def bad_request(message):
    """400: what was sent cannot be read."""
    return ApiError(400, 'BadRequest', message)


def unauthorized():
    """Return a 401 error: the token is missing or unknown."""
    return ApiError(401, 'Unauthorized', 'Unauthorized', None,
                    {'WWW-Authenticate': 'Bearer'})


def method_not_allowed():
    """405: the path is right and the method is not."""
    return ApiError(405, 'MethodNotAllowed',
                    'the server does not allow this method on the requested '
                    'resource')


def no_such_path():
    """404: nothing is served there."""
    return ApiError(404, 'NotFound',
                    'the server could not find the requested resource')


def not_acceptable(types):
    """406: the answer has none of the forms asked for."""
    return ApiError(406, 'NotAcceptable',
                    'only the following media types are accepted: '
                    + ', '.join(types))


def unsupported_media_type(types):
    """415: the body has a form that is not read."""
    return ApiError(415, 'UnsupportedMediaType',
                    'the body of the request was in an unknown format - '
                    'accepted media types include: ' + ', '.join(types))


def too_large(limit):
    """413: the body has more bytes than the limit."""
    return ApiError(413, 'RequestEntityTooLarge',
                    'Request entity too large: limit is ' + str(limit))


def gone(message):
    """A version or a continue token that is too old."""
    return ApiError(410, 'Expired', message)


def too_old(wanted, oldest):
    """410: the past is forgotten up to ``oldest``."""
    return gone(f'too old resource version: {wanted} ({oldest})')


def from_the_future(wanted, current):
    """A list was asked for at a version that is not there yet."""
    return ApiError(
        504, 'Timeout',
        f'Timeout: Too large resource version: {wanted}, current: {current}',
        {'causes': [{'reason': 'ResourceVersionTooLarge',
                     'message': 'Too large resource version'}],
         'retryAfterSeconds': 1}, {'Retry-After': '1'})


def too_many_requests(seconds=1):
    """429: to be tried again after some seconds."""
    return ApiError(429, 'TooManyRequests',
                    'Too many requests, please try again later.',
                    {'retryAfterSeconds': seconds},
                    {'Retry-After': str(seconds)})


def internal_error(why):
    """500: not the fault of the caller."""
    return ApiError(500, 'InternalError', f'Internal error occurred: {why}',
                    {'causes': [{'message': str(why)}]})


def unavailable(why):
    """503: not now."""
    return ApiError(503, 'ServiceUnavailable', why)
