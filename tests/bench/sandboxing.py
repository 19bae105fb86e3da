# SPDX-License-Identifier: Apache-2.0
"""The sandbox beside another version of it, or a real API server.

The other version is a command that takes the options of ``kubevirt-sandbox``.
Without one the neighbour is kube-apiserver with etcd, where ``KUBE_APISERVER``
and ``ETCD`` name the programs; it gets the definition of VirtualMachines, but
has no KubeVirt that would start them.
"""

import base64
from collections.abc import Iterator
import functools
import http.client
import json
import os
import pathlib
import secrets
import shlex
import ssl
import time
import urllib.parse

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives import serialization
import fixtures
import yaml

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import polling
from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process
from tests.bench import memory
from tests.bench import processor
from tests.bench import report
from tests.bench import rounds

OURS = str(process.BIN / 'kubevirt-sandbox')

_KUBEVIRT = '/apis/kubevirt.io/v1/namespaces/default/'
_VMS = _KUBEVIRT + 'virtualmachines'
_VMIS = _KUBEVIRT + 'virtualmachineinstances'
_DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'

_JSON = 'application/json'
_JSON_PATCH = 'application/json-patch+json'
_APPLY = 'application/apply-patch+yaml'

#: Seconds that a server may take to become ready.
_PATIENCE = 120


class Client:
    """A connection to an API server.

    :param server: has ``url``, ``token`` and ``ca``, PEM text.
    """

    def __init__(self, server):
        self._token = server.token
        parts = urllib.parse.urlsplit(server.url)
        self.connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=_PATIENCE,
            context=ssl.create_default_context(cadata=server.ca))

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.connection.close()

    def send(self, method: str, path: str, body: object = None,
             media: str = _JSON) -> http.client.HTTPResponse:
        """Send a request and return the response.

        :raises RuntimeError: it has no success code.
        """
        headers = {'Authorization': 'Bearer ' + self._token}
        if body is not None:
            headers['Content-Type'] = media
        self.connection.request(
            method, path, None if body is None else json.dumps(body), headers)
        response = self.connection.getresponse()
        if response.status >= 300:
            raise RuntimeError(f'{method} {path}: {response.status}: '
                               f'{response.read(500)!r}')
        return response

    def read(self, *arguments) -> dict | None:
        """Send a request and return the JSON of the response."""
        return json.loads(self.send(*arguments).read() or 'null')


class Sandbox(fixtures.Fixture):
    """A sandbox, started by a command.

    :param name: what it is called
    :param command: the command, a string
    """

    def __init__(self, name: str, command: str):
        super().__init__()
        self.name = name
        self._command = shlex.split(command)

    def _setUp(self):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        kubeconfig = home / 'kubeconfig'
        begin = time.perf_counter()
        running = self.useFixture(process.Process(
            [*self._command, '--listen', '127.0.0.1:0', '--kubeconfig',
             kubeconfig, '--boot-seconds', '0', '--pods', 'pretended'],
            ready=r'^ready (https://\S+)', timeout=_PATIENCE,
            env=process.environment(home, {
                'TMPDIR': home, 'SSL_CERT_FILE': os.devnull})))
        #: From start to ready: seconds, and processor time in seconds.
        self.start = (time.perf_counter() - begin,
                      processor.seconds(running.pid))
        self.pids = [running.pid]
        self.url = running.match[1]
        config = yaml.safe_load(kubeconfig.read_text())
        self.token = config['users'][0]['user']['token']
        self.ca = base64.b64decode(config['clusters'][0]['cluster'][
            'certificate-authority-data']).decode()


