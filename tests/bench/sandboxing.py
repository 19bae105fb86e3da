# SPDX-License-Identifier: Apache-2.0
"""The sandbox beside another version of it, or a real API server.

The other version is a command that takes the options of ``kubevirt-sandbox``.
Without one the neighbour is kube-apiserver with etcd, where ``KUBE_APISERVER``
and ``ETCD`` name the programs; it gets the definition of VirtualMachines, but
has no KubeVirt that would start them.
"""

from collections.abc import Iterator
import contextlib
import functools
import http.client
import json
import os
import pathlib
import secrets
import shlex
import ssl
import time

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives import serialization
import fixtures

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import polling
from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process
from kubevirt_sandbox.testing import sandbox
from tests.bench import load
from tests.bench import memory
from tests.bench import processor
from tests.bench import report
from tests.bench import rounds

OURS = str(process.BIN / 'kubevirt-sandbox')

_KUBE_APISERVER = 'kube-apiserver'

_KUBEVIRT = '/apis/kubevirt.io/v1/namespaces/default/'
_VMS = _KUBEVIRT + 'virtualmachines'
_VMIS = _KUBEVIRT + 'virtualmachineinstances'
_DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'

_JSON_PATCH = {'Content-Type': 'application/json-patch+json'}
_APPLY = {'Content-Type': 'application/apply-patch+yaml'}

#: Seconds that a server may take to become ready.
_PATIENCE = 120


def connect(server):
    """Return a client of an API server.

    :param server: has ``url``, ``token`` and ``ca``, a path
    :returns: :class:`load.Client`
    """
    return load.Client(
        server.url, {'Authorization': 'Bearer ' + server.token},
        ssl.create_default_context(cafile=server.ca), _PATIENCE)


