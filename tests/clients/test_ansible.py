# SPDX-License-Identifier: Apache-2.0
"""Ansible with the collection community.general, a playbook per protocol."""

import json
import re

from tests.clients import case
from tests.clients import environment

PYTHON = environment.PYTHON


class AnsibleTestCase(case.ClientTestCase):

    CLIENT = 'Ansible, community.general'
    VARIABLES = {'ANSIBLE_LOCALHOST_WARNING': 'false',
                 'ANSIBLE_NOCOLOR': 'true'}

    @classmethod
    def version(cls):
        collection = next(PYTHON.folder.glob(
            'lib/*/site-packages/ansible_collections/community/general/'
            'MANIFEST.json'))
        return ', '.join((PYTHON.version_of('ansible-core'), json.loads(
            collection.read_text())['collection_info']['version']))

    def play(self, name, **variables):
        """Run a playbook and return its output."""
        values = self.home / f'{name}.json'
        values.write_text(json.dumps(dict(
            variables, address=self.address, username=self.bmc.username,
            password=self.bmc.password,
            ansible_python_interpreter=str(PYTHON.bin / 'python'))))
        values.chmod(0o600)
        output = self.run_command(
            PYTHON.bin / 'ansible-playbook', '--inventory', 'localhost,',
            '--extra-vars', f'@{values}',
            environment.SOURCES / 'playbooks' / f'{name}.yml', timeout=280)
        tasks, = re.findall(r'ok=(\d+) .* failed=0 ', output)
        self.record(f'playbooks/{name}.yml',
                    result=f'{tasks} tasks, none failed')
        return output

    def test_redfish(self):
        self.power('Off')
        self.play('redfish', ca=str(self.ca), image=self.image(),
                  machine=case.NAME)
        self.assertEqual('Blinking', self.get(case.SYSTEM)['IndicatorLED'])
        # The one-time boot came first; no later start repeated it.
        self.assertEqual(['Pxe'], self.boots()[:1])
        self.assertEqual('Hdd', self.boots()[-1])

    def test_ipmi(self):
        self.power('Off')
        count = len(self.boots())
        self.play('ipmi')
        self.assertEqual('Pxe', self.boots()[count])
