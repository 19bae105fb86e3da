# SPDX-License-Identifier: Apache-2.0
"""README's block on the emulators, and their page, work as written."""

import pathlib
import shutil
import sys

import fixtures

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process
from tests.fixtures import base
from tests.fixtures import checkout
from tests.fixtures import documents
from tests.fixtures import image_server

SECTION = 'The emulators, for many VMs'
VM = 'etc/kubernetes/samples/vm.yaml'

#: Ends when the programs have; they stop in the background.
STOPPED = 'wait; tail --pid=$PID --follow /dev/null'


@given_cluster.needs_sandbox(
    'a cluster whose namespace default is empty, as in the documents')
class EmulatorsPageTestCase(base.SandboxTestCase):

    VMS = 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images = cls.share(image_server.ImageServer())

    def follow(self, blocks: list[tuple[str, str]]) -> dict[str, str]:
        """Run blocks in a home of their own, with VM ``node-0``.

        Ports that others may have are replaced, and the emulator may fetch
        images from loopback. Nothing may be left running.

        :param blocks: (title, text); the last ones stop the programs
        :returns: {title: output}
        """
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (home / '.venv').symlink_to(sys.prefix)
        (home / '.kube').mkdir()
        shutil.copy(self.sandbox.kubeconfig, home / '.kube' / 'config')
        shutil.copytree(checkout.ROOT / 'etc', home / 'etc')
        redfish, ipmi, vbmcd, health = (
            str(self.useFixture(ports.Port()).number) for _ in range(4))
        with open(home / 'etc/sushy-emulator/kubevirt.conf', 'a') as stream:
            stream.write(f'SUSHY_EMULATOR_LISTEN_PORT = {redfish}\n'
                         'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK = True')
        (home / '.vbmc').mkdir()
        (home / '.vbmc/virtualbmc.conf').write_text(
            f'[default]\nserver_port = {vbmcd}\n'
            # Milliseconds; hosts under load are slow.
            'server_response_timeout = 30000\nserver_spawn_wait = 10000\n')
        documents.write_script([('VM', 'kubectl apply -f ' + VM)] + [
            (title, text.replace(':8000', ':' + redfish)
             .replace('6230', ipmi)
             .replace('https://example.com', self.images.url))
            for title, text in blocks], home)
        shell = self.useFixture(process.Process(
            ['bash', 'script'], cwd=home, env=process.environment(
                home, {'VIRTBMC_HEALTH_PORT': health})))
        self.assertEqual(0, shell.wait(240), shell.tail(80))
        shell.end()
        self.assertEqual([], shell.leftovers)
        return documents.by_title(shell.output)

    def boot(self) -> str:
        """Delete the VM and return the class of device that it has booted."""
        running = self.sandbox.wait_running('node-0')
        boot = self.sandbox.boots('node-0')[-1]
        self.assertEqual(running['metadata']['uid'], boot['vmi'])
        self.sandbox.delete('virtualmachines', 'node-0')
        self.sandbox.wait('virtualmachines', 'node-0', lambda vm: vm is None)
        return boot['class']

    def test_readme(self):
        page = documents.blocks(documents.EMULATORS.read_text())
        readme = [(title, text) for title, text, _
                  in documents.blocks(documents.README.read_text())
                  if title == SECTION or text.endswith('/activate')]
        self.assertEqual(2, len(readme))
        said = self.follow([*readme, *stop(page)])[SECTION]
        self.assertIn('"Members@odata.count": 1', said)
        self.assertIn('Chassis Power Control: Up/On', said)
        self.assertEqual('Hdd', self.boot())

    def test_page(self):
        page = documents.blocks(documents.EMULATORS.read_text())
        steps = [(title, text) for title, text, _ in page
                 # README has this one; both listen at the same port.
                 if not text.startswith('sushy-emulator ')]
        self.assertEqual(len(page) - 1, len(steps))
        said = self.follow([*steps[:-1], *stop(page)])
        self.assertIn('"Members@odata.count": 1', said['Redfish'])
        self.assertIn('Chassis Power Control: Up/On', said['IPMI'])
        self.assertEqual('Cd', self.boot())


def stop(page: list[tuple[str, str, bool]]) -> list[tuple[str, str]]:
    """Return the last block of the page, with a wait for its effect."""
    title, text, _ = page[-1]
    return [('pid', 'PID=$(cat ~/.vbmc/master.pid)'), (title, text),
            ('stopped', STOPPED)]
