# SPDX-License-Identifier: Apache-2.0
"""The sandbox beside another version of it, or a real API server.

The other version is a command that takes the options of ``kubevirt-sandbox``.
Without one the neighbour is kube-apiserver with etcd, where ``KUBE_APISERVER``
and ``ETCD`` name the programs; it gets the definition of VirtualMachines, but
has no KubeVirt that would start them.
"""

import base64
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
from tests.bench import bmc
from tests.bench import memory
from tests.bench import processor
from tests.bench import report

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


def measure(sizes, say, command: str | None = None,
            name: str = 'other') -> list[report.Row]:
    """Measure the sandbox, and a neighbour.

    :param sizes: :class:`tests.bench.plan.Sizes`
    :param say: function that gets the name of each part when it begins
    :param command: of another version; None for kube-apiserver
    :param name: what the other version is called
    """
    programs = [os.environ.get(each) for each in ('KUBE_APISERVER', 'ETCD')]

    def pair():
        yield Sandbox('ours', OURS)
        if command is not None:
            yield Sandbox(name, command)
        elif all(programs):
            yield KubeApiserver(*programs)

    say('sandbox: start')
    starts = [[], []]
    for number in range(sizes.sandbox_rounds):
        for index, server in _alternating(list(pair()), number):
            with server:
                starts[index].append(server.start)
    with fixtures.CompoundFixture([]) as holder:
        servers = [holder.useFixture(server) for server in pair()]
        neighbour = servers[1].name if servers[1:] else None
        if neighbour == KubeApiserver.name:
            with Client(servers[0]) as client:
                servers[1].define(client.read(
                    'GET', f'{_DEFINITIONS}/virtualmachines.kubevirt.io'))
        found = [bmc.row('sandbox, start to ready', unit, neighbour, *(
            [one[place] for one in each] for each in starts))
            for place, unit in enumerate(('s', 's of CPU'))]
        for server in servers:
            with Client(server) as client:
                _create(client, 'vm', sizes.sandbox_listed)
        for what, unit, work in _WORK:
            say('sandbox: ' + what)
            turns = [[], []]
            for number in range(sizes.sandbox_rounds):
                for index, server in _alternating(servers, number):
                    if hasattr(server, 'define') and work is _start:
                        continue
                    turns[index].append(_turn(server, work, sizes))
            reasons = ('', 'it has no KubeVirt' if servers[1:]
                       and not turns[1] else '')
            found += [bmc.row(f'sandbox, {what}', each, neighbour, *(
                [one[place] for one in side] for side in turns), reasons)
                for place, each in enumerate(unit)]
        say('sandbox: memory')
        sides = [[], []]
        for index, server in enumerate(servers):
            with Client(server) as client:
                _create(client, 'more',
                        sizes.sandbox_vms - sizes.sandbox_listed)
            sides[index] = [sum(memory.tree(pid)['total']
                                for pid in server.pids)]
        found.append(bmc.row(f'sandbox, memory with {sizes.sandbox_vms} VMs',
                             'MiB of PSS', neighbour, *sides))
    return found


def _alternating(servers, number):
    """Return pairs of index and server, in turns the other way round."""
    found = list(enumerate(servers))
    return found[::-1] if number % 2 else found


def _turn(server, work, sizes):
    """Return a figure of the elapsed time, and the CPU in ms, of one turn."""
    before = sum(map(processor.seconds, server.pids))
    begin = time.perf_counter()
    with Client(server) as client:
        count = work(client, server, sizes)
    elapsed = time.perf_counter() - begin
    cpu = sum(map(processor.seconds, server.pids)) - before
    return (1000 * elapsed / count if work is _start else count / elapsed,
            1000 * cpu / count)


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
