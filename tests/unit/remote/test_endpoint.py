# SPDX-License-Identifier: Apache-2.0
"""Certificates of users, and text of others in commands for a shell."""

import argparse
import base64
import contextlib
import io
import shlex
import subprocess

from oslotest import base
import yaml

from sushy_kubevirt.kubectl.commands import credentials
from sushy_kubevirt.remote import endpoint


def encoded(**data):
    return {'metadata': {'name': 's', 'uid': 'u', 'resourceVersion': '1'},
            'data': {key.replace('_', '.'): base64.b64encode(
                value.encode()).decode() for key, value in data.items()}}


class CertificateTestCase(base.BaseTestCase):

    def test_authority_of_own_certificate(self):
        live = {'metadata': {'name': 'a', 'namespace': 'b'},
                'spec': {'redfish': {'tls': {'secretName': 'tls'}}},
                'status': {'authSecret': 's', 'endpoints': {'redfish': {
                    'url': 'https://10.0.0.1/redfish/v1/Systems/1'}}}}
        login = encoded(username='admin', password='a password')
        for secret, ca in ((encoded(ca_crt='PEM'), 'PEM'),
                           (encoded(tls_crt='PEM'), None)):
            bmc = endpoint.read(live, lambda resource, name, bmc: {
                's': login, 'tls': secret}[name])
            self.assertEqual((ca, ''), (bmc.ca, bmc.authority))


class ReadyTestCase(base.BaseTestCase):

    def test_status_of_another_generation(self):
        condition = {'type': 'Ready', 'status': 'True',
                     'observedGeneration': 1}
        live = {'metadata': {'generation': 1},
                'status': {'conditions': [condition]}}
        self.assertEqual('', endpoint.not_ready(live))
        live['metadata']['generation'] = 2
        self.assertIn('not processed it yet', endpoint.not_ready(live))


class ShellTestCase(base.BaseTestCase):

    def output(self, form, **fields):
        """Return what ``credentials`` prints for a BMC."""
        class Session:

            def bmc(self, name):
                return endpoint.Bmc(**fields)

        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            credentials.run(Session(), argparse.Namespace(
                name='a', output=form, show=True))
        return output.getvalue()

    def test_no_text_becomes_a_command(self):
        evil = 'x; $(reboot) `reboot` \'"'
        for form in 'curl', 'ipmitool':
            words = shlex.split(self.output(
                form, address=evil, username=evil, password=evil, secret=evil,
                authority=evil, name=evil, namespace=evil))
            # As one word, or within it.
            self.assertTrue(any(evil in word for word in words), form)
            self.assertNotIn('$(reboot)', words, form)

    def test_no_text_becomes_a_field(self):
        evil = 'x"\nkind: Other\n\x1b[1m\\'
        for form in 'ironic', 'baremetalhost':
            text = self.output(form, address='a', username=evil,
                               password=evil, name=evil)
            self.assertNotIn('\x1b', text)
            documents = list(yaml.safe_load_all(text))
            values = documents[0].get('stringData') or documents[0]['nodes'][
                0]['driver_info']
            self.assertEqual(2, sum(value == evil for value
                                    in values.values()), form)

    def test_password_in_a_file_of_curl(self):
        text = self.output('curl', address='a', username='admin',
                           password='a"b\\c&d')
        self.assertEqual('user = "admin:a\\"b\\\\c&d"', subprocess.run(
            ['bash', '-c', 'curl() { cat; }; ' + text], text=True, check=True,
            stdout=subprocess.PIPE).stdout)
