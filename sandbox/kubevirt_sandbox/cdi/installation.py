# SPDX-License-Identifier: Apache-2.0
"""``POST /sandbox/cdi``: installs CDI into a cluster without it.

KubeVirt's components restart when CDI's resources first appear: for a while
virt-api serves neither its subresources nor its webhooks.

Source: cmd/virt-api, pkg/virt-api/api.go (KubeVirt 1.9), which end the
process when the DataVolume CustomResourceDefinition comes.
"""
import asyncio
import math

from kubevirt_sandbox.api import bodies
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import web
from kubevirt_sandbox.cdi import components
from kubevirt_sandbox.cdi import import_delays

_WEBHOOK = ('failed calling webhook "virtualmachines-mutator.kubevirt.io": '
            'failed to call webhook: Post "https://virt-api.kubevirt.svc:443/'
            'virtualmachines-mutate?timeout=10s": dial tcp 10.96.0.20:443: '
            'connect: connection refused')


class Installation:
    """A cluster without CDI, which can be installed later.

    :param server: the :class:`sandbox.api.server.Server`.
    :param storage: the :class:`storage.Storage` of the claims.
    :param options: see :class:`components.Options`.
    """

    def __init__(self, server, storage, options=None):
        self._server = server
        self._storage = storage
        self._options = options
        # Routes cannot be added later.
        self._slow = import_delays.ImportDelays()
        self._slow.install(server)
        server.register_route('POST', '/sandbox/cdi', self._install)
        server.store.gates.append(self._check)
        self._around, server.around = server.around, self._pass
        self._cluster = None
        self._back = 0

    async def start(self):
        """Do nothing: CDI is installed by a request."""

    async def stop(self):
        """End what has come."""
        if self._cluster is not None:
            await self._cluster.stop()

    async def _install(self, request):
        body = bodies.parse_json(await bodies.read(request) or b'{}')
        seconds = body.get('seconds', 0) if isinstance(body, dict) else None
        if type(seconds) not in (int, float) or not (
                math.isfinite(seconds) and 0 <= seconds <= 3600):
            raise errors.bad_request('seconds: a number up to 3600 is needed')
        if self._cluster is not None:
            raise errors.ApiError(409, 'Conflict', 'CDI is there already')
        self._back = asyncio.get_running_loop().time() + seconds
        self._cluster = components.Components(
            self._server, self._storage, self._options, self._slow)
        await self._cluster.start()
        return web.json_response({'seconds': seconds}, status=201)

    def _is_away(self):
        return self._back and (
            asyncio.get_running_loop().time() < self._back)

    def _check(self, kind, admission):
        """Refuse writes of virtual machines while their webhooks are missing.
        """
        if kind.group == 'kubevirt.io' and admission.user and (
                self._is_away()):
            raise errors.internal_error(_WEBHOOK)

    async def _pass(self, request, verb, resource, carry_out):
        if self._is_away() and '/subresources.kubevirt.io/' in request.path:
            raise errors.unavailable(
                'the server is currently unable to handle the request')
        if self._around is None:
            return await carry_out()
        return await self._around(request, verb, resource, carry_out)
