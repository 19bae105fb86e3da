# SPDX-License-Identifier: Apache-2.0
"""Ironic's API, as far as it is needed here.

Nodes and ports are dicts as the API has them, so that a JSON patch is made of
the same names. Bodies of writes contain passwords: they are kept out of the
log of HTTP requests. Ironic may repeat them in its reason for a refusal.
"""

from __future__ import annotations

from collections import abc
import json
import logging
import threading
import time
import typing

import keystoneauth1.exceptions
import openstack.exceptions

from sushy_kubevirt.cluster import cloud
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster import problems

if typing.TYPE_CHECKING:
    import openstack.connection
    import requests

    from sushy_kubevirt.kube import objects

LOG = logging.getLogger(__name__)

#: Version of the API. It has all fields that are used; the youngest are
#: ``shard`` (1.82) and ``firmware_interface`` (1.86, Ironic 23.0, 2023.2).
MICROVERSION = '1.86'

#: Seconds between attempts while Ironic is busy.
_BUSY_INTERVAL = 1

#: Requests at a time. Ironic's API has one process per CPU by default.
_CONCURRENCY = 10

_Objects: typing.TypeAlias = list['objects.Json']


class Client:
    """Ironic.

    :param patience: seconds to try again while a node is locked by another
        operation, Ironic has no free worker, or its API restarts
    :raises: `problems.ServiceError` if the cloud does not admit the user, or
        is not there
    """

    def __init__(self, connection: openstack.connection.Connection,
                 patience: float = 120) -> None:
        with cloud.errors(
                'There is no access to Ironic: ', '. Check address and '
                'credentials of the cloud in clouds.yaml'):
            self._adapter = connection.baremetal
        self._patience = patience
        self._turns = threading.BoundedSemaphore(_CONCURRENCY)
        self._has_answered = False

    def list(self, kind: str, fields: abc.Iterable[str],
             node: str | None = None) -> _Objects:
        """List all objects of a kind, page by page.

        :param kind: ``nodes``, ``ports`` or ``portgroups``
        :param fields: names of fields, ``uuid`` among them
        :param node: UUID of the node whose ports or port groups are listed;
            None for those of all
        :raises: `problems.ServiceError`
        """
        listed: _Objects = []
        marker = None
        while True:
            body = self._request(
                'GET', f'/{kind}', params={
                    'fields': ','.join(fields),
                    **({'node': node} if node else {}),
                    **({'marker': marker} if marker else {})})
            listed += body[kind]
            if not body.get('next') or not body[kind]:
                return listed
            marker = body[kind][-1]['uuid']

    def node(self, uuid: str, fields: abc.Iterable[str]) -> objects.Json:
        """Read a node.

        :raises: `problems.ServiceError`
        """
        return self._request('GET', f'/nodes/{uuid}',
                             params={'fields': ','.join(fields)})

    def create(self, kind: str, body: objects.Json) -> objects.Json:
        """Create an object.

        :raises: `problems.ServiceError`
        """
        return self._request('POST', f'/{kind}', body)

    def change(self, kind: str, uuid: str, patch: objects.JsonPatch,
               reset_interfaces: bool = False) -> objects.Json:
        """Apply a JSON patch (RFC 6902).

        :param reset_interfaces: whether a node gets its new driver's default
            interfaces
        :returns: the changed object
        :raises: `problems.ServiceError`
        """
        return self._request(
            'PATCH', f'/{kind}/{uuid}', patch,
            params={'reset_interfaces': True} if reset_interfaces else {})

    def delete(self, kind: str, uuid: str) -> None:
        """Delete an object. Ports and port groups go with their node.

        :raises: `problems.ServiceError`, unless it does not exist
        """
        try:
            self._request('DELETE', f'/{kind}/{uuid}')
        except problems.ServiceError as error:
            if error.status != 404:
                raise

    def set_traits(self, uuid: str, traits: abc.Iterable[str]) -> None:
        """Replace the traits of a node.

        :raises: `problems.ServiceError`
        """
        self._request('PUT', f'/nodes/{uuid}/traits',
                      {'traits': sorted(traits)})

    def provision(self, uuid: str, verb: str) -> None:
        """Begin to change the provision state of a node.

        :param verb: such as ``manage``
        :raises: `problems.ServiceError`
        """
        self._request('PUT', f'/nodes/{uuid}/states/provision',
                      {'target': verb})

    def set_maintenance(self, uuid: str, reason: str | None) -> None:
        """Begin or end maintenance.

        :param reason: None to end it
        :raises: `problems.ServiceError`
        """
        if reason is None:
            self._request('DELETE', f'/nodes/{uuid}/maintenance')
        else:
            self._request('PUT', f'/nodes/{uuid}/maintenance',
                          {'reason': reason})

    def _request(self, method: str, path: str, body: object = None,
                 params: objects.Json | None = None) -> typing.Any:
        deadline = time.monotonic() + self._patience
        while True:
            response = self._send(method, path, body, params or {}, deadline)
            if response is not None:
                if response.status_code < 400:
                    return response.json() if response.content else None
                reason = _reason(response)
                if (not _is_busy(response.status_code, reason)
                        or time.monotonic() >= deadline):
                    raise problems.ServiceError(
                        f'Ironic refuses {method} {path}: {reason} '
                        f'(HTTP {response.status_code})',
                        response.status_code)
            time.sleep(_BUSY_INTERVAL)

    def _send(self, method: str, path: str, body: object,
              params: objects.Json,
              deadline: float) -> requests.Response | None:
        # Returns None if the API does not answer any more and is to be asked
        # again; one that never has is not waited for.
        if body is not None:
            LOG.debug('%s %s', method, path)
        try:
            with self._turns:
                response = self._adapter.request(
                    path, method, json=body, params=params,
                    microversion=MICROVERSION, log=body is None,
                    # Waits happen without one of the turns.
                    status_code_retries=0, connect_retries=0,
                    skip_cache=True)
        except (keystoneauth1.exceptions.ClientException,
                openstack.exceptions.SDKException) as error:
            # A connection lost in TLS's handshake is an SSLError, one lost
            # within a response an UnknownConnectionError.
            lost = isinstance(error, keystoneauth1.exceptions.ConnectionError)
            if self._has_answered and time.monotonic() < deadline and lost:
                return None
            raise problems.ServiceError(
                f'Ironic does not answer {method} {path}: {error}') from error
        self._has_answered = True
        return response


def _is_busy(status: int, reason: str) -> bool:
    # No free worker or conductor, or a proxy without an API behind it; another
    # operation has the node; or, of an Ironic with SQLite, such as Bifrost's,
    # the database, whose transaction was rolled back.
    return (status == 503 or status == 409 and 'is locked by' in reason
            or status == 500 and nodes.DATABASE_LOCKED in reason)


def _reason(response: requests.Response) -> str:
    # Ironic's fault is a JSON text in a JSON object, or an object; a proxy's
    # or Keystone's error is something else.
    try:
        fault = response.json()
        fault = fault.get('error_message', fault)
        if isinstance(fault, str):
            fault = json.loads(fault)
        return str(fault['faultstring'])
    except (ValueError, KeyError, TypeError, AttributeError):
        return response.text[:200] or response.reason or 'no reason given'
