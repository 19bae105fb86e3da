# SPDX-License-Identifier: Apache-2.0
"""Outlets of virtualpdu-kubevirt, with Net-SNMP's programs as the client."""

import pathlib
import signal
import subprocess

import fixtures

from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process
from tests.fixtures import checkout
from tests.fixtures import documents
from tests.fixtures import machine_case
from tests.fixtures import pdu
from tests.fixtures import sandbox
import yaml

IGNORES_ACPI = {machine_case.IGNORE_ACPI: 'true'}

VERSIONS = ('1', '2c', '3')

#: Rights for what these tests do not bring about.
RARE = {('patch', 'virtualmachines.kubevirt.io/status'),
        ('delete', 'virtualmachineinstances.kubevirt.io')}


def granted():
    """Read the rights of the manifest, as a set of (verb, resource)."""
    return {
        (verb, f"{name}.{rule['apiGroups'][0]}{slash}{subresource}")
        for obj in yaml.safe_load_all(pdu.MANIFEST.read_text())
        for rule in obj.get('rules', ())
        for name, slash, subresource in (
            resource.partition('/') for resource in rule['resources'])
        for verb in rule['verbs']}


class PduTestCase(machine_case.MachineTestCase):

    def serve(self, *vms):
        return self.useFixture(pdu.Pdu(pdu.account(self.sandbox), vms))

    def outlet_is(self, served, state, outlet=1):
        self.until(f'outlet {outlet} is {state}',
                   lambda: served.run('snmpget', outlet=outlet).stdout
                   .endswith(f' = INTEGER: {state}\n'))


