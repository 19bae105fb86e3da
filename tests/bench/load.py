# SPDX-License-Identifier: Apache-2.0
"""Load generator: clients that send requests in sequence and measure times.

A client is a thread with one persistent connection to loopback. It evaluates
only the status code of a response, to use little CPU time, as the servers run
on the same processors.
"""

import concurrent.futures
import http.client
import json
import statistics
import time
import urllib.parse

#: Time limit of a response, in seconds.
TIMEOUT = 60


def percentile(values, percent):
    """Return a percentile of a list that is not empty."""
    return values[0] if len(values) == 1 else statistics.quantiles(
        values, n=100, method='inclusive')[percent - 1]


class Refused(Exception):
    """The response has no success code."""


class Client:
    """One connection to an HTTP server.

    :param url: URL of the server.
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
        """Send a request and read the response.

        :param body: sent as JSON; None for no body.
        :returns: (seconds, body of the response as bytes)
        :raises Refused: the response has no success code.
        """
        return self.ask(method, path, body)[::2]

    def ask(self, method, path, body=None, headers=None):
        """Send a request as `request` does, and return the headers, too.

        :param headers: dictionary of headers for this request.
        :returns: (seconds, headers of the response, its body as bytes)
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
                # A server may close a persistent connection between two
                # requests, but not a new one.
                self._connection.close()
                if not used:
                    raise
                continue
            seconds = time.perf_counter() - begin
            if response.status >= 300:
                raise Refused(
                    f'{method} {path}: {response.status}: {answer[:500]}')
            return seconds, response.headers, answer


def get(client, path, count):
    """Read a resource ``count`` times; list the seconds of each."""
    return [client.request('GET', path)[0] for _ in range(count)]


def log_in(client, where, credentials, count):
    """Create and delete a session ``count`` times.

    :param where: path of the sessions
    :param credentials: dictionary, the body of the request
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
    """Reset a system ``count`` times, each time when it is on again.

    libvirt's test driver has one domain. Clients that reset it concurrently
    conflict there and get errors; failed requests are not in the result.

    :returns: list of the seconds of each successful POST, without the
        wait.
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
    """Run one client for each path concurrently.

    :param work: :func:`get` or :func:`reset`.
    :param count: requests of each client.
    :returns: (list of all times in seconds, requests per second)
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
    """Request the power status ``count`` times with ``ipmitool``.

    :param bmc: first argument of ``ipmitool``.
    :param ipmitool: :func:`tests.fixtures.vbmcd.ipmitool`
    :returns: list of the seconds of each, including the start of the command.
    """
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        done = ipmitool(bmc, 'power', 'status')
        times.append(time.perf_counter() - begin)
        if done.returncode != 0:
            raise RuntimeError(done.stdout)
    return times
