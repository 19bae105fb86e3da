# SPDX-License-Identifier: Apache-2.0
"""A case for the commands, with a Kubernetes and an Ironic in memory."""

import contextlib
import io
import json
import pathlib
import tempfile

import fixtures
import openstack
from oslotest import base
import yaml

from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cmd import cluster
from tests.unit.cluster import declared
from tests.unit.cluster import live
from tests.unit.cluster import memory

VMS, BMCS = 'virtualmachines', 'virtualmachinebmcs'

FILE = {
    'cluster': {'name': 'lab', 'namespace': 'space'},
    'default_ironic_driver': 'redfish',
    'node_types': {'small': {
        'vcpus': 1, 'memory_mb': 512, 'volumes': [], 'physical_networks': []}},
    'specs': [{'type': 'small', 'count': 2,
               'ironic_config': {'resource_class': 'rc'}}]}


class CommandsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.api = memory.Memory()
        for name in 'default', 'space':
            self.api.objects['namespaces', name] = {
                'metadata': {'name': name, 'uid': f'uid-of-{name}'}}
        self.api.controller = lambda obj: live.serve(self.api, obj)
        self.ironic = declared.FakeIronic()
        self.clouds = []
        for name, value in (
                ('sushy_kubevirt.cluster.api_server.connect',
                 lambda *words: (self.api, 'default')),
                ('sushy_kubevirt.cluster.cloud.connect', self.cloud),
                ('sushy_kubevirt.cluster.ironic.client.Client',
                 lambda connection: self.ironic),
                ('sushy_kubevirt.cluster.ironic.states._INTERVAL', 0.01)):
            self.useFixture(fixtures.MonkeyPatch(name, value))
        self.useFixture(fixtures.EnvironmentVariable('OS_CLOUD'))
        self.stdin = ''

    def cloud(self, name):
        self.clouds.append(name)
        return openstack.connection.Connection(
            auth_type='none', auth={'endpoint': 'http://ironic.test'})

    def no_cloud(self):
        def refuse(name):
            raise problems.ServiceError('no cloud')
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.cluster.cloud.connect', refuse))

    def file(self, count=2, **small):
        """Write a cluster file, and return its path."""
        content = json.loads(json.dumps(FILE))
        content['specs'][0]['count'] = count
        content['node_types']['small'].update(small)
        path = self.folder / 'lab.yaml'
        path.write_text(yaml.safe_dump(content))
        return str(path)

    def run_command(self, *words, expected=0):
        """Run a command; keep ``stderr`` and return what it prints."""
        out, self.stderr = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(self.stderr):
            found = cluster.main(list(words))
        self.stderr = self.stderr.getvalue()
        self.assertEqual(expected, found, (words, self.stderr))
        return out.getvalue()

    def json(self, *words, expected=0):
        return json.loads(self.run_command(
            *words, '--format', 'json', expected=expected))

    def deploy_server(self, name):
        """Be Nova, which has deployed a server on a node."""
        node, = (one for one in self.ironic.objects['nodes'].values()
                 if one['name'] == name)
        node.update(instance_uuid='server', provision_state='active')
