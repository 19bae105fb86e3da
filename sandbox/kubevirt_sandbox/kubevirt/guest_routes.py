# SPDX-License-Identifier: Apache-2.0
"""``/sandbox/guests/...``: records and actions of guests.

The routes need no token, since tests that use them have none and the sandbox
serves on loopback only. Reading a guest's console output needs one.
"""

from kubevirt_sandbox.api import web

_ACTIONS = ('reboot', 'shutdown', 'crash', 'lock', 'unlock',
            'io-error')


class Routes:
    """The handlers of guests.

    :param store: the store, to know which machines there are.
    :param kinds: the :class:`kubevirt_kinds.Kinds` of the cluster.
    :param guests: the :class:`guests.Guests`.
    """

    def __init__(self, store, kinds, guests):
        self._store = store
        self._kinds = kinds
        self._guests = guests

    def install(self, server):
        """Serve them."""
        base = '/sandbox/guests/{namespace}/{name}'
        server.register_route('GET', base, self.show, public=True)
        server.register_route('POST', base + '/{action}', self.act,
                              public=True)
        server.register_route('GET', base + '/console', self.console)

    async def show(self, request):
        """Return the record of a VM's boots; 404 for an unknown VM."""
        namespace, name = self._of(request)
        if not (self._guests.has_record(namespace, name) or any(
                self._store.find(kind, namespace, name)
                for kind in (self._kinds.vm, self._kinds.vmi))):
            return _error(404, f'there is no machine {namespace}/{name}')
        return web.json_response(self._guests.record(namespace, name))

    async def act(self, request):
        """Let the guest do something; 409 when none runs."""
        namespace, name = self._of(request)
        action = request.match_info['action']
        if action not in _ACTIONS:
            return _error(404, f'a guest can {", ".join(_ACTIONS)}, not '
                          f'{action}')
        why = self._guests.act(namespace, name, action)
        if why:
            return _error(409, why)
        return web.json_response(self._guests.record(namespace, name))

    async def console(self, request):
        """Return the last output of a guest on its serial port."""
        namespace, name = self._of(request)
        output = self._guests.console_log(namespace, name)
        if output is None:
            return _error(404, f'{namespace}/{name} has no guest with a '
                          'serial port now')
        return web.Response(body=output,
                            content_type='text/plain; charset=utf-8')

    @staticmethod
    def _of(request):
        return request.match_info['namespace'], request.match_info['name']


def _error(status, message):
    return web.json_response({'message': message}, status=status)
