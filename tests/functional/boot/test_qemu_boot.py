# SPDX-License-Identifier: Apache-2.0
"""One-time boot overrides with real firmware (QEMU).

The firmware boots the override target once and its disk afterwards. Every
change is made through the BMCs, Redfish and IPMI; the serial port shows what
booted. CDI imported the root disk and the ISO from a web server, the ISO
because it was inserted into the virtual drive.
"""


from kubevirt_sandbox.testing import qemu
from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import vbmcd

SYSTEMS = '/redfish/v1/Systems/'
IPXE = 'Open Source Network Boot Firmware'


class _Machine(qemu.QemuTestCase, base.SandboxTestCase):
    """A machine with QEMU, served by ``emulator`` under ``uuid``."""

    def make(self, **options):
        super().make(run_strategy='Halted', **options)
        self.uuid = self.vm['spec']['template']['spec']['domain'][
            'firmware']['uuid']
        self.emulator.wait_system(self.uuid)

    def boots(self, what, mark=0):
        """Wait for an image's banner on the console.

        :param mark: position in the console's output to search from.
        :returns: the position after the banner.
        """
        found = self.console.wait(
            f'{what} by {self.FIRMWARE} on {self.uuid}', mark, timeout=120)
        return mark + found.end()

    FIRMWARE = 'BIOS'

    def device(self):
        return self.emulator.request(
            'GET', SYSTEMS + self.uuid + '/VirtualMedia/Cd',
            expect=200).json()

    def insert(self):
        """Insert the ISO and wait until the import is done."""
        self.emulator.request(
            'POST', SYSTEMS + self.uuid + '/VirtualMedia/Cd/Actions/'
            'VirtualMedia.InsertMedia', {'Image': self.web.url + 'iso'},
            expect=204)
        self.assertTrue(self.device()['Inserted'])
        self.until(lambda: self.device()['Status'] == {
            'State': 'Enabled', 'Health': 'OK'})

    def eject(self, expect=204):
        self.emulator.request(
            'POST', SYSTEMS + self.uuid + '/VirtualMedia/Cd/Actions/'
            'VirtualMedia.EjectMedia', {}, expect=expect)
        self.assertEqual(expect == 200, self.device()['Inserted'])

    def once(self, target):
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootSourceOverrideEnabled': 'Once',
            'BootSourceOverrideTarget': target}})

    def override(self):
        return self.emulator.system(self.uuid)['Boot'][
            'BootSourceOverrideEnabled']

    def wait_override_removed(self):
        """Wait until the next VMI boots without the one-time override.

        The override reads as disabled a moment earlier.
        """
        self.until(lambda: self.override() == 'Disabled')
        self.until(lambda: 'bootOrder' not in str(self.sandbox.vm(
            self.name)['spec']['template']))

    def power(self, state):
        self.until(lambda: self.emulator.system(self.uuid)['PowerState']
                   == state, 90)


