# SPDX-License-Identifier: Apache-2.0
"""The VMs of the samples show their whole boot on the serial console."""

import pathlib

from oslotest import base
import yaml

SAMPLES = pathlib.Path(__file__).parents[2] / 'etc/kubernetes/samples'


class VmSamplesTestCase(base.BaseTestCase):

    def test_firmware_writes_to_the_serial_port(self):
        """UEFI always does; SeaBIOS only with ``useSerial``."""
        silent, count = [], 0
        for path in sorted(SAMPLES.rglob('*.yaml')):
            for each in yaml.safe_load_all(path.read_text()):
                if not each or each.get('kind') != 'VirtualMachine':
                    continue
                count += 1
                domain = each['spec']['template']['spec']['domain']
                loader = domain.get('firmware', {}).get('bootloader', {})
                if 'efi' not in loader and not loader.get('bios', {}).get(
                        'useSerial'):
                    silent.append((path.name, each['metadata']['name']))
        self.assertEqual([], silent)
        self.assertLess(4, count)
