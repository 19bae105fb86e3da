# SPDX-License-Identifier: Apache-2.0
"""Load generator: clients that send requests in sequence and measure times.

A client is a thread with one persistent connection to loopback. It evaluates
only the status code of a response, to use little CPU time, as the servers run
on the same processors.
"""

import concurrent.futures
import contextlib
import functools
import http.client
import itertools
import json
import statistics
import time
import timeit
import urllib.parse

#: Time limit of a response, in seconds.
TIMEOUT = 60


def percentile(values, percent):
    """Return a percentile of a list that is not empty."""
    return values[0] if len(values) == 1 else statistics.quantiles(
        values, n=100, method='inclusive')[percent - 1]


def times(action, count):
    """Return the seconds of each of ``count`` calls, a list."""
    return timeit.repeat(action, number=1, repeat=count)


def median_ms(action, count):
    """Return the median of the milliseconds of ``count`` calls."""
    return 1000 * statistics.median(times(action, count))


class Refused(Exception):
    """The response has no success code."""


class Client:
    """One connection to an HTTP server, which is kept if the server keeps it.

    :param url: URL of the server
    :param headers: dictionary of headers for all requests
    :param context: `ssl.SSLContext` for HTTPS
    :param timeout: seconds
    """

    def __init__(self, url, headers=None, context=None, timeout=TIMEOUT):
        self._headers = headers or {}
        parts = urllib.parse.urlsplit(url)
        make = (functools.partial(http.client.HTTPSConnection, context=context)
                if parts.scheme == 'https' else http.client.HTTPConnection)
        self._connection = make(parts.hostname, parts.port, timeout=timeout)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self._connection.close()

    def open(self, method, path, body=None, headers=None):
        """Send a request; return the response, which is not read.

        :param body: sent as JSON; None for no body
        :param headers: dictionary of headers for this request
        :returns: `http.client.HTTPResponse`
        """
        headers = {**self._headers,
                   **({} if body is None else
                      {'Content-Type': 'application/json'}), **(headers or {})}
        while True:
            used = self._connection.sock is not None
            try:
                self._connection.request(
                    method, path, None if body is None else json.dumps(body),
                    headers)
                return self._connection.getresponse()
            except OSError as exc:
                self._connection.close()
                # A server may close a persistent connection between two
                # requests, but not a new one.
                if not (used and isinstance(exc, ConnectionError)):
                    raise

    def send(self, *arguments):
        """Send a request, as `open`, and read the response.

        :returns: (status code, headers, body as bytes)
        """
        response = self.open(*arguments)
        try:
            return response.status, response.headers, response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise

    def ask(self, method, path, body=None, headers=None):
        """Send a request that has to succeed; return headers and body.

        :raises Refused: the response has no success code
        """
        code, headers, data = self.send(method, path, body, headers)
        if code >= 300:
            raise Refused(f'{method} {path}: {code}: {data[:500]}')
        return headers, data

    def json(self, *arguments):
        """Return the JSON of the response of `ask`."""
        return json.loads(self.ask(*arguments)[1] or 'null')


def get(client, path, count):
    """Read a resource ``count`` times; list the seconds of each."""
    return times(lambda: client.ask('GET', path), count)


def log_in(client, where, credentials, count):
    """Create and delete a session ``count`` times.

    :param where: path of the sessions
    :param credentials: dictionary, the body of the request
    :returns: list of the seconds of each POST
    """
    result, answers = [], []
    for _ in range(count):
        result += times(lambda: answers.append(client.ask(
            'POST', where, credentials)[0]), 1)
        client.ask('DELETE', answers[-1]['Location'], headers={
            'X-Auth-Token': answers[-1]['X-Auth-Token']})
    return result


def reset(client, path, count):
    """Reset a system ``count`` times, each time when it is on again.

    libvirt's test driver has one domain. Clients that reset it concurrently
    conflict there and get errors; failed requests are not in the result.

    :returns: list of the seconds of each successful POST, without the
        wait.
    """
    result = []
    for _ in range(count):
        with contextlib.suppress(Refused):
            result += times(lambda: client.ask(
                'POST', path + '/Actions/ComputerSystem.Reset',
                {'ResetType': 'ForceRestart'}), 1)
        deadline = time.monotonic() + TIMEOUT
        while not _is_on(client, path):
            if time.monotonic() > deadline:
                raise RuntimeError(f'{path} is not on again')
            time.sleep(0.005)
    return result


def _is_on(client, path):
    try:
        return client.json('GET', path)['PowerState'] == 'On'
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
        result = list(itertools.chain(*pool.map(run, paths)))
        return result, len(result) / (time.perf_counter() - begin)


def ipmi(bmc, count, ipmitool):
    """Request the power status ``count`` times with ``ipmitool``.

    :param bmc: first argument of ``ipmitool``.
    :param ipmitool: :func:`tests.fixtures.vbmcd.ipmitool`
    :returns: list of the seconds of each, including the start of the command.
    """
    def run():
        done = ipmitool(bmc, 'power', 'status')
        if done.returncode != 0:
            raise RuntimeError(done.stdout)

    return times(run, count)
