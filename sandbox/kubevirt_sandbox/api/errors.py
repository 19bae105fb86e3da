# SPDX-License-Identifier: Apache-2.0
"""Error responses with the messages of Kubernetes' API server.

``kubectl`` prints the messages, and clients use ``reason`` and ``details``;
both follow ``apimachinery/pkg/api/errors/errors.go`` (1.36).
"""
import dataclasses


class ApiError(Exception):
    """A refused request; becomes the ``Status`` object of the response.

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
        """Return the ``Status`` object of the response, as a dict."""
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
    """The cause of an invalid field (``metav1.StatusCause``).

    ``message`` follows the field's path, e.g.
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
    """Return ``plural.group`` as messages name a resource."""
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
    """Return a 404 error: no object has this name."""
    return ApiError(404, 'NotFound', f'{qualified(kind)} "{name}" not found',
                    _details(kind, name))


def already_exists(kind, name):
    """Return a 409 error: an object has this name."""
    return ApiError(409, 'AlreadyExists',
                    f'{qualified(kind)} "{name}" already exists',
                    _details(kind, name))


STALE = ('the object has been modified; please apply your changes to the '
         'latest version and try again')


def conflict(kind, name, why=STALE):
    """Return a 409 error: the object has changed since it was read."""
    return ApiError(
        409, 'Conflict',
        f'Operation cannot be fulfilled on {qualified(kind)} "{name}": {why}',
        _details(kind, name))


def forbidden(kind, name, why, causes=None):
    """Return a 403 error: refused by admission or authorization."""
    what = f'{qualified(kind)} "{name}"' if name else qualified(kind)
    details = _details(kind, name)
    if causes:
        details['causes'] = causes
    return ApiError(403, 'Forbidden', f'{what} is forbidden: {why}', details)


def invalid(kind, name, causes):
    """Return a 422 error: fields are invalid.

    :param kind: the Kind of the object.
    :param name: the object's name, possibly ''.
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
    """Return a 400 error: the request cannot be read."""
    return ApiError(400, 'BadRequest', message)


def unauthorized():
    """Return a 401 error: the token is missing or unknown."""
    return ApiError(401, 'Unauthorized', 'Unauthorized', None,
                    {'WWW-Authenticate': 'Bearer'})


def method_not_allowed():
    """Return a 405 error: the path does not have this method."""
    return ApiError(405, 'MethodNotAllowed',
                    'the server does not allow this method on the requested '
                    'resource')


def no_such_path():
    """Return a 404 error: nothing is served at the path."""
    return ApiError(404, 'NotFound',
                    'the server could not find the requested resource')


def not_acceptable(types):
    """Return a 406 error: no accepted media type is available."""
    return ApiError(406, 'NotAcceptable',
                    'only the following media types are accepted: '
                    + ', '.join(types))


def unsupported_media_type(types):
    """Return a 415 error: the media type of the body is not supported."""
    return ApiError(415, 'UnsupportedMediaType',
                    'the body of the request was in an unknown format - '
                    'accepted media types include: ' + ', '.join(types))


def too_large(limit):
    """Return a 413 error: the body has more bytes than the limit."""
    return ApiError(413, 'RequestEntityTooLarge',
                    'Request entity too large: limit is ' + str(limit))


def gone(message):
    """Return a 410 error: a version or continue token is too old."""
    return ApiError(410, 'Expired', message)


def too_old(wanted, oldest):
    """Return a 410 error: history starts after the requested version."""
    return gone(f'too old resource version: {wanted} ({oldest})')


def from_the_future(wanted, current):
    """Return a 504 error: the requested version does not exist yet."""
    return ApiError(
        504, 'Timeout',
        f'Timeout: Too large resource version: {wanted}, current: {current}',
        {'causes': [{'reason': 'ResourceVersionTooLarge',
                     'message': 'Too large resource version'}],
         'retryAfterSeconds': 1}, {'Retry-After': '1'})


def too_many_requests(seconds=1):
    """Return a 429 error: to be retried after some seconds."""
    return ApiError(429, 'TooManyRequests',
                    'Too many requests, please try again later.',
                    {'retryAfterSeconds': seconds},
                    {'Retry-After': str(seconds)})


def internal_error(why):
    """Return a 500 error."""
    return ApiError(500, 'InternalError', f'Internal error occurred: {why}',
                    {'causes': [{'message': str(why)}]})


def unavailable(why):
    """Return a 503 error."""
    return ApiError(503, 'ServiceUnavailable', why)
