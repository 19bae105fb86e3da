# SPDX-License-Identifier: Apache-2.0
"""The documented backup and restore of a BMC, as they stand in the page."""

import base64
import hashlib
import json
import pathlib
import signal
import ssl

import fixtures

from kubevirt_sandbox.testing import given_cluster
from sushy_kubevirt.operator import pki
from tests.fixtures import documents
from tests.fixtures import operator

ACCOUNTS = '/redfish/v1/AccountService/Accounts'
OWN = 'A generated password, a certificate of your own'


@given_cluster.needs_sandbox(
    'a cluster whose namespace default is empty, as in the document')
class BackupTestCase(operator.OperatorTestCase):

    RUNS = False

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.kubectl = self.admin.within('default')
        self.blocks = {}
        for title, text, _ in documents.blocks(documents.BACKUP.read_text()):
            self.blocks.setdefault(title, []).append(text)
        self.addCleanup(self.delete_all)

    def run_blocks(self, title, *numbers):
        documents.run([(title, self.blocks[title][number])
                       for number in numbers], self.home,
                      self.sandbox.kubeconfig)

    def start_operator(self):
        return self.useFixture(operator.Operator(self.account))

    def lose(self, running):
        """End the operator and delete all that is backed up.

        :param running: the operator
        """
        running.process.send(signal.SIGTERM)
        self.assertEqual(0, running.process.wait())
        self.delete_all()

    def delete_all(self):
        self.kubectl('delete', 'vmbmc,vm,secret', '--all', timeout=120)
        self.admin.within(operator.NAMESPACE)(
            'delete', '--ignore-not-found', 'secret', 'sushy-kubevirt-ca')
        self.until('objects', lambda: self.kubectl.names(
            operator.OWNED, '-l', operator.LABEL + 'node-0'), [])

    def fingerprint(self, box):
        address = box.status['endpoints']['redfish']['url'].split('/')[2]
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(
            ssl.get_server_certificate((address, 443)))).hexdigest()

    def as_user(self, name, password):
        return operator.Bmc(self.kubectl, 'node-0', name, password)

    def test_backup_and_restore(self):
        first = self.start_operator()
        for name in 'vm', 'secret', 'bmc':
            self.kubectl('apply', '-f',
                         operator.MANIFESTS / f'samples/{name}.yaml')
        box = self.as_user('admin', 'password').ready()
        uuid = box.curl().json()['UUID']
        authority = self.home / 'before.crt'
        authority.write_text(box.ca_file().read_text())
        # An account that a client creates.
        self.until('account', lambda: box.curl(
            ACCOUNTS, '--json', json.dumps({
                'UserName': 'eve', 'Password': 'secret-of-eve',
                'RoleId': 'ReadOnly'})).code, 201)
        self.run_blocks('Backup', 0)
        self.assertEqual(0o700, (self.home / 'backup').stat().st_mode & 0o777)
        self.lose(first)

        self.run_blocks('Restore', 0)
        second = self.start_operator()
        self.run_blocks('Restore', 1, 2)
        eve = self.as_user('eve', 'secret-of-eve')
        self.until('eve', lambda: eve.curl(ca=authority).code, 200)
        found = box.curl(ca=authority)
        self.assertEqual((200, uuid), (found.code, found.json()['UUID']))
        self.assertEqual('Chassis Power is off',
                         eve.ipmi('-L', 'USER', 'power', 'status'))
        self.assertEqual('Chassis Power is on',
                         self.until_on(box))
        # It is deleted with the VM, and not earlier.
        owners = self.kubectl.get('secret', 'node-0-bmc-state')['metadata'][
            'ownerReferences']
        self.assertEqual(
            [self.kubectl.get('vm', 'node-0')['metadata']['uid']],
            [one['uid'] for one in owners])
        self.assertEqual([], second.warnings())

    def until_on(self, box):
        box.ipmi('power', 'on')
        self.sandbox.wait_running('node-0')
        self.until('power', lambda: box.ipmi('power', 'status'),
                   'Chassis Power is on')
        return box.ipmi('power', 'status')

    def test_generated_password_and_certificate_of_a_user(self):
        first = self.start_operator()
        self.kubectl('apply', '-f', operator.MANIFESTS / 'samples/vm.yaml')
        pair = pki.issue(pki.make('test'), ('node-0.test',))
        self.kubectl.apply({
            'apiVersion': 'v1', 'kind': 'Secret',
            'metadata': {'name': 'node-0-bmc'}, 'stringData': {
                'tls.crt': pair.certificate, 'tls.key': pair.key}},
            operator.bmc_manifest('node-0', redfish={
                'tls': {'secretName': 'node-0-bmc'}}))
        operator.Bmc(self.kubectl, 'node-0', '', '').ready()

        def read():
            return self.kubectl.get('secret', 'node-0-virtbmc-auth')['data']
        data = read()
        before = self.fingerprint(self.as_user('', ''))
        self.run_blocks('Backup', 0)
        self.run_blocks(OWN, 0)
        self.lose(first)

        # There was no authority, as no certificate was issued.
        self.start_operator()
        self.run_blocks('Restore', 1)
        self.assertNotEqual(data, read())
        self.run_blocks(OWN, 1)
        self.assertEqual(data, read())
        box = self.as_user('', '').ready()
        self.assertEqual(before, self.fingerprint(box))
        self.until('pod has the password', lambda: self.log_in(box, data),
                   True, 90)

    def log_in(self, box, data):
        """Log in by IPMI with what a Secret holds."""
        name, password = (base64.b64decode(data[key]).decode()
                          for key in ('username', 'password'))
        self.passwords.add(password)
        return self.as_user(name, password).ipmitool(
            'power', 'status').returncode == 0
