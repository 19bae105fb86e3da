# SPDX-License-Identifier: Apache-2.0
"""Common parts of tests with QEMU guests.

Provides a cluster whose guests are QEMU processes, a web server with the two
boot images, VMs whose root disk is a DataVolume with one of these images, and
their consoles. The tests control the VMs through their BMCs.

The processors are emulated (TCG) so that the guests behave the same on every
host; ``SUSHY_KUBEVIRT_TEST_ACCEL`` selects another accelerator.
"""

import itertools
import os
import shutil
import uuid

import fixtures
from testtools import content

from kubevirt_sandbox.testing import case
from kubevirt_sandbox.testing import console
from kubevirt_sandbox.testing import images
from kubevirt_sandbox.testing import webserver

ACCELERATOR = os.environ.get('SUSHY_KUBEVIRT_TEST_ACCEL', 'tcg')
ISO = images.BANNER % 'ISO'
DISK = images.BANNER % 'DISK'

_names = (f'real-{number}' for number in itertools.count(1))


def needed():
    """Return the names of missing packages that these tests need."""
    found = images.missing()
    for program, package in (('qemu-system-x86_64', 'qemu-system-x86'),
                             ('setpriv', 'util-linux')):
        if shutil.which(program) is None:
            found.append(package)
    if not os.path.exists('/usr/share/OVMF/OVMF_CODE_4M.fd'):
        found.append('ovmf')
    return sorted(found)


class WebServer(fixtures.Fixture):
    """A web server for the images, at ``url`` + ``iso`` or ``disk``.

    ``disk-full`` has the drivers for SATA and USB.
    """

    def _setUp(self):
        folder = self.useFixture(fixtures.TempDir()).path
        for name, path in (('iso', images.iso()), ('disk', images.disk()),
                           ('disk-full', images.disk(full=True))):
            os.symlink(path, os.path.join(folder, name))
        self.url = self.useFixture(webserver.files(folder)).url + '/'


def vm(name, url, efi=False, cd=None, **domain):
    """Make a VM with an imported root disk, a CD-ROM drive and a NIC.

    :param name: name of the VM.
    :param url: URL of the image of its root disk.
    :param efi: whether it has UEFI firmware, or a dictionary of the fields
        of ``bootloader.efi``.
    :param cd: reference of the container image in the drive; None leaves
        the drive empty.
    :param domain: further fields of the domain.
    :returns: the VM as a dictionary for the API.
    """
    more = efi if isinstance(efi, dict) else {}
    loader = ({'efi': {'secureBoot': False, **more}} if efi
              else {'bios': {'useSerial': True}})
    volumes = [{'name': 'root', 'dataVolume': {'name': name}}]
    if cd:
        volumes.append({'name': 'cd', 'containerDisk': {'image': cd}})
    return {
        'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
        'metadata': {'name': name, 'namespace': 'default'},
        'spec': {
            'runStrategy': 'RerunOnFailure',
            'dataVolumeTemplates': [{
                'metadata': {'name': name},
                'spec': {'source': {'http': {'url': url}},
                         'storage': {'resources': {
                             'requests': {'storage': '64Mi'}}}}}],
            'template': {
                'metadata': {'labels': {'machine': name}},
                'spec': {
                    'terminationGracePeriodSeconds': 60,
                    'domain': {
                        'cpu': {'sockets': 1, 'cores': 1, 'threads': 1},
                        'memory': {'guest': '256Mi'},
                        'firmware': {'uuid': str(uuid.uuid4()),
                                     'serial': 'serial-of-' + name,
                                     'bootloader': loader},
                        'devices': {
                            'disks': [
                                {'name': 'root', 'disk': {'bus': 'virtio'}},
                                {'name': 'cd', 'cdrom': {'bus': 'sata'}}],
                            'interfaces': [
                                {'name': 'default', 'masquerade': {},
                                 'macAddress': '52:54:00:12:34:56'}]},
                        **domain},
                    'networks': [{'name': 'default', 'pod': {}}],
                    'volumes': volumes}}}}


class QemuTestCase(case.SandboxTestCase):
    """A test case whose sandbox runs its guests with QEMU."""

    VMS = 0

    @classmethod
    def setUpClass(cls):
        """Start a sandbox with QEMU guests, and a web server for images."""
        if missing := needed():
            # Fail instead of skipping: these tests run only on request.
            raise AssertionError(
                'tests with real guests need these packages (see '
                'bindep.txt): ' + ' '.join(missing))
        cls.SANDBOX_ARGUMENTS = (
            '--guests', 'qemu', '--qemu-accel', ACCELERATOR,
            '--image', f'images.test/iso:1={images.iso()}',
            '--image', f'images.test/disk:1={images.disk()}')
        super().setUpClass()
        cls.web = cls.share(WebServer())

    def make(self, run_strategy=None, watch=True, image='disk', **options):
        """Create the VM ``self.name``; see :func:`vm` for the options.

        :param watch: whether to connect ``self.console``, which disconnects
            other clients of the VM's serial port.
        :param image: that of `WebServer` on its root disk.
        """
        self.name = next(_names)
        obj = vm(self.name, self.web.url + image, **options)
        if run_strategy:
            obj['spec']['runStrategy'] = run_strategy
        if watch:
            self.console = self.useFixture(console.Console(self.sandbox,
                                                           self.name))
            self.addOnException(self._attach_console)
        # Delete it afterwards to free processor time for other tests.
        self.addCleanup(self.sandbox.delete, 'virtualmachines', self.name)
        self.vm = self.sandbox.create('virtualmachines', obj)
        return self.vm

    def _attach_console(self, _exc_info):
        self.addDetail('console of ' + self.name,
                       content.text_content(self.console.output[-20000:]))
