# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a machine, one class for each meaning.

Redfish and IPMI translate these classes into their own answers; nothing else
is ever raised on purpose by this package. The text of each is written for
the person who has to act on it: it names the thing, the value and the way
out, and never holds a secret.
"""


class MachineError(Exception):
    """Anything that a machine or its cluster refuses or fails to do."""


class ConfigError(MachineError):
    """The way to the cluster is not described, or described wrongly."""


class MachineNotFound(MachineError):
    """There is no such VirtualMachine, or there is no more.

    :param identity: what was asked for: UUID, name or namespace/name
    """

    def __init__(self, identity, message=''):
        super().__init__(
            message or f'There is no VirtualMachine {identity}')
        self.identity = identity


class AmbiguousName(MachineError):
    """More than one VirtualMachine answers to this name or UUID.

    :param identity: what was asked for
    :param candidates: qualified names (namespace/name) of those it could be
    """

    def __init__(self, identity, candidates):
        self.identity = identity
        self.candidates = tuple(candidates)
        super().__init__(
            '%s may be any of %s; say which by namespace/name'
            % (identity, ', '.join(self.candidates)))


class WrongState(MachineError):
    """It cannot be done in the state the machine is in."""


class Unsupported(MachineError):
    """No KubeVirt machine can do this, in whatever state."""


class InvalidValue(MachineError):
    """A value that this property cannot take.

    :param property: the property's name, in the words of the caller
    :param value: the value refused
    :param allowed: the values that would have been taken; empty if these
        cannot be listed
    """

    def __init__(self, property, value, allowed=(), message=''):
        self.property = property
        self.value = value
        self.allowed = tuple(
            getattr(item, 'value', item) for item in allowed)
        if not message:
            message = '%s cannot be %r' % (
                property, getattr(value, 'value', value))
            if self.allowed:
                message += '; it may be one of %s' % ', '.join(
                    str(item) for item in self.allowed)
        super().__init__(message)


class Rejected(MachineError):
    """The cluster's admission refused the change.

    :param message: why, in KubeVirt's words
    """


class NamespaceTerminating(Rejected):
    """Nothing can be made in a namespace that is on its way out.

    :param message: in the API server's words
    """


class MediaUnreachable(MachineError):
    """The server of an image refuses it, does not have it or does not
    answer.

    :param url: without credentials and query
    :param kind: ``missing`` (404), ``unauthorized`` (401, 403), ``tls``,
        ``server`` (it failed, 5xx), ``size`` (it does not tell it), or
        ``unreachable``
    """

    def __init__(self, message, url='', kind='unreachable'):
        super().__init__(message)
        self.url = url
        self.kind = kind


class AccessDenied(MachineError):
    """The account may not do this, or is not known (HTTP 401 or 403).

    :param verb: Kubernetes' verb, such as ``patch``
    :param resource: ``plural.group`` or ``plural.group/subresource``
    :param namespace: where, '' for the whole cluster
    """

    def __init__(self, message, verb='', resource='', namespace=''):
        super().__init__(message)
        self.verb = verb
        self.resource = resource
        self.namespace = namespace


class ObjectNotFound(MachineError):
    """The API has no such object (HTTP 404).

    What the client raises; a machine turns it into `MachineNotFound` when
    the object is its VirtualMachine.
    """


class Unavailable(MachineError):
    """The cluster did not carry it out, and may do so later.

    Its subclasses tell the reasons apart; all of them are worth another try.

    :param retry_after: seconds after which another try makes sense
    :param maybe_done: True when the request reached the server and no answer
        came back, so that it may have been carried out
    """

    def __init__(self, message, retry_after=None, maybe_done=False):
        super().__init__(message)
        self.retry_after = retry_after
        self.maybe_done = maybe_done


class ConnectionLost(Unavailable):
    """The connection broke after the request was sent."""


class Conflict(Unavailable):
    """Somebody else changed the object first (HTTP 409), or a ``test`` of a
    JSON patch found another value than it asked for (HTTP 422).

    KubeVirt answers 409 as well to a ``start``, ``stop`` or ``restart`` that
    the state of the VM forbids; a step that looks at the state first knows
    which of the two it was.
    """


class TooManyRequests(Unavailable):
    """The API server asks for patience (HTTP 429)."""


class ServerError(Unavailable):
    """The API server or KubeVirt's webhook failed (HTTP 5xx)."""


class WatchExpired(MachineError):
    """The version to watch from is too old (HTTP 410): list again."""
