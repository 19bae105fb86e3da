# SPDX-License-Identifier: Apache-2.0
"""WebSockets of a system: its serial console and its display.

The serial console is Redfish's (ComputerSystem v1.26, WebSocketConsole). For
the display Redfish has none; it is described in Oem, and its binary messages
are those of VNC (RFB, RFC 6143). Both are relayed by
`services.console_relay`.
"""

from __future__ import annotations

import functools
import typing

import flask

from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine

SERIAL, GRAPHICAL = 'SerialConsole', 'GraphicalConsole'

_RULES = {name: f'{resource_paths.SYSTEMS}/<identity>/{name}'
          for name in (SERIAL, GRAPHICAL)}


def describe(machine: machine.Machine, name: str
             ) -> dict[str, str | bool] | None:
    """Describe a WebSocket (ComputerSystem, WebSocketConsole).

    :param name: `SERIAL` or `GRAPHICAL`
    :returns: None if WebSockets are disabled
    """
    if not application.current().systems.settings.web_page:
        return None
    return {'ConsoleURI': resource_paths.system(machine, name),
            'Interactive': True}


def _check(machine: machine.Machine, name: str) -> None:
    """Answer 404 for a console that is not there."""
    if not application.current().systems.settings.web_page:
        raise error_responses.uri_not_found()
    inventory = machine.inventory()
    if name == SERIAL and not inventory.serial_console:
        raise error_responses.general_error(
            404, f'{machine.qualified_name} has no serial console.',
            'Remove autoattachSerialConsole from the devices of the VM.')
    if name == GRAPHICAL and not inventory.graphics:
        raise error_responses.general_error(
            404, f'{machine.qualified_name} has no display.',
            'Remove autoattachGraphicsDevice from the devices of the VM.')


def _refuse(name: str, machine: machine.Machine) -> typing.NoReturn:
    """GET …/SerialConsole, …/GraphicalConsole without Upgrade"""
    _check(machine, name)
    raise error_responses.general_error(
        426, 'This resource is a WebSocket.',
        'Send the request with Upgrade: websocket (RFC 6455).',
        {'Upgrade': 'websocket', 'Connection': 'Upgrade'})


def _open(name: str, machine: machine.Machine) -> flask.Response:
    """GET …/SerialConsole, …/GraphicalConsole with Upgrade: websocket"""
    _check(machine, name)
    # Needed by few processes.
    from sushy_kubevirt.machine import console
    from sushy_kubevirt.redfish.protocol import websocket
    from sushy_kubevirt.redfish.services import console_relay
    app = application.current()
    relay = console_relay.Relay(
        f'{name} of {machine.qualified_name} for {_client()}',
        functools.partial(app.systems.machine, machine.qualified_name),
        console.SERIAL if name == SERIAL else console.DISPLAY,
        authentication.still_authorized(),
        functools.partial(authentication.services().consoles.take,
                          authentication.owner()))
    return websocket.Upgrade(relay.run)


def _client() -> str:
    """Return account and address of the client, for the log."""
    account, address = flask.g.account, authentication.client_address()
    return ' at '.join(filter(None, (account and account.name, address)))


ROUTES = tuple(
    routing.add(rule, functools.partial(view, name), websocket=websocket)
    for name, rule in _RULES.items()
    for view, websocket in ((_refuse, False), (_open, True)))
