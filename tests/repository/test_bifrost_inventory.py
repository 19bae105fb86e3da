# SPDX-License-Identifier: Apache-2.0
"""The inventory script for Bifrost says what its playbooks read."""

import json
import os
import pathlib
import subprocess
import sys

import fixtures
from oslotest import base

SCRIPT = (pathlib.Path(__file__).parents[2]
          / 'etc/bifrost/inventory/sushy_kubevirt_inventory.py')

NODES = {'a': {'name': 'a', 'network_interface': 'noop',
               'host_groups': ['baremetal', 'rack']},
         'b': {'name': 'b', 'host_groups': ['baremetal']}}


class InventoryTestCase(base.BaseTestCase):

    def run_script(self, *words, **variables):
        return subprocess.run(
            [sys.executable, SCRIPT, *words], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, env={
                'PATH': os.environ['PATH'], **variables})

    def command(self, text):
        """Make a command that prints its arguments to stderr.

        :param text: its last line
        """
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'it'
        path.write_text(f'#!/bin/bash\necho "$@" >&2\n{text}\n')
        path.chmod(0o700)
        return str(path)

    def test_hosts_and_groups(self):
        command = self.command(f"echo '{json.dumps(NODES)}'")
        done = self.run_script(
            '--list', SUSHY_KUBEVIRT_CLUSTER_FILE='lab.yaml',
            SUSHY_KUBEVIRT_COMMAND=f'{command} --context "my lab"')
        self.assertEqual(
            'inventory lab.yaml --format bifrost --context my lab\n',
            done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(['127.0.0.1'], found['localhost']['hosts'])
        self.assertEqual(['a', 'b'], found['baremetal']['hosts'])
        self.assertEqual(['a'], found['rack']['hosts'])
        self.assertEqual(
            {'name': 'a', 'host_groups': ['baremetal', 'rack'],
             'addressing_mode': 'dhcp'}, found['_meta']['hostvars']['a'])
        done = self.run_script(
            '--list', SUSHY_KUBEVIRT_CLUSTER_FILE='lab.yaml',
            SUSHY_KUBEVIRT_COMMAND=command, BIFROST_NODE_NAMES='b,c',
            DEFAULT_HOST_GROUPS='lab baremetal')
        found = json.loads(done.stdout)
        for group in 'baremetal', 'lab':
            self.assertEqual(['b'], found[group]['hosts'])

    def test_errors(self):
        for variables, code, text in (
                ({}, 1, 'SUSHY_KUBEVIRT_CLUSTER_FILE has to name a cluster'),
                ({'SUSHY_KUBEVIRT_COMMAND': '/nowhere/it'}, 1,
                 '/nowhere/it is not installed'),
                ({'SUSHY_KUBEVIRT_COMMAND': self.command(
                    'echo the reason >&2; exit 2')}, 2, 'the reason')):
            if variables:
                variables['SUSHY_KUBEVIRT_CLUSTER_FILE'] = 'lab.yaml'
            done = self.run_script('--list', **variables)
            self.assertEqual((code, ''), (done.returncode, done.stdout))
            self.assertIn(text, done.stderr)
