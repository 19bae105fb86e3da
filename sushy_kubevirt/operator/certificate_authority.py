# SPDX-License-Identifier: Apache-2.0
"""The operator's certificate authority, in a Secret of its own namespace.

It is created when the first BMC needs it. After a renewal the Secret also has
the previous certificate, so that clients can verify with either of them until
the certificates of the BMCs are issued again.
"""

from __future__ import annotations

import asyncio
import base64
from collections import abc
import logging
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import cache
from sushy_kubevirt.operator import facts
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary
from sushy_kubevirt.operator import store

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import api

LOG = logging.getLogger(__name__)

#: Key of the previous certificate.
PREVIOUS = 'previous.crt'


class CertificateAuthority:
    """The certificate authority.

    :param namespace: where its Secret is
    """

    def __init__(self, api: api.Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._known: facts.Authority | None = None
        self._fresh = False
        self._lock = asyncio.Lock()

    def invalidate(self) -> None:
        """Note that the Secret has changed; `get` reads it again."""
        self._fresh = False

    def own_watch(self) -> store.Kind:
        """Make a watch of the Secret alone."""
        return store.Kind(
            self._api, bmc_resources.SECRET, (self._namespace,),
            cache.Compressed(), metadata_only=True,
            field_selector='metadata.name=' + naming.AUTHORITY)

    def follow(self, secrets: store.Kind, changed: abc.Callable[[], None]
               ) -> None:
        """Note changes of the Secret.

        :param secrets: has it
        :param changed: called after each change
        """
        def tell(change: store.Change) -> None:
            if change.key == (self._namespace, naming.AUTHORITY):
                self.invalidate()
                if secrets.listed.is_set():
                    changed()
        secrets.subscribe(tell)

    async def get(self) -> facts.Authority:
        """Read the certificate authority; create or renew it if need be.

        :raises: `errors.MachineError`
        """
        async with self._lock:
            if self._fresh and self._known and not pki.due(
                    self._known.pair.certificate, ()):
                return self._known
            # Set before the read, so that a change meanwhile resets it.
            self._fresh = True
            try:
                self._known = await self._read_or_make()
            except BaseException:
                self._fresh = False
                raise
            return self._known

    async def _read_or_make(self) -> facts.Authority:
        try:
            secret = await self._get()
        except errors.ObjectNotFound:
            # A deleted Secret is restored: BMCs and clients still use it.
            secret = await self._make(
                self._known.pair if self._known else pki.make(naming.OPERATOR),
                self._known.bundle if self._known else '')
        authority = _read(secret)
        if pki.fault(authority.pair):
            raise errors.Rejected(
                f'Secret {self._namespace}/{naming.AUTHORITY} has no '
                'certificate, or no key that belongs to it. Correct it, or '
                'delete it; the operator then creates a new one')
        if not pki.due(authority.pair.certificate, ()) or (
                not naming.made_by_us(secret)):
            return authority
        LOG.info('The certificate authority is being renewed')
        return _read(await self._api.patch(
            bmc_resources.SECRET, self._namespace, naming.AUTHORITY, {
                'metadata': {'resourceVersion': secret['metadata'][
                    'resourceVersion']},
                'data': _data(pki.make(naming.OPERATOR),
                              authority.pair.certificate)}))

    async def _get(self) -> objects.Json:
        return await self._api.get(bmc_resources.SECRET, self._namespace,
                                   naming.AUTHORITY)

    async def _make(self, pair: pki.Pair, bundle: str) -> objects.Json:
        previous = bundle.replace(pair.certificate, '')
        try:
            return await self._api.create(
                bmc_resources.SECRET, self._namespace, {
                    'apiVersion': 'v1', 'kind': 'Secret',
                    'type': secret_summary.TYPE,
                    'metadata': {
                        'name': naming.AUTHORITY, 'namespace': self._namespace,
                        'labels': {naming.MANAGED_BY: naming.OPERATOR}},
                    'data': _data(pair, previous)})
        except errors.Conflict:
            return await self._get()


def _read(secret: objects.Json) -> facts.Authority:
    pair = secret_summary.pair(secret)
    previous = secret_summary.text(secret, PREVIOUS)
    return facts.Authority(pair, pair.certificate + previous)


def _data(pair: pki.Pair, previous: str) -> dict[str, str]:
    data = secret_summary.data(pair)
    if previous:
        data[PREVIOUS] = base64.b64encode(previous.encode()).decode()
    return data
