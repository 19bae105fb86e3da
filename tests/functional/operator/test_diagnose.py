# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-operator diagnose``: healthy clusters, and broken ones."""

import contextlib
import datetime
import json
import os
import signal
import subprocess

import yaml

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process
from sushy_kubevirt.operator import pki
from tests.fixtures import operator
from tests.fixtures import processes

NEEDS = 'a cluster whose parts the test may break'
BOTH_GATES = 'RebootPolicy', 'DeclarativeHotplugVolumes'


class DiagnoseCase(operator.OperatorTestCase):

    def setUp(self):
        super().setUp()
        # Those of the test before are deleted in the background.
        self.until('no BMC', lambda: self.admin.names('vmbmc', '-A'), [])

    def diagnose(self, *words, kubeconfig=None, **environ):
        """Run the command.

        :param environ: additional environment variables.
        :returns: exit status, and {reason: finding}
        """
        done = subprocess.run(
            [process.BIN / operator.NAME, 'diagnose', '--kubeconfig',
             kubeconfig or self.sandbox.kubeconfig, '--output=json', *words],
            env=process.environment(process.NO_HOME, environ),
            capture_output=True, text=True, timeout=120)
        self.assertNotIn('Traceback', done.stderr)
        for password in self.passwords:
            self.assertNotIn(password, done.stdout + done.stderr)
        findings = json.loads(done.stdout)['findings']
        return done.returncode, {one['reason']: one for one in findings}

    def of(self, bmc='box'):
        return f'{self.namespace}/{bmc}'

    def assert_found(self, status, reason, *words, **environ):
        """Check that a finding is there, and what the exit status is.

        :returns: the finding
        """
        code, found = self.diagnose(*words, **environ)
        self.assertIn(reason, found)
        self.assertEqual(status, found[reason]['status'])
        problems = [one for one in found.values()
                    if one['status'] == 'problem']
        self.assertEqual(1 if problems else 0, code)
        return found[reason]

    def assert_condition(self, bmc, type_, reason):
        """Check that a finding has the words of the BMC's condition."""
        self.until(reason, lambda: bmc.condition(type_), ('False', reason))
        found = self.assert_found('problem', reason, self.of())
        self.assertEqual(bmc.message(type_), found['message'])


