# SPDX-License-Identifier: Apache-2.0
"""Routes under ``/sandbox/`` for faults, outages and API statistics.

Every route needs the administrator's token. The routes of guests are
registered elsewhere.
"""
import asyncio
import math

from kubevirt_sandbox.api import bodies
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import web
from kubevirt_sandbox import faults
from kubevirt_sandbox import stats


class Control:
    """Handlers of the control routes.

    :param server: the :class:`api.server.Server` that they control.
    """

    def __init__(self, server):
        self._server = server
        self._tasks = set()
        self.faults = faults.Faults(server)
        self.stats = stats.Stats()
        server.around = self._around
        for method, path, handler in (
                ('GET', 'faults', self._list_faults),
                ('POST', 'faults', self._add_fault),
                ('DELETE', 'faults', self._clear_faults),
                ('POST', 'outage', self._outage),
                ('GET', 'stats', self._show_stats),
                ('DELETE', 'stats', self._reset_stats)):
            server.register_route(method, f'/sandbox/{path}', handler)

    async def _around(self, request, verb, resource, carry_out):
        self.stats.count(verb, resource)
        return await self.faults.around(request, verb, carry_out)

    async def _list_faults(self, request):
        return web.json_response({'faults': self.faults.report()})

    async def _add_fault(self, request):
        body = bodies.parse_json(await bodies.read(request))
        return web.json_response(self.faults.add(body).to_dict(), status=201)

    async def _clear_faults(self, request):
        self.faults.clear()
        return web.Response(status=204)

    async def _outage(self, request):
        body = bodies.parse_json(await bodies.read(request))
        seconds = body.get('seconds') if isinstance(body, dict) else None
        if type(seconds) not in (int, float) or not (
                math.isfinite(seconds) and 0 < seconds <= 3600):
            raise errors.bad_request('seconds: a number up to 3600 is needed')
        # Close the listener before answering: a client that has the answer
        # can then rely on the API being unavailable.
        await self._server.go_away(request.transport)
        task = asyncio.get_running_loop().create_task(
            self._server.come_back(seconds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        answer = web.json_response({'seconds': seconds}, status=202)
        answer.force_close()
        return answer

    async def _show_stats(self, request):
        access = self._server.access
        return web.json_response({
            **self.stats.report(), 'watches': len(self._server.watches),
            'refused': _by_user(access.refused),
            'used': _by_user(access.used)})

    async def _reset_stats(self, request):
        self.stats.reset()
        self._server.access.refused.clear()
        self._server.access.used.clear()
        return web.Response(status=204)


def _by_user(counts):
    found = {}
    for (user, verb, resource), count in sorted(counts.items()):
        found.setdefault(user, {}).setdefault(verb, {})[resource] = count
    return found


def install(server):
    """Register the control routes.

    :param server: the :class:`api.server.Server`.
    :returns: the :class:`Control`.
    """
    return Control(server)
