# SPDX-License-Identifier: Apache-2.0
"""``/sandbox/imports``: slows down imports, for tests of waiting clients.

``POST`` with ``{"url": REGEX, "delay": SECONDS, "rate": BYTES_A_SECOND}``
delays and limits each later attempt at a matching URL; ``DELETE`` removes all
these limits. Running attempts are not affected.
"""
import math
import re

from kubevirt_sandbox.api import bodies
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import web


class ImportDelays:
    """The configured delays of imports."""

    def __init__(self):
        self._rules = []

    def install(self, server):
        """Serve the routes; they need the administrator's token."""
        server.register_route('GET', '/sandbox/imports', self._list)
        server.register_route('POST', '/sandbox/imports', self._add)
        server.register_route('DELETE', '/sandbox/imports', self._clear)

    def of(self, url):
        """Return (delay in s, bytes per second) of an attempt at a URL.

        The rule that was added last applies; a rate of 0 is unlimited.
        """
        for pattern, delay, rate in reversed(self._rules):
            if pattern.search(url):
                return delay, rate
        return 0, 0

    async def _list(self, request):
        return web.json_response({'imports': [
            {'url': pattern.pattern, 'delay': delay, 'rate': rate}
            for pattern, delay, rate in self._rules]})

    async def _add(self, request):
        body = bodies.parse_json(await bodies.read(request))
        if not isinstance(body, dict) or body.keys() - {
                'url', 'delay', 'rate'}:
            raise errors.bad_request('url, delay and rate are understood')
        try:
            pattern = re.compile(str(body.get('url', '')))
        except re.error as exc:
            raise errors.bad_request(f'url: {exc}') from None
        numbers = []
        for name in ('delay', 'rate'):
            value = body.get(name, 0)
            if type(value) not in (int, float) or not (
                    math.isfinite(value) and value >= 0):
                raise errors.bad_request(f'{name}: a number is needed')
            numbers.append(value)
        self._rules.append((pattern, *numbers))
        return web.Response(status=204)

    async def _clear(self, request):
        self._rules.clear()
        return web.Response(status=204)