@given_cluster.needs_sandbox(NEEDS)
class DiagnoseTestCase(DiagnoseCase):

    def test_healthy(self):
        box = self.bmc().ready()
        code, found = self.diagnose(self.of())
        self.assertEqual([], [
            one for one in found.values() if one['status'] != 'ok'])
        self.assertEqual(0, code)
        self.assertLessEqual(
            {'VersionSupported', 'FeatureGateOn', 'StorageClassFound',
             'ImageFound', 'DefinitionInstalled', 'PoliciesInstalled',
             'LeaseHeld', 'AuthorityValid', 'RightsGranted', 'ServiceReady',
             'EndpointsReady', 'Answers', 'CertificateValid'}, set(found))
        self.assertEqual(0, self.diagnose()[0])
        self.assertEqual('Off', box.works())

    def test_account_of_the_operator(self):
        # It may not read everything, and asks for its own rights.
        self.bmc().ready()
        code, found = self.diagnose(self.of(), kubeconfig=self.account)
        self.assertEqual({'ok', 'unknown'},
                         {one['status'] for one in found.values()})
        self.assertEqual(0, code)
        self.assertLessEqual({'RightsGranted', 'LeaseHeld', 'ServiceReady',
                              'Answers', 'CertificateValid'}, set(found))

    def test_no_vm(self):
        box = self.bmc().ready()
        self.kubectl('delete', 'vm', 'box')
        self.assert_condition(box, 'VirtualMachineAvailable',
                              'VirtualMachineNotFound')
        # Without its name, the BMC is among those that are not ready.
        self.assertEqual(f'BMC {self.of()}', self.assert_found(
            'problem', 'VirtualMachineNotFound')['area'])

    def test_node_port(self):
        self.bmc(service={'type': 'NodePort'}).ready()
        [service] = [one for one in self.kubectl.get('services')['items']
                     if one['spec']['type'] == 'NodePort']
        ports = {one['name']: one['nodePort']
                 for one in service['spec']['ports']}
        # The nodes' addresses, instead of the Service's.
        self.assertRegex(
            self.assert_found('ok', 'Answers', self.of())['message'],
            rf"^IPMI at 127\.55\.\d+\.\d+:{ports['ipmi']} answers\.$")

    def test_expired_certificate(self):
        pair = pki.issue(
            pki.make('test'), ('box.test',), datetime.datetime.now(
                datetime.UTC) - 2 * pki.CERTIFICATE_LIFE)
        self.kubectl.apply({
            'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {
                'name': 'old'}, 'stringData': {
                    'tls.crt': pair.certificate, 'tls.key': pair.key}})
        box = self.bmc(redfish={'tls': {'secretName': 'old'}})
        self.assert_condition(box, 'EndpointReady', 'CertificateExpired')

    def test_no_answer(self):
        # As behind a NetworkPolicy that drops packets: nothing comes back.
        self.bmc().ready()
        self.kubectl.apply({
            'apiVersion': 'networking.k8s.io/v1', 'kind': 'NetworkPolicy',
            'metadata': {'name': 'nobody'}, 'spec': {
                'podSelector': {}, 'policyTypes': ['Ingress']}})
        [pod] = self.kubectl.get('pods')['items']
        for pid in processes.with_environment(pod['metadata']['uid']):
            # Some processes are short-lived.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self.addCleanup(self.resume, pid)
        # Outside of the cluster, it would be usual that no datagram comes.
        code, found = self.diagnose(self.of(),
                                    KUBERNETES_SERVICE_HOST='inside')
        self.assertEqual(1, code)
        for reason, protocol in (('NoAnswer', 'Redfish'),
                                 ('NotReached', 'IPMI')):
            self.assertRegex(
                found[reason]['message'],
                f'^{protocol} at .* does not answer: it has not answered in '
                '5 s')
            self.assertIn('its pod: nobody.', found[reason]['remedy'])

    @staticmethod
    def resume(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def test_gates(self):
        self.addCleanup(self.sandbox.set_gates, BOTH_GATES)
        self.sandbox.set_gates(off=BOTH_GATES)
        found = self.assert_found('warning', 'FeatureGateOff')
        self.assertIn('add DeclarativeHotplugVolumes to', found['remedy'])
        self.sandbox.set_gates(on=[*BOTH_GATES, 'HotplugVolumes'])
        self.assert_found('warning', 'FeatureGateConflict')

    def test_wrong_version(self):
        [kubevirt] = self.admin.get('kubevirt', '-A')['items']
        metadata = kubevirt['metadata']

        def patch(version):
            self.admin.within(metadata['namespace'])(
                'patch', 'kubevirt', metadata['name'], '--type=merge',
                '--subresource=status', '-p', json.dumps({
                    'status': {'observedKubeVirtVersion': version}}))
        self.addCleanup(
            patch, kubevirt['status']['observedKubeVirtVersion'])
        patch('v1.4.0')
        self.assertIn('The version is v1.4.0; this program is made for 1.5 '
                      'to 1.9.', self.assert_found(
                          'warning', 'VersionTooOld')['message'])
        patch('v1.7.0')
        self.assert_found('warning', 'KubernetesNotSupported')

    def test_storage(self):
        def annotate(value):
            self.admin('annotate', '--overwrite', 'storageclass', 'standard',
                       'storageclass.kubernetes.io/is-default-class=' + value)
        self.addCleanup(annotate, 'true')
        annotate('false')
        self.assertIn('(but late, standard)', self.assert_found(
            'warning', 'NoDefaultStorageClass')['message'])
        annotate('true')

        def offer(*sets):
            self.admin(
                'patch', 'storageprofile', 'standard', '--type=merge', '-p',
                json.dumps({'spec': {'claimPropertySets': sets}}))
        self.addCleanup(offer)
        offer({'accessModes': ['ReadWriteMany'], 'volumeMode': 'Filesystem'})
        self.until('modes', lambda: self.admin.get(
            'storageprofile', 'standard')['status']['claimPropertySets'][0][
                'accessModes'], ['ReadWriteMany'])
        self.assert_found('warning', 'AccessModeNotOffered')
        self.bmc(virtualMedia={'storageClassName': 'fast'}).ready()
        self.assert_found('problem', 'StorageClassMissing', self.of())

    def test_missing_right(self):
        role = self.admin.get('clusterrole', operator.NAME)
        self.addCleanup(self.admin, 'replace', '-f', '-', stdin=json.dumps({
            **role, 'metadata': {'name': operator.NAME}}))
        index = next(i for i, rule in enumerate(role['rules'])
                     if 'deployments' in rule['resources'])
        self.admin('patch', 'clusterrole', operator.NAME, '--type=json',
                   '-p', json.dumps([{
                       'op': 'replace', 'path': f'/rules/{index}/verbs',
                       'value': ['get', 'list', 'watch']}]))
        found = self.assert_found('problem', 'RightsMissing')
        self.assertIn('may not create, patch, delete deployments.apps in all '
                      'namespaces.', found['message'])

    def test_installation_of_another_version(self):
        self.addCleanup(operator.install, self.admin, self.FOLDER)
        name = 'virtualmachinebmcs.bmc.kubevirt.io'
        self.admin('patch', 'crd', name, '--type=json', '-p', json.dumps([{
            'op': 'remove', 'path': '/spec/versions/0/schema/openAPIV3Schema/'
            'properties/spec/properties/virtualMedia'}]))
        self.assertIn('it lacks spec.virtualMedia.', self.assert_found(
            'problem', 'DefinitionOutdated')['message'])
        self.admin('delete', 'validatingadmissionpolicybinding',
                   'virtbmc-secrets')
        self.admin('patch', 'validatingadmissionpolicy', 'virtbmc-events',
                   '--type=merge', '-p', '{"spec": {"failurePolicy": '
                   '"Ignore"}}')
        self.assertIn('Not installed: the binding of virtbmc-secrets.',
                      self.assert_found('problem', 'PolicyMissing')['message'])
        self.assert_found('problem', 'PolicyDiffers')

    def test_unreachable_cluster(self):
        config = yaml.safe_load(self.sandbox.kubeconfig.read_text())
        port = self.useFixture(ports.Port()).number
        config['clusters'][0]['cluster']['server'] = (
            f'https://127.0.0.1:{port}')
        path = self.sandbox.kubeconfig.with_name('unreachable')
        path.write_text(yaml.safe_dump(config))
        self.addCleanup(path.unlink)
        code, found = self.diagnose(self.of(), kubeconfig=path)
        self.assertEqual((1, {'NotAnswered'}), (code, set(found)))


@given_cluster.needs_sandbox(NEEDS)
class WithoutOperatorTestCase(DiagnoseCase):
    """A cluster without CDI, in which the operator does not run."""

    SANDBOX = '--no-cdi', *operator.PRETENDED_PODS
    RUNS = False

    def test_no_cdi_and_no_operator(self):
        self.bmc()
        code, found = self.diagnose(self.of())
        self.assertEqual(1, code)
        self.assertEqual('warning', found['CDIMissing']['status'])
        # As the Deployment is there, with no replica.
        self.assertIn('--replicas 2', found['LeaseNotHeld']['remedy'])
        self.assertLessEqual({'NotManaged', 'AccountMissing'}, set(found))
        # The words of the conditions, without an operator.
        self.assertEqual(
            'Secret box-virtbmc-tls with the certificate is being created. If '
            "this lasts, see the operator's log.",
            found['CertificatePending']['message'])

    def test_rights_of_a_bmc(self):
        self.bmc()
        self.kubectl('create', 'serviceaccount', 'box-virtbmc')
        code, found = self.diagnose(self.of())
        self.assertEqual(1, code)
        self.assertIn(
            f'system:serviceaccount:{self.namespace}:box-virtbmc may not get, '
            'list, watch, patch virtualmachines.kubevirt.io box in namespace '
            f'{self.namespace}', found['RightsMissing']['message'])

    def test_operator_of_another_version(self):
        self.addCleanup(operator.install, self.admin, self.FOLDER)
        self.admin.within(operator.NAMESPACE)(
            'patch', 'deployment', operator.NAME, '--type=json', '-p',
            json.dumps([{
                'op': 'replace', 'value': 'registry.test:5000/x:0.0.0',
                'path': '/spec/template/spec/containers/0/image'}]))
        self.assertIn(
            'is registry.test:5000/x:0.0.0, and this program has version',
            self.assert_found('warning', 'ImageOfAnotherVersion')['message'])

    def test_output_that_is_not_read(self):
        # As "diagnose | head -n 1".
        with subprocess.Popen(
                [process.BIN / operator.NAME, 'diagnose', '--kubeconfig',
                 self.sandbox.kubeconfig], text=True,
                env=process.environment(process.NO_HOME, {}),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            self.assertIn('diagnose, version ', running.stdout.readline())
            running.stdout.close()
            err = running.stderr.read()
        self.assertEqual(141, running.returncode)
        self.assertNotIn('Traceback', err)
        self.assertNotIn('BrokenPipe', err)

    def test_no_operator_at_all(self):
        self.addCleanup(operator.install, self.admin, self.FOLDER)
        self.admin.within(operator.NAMESPACE)('delete', 'deployment',
                                              operator.NAME)
        self.assert_found('problem', 'OperatorMissing')
        self.admin('delete', 'crd', 'virtualmachinebmcs.bmc.kubevirt.io')
        self.assert_found('problem', 'DefinitionMissing')


@given_cluster.needs_sandbox(NEEDS)
class DeployingTestCase(DiagnoseCase):

    SANDBOX = ('--deploying',)

    def test_kubevirt_that_is_being_deployed(self):
        self.sandbox.set_gates()
        found = self.assert_found('warning', 'NotDeployed')
        self.assertIn('Deploying version v1.9.0', found['message'])
        code, findings = self.diagnose()
        self.assertEqual(0, code)
        self.assertEqual('ok', findings['FeatureGateOn']['status'])
        self.assertNotIn('VersionUnknown', findings)