class OutletTestCase(PduTestCase):

    def test_switched_by_each_version(self):
        name = self.make('Halted')
        served = self.serve(name)
        for number, version in enumerate(VERSIONS, 1):
            self.assertEqual(pdu.OFF, served.get(version=version))
            self.assertEqual(pdu.ON, served.set(pdu.ON, version=version))
            self.sandbox.wait_boot(name, number)
            self.outlet_is(served, pdu.ON)
            self.assertEqual(pdu.ON, served.get(version=version))
            self.assertEqual(pdu.OFF, served.set(pdu.OFF, version=version))
            self.sandbox.wait_stopped(name)
            self.outlet_is(served, pdu.OFF)

    def test_readme(self):
        name = self.make('Halted')
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        port = str(self.useFixture(ports.Port()).number)
        sample = checkout.ROOT / 'etc/virtualpdu/virtualpdu.conf'
        (home / 'virtualpdu.conf').write_text(
            sample.read_text().replace('node-0', name).replace('9161', port))
        steps = [(title, text.replace('etc/virtualpdu/', '').replace(
            '9161', port)) for title, text, _ in documents.blocks(
                documents.README.read_text()) if 'snmpset' in text]
        documents.write_script(steps, home)
        shell = self.useFixture(process.Process(
            ['bash', 'script'], cwd=home, env=process.environment(
                home, sandbox.credentials(pdu.account(self.sandbox)))))
        self.assertEqual(0, shell.wait(60), shell.tail(20))
        self.sandbox.wait_boot(name, 1)

    def test_reboot_replaces_the_vmi(self):
        name = self.make('Always')
        uid = self.sandbox.wait_running(name)['metadata']['uid']
        self.serve(name).set(pdu.REBOOT)
        self.sandbox.wait_running(name, other_than=uid)
        self.assertEqual(2, len(self.sandbox.boots(name)))

    def test_off_ends_a_guest_that_ignores_acpi(self):
        name = self.make('RerunOnFailure', grace=600,
                         annotations=IGNORES_ACPI)
        self.sandbox.wait_running(name)
        served = self.serve(name)
        served.set(pdu.OFF)
        self.sandbox.wait_stopped(name)
        self.outlet_is(served, pdu.OFF)

    def test_on_applies_whatever_the_power_restore_policy(self):
        # Manual is AlwaysOff; the others have never been on.
        names = [self.make(strategy) for strategy in ('Manual', 'Halted')]
        served = self.serve(*names)
        for outlet, name in enumerate(names, 1):
            served.set(pdu.ON, outlet)
            self.sandbox.wait_running(name)

    def test_outlet_shows_what_others_do(self):
        """A guest that shuts itself down, and a VM that KubeVirt starts."""
        name = self.make('RerunOnFailure')
        self.sandbox.wait_running(name)
        served = self.serve(name)
        self.outlet_is(served, pdu.ON)
        self.sandbox.guest_does(name, 'shutdown')
        self.outlet_is(served, pdu.OFF)
        self.sandbox.do(name, 'start')
        self.outlet_is(served, pdu.ON)

    def test_vm_that_takes_long_delays_no_other(self):
        slow = self.make('Manual', grace=600, annotations=IGNORES_ACPI)
        other = self.make('Halted')
        self.sandbox.do(slow, 'start')
        self.sandbox.wait_running(slow)
        served = self.serve(slow, other)
        self.sandbox.do(slow, 'stop')
        self.outlet_is(served, pdu.OFF)
        served.set(pdu.ON)
        # It waits for the guest to end.
        self.outlet_is(served, pdu.ON)
        served.set(pdu.ON, 2)
        self.sandbox.wait_running(other)
        self.assertTrue(self.sandbox.vmi(slow)['metadata'].get(
            'deletionTimestamp'))

    def test_wrong_credentials_are_refused(self):
        name = self.make('Halted')
        served = self.serve(name)
        for who in ({'community': 'public'},
                    {'version': '1', 'community': 'public'},
                    {'version': '3', 'auth': 'wrong-key-1'},
                    {'version': '3', 'priv': 'wrong-key-1'},
                    {'version': '3', 'level': 'authNoPriv'},
                    {'version': '3', 'level': 'noAuthNoPriv'}):
            done = served.run('snmpset', 'i', pdu.ON, **who)
            self.assertNotEqual(0, done.returncode, who)
        self.assertEqual(pdu.OFF, served.get())
        self.assertEqual('Halted', self.strategy(name))

    def test_outlet_without_a_vm_remembers_its_last_command(self):
        served = self.serve(self.make('Halted'))
        self.assertEqual(pdu.ON, served.get(24))
        served.set(pdu.OFF, 24)
        self.assertEqual(pdu.OFF, served.get(24))

    def test_log_has_neither_secrets_nor_values(self):
        served = self.serve(self.make('Halted'))
        for version in VERSIONS:
            served.set(pdu.ON, version=version)
        served.run('snmpset', 's', 'a\nforged line')
        served.process.wait_output('has new command')
        for secret in (*served.secrets, 'forged line'):
            self.assertNotIn(secret, served.process.output)

    def test_exactly_the_granted_rights_are_used(self):
        name = self.make('Halted')
        account = pdu.account(self.sandbox)
        self.sandbox.reset_stats()
        served = self.useFixture(pdu.Pdu(account, (name,)))
        served.set(pdu.ON)
        self.sandbox.wait_running(name)
        self.sandbox.request(
            'PUT', '/apis/subresources.kubevirt.io/v1/namespaces/'
            f'{sandbox.NAMESPACE}/virtualmachineinstances/{name}/pause',
            {}, expect=200)
        self.sandbox.wait(
            'virtualmachineinstances', name, lambda vmi: any(
                condition['type'] == 'Paused'
                for condition in vmi['status'].get('conditions', ())))
        served.set(pdu.ON)
        self.until('the call to resume', lambda: ('update', (
            'virtualmachineinstances.subresources.kubevirt.io/unpause'))
            in self.used())
        served.set(pdu.OFF)
        self.sandbox.wait_stopped(name)
        self.assertEqual(granted() - RARE, self.used() - {
            ('update', 'virtualmachineinstances.subresources.kubevirt.io'
                       '/pause')})
        self.assertEqual({}, self.sandbox.stats()['refused'])

    def used(self):
        return {(verb, resource)
                for verb, counts in self.sandbox.stats()['calls'].items()
                for resource in counts} - {
                    ('get', 'discovery'), ('list', 'kubevirts.kubevirt.io')}


