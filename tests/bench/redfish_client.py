# SPDX-License-Identifier: Apache-2.0
"""A client that repeats one GET with as little work as possible.

It uses the same processors as the servers, so it neither builds a request for
each GET nor parses a response further than to find its end.
"""

import concurrent.futures
import contextlib
import itertools
import re
import socket
import time

from tests.bench import load

_LENGTH = re.compile(rb'\r\ncontent-length: *(\d+)')
_BYTES = 65536

#: Time limit of a response, in seconds.
TIMEOUT = 20


class Connection:
    """A connection, which is kept if the server keeps it.

    :param address: (host, port)
    :param path: path of the resource
    :param headers: dictionary
    :param context: `ssl.SSLContext` for HTTPS, or None
    :param varies: whether each request has a header with its number
    """

    def __init__(self, address, path, headers, context=None, varies=False):
        self._address = address
        self._context = context
        lines = [f'GET {path} HTTP/1.1', f'Host: {address[0]}:{address[1]}',
                 *(': '.join(pair) for pair in headers.items()), '', '']
        request = '\r\n'.join(lines).encode()
        self._requests = itertools.repeat(request) if not varies else (
            b'%sX-Number: %d\r\n\r\n' % (request[:-2], number)
            for number in itertools.count())
        self._socket = None

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def close(self):
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def get(self):
        """Send the request, and read the response.

        :raises: `load.Refused` if its code is not 200, `OSError` if there is
            none
        """
        while True:
            used = self._socket is not None
            try:
                if not used:
                    self._connect()
                self._socket.sendall(next(self._requests))
                return self._read()
            except OSError:
                self.close()
                # A server may close a persistent connection between two
                # requests, but not a new one.
                if not used:
                    raise

    def _connect(self):
        self._socket = socket.create_connection(self._address, TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            self._socket = self._context.wrap_socket(
                self._socket, server_hostname=self._address[0])

    def _receive(self):
        data = self._socket.recv(_BYTES)
        if not data:
            raise ConnectionError('the server closed the connection')
        return data

    def _read(self):
        data = self._receive()
        while (end := data.find(b'\r\n\r\n')) < 0:
            data += self._receive()
        head = data[:end].lower()
        if length := _LENGTH.search(head):
            left = end + 4 + int(length[1]) - len(data)
            while left > 0:
                left -= len(self._receive())
        elif b'\r\ntransfer-encoding: chunked' in head:
            while not data.endswith(b'0\r\n\r\n'):
                data += self._receive()
        else:
            while self._socket.recv(_BYTES):
                pass
            self.close()
        if b'\r\nconnection: close' in head or head.startswith(b'http/1.0'):
            self.close()
        if head.split(maxsplit=2)[1] != b'200':
            raise load.Refused(head.splitlines()[0].decode())


def repeat(make, clients, count, meter):
    """Have clients send requests at the same time, each on a connection.

    :param make: function that returns a `Connection`
    :param clients: number of them
    :param count: requests of each
    :param meter: function that returns a list of counters
    :returns: list of the seconds of each request; requests a second; what was
        added to each counter
    """
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(make()) for _ in range(clients)]
        for each in connections:
            # Not measured: it makes the connection.
            each.get()
        pool = stack.enter_context(
            concurrent.futures.ThreadPoolExecutor(clients))
        before = meter()
        begin = time.perf_counter()
        times = [one for part in pool.map(
            lambda each: load.times(each.get, count), connections)
            for one in part]
        rate = len(times) / (time.perf_counter() - begin)
        return times, rate, [
            after - earlier for after, earlier in zip(meter(), before)]
