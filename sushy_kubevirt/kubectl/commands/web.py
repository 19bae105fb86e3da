# SPDX-License-Identifier: Apache-2.0
"""Open the web page of a BMC in a browser.

It forwards a port of 127.0.0.1 until SIGINT. The browser uses plain HTTP on
this host; from here on it is TLS, verified by the authority of the BMC.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import typing

from sushy_kubevirt.kubectl import session as sessions

if typing.TYPE_CHECKING:
    import argparse

    from sushy_kubevirt.remote import redfish

EXAMPLES = """\
kubectl bmc web node-0
kubectl bmc web node-0 --port 8080 --no-browser
"""

_HOST = '127.0.0.1'

_CHUNK = 65536


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    sessions.add_name(parser)
    parser.add_argument('--port', metavar='N', type=int, default=0,
                        help='local port (default: a free one)')
    parser.add_argument('--no-browser', action='store_true',
                        help='print the address, and open no browser')


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Forward connections of browsers until the process is interrupted."""
    from sushy_kubevirt.remote import endpoint
    client = session.redfish(options.name)
    try:
        client.request('GET', '/')
    except endpoint.BmcUnavailable as error:
        if error.status != 404:
            raise
        raise client.error(
            'has no web page: "redfish.webPage" is false') from error
    asyncio.run(_serve(client, options.port, not options.no_browser))
    return 0


async def _serve(client: redfish.Client, port: int, browser: bool) -> None:
    server = await asyncio.start_server(
        functools.partial(_forward, client), _HOST, port)
    url = f'http://{_HOST}:{server.sockets[0].getsockname()[1]}/'
    bmc = client.bmc
    print(url, flush=True)
    sessions.show(
        f'Log in as {bmc.username}; "kubectl bmc credentials {bmc.name} '
        f'--namespace {bmc.namespace} --show" has the password. Ctrl+C ends '
        'this', sys.stderr)
    if browser and (sys.platform == 'darwin' or any(
            name in os.environ for name in
            ('BROWSER', 'DISPLAY', 'WAYLAND_DISPLAY'))):
        # Elsewhere it would start a browser in this terminal.
        import webbrowser
        await asyncio.to_thread(webbrowser.open, url)
    async with server:
        await server.serve_forever()


async def _forward(client: redfish.Client, reader: asyncio.StreamReader,
                   writer: asyncio.StreamWriter) -> None:
    """Copy between a browser and the BMC until one of them closes."""
    from sushy_kubevirt.kube import errors
    tls = client.ssl_context
    writers = [writer]
    try:
        far_reader, far_writer = await asyncio.open_connection(
            sock=await asyncio.to_thread(client.dial), ssl=tls,
            server_hostname=None if tls is None else client.server_name)
        writers.append(far_writer)
        await asyncio.wait([asyncio.create_task(_copy(*ends)) for ends in (
            (reader, far_writer), (far_reader, writer))],
            return_when=asyncio.FIRST_COMPLETED)
    except (errors.MachineError, OSError) as error:
        sessions.show(error, sys.stderr)
        writer.write(
            b'HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; '
            b'charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n'
            b'Connection: close\r\n\r\n' + f'{error}\n'.encode())
    finally:
        for stream in writers:
            stream.close()


async def _copy(reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):      # ends the other direction, too
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
