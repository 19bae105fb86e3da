# SPDX-License-Identifier: Apache-2.0
"""One HTTP request of a probe, with minimal overhead.

One process probes hundreds of containers, so no general-purpose client is
used: each probe opens a connection, sends one request and reads the status.

Source: kubernetes/pkg/probe/http (1.36).
"""

import asyncio
import ssl

#: Bytes of a response that are read at most.
_MOST = 10 * 1024


def _context():
    # As a node does: the certificate is not looked at.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_CONTEXT = _context()


class _Exchange(asyncio.Protocol):
    """Sends one request and collects the answer."""

    def __init__(self, request, done):
        self._request = request
        self._done = done
        self._data = b''
        self._transport = None

    def connection_made(self, transport):
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data):
        self._data += data
        if self._complete():
            self._transport.close()
            self._finish()

    def connection_lost(self, exc):
        self._finish(exc)

    def _complete(self):
        head, found, body = self._data.partition(b'\r\n\r\n')
        if len(self._data) > _MOST:
            return True
        if not found:
            return False
        for line in head.split(b'\r\n')[1:]:
            name, _, value = line.partition(b':')
            if name.lower() == b'content-length' and value.strip().isdigit():
                return len(body) >= int(value)
        return False

    def _finish(self, exc=None):
        if self._done.done():
            return
        words = self._data.split(b'\r\n', 1)[0].split(None, 2)
        if len(words) >= 2 and words[0].startswith(b'HTTP/') and (
                words[1].isdigit()):
            self._done.set_result(int(words[1]))
        else:
            self._done.set_exception(exc or ConnectionError(
                'EOF' if not self._data else 'malformed HTTP response'))


async def status(host, port, path, headers, encrypted):
    """Send one GET request.

    :param path: URL path with its leading slash.
    :param headers: list of pairs of texts.
    :param encrypted: use HTTPS, without verifying the certificate.
    :returns: the HTTP status of the response, an int.
    :raises OSError: there was no response.
    """
    shown = f'[{host}]' if ':' in host else host
    given = {name.lower() for name, _ in headers}
    lines = [f'GET {path} HTTP/1.1']
    for name, value in (('Host', f'{shown}:{port}'),
                        ('User-Agent', 'kube-probe/1.36'),
                        ('Accept', '*/*')):
        if name.lower() not in given:
            lines.append(f'{name}: {value}')
    lines += [f'{name}: {value}' for name, value in headers]
    request = '\r\n'.join([*lines, 'Connection: close', '', ''])
    if '\n' in request.replace('\r\n', ''):
        raise OSError('a header of the probe has more than one line')
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    transport, _ = await loop.create_connection(
        lambda: _Exchange(request.encode(), done), host, port,
        ssl=_CONTEXT if encrypted else None)
    try:
        return await done
    finally:
        done.cancel()
        transport.close()
