# SPDX-License-Identifier: Apache-2.0
"""``kubectl`` with the sandbox.

The asserted output is that of a real cluster.
"""

import json
import os
import pathlib
import shutil
import subprocess
import unittest

import fixtures
import yaml

from kubevirt_sandbox.testing import case
from kubevirt_sandbox.testing import sandbox

KUBECTL = shutil.which('kubectl')


def config_map(**data):
    return {'apiVersion': 'v1', 'kind': 'ConfigMap',
            'metadata': {'name': 'settings', 'labels': {'app': 'x'}},
            'data': data}


@unittest.skipUnless(KUBECTL, 'kubectl is not installed')
class KubectlTestCase(case.FunctionalTestCase):
    """Each test has its own namespace."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.share(sandbox.Sandbox(vms=3))

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.namespace = 'n-' + os.urandom(4).hex()
        self.kubectl('create', 'namespace', self.namespace)
        self.addCleanup(self.kubectl, 'delete', 'namespace', self.namespace,
                        '--wait=false')

    def run_kubectl(self, *words, stdin=None):
        return subprocess.run(
            [KUBECTL, *words], input=stdin, capture_output=True, text=True,
            timeout=60, env={
                **os.environ, 'HOME': str(self.home),
                'KUBECONFIG': str(self.sandbox.kubeconfig)})

    def kubectl(self, *words, stdin=None):
        """Run kubectl, which must succeed; return its output."""
        done = self.run_kubectl(*words, stdin=stdin)
        self.assertEqual(0, done.returncode, done.stderr + done.stdout)
        return done.stdout

    def failed(self, *words, stdin=None):
        """Run kubectl, which must fail; return its error output."""
        done = self.run_kubectl(*words, stdin=stdin)
        self.assertNotEqual(0, done.returncode, done.stdout)
        return done.stderr

    def call(self, *words, **more):
        """Run kubectl in the namespace of the test."""
        return self.kubectl('-n', self.namespace, *words, **more)

    def call_fails(self, *words, **more):
        return self.failed('-n', self.namespace, *words, **more)

    def file(self, obj, name='object.yaml'):
        path = self.home / name
        path.write_text(yaml.safe_dump(obj))
        return str(path)

    def get(self, *words):
        return json.loads(self.call('get', *words, '-o', 'json',
                                    '--show-managed-fields'))

    def make_vm(self, name='box'):
        vm = json.loads(self.kubectl('get', 'vm', 'vm-0', '-o', 'json'))
        # Firmware UUID and serial are unique; the new VM gets its own.
        vm['spec']['template']['spec']['domain'].pop('firmware', None)
        for nic in vm['spec']['template']['spec']['domain']['devices'][
                'interfaces']:
            nic.pop('macAddress', None)
        obj = {'apiVersion': vm['apiVersion'], 'kind': vm['kind'],
               'metadata': {'name': name}, 'spec': vm['spec']}
        self.call('create', '-f', self.file(obj))
        return obj

    def test_api_resources_and_versions(self):
        lines = self.kubectl('api-resources').splitlines()
        names = {line.split()[0] for line in lines}
        self.assertLessEqual({
            'virtualmachines', 'virtualmachineinstances', 'configmaps',
            'customresourcedefinitions', 'leases'}, names)
        self.assertIn('vm,vms', self.kubectl(
            'api-resources', '--api-group=kubevirt.io'))
        self.assertIn('kubevirt.io/v1', self.kubectl('api-versions'))
        self.assertIn('Server Version', self.kubectl('version'))
        self.assertEqual('yes\n', self.kubectl('auth', 'can-i', 'get',
                                               'virtualmachines'))
        self.assertIn('kubernetes-admin', self.kubectl('auth', 'whoami'))

    def test_get_and_selectors(self):
        rows = [line.split() for line in self.kubectl(
            'get', 'vm').splitlines()]
        self.assertEqual(['NAME', 'AGE', 'STATUS', 'READY'], rows[0])
        self.assertEqual(['vm-0', 'vm-1', 'vm-2'], [r[0] for r in rows[1:]])
        self.kubectl('get', 'vmi,vm', '-A', '-o', 'wide')
        self.assertEqual('vm-1', self.kubectl(
            'get', 'vm', '--field-selector', 'metadata.name=vm-1', '-o',
            'jsonpath={.items[*].metadata.name}'))
        self.assertIn('Active', self.kubectl('get', 'ns', 'default'))
        self.assertIn('virtualmachine.kubevirt.io/vm-0',
                      self.kubectl('get', 'all', '-n', 'default'))
        self.assertEqual('virtualmachine.kubevirt.io/vm-0\n', self.kubectl(
            'get', 'vm', 'vm-0', '-o', 'name'))
        self.assertEqual(3, len(self.kubectl(
            'get', 'vm', '--chunk-size=2', '--no-headers').splitlines()))

    def test_missing_objects(self):
        self.assertEqual(
            'Error from server (NotFound): virtualmachines.kubevirt.io '
            '"nix" not found\n', self.failed('get', 'vm', 'nix'))
        self.assertIn("the server doesn't have a resource type",
                      self.failed('get', 'nix'))
        self.assertIn('namespaces "nix" not found', self.failed(
            'create', 'configmap', 'x', '-n', 'nix'))

    def test_describe(self):
        self.make_vm()
        self.call('patch', 'vm', 'box', '--type=merge', '-p',
                  '{"spec":{"runStrategy":"Always"}}')
        self.call('wait', 'vm/box', '--for=condition=Ready',
                          '--timeout=30s')
        text = self.call('describe', 'vm', 'box')
        self.assertRegex(text, r'Run Strategy: +Always')
        self.assertRegex(text, r'Normal +SuccessfulCreate')
        self.assertIn('SuccessfulCreate', self.call('events'))

    def test_explain(self):
        self.assertRegex(self.kubectl('explain', 'vm.spec.runStrategy'),
                         r'FIELD: runStrategy <string>')
        self.assertIn('data\t<map[string]string>',
                      self.kubectl('explain', 'configmap'))
        self.assertIn('does not exist',
                      self.failed('explain', 'vm.spec.nix'))

    def test_apply(self):
        path = self.file(config_map(a='1', b='2'))
        self.assertEqual('configmap/settings created\n',
                         self.call('apply', '-f', path))
        self.assertEqual('configmap/settings unchanged\n',
                         self.call('apply', '-f', path))
        path = self.file(config_map(a='1', c='3'))
        done = self.run_kubectl('-n', self.namespace, 'diff', '-f', path)
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertIn('-  b: "2"', done.stdout)
        self.assertIn('+  c: "3"', done.stdout)
        self.assertEqual('configmap/settings configured\n',
                         self.call('apply', '-f', path))
        self.assertEqual({'a': '1', 'c': '3'},
                         self.get('configmap', 'settings')['data'])

    def test_apply_vm(self):
        obj = self.make_vm()
        obj['spec']['template']['spec']['domain']['memory'] = {
            'guest': '128Mi'}
        path = self.file(obj)
        self.call('apply', '-f', path)
        self.assertIn('unchanged', self.call('apply', '-f', path))
        self.assertEqual('128Mi', self.get('vm', 'box')['spec']['template'][
            'spec']['domain']['memory']['guest'])

    def test_apply_server_side(self):
        path = self.file(config_map(a='1', b='2'))
        self.assertEqual('configmap/settings serverside-applied\n',
                         self.call('apply', '--server-side', '-f', path))
        self.call('patch', 'configmap', 'settings', '-p',
                  '{"data":{"a":"9","z":"0"}}')
        path = self.file(config_map(a='1'))
        message = self.call_fails('apply', '--server-side', '-f', path)
        self.assertIn('Apply failed with 1 conflict: conflict with '
                      '"kubectl-patch" using v1: .data.a', message)
        self.call('apply', '--server-side', '--force-conflicts', '-f', path)
        made = self.get('configmap', 'settings')
        # b is no longer applied; z belongs to another manager.
        self.assertEqual({'a': '1', 'z': '0'}, made['data'])
        managers = {m['manager']: m['fieldsV1']
                    for m in made['metadata']['managedFields']}
        self.assertEqual({'f:data': {'f:a': {}}, 'f:metadata': {
            'f:labels': {'f:app': {}}}}, managers['kubectl'])
        self.assertEqual({'f:data': {'f:z': {}}}, managers['kubectl-patch'])

    def test_migrates_from_client_side_to_server_side_apply(self):
        path = self.file(config_map(a='1', b='2'))
        self.call('apply', '-f', path)
        path = self.file(config_map(a='2'))
        self.call('apply', '--server-side', '-f', path)
        self.assertEqual({'a': '2'}, self.get('configmap', 'settings')[
            'data'])

    def test_unknown_fields(self):
        obj = self.make_vm()
        obj['spec']['nix'] = 1
        message = self.call_fails('apply', '-f', self.file(obj))
        self.assertIn('unknown field "spec.nix"', message)
        self.assertIn('.spec.nix: field not declared in schema',
                      self.call_fails('apply', '--server-side', '-f',
                                      self.file(obj)))
        done = self.run_kubectl('-n', self.namespace, 'apply',
                                '--validate=warn', '-f', self.file(obj))
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('Warning: unknown field "spec.nix"', done.stderr)

    def test_patch(self):
        self.make_vm()
        self.call('patch', 'vm', 'box', '--type=json', '-p', json.dumps([
            {'op': 'test', 'path': '/spec/runStrategy', 'value': 'Halted'},
            {'op': 'add', 'path': '/metadata/labels', 'value': {'x': 'y'}}]))
        self.assertEqual({'x': 'y'}, self.get('vm', 'box')['metadata'][
            'labels'])
        message = self.call_fails('patch', 'vm', 'box', '--type=json', '-p',
                                           json.dumps([{'op': 'test', 'path':
                                                        '/spec/runStrategy',
                                                        'value': 'Manual'}]))
        self.assertEqual('The request is invalid: the server rejected our '
                         'request due to an error in our request\n', message)
        self.assertIn('Sometimes', self.call_fails(
            'patch', 'vm', 'box', '--type=merge', '-p',
            '{"spec":{"runStrategy":"Sometimes"}}'))
        self.call('create', '-f', self.file(config_map(a='1')))
        self.call('patch', 'configmap', 'settings', '--type=strategic',
                  '-p', '{"data":{"b":"2","a":null}}')
        self.assertEqual({'b': '2'},
                         self.get('configmap', 'settings')['data'])

    def test_label_and_annotate(self):
        self.make_vm()
        self.call('label', 'vm', 'box', 'a=b')
        self.call('annotate', 'vm', 'box', 'c=d')
        self.assertIn('box', self.call('get', 'vm', '-l', 'a in (b,c)'))
        self.assertEqual('', self.call('get', 'vm', '-l', 'a=c', '-o',
                                       'name'))
        self.call('label', 'vm', 'box', 'a-')
        meta = self.get('vm', 'box')['metadata']
        self.assertNotIn('a', meta.get('labels', {}))
        self.assertEqual('d', meta['annotations']['c'])

    def test_replace_and_edit(self):
        self.make_vm()
        old = self.get('vm', 'box')
        old['metadata']['labels'] = {'x': 'z'}
        path = self.file(old)
        self.call('label', 'vm', 'box', 'later=1')
        self.assertIn('the object has been modified; please apply your '
                      'changes to the latest version and try again',
                      self.call_fails('replace', '-f', path))
        editor = self.home / 'editor'
        editor.write_text('#!/bin/sh\nsed -i "s/later: .*/later: two/" "$1"')
        editor.chmod(0o700)
        done = subprocess.run(
            [KUBECTL, '-n', self.namespace, 'edit', 'vm', 'box'],
            capture_output=True, text=True, timeout=60,
            env={**os.environ, 'HOME': str(self.home),
                 'KUBE_EDITOR': str(editor),
                 'KUBECONFIG': str(self.sandbox.kubeconfig)})
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual('two', self.get('vm', 'box')['metadata']['labels'][
            'later'])

    def test_wait_and_watch(self):
        self.make_vm()
        with subprocess.Popen(
                [KUBECTL, '-n', self.namespace, 'get', 'vm', '-w',
                 '--no-headers'], stdout=subprocess.PIPE, text=True,
                env={**os.environ, 'HOME': str(self.home),
                     'KUBECONFIG': str(self.sandbox.kubeconfig)}) as watch:
            try:
                self.assertIn('Stopped', watch.stdout.readline())
                self.call('patch', 'vm', 'box', '--type=merge', '-p',
                          '{"spec":{"runStrategy":"Always"}}')
                self.call('wait', 'vm/box', '--timeout=30s',
                          '--for=jsonpath={.status.printableStatus}=Running')
                for line in watch.stdout:
                    if 'Running' in line:
                        break
            finally:
                watch.kill()
        self.call('delete', 'vm', 'box', '--timeout=30s')
        self.assertEqual('', self.call('get', 'vm,vmi', '-o', 'name'))

    def test_delete(self):
        for name in ('a', 'b', 'c'):
            self.call('create', 'configmap', name, '--from-literal=x=' + name)
        self.assertIn('configmap "a" deleted',
                      self.call('delete', 'configmap', 'a'))
        self.call('delete', 'configmap', '--all')
        self.assertEqual('', self.call('get', 'configmap', '-o', 'name'))
        self.assertIn('(NotFound)', self.call_fails(
            'delete', 'configmap', 'a'))
        self.assertIn('may not be deleted',
                      self.failed('delete', 'namespace', 'default'))

    def test_create_commands(self):
        self.call('create', 'secret', 'generic', 's', '--from-literal=a=b')
        self.assertEqual({'a': 'Yg=='}, self.get('secret', 's')['data'])
        self.call('create', 'serviceaccount', 'robot')
        self.call('create', 'service', 'clusterip', 'web', '--tcp=80:8080')
        self.assertEqual(
            [{'name': '80-8080', 'port': 80, 'protocol': 'TCP',
              'targetPort': 8080}],
            self.get('service', 'web')['spec']['ports'])
        self.assertIn('"robot" already exists', self.call_fails(
            'create', 'serviceaccount', 'robot'))

    def test_list_of_objects(self):
        # kubectl reads the OpenAPI document in protobuf for lists.
        objects = [config_map(a='1') for _ in range(2)]
        for number, obj in enumerate(objects):
            obj['metadata']['name'] = f'c{number}'
        path = self.file({'apiVersion': 'v1', 'kind': 'List',
                          'items': objects})
        self.assertEqual('configmap/c0 created\nconfigmap/c1 created\n',
                         self.call('create', '-f', path))
        self.assertEqual(
            'configmap/c0 configured\nconfigmap/c1 configured\n',
            self.call('apply', '-f', path))

    def test_get_nodes(self):
        self.assertRegex(self.kubectl('get', 'nodes', '--no-headers'),
                         r'^node-0 +Ready ')

    def test_dry_run(self):
        self.call('create', '-f', self.file(config_map(a='1')),
                  '--dry-run=server')
        self.assertNotIn('settings', self.call('get', 'configmap', '-o',
                                               'name'))

    def test_custom_resource_definition(self):
        group = self.namespace + '.test'
        self.kubectl('apply', '-f', self.file({
            'apiVersion': 'apiextensions.k8s.io/v1',
            'kind': 'CustomResourceDefinition',
            'metadata': {'name': 'boats.' + group},
            'spec': {'group': group, 'scope': 'Namespaced',
                     'names': {'plural': 'boats', 'kind': 'Boat',
                               'singular': 'boat'},
                     'versions': [{
                         'name': 'v1', 'served': True, 'storage': True,
                         'schema': {'openAPIV3Schema': {
                             'type': 'object', 'properties': {'spec': {
                                 'type': 'object', 'properties': {'masts': {
                                     'type': 'integer',
                                     'maximum': 3}}}}}}}]}}))
        self.addCleanup(self.kubectl, 'delete', 'crd', 'boats.' + group)
        self.kubectl('wait', 'crd/boats.' + group,
                     '--for=condition=Established', '--timeout=10s')
        boat = {'apiVersion': group + '/v1', 'kind': 'Boat',
                'metadata': {'name': 'a'}, 'spec': {'masts': 9}}
        message = self.call_fails('apply', '-f', self.file(boat))
        self.assertIn(
            'The Boat "a" is invalid: spec.masts: Invalid value: 9: '
            'spec.masts in body should be less than or equal to 3', message)
        boat['spec']['masts'] = 2
        self.call('apply', '-f', self.file(boat))
        self.assertIn('masts\t<integer>', self.kubectl(
            'explain', 'boat.spec', '--api-version=' + group + '/v1'))
