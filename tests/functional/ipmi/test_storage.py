# SPDX-License-Identifier: Apache-2.0
"""SDR, sensors, SEL and FRU, read by ``ipmitool``."""

import json
import re

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from tests.fixtures import ipmi_case
from tests.fixtures import sandbox
from tests.fixtures import vbmcd
from tests.fixtures import virtual_media_case

# What KubeVirt's node controller does to the VMIs of a node that does not
# respond (pkg/virt-controller/watch/node/node.go), and its account.
NODE_UNRESPONSIVE = [
    {'op': 'replace', 'path': '/status/phase', 'value': 'Failed'},
    {'op': 'add', 'path': '/status/reason', 'value': 'NodeUnresponsive'}]
VIRT_CONTROLLER = (
    '--as', 'system:serviceaccount:kubevirt:kubevirt-controller',
    '--as-group', 'system:masters')


class StorageTestCase(ipmi_case.IpmiTestCase):

    def columns(self, *words):
        """Return the lines of ipmitool's output as lists of columns."""
        return [[column.strip() for column in line.split('|')]
                for line in self.ipmi(*words).splitlines()]


class SensorsTest(StorageTestCase):

    def states(self):
        """Return the states of the sensors, as ``sdr elist`` shows them."""
        return {line[0]: line[4] for line in self.columns('sdr', 'elist')}

    def test_states_of_the_vm(self):
        name = self.bmc()
        off = {'Power': 'Power off/down', 'ACPI State': 'S5/G2: soft-off',
               **dict.fromkeys(('OS Boot', 'Watchdog', 'CD', 'USB Stick',
                                'Node', 'Disks'), '')}
        self.assertEqual(off, self.states())
        # Persistent: the BMC would remove a one-time override with API calls
        # when the VM has started, perhaps while they are counted.
        self.ipmi('chassis', 'bootdev', 'pxe', 'options=persistent')
        self.ipmi('power', 'on')
        self.sandbox.wait_boot(name, 1)
        self.wait_power('on')
        on = {**off, 'Power': '', 'ACPI State': 'S0/G0: working',
              'OS Boot': 'PXE boot completed'}
        self.assertEqual(on, self.states())
        # Reading sensors makes no API call.
        self.sandbox.reset_stats()
        self.assertEqual(8, len(self.columns('sensor', 'list')))
        self.assertEqual({}, self.sandbox.calls())
        self.sandbox.request(
            'PUT', '/apis/subresources.kubevirt.io/v1/namespaces/'
            f'{sandbox.NAMESPACE}/'
            f'virtualmachineinstances/{name}/pause', expect=200)
        self.until(lambda: self.states()['ACPI State'] == 'G1: sleeping')

    def test_os_boot_has_the_device(self):
        name = self.bmc()
        for count, (device, state) in enumerate((
                ('disk', 'C: boot completed'),
                ('cdrom', 'CD-ROM boot completed'),
                # KubeVirt sets no order, and libvirt takes the first disk.
                ('none', 'C: boot completed')), 1):
            self.ipmi('chassis', 'bootdev', device)
            self.ipmi('power', 'on')
            self.sandbox.wait_boot(name, count)
            self.until(lambda: self.states()['OS Boot'] == state,
                       describe=self.states)
            self.ipmi('power', 'off')
            self.until(lambda: self.states()['OS Boot'] == '')
        self.assertEqual(['Hdd', 'Cd', 'Hdd'], [
            boot['class'] for boot in self.sandbox.boots(name)])

    @given_cluster.needs_sandbox('a node that does not respond')
    def test_lost_node(self):
        name = self.bmc('Manual')
        self.ipmi('power', 'on')
        self.sandbox.wait_running(name)
        self.until(lambda: self.states()['ACPI State'] == 'S0/G0: working')
        self.assertEqual('', self.states()['Node'])
        kubectl.Kubectl(self.sandbox.kubeconfig)(
            'patch', 'vmi', name, '--type', 'json', '--patch',
            json.dumps(NODE_UNRESPONSIVE), *VIRT_CONTROLLER)
        self.until(lambda: self.states()['Node']
                   == 'Controller access degraded or unavailable',
                   describe=self.states)
        self.assertEqual('Unknown', self.states()['ACPI State'])
        self.ipmi('power', 'on')
        self.wait_power('on')
        self.assertEqual(('', 'S0/G0: working'), (
            (states := self.states())['Node'], states['ACPI State']))

    def test_other_lists(self):
        self.bmc()
        self.assertIn('[Power off/down]', self.ipmi('sensor', 'get', 'Power'))
        self.assertIn('Power Unit (0x09)', self.ipmi('sdr', 'get', 'Power'))
        self.assertEqual(['Power', '01h', 'ok', '19.1', 'Power off/down'],
                         self.columns('sdr', 'type', 'Power Unit')[0])
        records = self.columns('sdr', 'list', 'all')
        self.assertIn(['BMC', 'Dynamic MC @ 20h', 'ok'], records)
        self.assertIn(['VM', 'Log FRU @00h 07.1', 'ok'], records)
        self.assertIn('Record Count                        : '
                      f'{len(records)}\n', self.ipmi('sdr', 'info'))
        info = self.ipmi('mc', 'info')
        for device in ('Sensor', 'SDR Repository', 'SEL', 'FRU Inventory'):
            self.assertIn(f'    {device} Device', info)


