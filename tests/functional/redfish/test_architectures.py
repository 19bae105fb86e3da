# SPDX-License-Identifier: Apache-2.0
"""VMs of other architectures than amd64: what a BMC offers and writes.

KubeVirt checks the architecture when it creates a VMI, so a wrong setting
shows only when the VM is started.
"""

from tests.fixtures import virtual_media_case

ARCHITECTURE = 'kubernetes.io/arch'


class ArchitectureTestCase(virtual_media_case.MediaTestCase):

    def of(self, architecture):
        """Create a VM without CD-ROM drive, and a node for it."""
        def change(spec):
            spec['architecture'] = architecture
            # Of the other architecture, so that it has a default.
            del spec['domain']['devices']['disks'][1]
            spec['domain']['cpu'] = {'cores': 1}

        [node, *_] = self.sandbox.list('nodes', namespace=None)
        name = node['metadata']['name']
        self.label(name, architecture)
        self.addCleanup(self.label, name, 'amd64')
        self.make(change=change)
        self.until(lambda: 'Cd' in self.boot()[
            'BootSourceOverrideTarget@Redfish.AllowableValues'])

    def label(self, node, architecture):
        self.sandbox.patch('nodes', node, [{
            'op': 'replace', 'path': '/metadata/labels/'
            + ARCHITECTURE.replace('/', '~1'), 'value': architecture}],
            namespace=None)

    def boot(self):
        return self.emulator.system(self.uuid)['Boot']

    def refused_everywhere(self, modes):
        """Check that settings which the architecture lacks are refused.

        :param modes: list of BootSourceOverrideMode that it lacks
        """
        before = self.sandbox.vm(self.name)['spec']
        for mode in modes:
            for more in ({}, {'BootSourceOverrideTarget': 'Pxe',
                              'BootSourceOverrideEnabled': 'Once'}):
                [entry] = self.refused('PATCH', self.path, {
                    'Boot': {'BootSourceOverrideMode': mode, **more}}, 400)
                self.assertEqual('PropertyValueNotInList', entry[0])
            self.refused('PATCH', self.path + '/Bios/Settings', {
                'Attributes': {'BootMode': mode}}, 400)
        self.refused('PATCH', self.path + '/Bios/Settings', {
            'Attributes': {'SecureBoot': 'Enabled'}}, 400)
        self.refused('PATCH', self.path + '/SecureBoot', {
            'SecureBootEnable': True}, 409)
        self.assertEqual(before, self.sandbox.vm(self.name)['spec'])

    def assert_boots_medium(self, firmware):
        """Boot from a virtual CD, in an added drive."""
        self.insert()
        self.wait_ready()
        self.emulator.request('PATCH', self.path, {'Boot': {
            'BootSourceOverrideTarget': 'Cd',
            'BootSourceOverrideEnabled': 'Once'}}, expect=204)
        self.emulator.reset(self.uuid, 'On')
        booted = self.sandbox.wait_boot(self.name, 1)
        self.assertEqual(('cdrom:bmc-cd', firmware),
                         (booted['device'], booted['firmware']))

    def test_arm64(self):
        self.of('arm64')
        found = self.boot()
        self.assertEqual(
            ('UEFI', ['UEFI'], ['None', 'Pxe', 'Hdd', 'Cd', 'UefiHttp']),
            (found['BootSourceOverrideMode'], found[
                'BootSourceOverrideMode@Redfish.AllowableValues'], found[
                    'BootSourceOverrideTarget@Redfish.AllowableValues']))
        self.assertRegex(self.emulator.system(self.uuid)['BiosVersion'],
                         '^UEFI of KubeVirt')
        self.refused_everywhere(['Legacy'])
        self.assert_no_usb()
        self.assert_boots_medium('efi')

    def test_http_boot_of_arm64(self):
        self.of('arm64')
        self.emulator.request('PATCH', self.path, {'Boot': {
            'BootSourceOverrideTarget': 'UefiHttp', 'HttpBootUri': self.url(),
            'BootSourceOverrideEnabled': 'Once',
            'BootSourceOverrideMode': 'UEFI'}}, expect=204)
        self.emulator.reset(self.uuid, 'On')
        self.assertEqual('cdrom:bmc-http', self.sandbox.wait_boot(
            self.name, 1)['device'])

    def test_s390x(self):
        self.of('s390x')
        found = self.boot()
        self.assertEqual(
            ('Legacy', ['Legacy'], ['None', 'Pxe', 'Hdd', 'Cd']),
            (found['BootSourceOverrideMode'], found[
                'BootSourceOverrideMode@Redfish.AllowableValues'], found[
                    'BootSourceOverrideTarget@Redfish.AllowableValues']))
        self.assertNotIn('HttpBootUri', found)
        self.refused_everywhere(['UEFI'])
        self.assert_no_usb()
        self.assert_boots_medium('bios')

    def assert_no_usb(self):
        found = self.emulator.request(
            'GET', self.path + '/VirtualMedia').json()['Members']
        self.assertEqual([{'@odata.id': self.device}], found)
        stick = self.path + '/VirtualMedia/USBStick'
        self.refused('GET', stick, None, 404)
        self.refused('POST', stick + virtual_media_case.INSERT,
                     {'Image': self.url()}, 404)
