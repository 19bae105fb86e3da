# SPDX-License-Identifier: Apache-2.0
"""Emulator and daemon with the account of ``etc/kubernetes/bmc.yaml``.

Both work with its token. ``kubectl`` with the same token is denied
everything else.
"""

import json
import os
import pathlib
import shutil
import subprocess
import unittest

import fixtures

from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import process
from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import image_server
from tests.fixtures import sandbox
from tests.fixtures import vbmcd

KUBECTL = shutil.which('kubectl')
USER = f'system:serviceaccount:{sandbox.NAMESPACE}:emulator-virtbmc'


class BmcAccountTestCase(base.SandboxTestCase):

    VMS = 0
    EXPECTS_DENIALS = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.kubeconfig = cls.sandbox.bmc_account()
        cls.images = cls.share(image_server.ImageServer())
        cls.emulator = cls.share(emulator.Emulator(cls.kubeconfig, {
            'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK': True}))
        cls.vbmcd = cls.share(vbmcd.Vbmcd(cls.kubeconfig))

    def make(self):
        self.name = 'vm-' + os.urandom(4).hex()
        vm = machines.vm(self.name, 'Halted')
        # Remove the medium in the VM's CD-ROM.
        del vm['spec']['template']['spec']['volumes'][1]
        vm = self.sandbox.create('virtualmachines', vm)
        self.uuid = machines.uuid_of(vm)
        self.emulator.wait_system(self.uuid)

    def kubectl(self, *words, administrator=False):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        return subprocess.run(
            [KUBECTL, '--kubeconfig', self.sandbox.kubeconfig
             if administrator else self.kubeconfig, *words],
            env=process.environment(home), text=True, timeout=60,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)

    def test_emulator_and_daemon_are_denied_nothing(self):
        self.make()
        self.sandbox.reset_stats()
        self.vbmcd.add(self.name)
        # Redfish: insert a medium, boot from it.
        device = f'/redfish/v1/Systems/{self.uuid}/VirtualMedia/Cd'
        self.emulator.request(
            'POST', device + '/Actions/VirtualMedia.InsertMedia',
            {'Image': f'{self.images.url}/{self.name}.iso'},
            expect=(200, 202, 204))
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootSourceOverrideTarget': 'Cd',
            'BootSourceOverrideEnabled': 'Once'}})
        self.emulator.reset(self.uuid, 'On')
        first = self.sandbox.wait_running(self.name)
        self.sandbox.wait('datavolumes', self.name + '-bmc-cd-0', lambda dv:
                          dv and dv['status'].get('phase') == 'Succeeded')
        # IPMI: another boot device, a power cycle, power off.
        self.vbmcd.ipmi(self.name, 'chassis', 'bootdev', 'pxe')
        self.vbmcd.ipmi(self.name, 'chassis', 'power', 'cycle')
        self.sandbox.wait_running(self.name,
                                  other_than=first['metadata']['uid'])
        self.assertEqual(['Cd', 'Pxe'], [
            boot['class'] for boot in self.sandbox.boots(self.name)])
        self.emulator.request(
            'POST', device + '/Actions/VirtualMedia.EjectMedia', {},
            expect=204)
        self.vbmcd.ipmi(self.name, 'chassis', 'power', 'off')
        self.sandbox.wait('virtualmachineinstances', self.name,
                          lambda vmi: vmi is None)
        self.assertEqual({}, self.sandbox.stats()['refused'])

    @unittest.skipUnless(KUBECTL, 'kubectl is not installed')
    def test_other_calls_are_denied(self):
        self.make()
        for name in ('sushy-kubevirt-state', 'private'):
            if self.sandbox.get('secrets', name) is None:
                self.sandbox.create('secrets', {'metadata': {'name': name}})
        for words in (['secret', 'sushy-kubevirt-state'], ['vm'],
                      ['vm', self.name], ['kubevirts', '-A']):
            done = self.kubectl('get', *words)
            self.assertEqual(0, done.returncode, done.stderr)
        cannot, here = f'User "{USER}" cannot ', sandbox.NAMESPACE
        for sentence, words in (
                ('get resource "secrets" in API group "" in the namespace '
                 f'"{here}"', ['get', 'secret', 'private']),
                ('list resource "secrets" in API group "" in the namespace '
                 f'"{here}"', ['get', 'secrets']),
                ('list resource "virtualmachines" in API group "kubevirt.io" '
                 'in the namespace "kube-system"',
                 ['get', 'vm', '-n', 'kube-system']),
                ('list resource "virtualmachines" in API group "kubevirt.io" '
                 'at the cluster scope', ['get', 'vm', '-A']),
                ('delete resource "virtualmachines" in API group '
                 f'"kubevirt.io" in the namespace "{here}"',
                 ['delete', 'vm', self.name]),
                ('list resource "pods" in API group "" in the namespace '
                 f'"{here}"', ['get', 'pods']),
                ('create resource "serviceaccounts/token" in API group "" in '
                 f'the namespace "{here}"', ['create', 'token', 'default']),
                ('get resource "roles" in API group '
                 f'"rbac.authorization.k8s.io" in the namespace "{here}"',
                 ['get', 'role', 'sushy-kubevirt-bmc']),
                ('get path "/sandbox/stats"',
                 ['get', '--raw', '/sandbox/stats'])):
            done = self.kubectl(*words)
            self.assertNotEqual(0, done.returncode, done.stdout)
            self.assertIn(cannot + sentence, done.stderr)

    @unittest.skipUnless(KUBECTL, 'kubectl is not installed')
    def test_can_i_reports_permissions(self):
        self.assertIn(USER, self.kubectl('auth', 'whoami').stdout)
        for answer, words in (
                ('yes', ['patch', 'virtualmachines']),
                ('no', ['delete', 'virtualmachines']),
                ('yes', ['update', 'virtualmachines.subresources.kubevirt.io',
                         '--subresource=start']),
                ('no', ['update', 'virtualmachines.subresources.kubevirt.io',
                        '--subresource=migrate']),
                ('yes', ['get', 'secrets/sushy-kubevirt-state']),
                ('no', ['get', 'secrets/private']),
                ('no', ['patch', 'virtualmachines', '-n', 'kube-system'])):
            done = self.kubectl('auth', 'can-i', *words)
            self.assertEqual(answer, done.stdout.strip(), done.stderr)
            done = self.kubectl('auth', 'can-i', *words, '--as', USER,
                                administrator=True)
            self.assertEqual(answer, done.stdout.strip(), done.stderr)
        listed = self.kubectl('auth', 'can-i', '--list').stdout
        self.assertRegex(listed, r'secrets +\[\] +\[sushy-kubevirt-state\] '
                         r'+\[get list watch patch\]')
        self.assertNotIn('*', [line.split()[0] for line in
                               listed.splitlines() if line.strip()])

    @unittest.skipUnless(KUBECTL, 'kubectl is not installed')
    def test_kubectl_manages_accounts_and_roles(self):
        def administrate(*words):
            done = self.kubectl(*words, administrator=True)
            self.assertEqual(0, done.returncode, done.stderr)
            return done.stdout
        administrate('create', 'serviceaccount', 'reader')
        administrate('create', 'rolebinding', 'reader', '--clusterrole=view',
                     f'--serviceaccount={sandbox.NAMESPACE}:reader')
        token = administrate('create', 'token', 'reader').strip()
        for code, words in ((0, ['get', 'vm,cm']), (1, ['get', 'secrets'])):
            done = self.kubectl('--token', token, *words)
            self.assertEqual(code, done.returncode, done.stderr)
        self.assertEqual('view', json.loads(administrate(
            'get', 'rolebinding', 'reader', '-o', 'json'))['roleRef']['name'])
        administrate('delete', 'rolebinding', 'reader')
        self.assertEqual(1, self.kubectl(
            '--token', token, 'get', 'vm').returncode)
        administrate('delete', 'serviceaccount', 'reader')
        self.assertIn('must be logged in', self.kubectl(
            '--token', token, 'get', 'vm').stderr)