class MediaSensorTest(virtual_media_case.MediaTestCase):
    """A medium that Redfish inserts."""

    VMS = 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.vbmcd = cls.share(vbmcd.Vbmcd(cls.sandbox.bmc_account()))

    def state(self, sensor='CD'):
        """Return the state of a sensor in ``sdr elist`` and ``sensor get``.

        Both are of one state when they agree.
        """
        line, = (line for line in self.vbmcd.ipmi(
            self.name, 'sdr', 'elist').splitlines()
            if line.startswith(sensor + ' '))
        state = line.rpartition('|')[2].strip()
        again = self.vbmcd.ipmi(self.name, 'sensor', 'get', sensor)
        return state if f'[{state}]' in again or not state else again

    def test_medium(self):
        self.make()
        self.vbmcd.add(self.name)
        self.assertEqual('', self.state())
        self.insert()
        self.wait_ready()
        self.until(lambda: self.state() == 'Device Installed',
                   describe=self.state)
        self.assertEqual('', self.state('USB Stick'))
        self.eject()
        self.until(lambda: self.state() == '', describe=self.state)
        self.wait_clean()
        self.images.missing = self.name
        self.insert()
        self.wait_failed()
        self.until(lambda: self.state() == 'Fault Status',
                   describe=self.state)
        self.eject()
        self.wait_clean()


