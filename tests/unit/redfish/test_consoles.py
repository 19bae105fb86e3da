# SPDX-License-Identifier: Apache-2.0
"""Consoles: which requests are accepted, and how others are answered.

What happens then is in ``tests/functional/redfish/test_consoles.py``.
"""

import asyncio
import functools
import logging
import socket
from unittest import mock

import fixtures
from oslotest import base as test_base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import console
from sushy_kubevirt.pod import http_server
from sushy_kubevirt.pod import redfish_service
from sushy_kubevirt.redfish.protocol import websocket
from sushy_kubevirt.redfish.services import console_relay
from sushy_kubevirt.redfish.services import server_threads
from tests.unit.redfish import base

UPGRADE = {'Connection': 'keep-alive, Upgrade', 'Upgrade': 'WebSocket',
           'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
           'Sec-WebSocket-Version': '13', 'Host': 'bmc.example:8443'}
NAMES = 'SerialConsole', 'GraphicalConsole'


class ConsolesTestCase(base.AccountsTestCase):

    def console(self, code, name='SerialConsole', environ=(), **headers):
        """Ask for a WebSocket of a server that can serve it.

        :returns: the response, and what the server is to serve
        """
        served = []
        headers = {name.replace('_', '-'): value
                   for name, value in headers.items()}
        answer = self.ask(
            f'{self.path}/{name}', code, headers={**UPGRADE, **headers},
            environ_overrides={websocket.UPGRADES: served, **dict(environ)})
        self.assertEqual(code == 101, bool(served))
        return answer

    def subprotocols(self, role):
        token = self.token(role)['X-Auth-Token']
        return {'Sec_WebSocket_Protocol': f'binary,x-auth-token.{token}'}

    def test_accepts(self):
        for name in NAMES:
            answer = self.console(101, name, **self.subprotocols('Operator'))
            # The example of RFC 6455, section 1.3.
            self.assertEqual('s3pPLMBiTxaQ9kYGzzhZRbK+xOo=',
                             answer.headers['Sec-WebSocket-Accept'])
            self.assertEqual('binary',
                             answer.headers['Sec-WebSocket-Protocol'])

    def test_other_credentials(self):
        answer = self.console(101, **self.token('Operator'))
        self.assertNotIn('Sec-WebSocket-Protocol', answer.headers)
        self.console(101, **self.auth('Operator'))
        self.console(401)
        self.console(401, Sec_WebSocket_Protocol='binary, x-auth-token.no')

    def test_log_names_account_and_address(self):
        with mock.patch.object(console_relay, 'Relay') as relay:
            self.console(101, **self.auth('Operator'))
        self.assertEqual(
            'SerialConsole of default/vm-a for Operator at 127.0.0.1',
            relay.call_args[0][0])

    def test_needs_privilege(self):
        for name in NAMES:
            for role, code in (('ReadOnly', 403), ('Operator', 101),
                               ('Administrator', 101)):
                self.console(code, name, **self.auth(role))

    def test_token_is_not_accepted_elsewhere(self):
        protocols = self.subprotocols('Operator')['Sec_WebSocket_Protocol']
        for path in self.path, self.path + '/SerialConsole':
            self.ask(path, 401, headers={'Sec-WebSocket-Protocol': protocols})

    def test_pages_of_other_hosts_are_refused(self):
        for host in ('bmc.example:8443', 'BMC.example:8443'):
            self.console(101, Origin='https://' + host,
                         **self.auth('Operator'))
        for origin in ('https://bmc.example', 'https://bmc.example:8444',
                       'https://evil.example', 'null', '',
                       'https://bmc.example:8443.evil.example'):
            self.console(403, Origin=origin, **self.auth('Operator'))
        for site, code in (('cross-site', 403), ('same-site', 403),
                           ('same-origin', 101), ('none', 101)):
            self.console(code, Sec_Fetch_Site=site, **self.auth('Operator'))

    def test_without_upgrade(self):
        for name in NAMES:
            answer = self.ask(f'{self.path}/{name}', 426,
                              headers=self.auth('Operator'))
            self.assertEqual('websocket', answer.headers['Upgrade'])

    def test_invalid_handshakes(self):
        for name, value in (('Sec_WebSocket_Version', '8'),
                            ('Sec_WebSocket_Key', 'short')):
            self.console(400, **{name: value}, **self.auth('Operator'))

    def test_errors_do_not_repeat_the_token(self):
        secret = self.subprotocols('Operator')['Sec_WebSocket_Protocol']
        answer = self.console(101, Sec_WebSocket_Protocol=secret + ', "')
        self.assertNotIn('x-auth-token', str(answer.headers).lower())

    def test_devices_that_the_vm_does_not_have(self):
        self.machine._inventory = self.machine.inventory()._replace(
            graphics=False, serial_console=False)
        for name in NAMES:
            self.console(404, name, **self.auth('Operator'))
            self.ask(f'{self.path}/{name}', 404,
                     headers=self.auth('Operator'))

    def test_disabled_with_the_page(self):
        driver = self.app.systems
        driver.settings = driver.settings._replace(web_page=False)
        for name in NAMES:
            self.console(404, name, **self.auth('Operator'))

    def test_server_without_websockets(self):
        answer = self.ask(self.path + '/SerialConsole', 501, headers={
            **UPGRADE, **self.auth('Operator')})
        self.assertIn('gunicorn', answer.json['error'][
            '@Message.ExtendedInfo'][0]['Resolution'])

    def test_server_with_one_thread(self):
        with socket.socket() as sock, mock.patch.object(
                server_threads, '_threads', lambda: 1):
            self.ask(self.path + '/SerialConsole', 501, headers={
                **UPGRADE, **self.auth('Operator')}, environ_overrides={
                    'wsgi.multithread': True, 'gunicorn.socket': sock})