class KubeApiserver(fixtures.Fixture):
    """kube-apiserver with etcd.

    :param apiserver: path of the program
    :param etcd: path of the program
    """

    name = 'kube-apiserver'

    def __init__(self, apiserver: str, etcd: str):
        super().__init__()
        self._programs = apiserver, etcd

    def _setUp(self):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        port, client, peer = (self.useFixture(ports.Port()).number
                              for _ in range(3))
        tls = self.useFixture(certificates.Certificate())
        self.token, self.ca = secrets.token_hex(16), tls.ca.read_text()
        self.url = f'https://127.0.0.1:{port}'
        (home / 'tokens').write_text(
            f'{self.token},bench,bench,system:masters\n')
        (home / 'key').write_bytes(rsa.generate_private_key(
            65537, 2048).private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption()))
        apiserver, etcd = self._programs
        urls = [f'http://127.0.0.1:{number}' for number in (client, peer)]
        begin = time.perf_counter()
        running = [self.useFixture(process.Process(
            words, env=process.environment(home))) for words in (
                [etcd, '--data-dir', home / 'etcd', '--unsafe-no-fsync',
                 '--listen-client-urls', urls[0],
                 '--advertise-client-urls', urls[0],
                 '--listen-peer-urls', urls[1],
                 '--initial-advertise-peer-urls', urls[1],
                 '--initial-cluster', f'default={urls[1]}'],
                [apiserver, '--etcd-servers', urls[0],
                 '--bind-address', '127.0.0.1', '--secure-port', port,
                 '--tls-cert-file', tls.certificate,
                 '--tls-private-key-file', tls.key,
                 '--token-auth-file', home / 'tokens',
                 '--authorization-mode', 'RBAC',
                 '--service-cluster-ip-range', '10.96.0.0/16',
                 '--service-account-issuer', 'https://bench.test',
                 '--service-account-key-file', home / 'key',
                 '--service-account-signing-key-file', home / 'key'])]
        self.pids = [one.pid for one in running]
        self._wait('/readyz', running)
        self.start = (time.perf_counter() - begin,
                      sum(map(processor.seconds, self.pids)))

    def _wait(self, path, running):
        for _ in polling.attempts(_PATIENCE):
            try:
                with Client(self) as client:
                    client.send('GET', path).read()
                return
            except (OSError, http.client.HTTPException, RuntimeError) as exc:
                reason = exc
            if ended := [one.tail() for one in running
                         if one.returncode is not None]:
                break
        raise RuntimeError(f'kube-apiserver is not ready: {reason}\n'
                           + '\n'.join(ended))

    def define(self, definition: dict) -> None:
        """Serve a kind, by a CustomResourceDefinition of the sandbox."""
        name = definition['metadata']['name']
        with Client(self) as client:
            client.send('POST', _DEFINITIONS, {
                'apiVersion': 'apiextensions.k8s.io/v1',
                'kind': 'CustomResourceDefinition',
                'metadata': {'name': name},
                'spec': definition['spec']}).read()
            for _ in polling.attempts(_PATIENCE):
                if any(one['type'] == 'Established' and one['status'] == 'True'
                       for one in client.read('GET', f'{_DEFINITIONS}/{name}')
                       .get('status', {}).get('conditions', ())):
                    break
            else:
                raise RuntimeError(f'{name} is not established')
        self._wait(_VMS, [])


def measure(sizes, say, others=()) -> Iterator[report.Row]:
    """Measure the sandbox, and neighbours.

    :param sizes: :class:`tests.bench.plan.Sizes`
    :param say: function that gets the name of each part when it begins
    :param others: pairs of the command of another version and what it is
        called; kube-apiserver if there are none
    """
    programs = [os.environ.get(name) for name in ('KUBE_APISERVER', 'ETCD')]

    def servers():
        yield Sandbox('ours', OURS)
        yield from (Sandbox(name, command) for command, name in others)
        if all(programs) and not others:
            yield KubeApiserver(*programs)

    def started(server):
        with server:
            return dict(zip(((what, 's'), (what, 's of CPU')), server.start))

    what = 'sandbox, start to ready'
    yield from rounds.compare(what, [
        rounds.Side(server.name, functools.partial(started, server))
        for server in servers()], sizes.sandbox_rounds, say)
    with fixtures.CompoundFixture([]) as holder:
        running = [holder.useFixture(server) for server in servers()]
        for server in running[1:]:
            if server.name == KubeApiserver.name:
                with Client(running[0]) as client:
                    server.define(client.read(
                        'GET', f'{_DEFINITIONS}/virtualmachines.kubevirt.io'))
        for server in running:
            with Client(server) as client:
                _create(client, 'vm', sizes.sandbox_listed)
        for what, units, work in _WORK:
            yield from _rows(f'sandbox, {what}', running, functools.partial(
                _turn, f'sandbox, {what}', units, work, sizes),
                sizes.sandbox_rounds, say, work is _start)
        what = f'sandbox, memory with {sizes.sandbox_vms} VMs'
        yield from _rows(what, running, functools.partial(
            _memory, what, sizes), 1, say)


def _rows(what, servers, turn, count, say, needs_kubevirt=False):
    return rounds.compare(what, [rounds.Side(
        server.name, functools.partial(turn, server), rounds.not_served(
            'it has no KubeVirt' if needs_kubevirt
            and server.name == KubeApiserver.name else ''))
        for server in servers], count, say)


