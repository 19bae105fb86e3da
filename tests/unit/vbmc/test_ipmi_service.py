# SPDX-License-Identifier: Apache-2.0
"""What is loaded before IPMI's port is served."""

import subprocess
import sys
import textwrap

import fixtures
from oslotest import base

from tests.fixtures import checkout


class ModulesTestCase(base.BaseTestCase):

    #: Modules that only a login, a command or the cluster needs.
    LATER = {
        'Cryptodome.Cipher.AES', 'ssl', 'urllib3',
        'sushy_kubevirt.bmc.accounts', 'sushy_kubevirt.kube.client',
        'sushy_kubevirt.machine.machine', 'vbmc_kubevirt.backends',
        'vbmc_kubevirt.command_table', 'vbmc_kubevirt.commands.chassis',
        'vbmc_kubevirt.commands.completion', 'vbmc_kubevirt.restart_cause'}

    def test_modules_at_the_first_answer(self):
        code = textwrap.dedent("""
            import sys
            from sushy_kubevirt.pod import lazy_modules
            from sushy_kubevirt.pod import rare_modules
            rare_modules.defer()
            import asyncio
            from vbmc_kubevirt.cmd import bmc
            from vbmc_kubevirt.ipmi import packet
            from vbmc_kubevirt import ipmi_service

            def report(when):
                print(when, *(
                    name for name, module in list(sys.modules.items())
                    if module and not lazy_modules._is_deferred(module)))

            async def main():
                ipmi = ipmi_service.IpmiService(bmc.read({
                    'VIRTBMC_VM': 'lab/vm', 'VIRTBMC_AUTH_FOLDER': '.',
                    'POD_IP': '127.0.0.1', 'VIRTBMC_PORT': '0'}), None)
                server = ipmi._bmc.server
                ipmi._bmc.start(ipmi._socket)
                sent = []
                server._send = lambda data, address: sent.append(data)
                request = packet.wrap_v15(bytes.fromhex(
                    '2018c8810038 8e04b5'))
                server.receive(request, ('127.0.0.1', 5))
                report('first' if len(sent) == 1 else f'not one: {sent}')
                await asyncio.get_running_loop().run_in_executor(
                    None, ipmi._bmc.machine)

            try:
                asyncio.run(main())
            finally:
                report('later')
        """)
        # There is no cluster to connect to.
        self.useFixture(fixtures.EnvironmentVariable('KUBECONFIG'))
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBERNETES_SERVICE_HOST'))
        done = subprocess.run(
            # As in images, without assert.
            [sys.executable, '-OO', '-c', code], cwd=checkout.ROOT,
            capture_output=True, text=True)
        (when, *first), (_, *later) = map(
            str.split, done.stdout.splitlines())
        self.assertEqual('first', when)
        first, later = set(first), set(later)
        self.assertIn('vbmc_kubevirt.ipmi.session20', first)
        self.assertEqual(set(), first & self.LATER)
        # Both protocols answer before the modules of a login are loaded.
        self.assertIn('ConfigError', done.stderr)
        self.assertIn('vbmc_kubevirt.backends', later)
        self.assertEqual(set(), later & {
            'Cryptodome.Cipher.AES', 'vbmc_kubevirt.command_table'})