class RedfishTestCase(_Machine):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(), server='gunicorn', settings={
                # The web server with the images is on this host.
                'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK': True}))

    def test_iso_boots_once(self):
        """Boot the ISO once, then the disk after a reboot by the guest."""
        # The guest reads its CD-ROM drive.
        self.make(image='disk-full')
        self.emulator.reset(self.uuid, 'On')
        mark = self.boots(qemu.DISK)
        # The ISO is attached to the running machine, but not booted
        # without an override.
        self.insert()
        self.until(lambda: self._drive_holds('SUSHY_ISO'))
        self.once('Cd')
        mark = self.console.mark()
        self.emulator.reset(self.uuid, 'ForceRestart')
        mark = self.boots(qemu.ISO, mark)
        self.wait_override_removed()
        self.console.send_line('reboot')
        mark = self.boots(qemu.DISK, mark)
        if self.FIRMWARE == 'BIOS':
            mark = self._boot_again_after_bmc_reset(mark)
        # A guest keeps the medium as long as it has the drive open.
        self.until(lambda: self._drive_holds('SUSHY_ISO'))
        self.console.send_line('hold')
        self.console.wait('held', mark)
        # The BMC waits longer than an eject of a closed drive takes.
        self.eject(expect=200)
        self.assertTrue(self._drive_holds('SUSHY_ISO'))
        self.console.send_line('release')
        self.until(lambda: self._drive_holds(''))
        self.until(lambda: not self.device()['Inserted'])
        self.emulator.reset(self.uuid, 'GracefulShutdown')
        self.console.wait('power button', mark)
        self.power('Off')

    def _boot_again_after_bmc_reset(self, mark):
        self.once('Cd')
        # A reset of the BMC keeps the override.
        self.emulator.request(
            'POST',
            f'/redfish/v1/Managers/{self.uuid}/Actions/Manager.Reset',
            {}, expect=(200, 202, 204))
        self.emulator.reset(self.uuid, 'GracefulRestart')
        self.console.wait('power button', mark)
        mark = self.boots(qemu.ISO, mark)
        self.emulator.reset(self.uuid, 'ForceRestart')
        return self.boots(qemu.DISK, mark)

    def _drive_holds(self, name):
        mark = self.console.mark()
        self.console.send_line('disks')
        self.console.wait('that was all', mark)
        return 'disk sr0' in self.console.output[mark:] and (
            'SUSHY_ISO' in self.console.output[mark:]) == bool(name)

    def test_iso_boots_once_while_emulator_is_killed(self):
        """Kill it between restart and ISO, and before the reboot."""
        self.make()
        self.insert()
        self.once('Cd')
        self.emulator.reset(self.uuid, 'On')
        self._kill()
        self.emulator.setUp()
        mark = self.boots(qemu.ISO)
        self.wait_override_removed()
        self._kill()
        self.console.send_line('reboot')
        self.boots(qemu.DISK, mark)
        self.emulator.setUp()
        self.assertEqual('On', self.emulator.system(self.uuid)['PowerState'])
        self.assertTrue(self.device()['Inserted'])
        self.eject()

    def _kill(self):
        """Kill the emulator and its workers, as a power failure would."""
        self.emulator.process.kill()
        self.emulator.cleanUp()

    def test_pxe_boots_once(self):
        """The NIC's boot ROM runs once; it finds no boot server."""
        self.make()
        self.once('Pxe')
        self.emulator.reset(self.uuid, 'On')
        self.console.wait(IPXE)
        self.console.wait('net0: 52:54:00:12:34:56')
        mark = self.console.mark()
        if self.FIRMWARE == 'BIOS':
            # UEFI firmware tries every boot option for minutes.
            mark = self.boots(qemu.DISK)
        self.wait_override_removed()
        self.emulator.reset(self.uuid, 'ForceRestart')
        self.boots(qemu.DISK, mark)
        self.assertNotIn(IPXE, self.console.output[mark:])

    def test_boot_order_lasts_until_default_is_set(self):
        """The order lasts until the default order is restored."""
        self.make()
        self.insert()
        where = SYSTEMS + self.uuid
        references = {}
        for member in self.emulator.request(
                'GET', where + '/BootOptions', expect=200).json()['Members']:
            option = self.emulator.request(
                'GET', member['@odata.id'], expect=200).json()
            references[option['Alias']] = option['BootOptionReference']
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootOrder': [references['Cd'], references['Hdd']]}})
        self.emulator.reset(self.uuid, 'On')
        mark = self.boots(qemu.ISO)
        self.console.send_line('reboot')
        mark = self.boots(qemu.ISO, mark)
        self.emulator.request(
            'POST', where + '/Actions/ComputerSystem.SetDefaultBootOrder',
            expect=204)
        self.emulator.reset(self.uuid, 'ForceRestart')
        self.boots(qemu.DISK, mark)


class UefiTestCase(RedfishTestCase):

    FIRMWARE = 'UEFI'

    def make(self, **options):
        super().make(efi=True, **options)

    # The firmware has no influence on these.
    test_iso_boots_once_while_emulator_is_killed = None
    test_boot_order_lasts_until_default_is_set = None


class IpmiTestCase(_Machine):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(), settings={
                'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK': True}))
        cls.vbmcd = cls.share(vbmcd.Vbmcd(cls.sandbox.bmc_account()))

    def ipmi(self, *words):
        return self.vbmcd.ipmi(self.name, *words)

    def test_iso_boots_once(self):
        self.make()
        self.vbmcd.add(self.name)
        # The machine has no CD-ROM drive until a medium is inserted.
        self.insert()
        self.ipmi('chassis', 'bootdev', 'cdrom')
        self.ipmi('mc', 'reset', 'cold')
        self.vbmcd.wait_answer(self.vbmcd.bmcs[self.name])
        self.ipmi('power', 'on')
        mark = self.boots(qemu.ISO)
        self.wait_override_removed()
        self.ipmi('power', 'reset')
        mark = self.boots(qemu.DISK, mark)
        self.ipmi('chassis', 'bootdev', 'cdrom')
        self.ipmi('power', 'cycle')
        mark = self.boots(qemu.ISO, mark)
        self.wait_override_removed()
        self.console.send_line('reboot')
        mark = self.boots(qemu.DISK, mark)
        self.ipmi('power', 'soft')
        self.console.wait('power button', mark)
        self.power('Off')
        self.assertIn('off', self.ipmi('power', 'status'))