class LimitTestCase(base.RedfishTestCase):

    CONNECTIONS = redfish_service.MAX_CONNECTIONS

    def test_consoles_of_an_account_take_at_most_a_quarter(self):
        # HTTP beside HTTPS has half of the connections.
        self.assertLessEqual(self.app.sushy_kubevirt.services.consoles.share,
                             self.CONNECTIONS // 2 // 4)


class LimitOfOneVMTestCase(LimitTestCase):

    CONFIG = {'SUSHY_EMULATOR_KUBEVIRT_VM': 'default/vm-a'}
    CONNECTIONS = http_server.MAX_CONNECTIONS


class RelayTestCase(test_base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.INFO))
        self.slots = server_threads.Slots(1)
        self.socket = mock.AsyncMock()

    def run_(self, find=None):
        """Serve a client that sends nothing; return code and reason."""
        asyncio.run(self._run(find))
        return self.socket.end.await_args[0]

    async def _run(self, find):
        self.socket.receive.side_effect = asyncio.Event().wait
        await console_relay.Relay(
            'Console of vm-a', find, console.SERIAL, lambda: True,
            functools.partial(self.slots.take, 'admin')).run(self.socket)

    def test_console_too_many_is_closed(self):
        with self.slots.take('admin'):
            code, reason = self.run_()
        self.assertEqual(1013, code)
        self.assertIn('try again', reason)
        self.assertIn('Console of vm-a: refused: ', self.log.output)

    def test_failure(self):
        for _ in range(2):      # a slot is free after the first
            self.assertEqual(1011, self.run_(mock.Mock(
                side_effect=ValueError))[0])
        lines = self.log.output.splitlines()
        self.assertEqual('Console of vm-a: opened', lines[0])
        self.assertEqual('Console of vm-a: failed', lines[1])
        self.assertIn('Console of vm-a: closed: The console failed. See the '
                      'log of the BMC.', lines)

    def test_client_that_disconnects(self):
        async def send(_text):
            raise ConnectionError

        self.socket.send.side_effect = send
        self.run_(mock.Mock(side_effect=errors.Unavailable('away')))
        self.assertEqual(
            ['Console of vm-a: opened',
             'Console of vm-a: closed: The client has disconnected.'],
            self.log.output.splitlines())
