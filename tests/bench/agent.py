# SPDX-License-Identifier: Apache-2.0
"""A BMC agent of one VM, started by a command that gets what it needs.

The contract of the command is in doc/source/reference/benchmarks.rst.
"""

import base64
import functools
import http.client
import json
import pathlib
import re
import secrets
import shlex
import socket
import ssl
import struct
import time
import types
import urllib.parse

import fixtures
import psutil

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process
from tests.bench import commanding
from tests.bench import load
from tests.bench import memory
from tests.bench import redfish_client
from tests.fixtures import checkout
from tests.fixtures import sandbox
from tests.unit.vbmc.ipmi import client

ADDRESS = '127.0.0.1'
USER = 'admin'

SYSTEMS = '/redfish/v1/Systems'
SESSIONS = '/redfish/v1/SessionService/Sessions'

#: What an agent may serve, and what it is told to start.
PROTOCOLS = 'https', 'http', 'ipmi'
PARTS = 'redfish', 'ipmi'

#: What a measurement may need of an agent.
NEEDS = *PROTOCOLS, 'redfish', 'power', 'start'

#: Seconds until an agent has to answer.
START = 30

#: Seconds from SIGTERM to SIGKILL. Some agents wait much longer for their
#: connections, and are started and ended dozens of times.
_GRACE = 1

#: Pause between attempts to reach it, in seconds.
_PAUSE = 0.002

_NOT_SERVED = re.compile(r'(?m)^not served: (\w+): (.+)$')

#: Programs that only wait for the agent.
_SHELLS = {'sh', 'bash', 'dash'}

# Get Channel Authentication Capabilities, without a session.
_PING = client.message(6, 0x38, b'\x8e\x04')
_PING = (b'\x06\x00\xff\x07' + bytes(9) + bytes((len(_PING),)) + _PING)


class Account(fixtures.Fixture):
    """The folder of a service account, as a pod has it."""

    def __init__(self, cluster):
        super().__init__()
        self.cluster = cluster

    def _setUp(self):
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.path / 'token').write_text(self.cluster.token)
        (self.path / 'ca.crt').write_bytes(self.cluster.ca.read_bytes())
        (self.path / 'namespace').write_text(sandbox.NAMESPACE)


