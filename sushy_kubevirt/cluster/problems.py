# SPDX-License-Identifier: Apache-2.0
"""Exceptions of this package."""

from __future__ import annotations

from collections import abc
import contextlib

from sushy_kubevirt.remote import wording


class ClusterError(Exception):
    """Base of all: the message says what is wrong and what to do."""


class InvalidFile(ClusterError):
    """A cluster file cannot be used. Nothing has been changed."""

    def __init__(self, problems: abc.Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__('\n'.join(map(str, self.problems)))


class Problem:
    """One thing that is wrong in a file.

    :param place: where, such as ``cluster.yaml:3:5``; '' if nowhere
    :param text: what is wrong
    """

    def __init__(self, place: str, text: str) -> None:
        # The texts quote the cluster file, which another person may have
        # written: control characters must not reach the terminal.
        self.place = wording.printable(place)
        self.text = wording.printable(text)

    def __str__(self) -> str:
        return f'{self.place}: {self.text}' if self.place else self.text


class NameTaken(ClusterError):
    """An object that is not of the cluster has a name that it needs."""

    def __init__(self, kind: str, namespace: str, name: str) -> None:
        super().__init__(
            f'{kind} {namespace}/{name} was created by another client in '
            'the meantime. Run plan again.')


class ChangedMeanwhile(ClusterError):
    """An object is another one than when the plan was made.

    :param reason: the API server's
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f'Changed since it was planned, run it again: '
                         f'{reason}')


class ServiceError(ClusterError):
    """A service of OpenStack refuses a request or does not answer.

    :param text: what the service is, and its reason
    :param status: HTTP's status code; None without an answer
    """

    def __init__(self, text: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(text)


@contextlib.contextmanager
def service_errors(what: str, advice: str = '',
                   kinds: tuple[type[Exception], ...] = (ServiceError,)
                   ) -> abc.Iterator[None]:
    """Raise errors as `ServiceError`.

    :param what: text before the reason
    :param advice: text after it
    :param kinds: of errors, such as openstacksdk's
    """
    try:
        yield
    except kinds as error:
        reason = str(error).rstrip('. ') if advice else str(error)
        status = getattr(error, 'status_code', getattr(error, 'status', None))
        raise ServiceError(f'{what}{reason}{advice}', status) from error


class NodeFailed(ClusterError):
    """An Ironic node cannot become what the file declares."""


class NodesInUse(ClusterError):
    """Nodes have instances, so that they are neither changed nor deleted.

    :param names: of the nodes
    """

    def __init__(self, names: abc.Iterable[str]) -> None:
        self.names = tuple(names)
        super().__init__(
            f"nodes with an instance: {', '.join(self.names)}. Delete their "
            'servers first, or undeploy the nodes with --force, which loses '
            'what is on their disks')


class Unsuitable(ClusterError):
    """A cluster cannot be written in a format."""


class NotConfirmed(ClusterError):
    """The user has not agreed to a deletion. Nothing has been changed."""