class KubeApiserver(fixtures.Fixture):
    """kube-apiserver with etcd.

    :param apiserver: path of the program
    :param etcd: path of the program
    """

    def __init__(self, apiserver: str, etcd: str):
        super().__init__()
        self._programs = apiserver, etcd
        # Not in the time of its start.
        self._key = rsa.generate_private_key(65537, 2048).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption())

    def _setUp(self):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        port, client, peer = (self.useFixture(ports.Port()).number
                              for _ in range(3))
        tls = self.useFixture(certificates.Certificate())
        self.token, self.ca = secrets.token_hex(16), tls.ca
        self.url = f'https://127.0.0.1:{port}'
        (home / 'tokens').write_text(
            f'{self.token},bench,bench,system:masters\n')
        (home / 'key').write_bytes(self._key)
        apiserver, etcd = self._programs
        urls = [f'http://127.0.0.1:{number}' for number in (client, peer)]
        self.processes = [self.useFixture(process.Process(
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
        self._wait('/readyz')

    def _wait(self, path):
        for _ in polling.attempts(_PATIENCE):
            try:
                with connect(self) as client:
                    client.ask('GET', path)
                return
            except (OSError, http.client.HTTPException, load.Refused) as exc:
                reason = exc
            if ended := [one.tail() for one in self.processes
                         if one.returncode is not None]:
                break
        raise RuntimeError(f'kube-apiserver is not ready: {reason}\n'
                           + '\n'.join(ended))

    def define(self, definition: dict) -> None:
        """Serve a kind, by a CustomResourceDefinition of the sandbox."""
        name = definition['metadata']['name']
        with connect(self) as client:
            client.ask('POST', _DEFINITIONS, {
                'apiVersion': 'apiextensions.k8s.io/v1',
                'kind': 'CustomResourceDefinition',
                'metadata': {'name': name},
                'spec': definition['spec']})
            for _ in polling.attempts(_PATIENCE):
                if any(one['type'] == 'Established' and one['status'] == 'True'
                       for one in client.json('GET', f'{_DEFINITIONS}/{name}')
                       .get('status', {}).get('conditions', ())):
                    break
            else:
                raise RuntimeError(f'{name} is not established')
        self._wait(_VMS)


def measure(sizes, say, others=()) -> Iterator[report.Row]:
    """Measure the sandbox, and neighbours.

    :param others: pairs of the command of another version and what it is
        called; kube-apiserver if there are none
    """
    programs = [os.environ.get(name) for name in ('KUBE_APISERVER', 'ETCD')]

    def servers():
        for command, name in ((OURS, 'ours'), *others):
            yield name, sandbox.Sandbox(
                0, 0, ('--pods', 'pretended'), command=shlex.split(command))
        if all(programs) and not others:
            yield _KUBE_APISERVER, KubeApiserver(*programs)

    def started(server):
        begin = time.perf_counter()
        with server:
            return {(what, 's'): time.perf_counter() - begin,
                    (what, 's of CPU'): _processor_time(server)}

    what = 'sandbox, start to ready'
    yield from rounds.compare(what, [
        rounds.Side(name, functools.partial(started, server))
        for name, server in servers()], sizes.sandbox_rounds, say)
    with fixtures.CompoundFixture([]) as holder:
        running = {name: holder.useFixture(server)
                   for name, server in servers()}
        if _KUBE_APISERVER in running:
            with connect(running['ours']) as client:
                running[_KUBE_APISERVER].define(client.json(
                    'GET', f'{_DEFINITIONS}/virtualmachines.kubevirt.io'))
        for server in running.values():
            with connect(server) as client:
                _create(client, 'vm', sizes.sandbox_listed)
        for kind, work in _WORK.items():
            what = f'sandbox, {kind}'
            yield from rounds.compare(what, [rounds.Side(
                name, functools.partial(_turn, what, work, sizes, server),
                rounds.not_served('it has no KubeVirt' if work is _start
                                  and name == _KUBE_APISERVER else ''))
                for name, server in running.items()],
                sizes.sandbox_rounds, say)
        what = f'sandbox, memory with {sizes.sandbox_vms} VMs'
        yield from rounds.compare(what, [rounds.Side(
            name, functools.partial(_memory, what, sizes, server))
            for name, server in running.items()], 1, say)


def _memory(what, sizes, server):
    with connect(server) as client:
        _create(client, 'more', sizes.sandbox_vms - sizes.sandbox_listed)
    return {(what, 'MiB of PSS'): sum(
        sum(memory.tree(one.pid)) for one in _processes(server))}


def _processes(server):
    return getattr(server, 'processes', None) or [server.process]


def _processor_time(server):
    return sum(processor.seconds(one.pid) for one in _processes(server))


def _turn(what, work, sizes, server):
    """Return a figure of the elapsed time, and the CPU in ms."""
    before = _processor_time(server)
    begin = time.perf_counter()
    with connect(server) as client:
        count = work(client, server, sizes)
    elapsed = time.perf_counter() - begin
    cpu = _processor_time(server) - before
    return {**({(what, 'ms, mean'): 1000 * elapsed / count}
               if work is _start else {(what, 'a second'): count / elapsed}),
            (what, 'ms of CPU'): 1000 * cpu / count}


def _create(client, prefix, count):
    for number in range(count):
        client.ask('POST', _VMS, machines.vm(f'{prefix}-{number}', 'Halted'))


def _annotated(number):
    return {'bench': f'{number}-{time.monotonic_ns()}'}


def _patch(client, number):
    client.ask('PATCH', f'{_VMS}/vm-0', [
        {'op': 'test', 'path': '/metadata/name', 'value': 'vm-0'},
        {'op': 'add', 'path': '/spec/template/metadata/annotations',
         'value': _annotated(number)}], _JSON_PATCH)


def _apply(client, number):
    vm = machines.vm('applied', 'Halted')
    vm['metadata']['annotations'] = _annotated(number)
    client.ask('PATCH', f'{_VMS}/applied?fieldManager=bench', vm, _APPLY)


def _repeat(action, share=1):
    """Return the function of `_WORK` that sends a share of the requests."""
    def work(client, _server, sizes):
        count = sizes.sandbox_requests // share
        for number in range(count):
            action(client, number)
        return count

    return work


def _watch(client, server, sizes):
    """Deliver each change of a ConfigMap to all watches."""
    path = '/api/v1/namespaces/default/configmaps'
    name = secrets.token_hex(4)
    version = client.json('GET', path)['metadata']['resourceVersion']
    changes = sizes.sandbox_requests // 4
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(connect(server)).open(
            'GET', f'{path}?watch=true&resourceVersion={version}'
            f'&fieldSelector=metadata.name%3D{name}')
            for _ in range(sizes.sandbox_watches)]
        for number in range(changes):
            client.ask('PATCH', f'{path}/{name}?fieldManager=bench', {
                'apiVersion': 'v1', 'kind': 'ConfigMap',
                'metadata': {'name': name}, 'data': _annotated(number)},
                _APPLY)
        for stream in streams:
            for _ in range(changes):
                stream.readline()
    return len(streams) * changes


def _start(client, server, sizes):
    """Start VMs, one after the other, until each VMI is Running."""
    version = client.json('GET', _VMIS)['metadata']['resourceVersion']
    with connect(server) as watching:
        events = watching.open(
            'GET', f'{_VMIS}?watch=true&resourceVersion={version}')
        for number in range(sizes.sandbox_starts):
            client.ask('POST', _VMS, machines.vm(
                f'run-{secrets.token_hex(4)}', 'Always'))
            while True:
                vmi = json.loads(events.readline())['object']
                if vmi.get('status', {}).get('phase') == 'Running':
                    break
    return sizes.sandbox_starts


#: Functions of (client, server, sizes) that return how often they did it.
_WORK = {
    'GET VM': _repeat(lambda client, _: client.ask('GET', f'{_VMS}/vm-0')),
    'list VMs': _repeat(lambda client, _: client.ask('GET', _VMS), 4),
    'events of watches': _watch,
    'JSON patch of a VM': _repeat(_patch),
    'apply a VM': _repeat(_apply),
    'VM start to Running': _start,
}