class Agent(fixtures.Fixture):
    """A running agent.

    :param name: what it is called in the result
    :param command: words of a shell
    :param cluster: a :class:`tests.fixtures.sandbox.Sandbox`
    :param vm: name of its VM
    :param parts: which of `PARTS` it needs to start
    :param account: folder of an `Account`; None for the kubeconfig only
    :param env: dictionary of further environment variables

    ``missing`` has the reason for each of `PROTOCOLS` that it does not serve,
    for ``redfish`` if it has neither HTTPS nor HTTP, and for ``power`` and
    ``start`` if it declined these. ``failures`` has the reason for each of
    these that is no longer asked for because it failed.
    """

    def __init__(self, name, command, cluster, vm, parts=PARTS, account=None,
                 env=None):
        super().__init__()
        self.name = name
        self.command = command
        self.cluster = cluster
        self.vm = vm
        self.parts = parts
        self.account = account
        self.env = env or {}
        self.failures = {}

    def _setUp(self):
        self.password = secrets.token_hex(8)
        numbers = {name: self.useFixture(ports.Port(ADDRESS)).number
                   for name in PROTOCOLS}
        self.ports = numbers
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        folder = home / 'folder'
        folder.mkdir()
        made = certificates.make([ADDRESS])
        for name, data in (('tls.crt', made.certificate),
                           ('tls.key', made.key), ('ca.crt', made.ca)):
            (home / name).write_bytes(data)
        self.context = ssl.create_default_context(cafile=home / 'ca.crt')
        self.certificate = home / 'tls.crt'
        self.bmc = types.SimpleNamespace(
            address=ADDRESS, port=numbers['ipmi'], username=USER,
            password=self.password)
        api = urllib.parse.urlsplit(self.cluster.url)
        self.process = self.useFixture(process.Process(
            shlex.split(self.command), cwd=checkout.ROOT, grace=_GRACE,
            env=process.environment(home, {
                **self.env, 'BENCH_KUBECONFIG': self.cluster.kubeconfig,
                'BENCH_ACCOUNT': self.account,
                'BENCH_API_HOST': api.hostname, 'BENCH_API_PORT': api.port,
                'BENCH_NAMESPACE': sandbox.NAMESPACE, 'BENCH_VM': self.vm,
                'BENCH_USER': USER, 'BENCH_PASSWORD': self.password,
                'BENCH_ADDRESS': ADDRESS,
                'BENCH_HTTP_PORT': numbers['http'],
                'BENCH_HTTPS_PORT': numbers['https'],
                'BENCH_IPMI_PORT': numbers['ipmi'],
                'BENCH_CERTIFICATE': home / 'tls.crt',
                'BENCH_KEY': home / 'tls.key',
                'BENCH_FOLDER': folder,
                'BENCH_SERVE': ' '.join(self.parts)})))
        self.began = time.perf_counter()

    @property
    def missing(self):
        found = {**self._silent,
                 **dict(_NOT_SERVED.findall(self.process.output))}
        if {'https', 'http'} <= found.keys():
            found['redfish'] = '; '.join((found['https'], found['http']))
        return found

    #: Reasons that the agent did not give.
    _silent = {}

    # Start

    def wait(self):
        """Wait until the agent answers in each protocol, or declines it.

        :raises: `RuntimeError` if it ends
        """
        self._silent = {}
        deadline = time.monotonic() + START
        for protocol in PROTOCOLS:
            answers = (self._pings if protocol == 'ipmi'
                       else lambda: self._answers(protocol, SYSTEMS))
            while protocol not in self.missing and not answers():
                self.check()
                if time.monotonic() > deadline:
                    self._silent[protocol] = (
                        f'no answer within {START} s')
                    break
                time.sleep(10 * _PAUSE)
        self.path = self._find()
        if 'ipmi' not in self.missing:
            try:
                commanding.turn(self.bmc, self.process.pid, 1)
            except (OSError, RuntimeError, ValueError, LookupError,
                    AssertionError, struct.error) as exc:
                self._silent['ipmi'] = (
                    f'no session with cipher suite {commanding.SUITE}: '
                    f'{exc!r}')
        return self

    def first_answer(self, part, other):
        """Wait for the first answer after the start.

        :param part: one of `PARTS`
        :param other: an agent of the same command that runs
        :returns: seconds from the start
        :raises: `RuntimeError` if there is none
        """
        while not (self._pings() if part == 'ipmi'
                   else self._answers(other.protocol, other.path)):
            self.check()
            if time.perf_counter() > self.began + START:
                raise RuntimeError(f'{self.name}: no answer within {START} s')
            time.sleep(_PAUSE)
        return time.perf_counter() - self.began

    def check(self):
        """Check that it runs.

        :raises: `RuntimeError` with the end of its output
        """
        if self.process.returncode is not None:
            raise RuntimeError(
                f'{self.command} ended with {self.process.returncode}; its '
                f'output ends:\n{self.process.tail()}')

    def _answers(self, protocol, path):
        try:
            return self.ask(protocol, 'GET', path)[0] in (200, 401)
        except (OSError, http.client.HTTPException):
            return False

    def _pings(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.settimeout(_PAUSE)
            one.connect((ADDRESS, self.ports['ipmi']))
            try:
                one.send(_PING)
                return bool(one.recv(1024))
            except OSError:
                # No server yet, or no answer.
                return False

    # Redfish

    @property
    def protocol(self):
        """Protocol of Redfish: ``https``, or ``http`` if that is missing."""
        return next((name for name in ('https', 'http')
                     if name not in self.missing), None)

    def ask(self, protocol, method, path, body=None):
        """Send one request on a connection of its own.

        :returns: status code, headers, and body as bytes
        """
        with self._client(protocol) as client:
            return client.send(method, path, body)

    def _client(self, protocol):
        return load.Client(
            f'{protocol}://{ADDRESS}:{self.ports[protocol]}', self.headers,
            self.context, START)

    @property
    def headers(self):
        pair = f'{USER}:{self.password}'.encode()
        return self._token or {
            'Authorization': 'Basic ' + base64.b64encode(pair).decode()}

    _token = None

    def _find(self):
        """Find the system, with a session if there is no HTTP Basic.

        :returns: its path
        """
        if self.protocol is None:
            return None
        code, _, data = self.ask(self.protocol, 'GET', SYSTEMS)
        if code == 401:
            code, headers, data = self.ask(self.protocol, 'POST', SESSIONS, {
                'UserName': USER, 'Password': self.password})
            if code not in (200, 201):
                raise RuntimeError(
                    f'{self.name}: POST {SESSIONS}: {code}: {data[:500]}')
            self._token = {'X-Auth-Token': headers['X-Auth-Token']}
            code, _, data = self.ask(self.protocol, 'GET', SYSTEMS)
        if code != 200:
            raise RuntimeError(
                f'{self.name}: GET {SYSTEMS}: {code}: {data[:500]}')
        paths = [each['@odata.id'] for each in json.loads(data)['Members']]
        return next((path for path in paths
                     if path.rpartition('/')[2] == self.vm), paths[0])

    def connection(self, protocol, varies=False):
        """Return a `redfish_client.Connection` for GETs of the system.

        :param varies: whether no GET is like another, and none is cached
        """
        return redfish_client.Connection(
            (ADDRESS, self.ports[protocol]), self.path, self.headers,
            self.context if protocol == 'https' else None, varies)

    @functools.cached_property
    def kept(self):
        """A `load.Client`, whose connection is kept if the server keeps it."""
        return self._client(self.protocol)

    def power_on(self):
        """Send a POST of Reset ``On``, on the connection that is kept.

        :raises: `load.Refused`
        """
        self.kept.ask('POST', self.path + '/Actions/ComputerSystem.Reset',
                      {'ResetType': 'On'})

    def power_state(self) -> str:
        """Return the PowerState of the system, on the same connection.

        :raises: `load.Refused`
        """
        return self.kept.json('GET', self.path)['PowerState']

    # Processes

    def pss(self):
        """Return the memory of its processes, without shells, in MiB."""
        parent = psutil.Process(self.process.pid)
        return sum(memory.pss(each.pid) for each in (
            parent, *parent.children(recursive=True))
            if each.name() not in _SHELLS)