class FaultTestCase(PduTestCase):

    def test_answers_while_the_cluster_is_unreachable(self):
        name = self.make('Halted')
        served = self.serve(name)
        self.sandbox.outage(8)
        self.addCleanup(self.until, 'end of the outage',
                        self.sandbox.is_available)
        self.until('genErr', lambda: 'genError' in served.run(
            'snmpget').stdout)
        self.outlet_is(served, pdu.OFF)
        served.set(pdu.ON)
        self.sandbox.wait_running(name)

    def test_deleted_vm_is_an_error_until_it_is_created_again(self):
        vm = self.make('Halted')
        served = self.serve(vm)
        spec = self.sandbox.vm(vm)
        self.sandbox.delete('virtualmachines', vm)
        self.until('genErr', lambda: 'genError' in served.run(
            'snmpget').stdout)
        served.set(pdu.ON)
        served.process.wait_output(f'{vm}: POWER_ON failed: There is no')
        del spec['status']
        self.sandbox.create('virtualmachines', {
            **spec, 'metadata': {'name': vm}})
        self.outlet_is(served, pdu.OFF)

    def test_vm_that_is_missing_at_the_start_harms_no_other(self):
        vm = self.make('Halted')
        served = self.serve(vm, f'{vm}x')
        self.assertIn('genError', served.run('snmpget', outlet=2).stdout)
        served.process.wait_output(
            f'There is no VirtualMachine {sandbox.NAMESPACE}/{vm}x')
        self.assertEqual(pdu.OFF, served.get())

    def test_sigterm(self):
        served = self.serve(self.make('Halted'))
        served.process.send(signal.SIGTERM)
        self.assertEqual(0, served.process.wait())
        self.assertNotIn('Traceback', served.process.output)


class ErrorTestCase(PduTestCase):
    """What is wrong is said in one line, and ends the program."""

    def failure(self, served, status, before='', after=''):
        path = served.config.with_name('other.conf')
        path.write_text(served.config.read_text().replace(before, after))
        done = subprocess.run(
            [process.BIN / 'virtualpdu-kubevirt', path], env=served.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(status, done.returncode, done.stderr)
        self.assertNotIn('Traceback', done.stderr)
        for secret in served.secrets:
            self.assertNotIn(secret, done.stderr)
        return done.stderr.splitlines()[-1]

    def test_errors(self):
        name = self.make('Halted')
        served = self.serve(name)
        self.assertIn('Address already in use', self.failure(served, 1))
        served.process.end()
        self.assertIn('elsewhere', self.failure(
            served, 1, f'kubevirt_namespace = {sandbox.NAMESPACE}',
            'kubevirt_namespace = elsewhere'))
        self.assertIn('[rack-3]: auth_protocol is wrong', self.failure(
            served, 2, 'SHA256', 'ROT13'))
        self.assertIn('line', self.failure(
            served, 2, 'community = ', 'community '))

    def test_unreachable_cluster(self):
        served = self.serve(self.make('Halted'))
        kubeconfig = served.config.with_name('kubeconfig')
        kubeconfig.write_text(yaml.safe_dump({
            'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'x',
            'clusters': [{'name': 'x', 'cluster': {
                'server': 'http://127.0.0.1:9'}}],
            'contexts': [{'name': 'x', 'context': {'cluster': 'x',
                                                   'user': 'x'}}],
            'users': [{'name': 'x', 'user': {'token': 'x'}}]}))
        self.assertIn('127.0.0.1', self.failure(
            served, 1, '[global]',
            f'[global]\nkubevirt_kubeconfig = {kubeconfig}'))