def _memory(what, sizes, server):
    with Client(server) as client:
        _create(client, 'more', sizes.sandbox_vms - sizes.sandbox_listed)
    return {(what, 'MiB of PSS'): sum(
        sum(memory.tree(pid)) for pid in server.pids)}


def _turn(what, units, work, sizes, server):
    """Return a figure of the elapsed time, and the CPU in ms."""
    before = sum(map(processor.seconds, server.pids))
    begin = time.perf_counter()
    with Client(server) as client:
        count = work(client, server, sizes)
    elapsed = time.perf_counter() - begin
    cpu = sum(map(processor.seconds, server.pids)) - before
    return dict(zip(((what, unit) for unit in units), (
        1000 * elapsed / count if work is _start else count / elapsed,
        1000 * cpu / count)))


def _create(client, prefix, count):
    for number in range(count):
        client.send('POST', _VMS, machines.vm(
            f'{prefix}-{number}', 'Halted')).read()


def _get(client, _server, sizes):
    for _ in range(sizes.sandbox_requests):
        client.send('GET', f'{_VMS}/vm-0').read()
    return sizes.sandbox_requests


def _list(client, _server, sizes):
    for _ in range(sizes.sandbox_requests // 4):
        client.send('GET', _VMS).read()
    return sizes.sandbox_requests // 4


def _annotated(number):
    return {'bench': f'{number}-{time.monotonic_ns()}'}


def _patch(client, _server, sizes):
    for number in range(sizes.sandbox_requests):
        client.send('PATCH', f'{_VMS}/vm-0', [
            {'op': 'test', 'path': '/metadata/name', 'value': 'vm-0'},
            {'op': 'add', 'path': '/spec/template/metadata/annotations',
             'value': _annotated(number)}], _JSON_PATCH).read()
    return sizes.sandbox_requests


def _apply(client, _server, sizes):
    for number in range(sizes.sandbox_requests):
        vm = machines.vm('applied', 'Halted')
        vm['metadata']['annotations'] = _annotated(number)
        client.send('PATCH', f'{_VMS}/applied?fieldManager=bench', vm,
                    _APPLY).read()
    return sizes.sandbox_requests


def _watch(client, server, sizes):
    """Deliver each change of a ConfigMap to all watches."""
    path = '/api/v1/namespaces/default/configmaps'
    name = secrets.token_hex(4)
    version = client.read('GET', path)['metadata']['resourceVersion']
    watching = [Client(server) for _ in range(sizes.sandbox_watches)]
    try:
        streams = [each.send(
            'GET', f'{path}?watch=true&resourceVersion={version}'
            f'&fieldSelector=metadata.name%3D{name}') for each in watching]
        for number in range(sizes.sandbox_requests // 4):
            client.send('PATCH', f'{path}/{name}?fieldManager=bench', {
                'apiVersion': 'v1', 'kind': 'ConfigMap',
                'metadata': {'name': name}, 'data': _annotated(number)},
                _APPLY).read()
        for stream in streams:
            for _ in range(sizes.sandbox_requests // 4):
                stream.readline()
    finally:
        for each in watching:
            each.connection.close()
    return len(watching) * (sizes.sandbox_requests // 4)


def _start(client, server, sizes):
    """Start VMs, one after the other, until each VMI is Running."""
    version = client.read('GET', _VMIS)['metadata']['resourceVersion']
    with Client(server) as watching:
        events = watching.send(
            'GET', f'{_VMIS}?watch=true&resourceVersion={version}')
        for number in range(sizes.sandbox_starts):
            client.send('POST', _VMS, machines.vm(
                f'run-{secrets.token_hex(4)}', 'Always')).read()
            while True:
                vmi = json.loads(events.readline())['object']
                if vmi.get('status', {}).get('phase') == 'Running':
                    break
    return sizes.sandbox_starts


#: What, units of the time and of the processor time, and the function that
#: returns how often it did it.
_WORK = (
    ('GET VM', ('a second', 'ms of CPU'), _get),
    ('list VMs', ('a second', 'ms of CPU'), _list),
    ('events of watches', ('a second', 'ms of CPU'), _watch),
    ('JSON patch of a VM', ('a second', 'ms of CPU'), _patch),
    ('apply a VM', ('a second', 'ms of CPU'), _apply),
    ('VM start to Running', ('ms, mean', 'ms of CPU'), _start),
)
