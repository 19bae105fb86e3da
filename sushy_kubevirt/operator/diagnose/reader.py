# SPDX-License-Identifier: Apache-2.0
"""Reads objects of the cluster within a time limit.

The only requests other than GET are reviews, which the API server answers and
does not store.
"""

from __future__ import annotations

from collections import abc
import time
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator.diagnose import kinds

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.kube import client as clients


class OutOfTime(errors.MachineError):
    """The time for all checks is over."""


class Reader:
    """Requests to the API server. Thread-safe.

    Each method raises `errors.MachineError`: `errors.AccessDenied` for a
    missing right, `errors.Unavailable` if the server does not answer or does
    not serve the kind, `OutOfTime` at the deadline.

    :param seconds: time for all requests together
    :param progress: called with a sentence before a slow step
    """

    def __init__(self, client: clients.Client, seconds: float,
                 progress: abc.Callable[[str], None]) -> None:
        self._client = client
        self._end = time.monotonic() + seconds
        self.progress = progress

    @property
    def client(self) -> clients.Client:
        """The client, for a request before the deadline."""
        self.remaining(0)
        return self._client

    def remaining(self, limit: float) -> float:
        """Take from the time that is left.

        :param limit: seconds that the caller would take
        :returns: seconds that it may take
        :raises: `OutOfTime` if there are none
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise OutOfTime('the time for all checks is over; see --timeout')
        return min(left, limit)

    def get(self, resource: api_resources.Resource[objects.ObjectT],
            namespace: str | None, name: str) -> objects.ObjectT | None:
        """Return the object, a dict; None if it does not exist."""
        try:
            return self.client.get(resource, namespace, name)
        except errors.ObjectNotFound:
            return None

    def find(self, resource: api_resources.Resource[objects.ObjectT],
             namespace: str | None, name: str) -> objects.ObjectT | None:
        """Read an object by a list, for accounts that may not ``get`` it.

        :returns: the object, a dict; None if it does not exist
        """
        return next((obj for items, _ in self.client.pages(
            resource, namespace, field_selector=f'metadata.name={name}')
            for obj in items), None)

    def list(self, resource: api_resources.Resource[objects.ObjectT],
             namespace: str | None = None,
             labels: str = '') -> list[objects.ObjectT]:
        """Read a collection as a whole."""
        return list(self.iterate(resource, namespace, labels))

    def iterate(self, resource: api_resources.Resource[objects.ObjectT],
                namespace: str | None = None,
                labels: str = '') -> abc.Iterator[objects.ObjectT]:
        """Read a collection page by page."""
        for items, _ in self.client.pages(resource, namespace, labels):
            yield from items
            self.remaining(0)

    def user(self) -> str:
        """Return the name of the user that the requests are made by."""
        review = self._review(kinds.SELF_REVIEW)
        return review['status']['userInfo'].get('username', '')

    def allowed(self, attributes: abc.Mapping[str, str],
                account: objects.ObjectKey | None = None) -> bool:
        """Ask whether a request would be allowed.

        :param attributes: verb, group, resource, subresource, namespace, name
        :param account: ServiceAccount that would make it; None for the user of
            this program
        """
        spec: objects.Json = {'resourceAttributes': attributes}
        if account is not None:
            namespace, name = account
            spec['user'] = f'system:serviceaccount:{namespace}:{name}'
            spec['groups'] = [
                'system:serviceaccounts',
                f'system:serviceaccounts:{namespace}', 'system:authenticated']
        status = self._review(
            kinds.SELF_ACCESS_REVIEW if account is None
            else kinds.ACCESS_REVIEW, spec=spec).get('status') or {}
        return bool(status.get('allowed'))

    def _review(self, resource: api_resources.Resource[objects.Json],
                **members: objects.Json) -> objects.Json:
        return self.client.create(resource, None, {
            'apiVersion': resource.api_version, 'kind': resource.kind,
            'metadata': {}, **members})