class SelTest(StorageTestCase):

    def entries(self):
        """Return the lines of ``sel elist``; [] while it is empty."""
        done = vbmcd.ipmitool(self.vbmcd.bmcs[self.name], 'sel', 'elist')
        if 'SEL has no entries' in done.stdout:
            return []
        self.assertEqual(0, done.returncode, done.stdout)
        return [[column.strip() for column in line.split('|')]
                for line in done.stdout.splitlines()]

    def restart(self):
        self.vbmcd.vbmc('stop', self.name)
        self.vbmcd.start(self.name)

    def events(self):
        return [line[3] for line in self.entries()]

    def test_log_of_the_vm(self):
        name = self.bmc()
        self.assertEqual([], self.entries())
        self.ipmi('power', 'on')
        started = ['System Event ' + reason for reason in (
            'SuccessfulCreate', 'SuccessfulCreate', 'Created', 'Started')]
        self.until(lambda: self.events() == started)
        entries = self.entries()
        self.assertEqual(entries, self.entries())
        info = self.ipmi('sel', 'info')
        self.assertIn('Entries          : 4\n', info)
        self.assertIn('Last Del Time    : Not Available', info)
        one = self.ipmi('sel', 'get', '0x' + entries[2][0])
        self.assertIn('Event Type            : Generic Discrete', one)
        self.assertIn('Informational', one)
        # A client's own entry, with the time of the BMC.
        self.ipmi('raw', *'4 2 4 1 0x30 1 9 80 70'.split())
        self.assertEqual(
            ['Temperature #0x30', 'Upper Critical going high', 'Asserted'],
            self.entries()[-1][3:])
        self.assertIn('Generator ID          : 1081\n', self.ipmi(
            'sel', 'get', '0x' + self.entries()[-1][0]))
        # Other processes show the same records under the same ids.
        everything = self.entries()
        self.restart()
        self.assertEqual(everything, self.entries())
        self.ipmi('sel', 'clear')
        self.assertEqual([], self.entries())
        self.assertNotIn('Not Available', re.search(
            'Last Del Time.*', self.ipmi('sel', 'info'))[0])
        self.restart()
        self.assertEqual([], self.entries())
        self.ipmi('power', 'off')
        self.sandbox.wait_stopped(name)
        self.until(lambda: 'System Event Stopped' in self.events())
        self.assertNotIn('System Event Started', self.events())

    def test_refused(self):
        self.bmc()
        self.assertIn('record not found', self.refused('sel', 'delete', '1'))

    def test_clock(self):
        self.bmc()
        self.ipmi('sel', 'time', 'set', '01/02/30 03:04:05')
        # An offset of 90 minutes.
        self.ipmi(*'raw 0x0a 0x5d 0x5a 0'.split())
        for _ in range(2):
            self.assertRegex(self.ipmi('sel', 'time', 'get'),
                             r'01/02/(20)?30 04:3[45]:')
            self.assertEqual(
                '5a 00', self.ipmi(*'raw 0x0a 0x5c'.split()).strip())
            # It is kept.
            self.restart()


class FruTest(StorageTestCase):

    def fru(self):
        return dict(map(str.strip, line.split(':', 1)) for line in self.ipmi(
            'fru', 'print').splitlines() if ':' in line)

    def edit(self, field, text):
        # ipmitool 1.8.19 exits with 1 although it succeeded.
        return vbmcd.ipmitool(self.vbmcd.bmcs[self.name], 'fru', 'edit', '0',
                              'field', 'p', field, text).stdout

    def test_inventory_and_asset_tag(self):
        name = self.bmc()
        serial = self.sandbox.vm(name)['spec']['template']['spec']['domain'][
            'firmware']['serial']
        expected = {
            'FRU Device Description': 'Builtin FRU Device (ID 0)',
            'Board Mfg Date': 'Unspecified', 'Board Mfg': 'KubeVirt',
            'Board Product': name, 'Board Serial': serial,
            'Product Manufacturer': 'KubeVirt', 'Product Name': name,
            'Product Serial': serial, 'Product Asset Tag': ''}
        # KubeVirt's version is read in the background.
        found = self.until(lambda: (
            found := self.fru()).get('Product Version') and found)
        self.assertRegex(found.pop('Product Version'), r'v\d')
        self.assertEqual(expected, found)
        # The second has the length of the first, so ipmitool writes the
        # product area only.
        for tag in ('rack 7', 'rack 8', 'x' * 60, 'yz'):
            self.assertIn("with '%s'" % tag, self.edit('5', tag))
            self.assertEqual(tag, self.fru()['Product Asset Tag'])
            self.assertIn(tag, self.sandbox.vm(name)['metadata'][
                'annotations'].values())
        self.edit('1', 'other')
        self.assertEqual(name, self.fru()['Product Name'])
        # ipmitool writes what the terminal has, UTF-8.
        self.edit('5', 'Écran à 2')
        self.assertIn('Écran à 2', self.sandbox.vm(name)['metadata'][
            'annotations'].values())
