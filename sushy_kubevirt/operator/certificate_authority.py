# SPDX-License-Identifier: Apache-2.0
"""The operator's certificate authority, in a Secret of its own namespace.

It is created when the first BMC needs it. After a renewal the Secret also has
the previous certificate, so that clients can verify with either of them until
the certificates of the BMCs are issued again.
"""

from __future__ import annotations

import asyncio
import base64
import logging

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import observed_state
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary

LOG = logging.getLogger(__name__)

#: Key of the previous certificate.
PREVIOUS = 'previous.crt'

_COMMON_NAME = naming.OPERATOR


class CertificateAuthority:
    """The certificate authority.

    :param api: an `api.Api`
    :param namespace: where its Secret is
    """

    def __init__(self, api, namespace) -> None:
        self._api = api
        self._namespace = namespace
        self._found = None
        self._fresh = False
        self._lock = asyncio.Lock()

    def invalidate(self) -> None:
        """Note that the Secret has changed; `get` reads it again."""
        self._fresh = False

    async def get(self):
        """Read the certificate authority; create or renew it if need be.

        :returns: `observed_state.Authority`
        :raises: `errors.MachineError`
        """
        async with self._lock:
            if self._fresh and not pki.due(
                    self._found.pair.certificate, ()):
                return self._found
            # Set before the read, so that a change meanwhile resets it.
            self._fresh = True
            try:
                self._found = await self._read_or_make()
            except BaseException:
                self._fresh = False
                raise
            return self._found

    async def _read_or_make(self):
        try:
            secret = await self._get()
        except errors.ObjectNotFound:
            # A deleted Secret is restored: BMCs and clients still use it.
            secret = await self._make(
                self._found.pair if self._found else _new(),
                self._found.bundle if self._found else '')
        found = _read(secret)
        if not pki.usable(found.pair):
            raise errors.Rejected(
                f'Secret {self._namespace}/{naming.AUTHORITY} has no '
                'certificate, or no key that belongs to it. Correct it, or '
                'delete it; the operator then creates a new one')
        if not pki.due(found.pair.certificate, ()) or (
                not naming.made_by_us(secret)):
            return found
        LOG.info('The certificate authority is being renewed')
        return _read(await self._api.patch(
            bmc_resources.SECRET, self._namespace, naming.AUTHORITY, {
                'metadata': {'resourceVersion': secret['metadata'][
                    'resourceVersion']},
                'data': _data(_new(), found.pair.certificate)}))

    async def _get(self):
        return await self._api.get(bmc_resources.SECRET, self._namespace,
                                   naming.AUTHORITY)

    async def _make(self, pair, bundle):
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


def _new():
    return pki.make(_COMMON_NAME)


def _read(secret):
    pair = secret_summary.pair(secret)
    previous = secret_summary.text(secret, PREVIOUS)
    return observed_state.Authority(pair, pair.certificate + previous)


def _data(pair, previous):
    data = secret_summary.data(pair)
    if previous:
        data[PREVIOUS] = base64.b64encode(previous.encode()).decode()
    return data
