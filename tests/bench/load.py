# SPDX-License-Identifier: Apache-2.0
"""The load: clients that send requests, one after the other, and take times.

A client is a thread with one connection kept alive, to loopback. Nothing is
read of an answer but its code, so that the clients stay cheap beside the
servers they share the processors with.
"""

import concurrent.futures
import http.client
import json
import time
import urllib.parse

#: Seconds an answer may take.
TIMEOUT = 60


class Refused(Exception):
    """The answer was not a success."""


class Client:
    """One connection to an HTTP server.

    :param url: of the server.
    :param headers: dictionary of headers for all requests.
    """

    def __init__(self, url, headers=None):
        self._headers = headers or {}
        parts = urllib.parse.urlsplit(url)
        self._connection = http.client.HTTPConnection(
            parts.hostname, parts.port, timeout=TIMEOUT)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self._connection.close()

    def request(self, method, path, body=None):
        """Send a request and read its answer.

        :param body: what to send as JSON; None for nothing.
        :returns: (seconds, bytes of the answer)
        :raises Refused: the answer was not a success.
        """
        return self.ask(method, path, body)[::2]

    def ask(self, method, path, body=None, headers=None):
        """As `request`, with more to tell.

        :param headers: dictionary of headers for this request.
        :returns: (seconds, headers of the answer, bytes of the answer)
        """
        data = None if body is None else json.dumps(body)
        headers = {**self._headers, **(headers or {})}
        if body is not None:
            headers['Content-Type'] = 'application/json'
        while True:
            begin = time.perf_counter()
            used = self._connection.sock is not None
            try:
                self._connection.request(method, path, data, headers)
                response = self._connection.getresponse()
                answer = response.read()
            except (http.client.RemoteDisconnected, ConnectionError):
                # A server may close a connection that was kept alive; a
                # new one it may not.
                self._connection.close()
                if not used:
                    raise
                continue
            seconds = time.perf_counter() - begin
            if response.status >= 300:
                raise Refused('%s %s: %d: %s' % (
                    method, path, response.status, answer[:500]))
            return seconds, response.headers, answer


def get(client, path, count):
    """Read a resource so many times; returns the seconds of each."""
    return [client.request('GET', path)[0] for _ in range(count)]


def log_in(client, where, credentials, count):
    """Open a session so many times, and close it.

    :param where: path of the sessions
    :param credentials: what to send, a dictionary
    :returns: list of the seconds of each POST
    """
    times = []
    for _ in range(count):
        seconds, headers, _answer = client.ask('POST', where, credentials)
        times.append(seconds)
        client.ask('DELETE', headers['Location'], headers={
            'X-Auth-Token': headers['X-Auth-Token']})
    return times


def reset(client, path, count):
    """Reset a system so many times, waiting in between until it is on.

    The test driver of libvirt has one domain; clients that reset it at the
    same time get in each other's way there and are refused, which is left
    out of the times.

    :returns: list of the seconds of each POST that succeeded, without the
        waiting.
    """
    times = []
    for _ in range(count):
        try:
            times.append(client.request(
                'POST', path + '/Actions/ComputerSystem.Reset',
                {'ResetType': 'ForceRestart'})[0])
        except Refused:
            pass
        deadline = time.monotonic() + TIMEOUT
        while not _is_on(client, path):
            if time.monotonic() > deadline:
                raise RuntimeError(f'{path} is not on again')
            time.sleep(0.005)
    return times


def _is_on(client, path):
    try:
        return json.loads(client.request('GET', path)[1])['PowerState'] == 'On'
    except Refused:
        return False


def parallel(url, paths, work, count):
    """Let one client for each path do the same work, at the same time.

    :param work: :func:`get` or :func:`reset`.
    :param count: how often each client does it.
    :returns: (list of all times, how many a second)
    """
    def run(path):
        with Client(url) as client:
            return work(client, path, count)

    with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
        begin = time.perf_counter()
        times = [one for part in pool.map(run, paths) for one in part]
        elapsed = time.perf_counter() - begin
    return times, len(times) / elapsed


def ipmi(bmc, count, ipmitool):
    """Ask for the power status so many times, with ``ipmitool``.

    :param bmc: what `ipmitool` takes.
    :param ipmitool: :func:`tests.fixtures.vbmcd.ipmitool`
    :returns: list of the seconds of each, the start of the command included.
    """
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        done = ipmitool(bmc, 'power', 'status')
        times.append(time.perf_counter() - begin)
        if done.returncode != 0:
            raise RuntimeError(done.stdout)
    return times
