# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the Kubernetes client and of machines, one for each meaning.

Redfish and IPMI translate these classes into their own responses; `kube` and
`machine` raise no others on purpose. Each message is written for the person
who has to act on it: it names the object, the value and the remedy, and
contains no secret.
"""

from __future__ import annotations

from collections import abc

#: Advice for connections that get no answer, not even a refusal.
FILTERED = 'check that no NetworkPolicy or firewall blocks the connection'


class MachineError(Exception):
    """Anything that a machine or its cluster refuses or fails to do."""


class ConfigError(MachineError):
    """The configuration of the connection is missing or wrong."""


class MachineNotFound(MachineError):
    """There is no such VirtualMachine (any more).

    :param identity: what was asked for: UUID, name or namespace/name
    """

    def __init__(self, identity: str, message: str = '') -> None:
        super().__init__(
            message or f'There is no VirtualMachine {identity}')
        self.identity = identity


class AmbiguousName(MachineError):
    """More than one VirtualMachine has this name or UUID.

    :param identity: what was asked for
    :param candidates: qualified names (namespace/name) of those it could be
    """

    def __init__(self, identity: str, candidates: abc.Iterable[str]) -> None:
        self.identity = identity
        self.candidates = tuple(candidates)
        super().__init__(
            f'{identity} may be any of {", ".join(self.candidates)}; use '
            'namespace/name')


class WrongState(MachineError):
    """The machine's present state does not allow the operation."""


class Unsupported(MachineError):
    """KubeVirt machines do not support the operation in any state."""


class InvalidValue(MachineError):
    """A property cannot have this value.

    :param property: the property's name as the caller knows it
    :param value: the value refused
    :param allowed: the values that are accepted; empty if they cannot be
        listed
    """

    def __init__(self, property: str, value: object,
                 allowed: abc.Iterable[object] = (),
                 message: str = '') -> None:
        self.property = property
        self.value = value
        self.allowed = tuple(
            getattr(item, 'value', item) for item in allowed)
        if not message:
            shown = getattr(value, 'value', value)
            message = f'{property} cannot be {shown!r}'
            if self.allowed:
                message += '; it may be one of ' + ', '.join(
                    map(str, self.allowed))
        super().__init__(message)


class Rejected(MachineError):
    """Admission or validation in the cluster refused the change.

    :param message: why, in KubeVirt's words
    """


class NamespaceTerminating(Rejected):
    """Nothing can be created in a namespace that is being deleted.

    :param message: the API server's message
    """


class MediaUnreachable(MachineError):
    """The server of an image refuses, lacks or does not return the image.

    :param url: without credentials and query
    :param kind: ``missing`` (404), ``unauthorized`` (401, 403), ``tls``,
        ``server`` (5xx), ``size`` (it reports no size), or
        ``unreachable``
    """

    def __init__(self, message: str, url: str = '',
                 kind: str = 'unreachable') -> None:
        super().__init__(message)
        self.url = url
        self.kind = kind


class AccessDenied(MachineError):
    """The account lacks the right or is unknown (HTTP 401 or 403).

    :param verb: Kubernetes verb, such as ``patch``
    :param resource: ``plural.group`` or ``plural.group/subresource``
    :param namespace: '' for the whole cluster
    """

    def __init__(self, message: str, verb: str = '', resource: str = '',
                 namespace: str = '') -> None:
        super().__init__(message)
        self.verb = verb
        self.resource = resource
        self.namespace = namespace


class ObjectNotFound(MachineError):
    """The API has no such object (HTTP 404).

    Raised by the client; a machine replaces it by `MachineNotFound` when
    the object is its VirtualMachine.
    """


class Unavailable(MachineError):
    """A temporary failure: the request may be retried.

    The subclasses distinguish the reasons.

    :param retry_after: seconds to wait before the next attempt, or None
    :param maybe_done: True if the request may have been carried out: it was
        sent and no response arrived
    """

    def __init__(self, message: str, retry_after: float | None = None,
                 maybe_done: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.maybe_done = maybe_done


class ConnectionLost(Unavailable):
    """The connection broke after the request was sent."""


class Conflict(Unavailable):
    """The object changed in the meantime (HTTP 409), or a ``test`` operation
    of a JSON patch failed (HTTP 422).

    KubeVirt also responds with 409 to a ``start``, ``stop`` or ``restart``
    that the state of the VM forbids. A step that checks the state first can
    distinguish the two.
    """


class TooManyRequests(Unavailable):
    """The API server limits the request rate (HTTP 429)."""


class ServerError(Unavailable):
    """The API server or KubeVirt's webhook failed (HTTP 5xx)."""


class WatchExpired(Unavailable):
    """A resourceVersion or continue token is too old (HTTP 410): list again.
    """
