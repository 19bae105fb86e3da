# SPDX-License-Identifier: Apache-2.0
"""``tools/test --cluster`` runs functional tests against a cluster."""

import functools
import re
import signal
import subprocess
import sys
import unittest

import fixtures

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import process
from tests.fixtures import base
from tests.fixtures import checkout
from tests.fixtures import sandbox

NAMESPACE = 'lab'

PASS = (
    # Judged by what the VM booted.
    'boot.test_overrides.OnceTestCase.test_graceful_restart_boots_override',
    'power.test_power.PauseTestCase.test_pause_and_resume',
    'machine.test_bmc_account.BmcAccountTestCase.test_other_calls_are_denied',
    # Of the sandbox.
    'test_kubevirt_machine.FirmwareTest.test_bios_and_efi_exclude_each_other')

SKIPPED = {
    'power.test_faults.FaultTestCase.test_reset_survives_short_outage':
        "the test needs the sandbox's fault injection",
    'power.test_problems.ProblemTestCase.test_crash_loop':
        "the test needs the sandbox's control of guests",
    'power.test_power.LateSwitchTestCase.test_another_bmc_restores_always':
        'the test needs a sandbox with --lag 0.3',
    'operator.test_status.StatusTestCase.test_two_bmcs_of_one_vm':
        'the test needs pods that run this checkout (--image)'}

OPERATOR = 'operator.test_boot.DeletedBmcTest.test_deleted_before_start'


@given_cluster.needs_sandbox('a cluster of its own')
class GivenClusterTestCase(base.SandboxTestCase):
    """The cluster is a sandbox, which the tests use by its API only."""

    VMS = 0
    EXPECTS_DENIALS = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox.create('namespaces', {'metadata': {'name': NAMESPACE}},
                           None)

    def setUp(self):
        super().setUp()
        before = self.objects()
        self.sandbox.reset_stats()
        # The cluster deletes in the background what deleted objects own.
        self.addCleanup(
            self.until, lambda: before == self.objects(),
            describe=lambda: before ^ self.objects())

    def objects(self):
        """List the paths of all objects in the cluster but Events, which
        expire."""
        found = set()
        groups = self.sandbox.request('GET', '/apis', expect=200).json()
        for version in ['/api/v1', *(
                '/apis/' + group['preferredVersion']['groupVersion']
                for group in groups['groups'])]:
            for kind in self.sandbox.request(
                    'GET', version, expect=200).json()['resources']:
                if 'list' in kind['verbs'] and kind['name'] != 'events':
                    found |= {(kind['name'], one['metadata'].get('namespace'),
                               one['metadata']['name'])
                              for one in self.sandbox.request(
                                  'GET', f"{version}/{kind['name']}",
                                  expect=200).json()['items']}
        return found

    def run_tests(self, *names, more=()):
        """Run tests of these names.

        :param more: further arguments
        :returns: exit code, and the lines of the output
        """
        home = self.useFixture(fixtures.TempDir()).path
        done = subprocess.run(
            [sys.executable, '-m', 'tools.checks', *more, '--cluster',
             str(self.sandbox.kubeconfig), '--namespace', NAMESPACE,
             '--tests', '|'.join(re.escape(one) + '$' for one in names),
             '--verbose'], cwd=checkout.ROOT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=240, env=process.environment(home, {'TMPDIR': home}))
        return done.returncode, done.stdout.splitlines()

    def test_runs_what_the_cluster_supports(self):
        code, lines = self.run_tests(*PASS, *SKIPPED)
        output = '\n'.join(lines)
        self.assertEqual((0, f'{len(PASS)} passed, 0 failed'),
                         (code, lines[-1]), output)
        self.assertIn(f'===== functional: {len(PASS) - 1} passed, 0 failed, '
                      f'{len(SKIPPED)} skipped', output)
        for name in PASS:
            self.assertRegex(output, re.escape(name) + r' \[.*\] \.\.\. ok')
        for name, why in SKIPPED.items():
            self.assertIn(f'{name} ... SKIPPED: {why}', output)
        # The cluster has seen their calls, those of the BMC's account too.
        stats = self.sandbox.stats()
        self.assertGreaterEqual(
            stats['calls']['create']['virtualmachines.kubevirt.io'], 2)
        self.assertIn(
            f'system:serviceaccount:{NAMESPACE}:{sandbox.BMC}',
            stats['refused'])

    @unittest.skipUnless(kubectl.KUBECTL, 'kubectl is not installed')
    def test_operator_is_installed_and_deleted(self):
        code, lines = self.run_tests(OPERATOR, more=[
            'functional', '--image', 'registry.invalid/sushy-kubevirt:1'])
        self.assertEqual((0, '1 passed, 0 failed'), (code, lines[-1]),
                         '\n'.join(lines))
        # The tests apply their BMCs.
        self.assertGreaterEqual(self.sandbox.stats()['calls']['patch'][
            'virtualmachinebmcs.bmc.kubevirt.io'], 1)

    def test_objects_of_others_stay_and_are_a_failure(self):
        theirs = self.sandbox.create('roles', {
            'metadata': {'name': 'sushy-kubevirt-bmc'}, 'rules': []},
            NAMESPACE)
        self.addCleanup(self.sandbox.delete, 'roles', 'sushy-kubevirt-bmc',
                        NAMESPACE)
        before = self.objects()
        code, lines = self.run_tests(PASS[0], more=['functional'])
        self.assertEqual((1, '0 passed, 1 failed'), (code, lines[-1]))
        self.assertIn('roles/sushy-kubevirt-bmc already', '\n'.join(lines))
        self.assertEqual(before, self.objects())
        self.assertEqual(theirs, self.sandbox.get(
            'roles', 'sushy-kubevirt-bmc', NAMESPACE))

    def test_run_that_is_resumed(self):
        home = self.useFixture(fixtures.TempDir()).path
        more = ['functional', '--resume', f'{home}/passed']
        for names in PASS[:1], PASS[:2]:
            code, lines = self.run_tests(*names, more=more)
            # Only the test that has not passed yet.
            self.assertEqual((0, '1 passed, 0 failed'), (code, lines[-1]),
                             '\n'.join(lines))
        with open(f'{home}/passed') as stream:
            self.assertEqual(['tests.functional.' + name for name in PASS[:2]],
                             stream.read().split())

    @unittest.skipUnless(kubectl.KUBECTL, 'kubectl is not installed')
    def test_a_signal_leaves_nothing(self):
        home = self.useFixture(fixtures.TempDir()).path
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            before = self.objects()
            run = subprocess.Popen(
                [sys.executable, '-m', 'tools.checks', 'functional',
                 '--cluster', str(self.sandbox.kubeconfig), '--namespace',
                 NAMESPACE, '--image', 'registry.invalid/sushy-kubevirt:1',
                 '--tests', r'operator\.test_spec'], cwd=checkout.ROOT,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True,
                env=process.environment(home, {'TMPDIR': home}),
                # A shell's jobs in the background ignore SIGINT.
                preexec_fn=functools.partial(
                    signal.signal, number, signal.SIG_DFL))
            self.addCleanup(run.kill)
            self.until(lambda: any(
                kind == 'virtualmachinebmcs' for kind, *_ in self.objects()),
                120)
            run.send_signal(number)
            output, _ = run.communicate(timeout=120)
            self.assertEqual(128 + number, run.returncode, output)
            # Namespaces are gone when their content is.
            self.until(lambda before=before: not {
                one for one in self.objects() - before
                if one[1] != NAMESPACE}, 60)
