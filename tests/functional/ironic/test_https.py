# SPDX-License-Identifier: Apache-2.0
"""Ironic with an authenticated Redfish BMC over HTTPS with a private CA.

This is the recommended setup: Ironic verifies the certificate, opens and
reuses sessions, and inserts and ejects an ISO.
"""

import datetime

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import machines
from tests.fixtures import account_secret
from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import image_server
from tests.fixtures import ironic
from tests.fixtures import media_case

ADMIN = ('ironic', 'correct horse')


class IronicHttpsTestCase(base.SandboxTestCase):

    VMS = 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.certificate = cls.share(certificates.Certificate())
        secret = cls.share(account_secret.Secret(
            username=ADMIN[0], password=ADMIN[1]))
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(), {
                'SUSHY_EMULATOR_KUBEVIRT_ACCOUNTS': str(secret.path),
                # Images are on this host.
                'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK': True},
            server='gunicorn', auth=ADMIN,
            tls=cls.certificate.tls))
        cls.images = cls.share(image_server.ImageServer())
        cls.ironic = cls.share(ironic.Ironic({
            # Ironic passes the URL to the BMC unchanged.
            'deploy': {'ramdisk_image_download_source': 'http'},
            # A refused connection must fail quickly.
            'redfish': {'connection_attempts': '1',
                        'enable_verify_bmc_clock': 'true'}}))

    def driver_info(self, vm, **more):
        return {'redfish_address': self.emulator.url,
                'redfish_system_id':
                f'/redfish/v1/Systems/{machines.uuid_of(vm)}',
                'redfish_username': ADMIN[0],
                'redfish_password': ADMIN[1],
                'redfish_verify_ca': str(self.certificate.ca), **more}

    def make(self, name):
        """Create a VM with an empty CD-ROM drive."""
        vm = machines.vm(name, 'Halted')
        media_case.drop_medium(vm['spec']['template']['spec'])
        return self.sandbox.create('virtualmachines', vm)

    def sessions(self):
        """List the paths of all sessions."""
        return {member['@odata.id'] for member in self.emulator.request(
            'GET', '/redfish/v1/SessionService/Sessions',
            expect=200).json()['Members']}

    def test_sets_the_clock_of_the_bmc(self):
        vm = self.make('clock')
        manager = f'/redfish/v1/Managers/{machines.uuid_of(vm)}'

        def read():
            body = self.emulator.request('GET', manager, expect=200).json()
            ahead = datetime.datetime.fromisoformat(
                body['DateTime']) - datetime.datetime.now(
                    datetime.timezone.utc)
            return (body['DateTimeLocalOffset'], body['DateTime'][-6:],
                    ahead.total_seconds())

        self.until(lambda: self.emulator.request(
            'GET', manager).status_code == 200)
        self.emulator.request('PATCH', manager, {
            'DateTime': '2040-01-02T03:04:05Z',
            'DateTimeLocalOffset': '-01:30'}, expect=204)
        offset, suffix, ahead = read()
        self.assertEqual(('-01:30', '-01:30'), (offset, suffix))
        self.assertGreater(ahead, 10 ** 8)
        self.ironic.enrol('clock', 'redfish', self.driver_info(vm))
        offset, suffix, ahead = read()
        self.assertEqual(('+00:00', '+00:00'), (offset, suffix))
        self.assertLess(abs(ahead), 10)

    def test_deploys_and_undeploys_iso(self):
        vm = self.make('deployed')
        before = self.template('deployed')
        node = self.ironic.enrol('deployed', 'redfish', self.driver_info(vm))
        self.assertTrue(self.sessions())
        self.ironic.provision(node, 'provide', 'available')
        self.ironic.baremetal.update_node(node, instance_info={
            'boot_iso': self.images.url + '/it.iso'})
        self.ironic.provision(node, 'active', 'active')
        boot = self.sandbox.wait_boot('deployed', 1)
        self.assertEqual('Cd', boot['class'])

        volume, = (each['metadata']['name']
                   for each in self.sandbox.list('datavolumes'))

        # Ironic's session ends without its knowledge.
        for path in self.sessions():
            self.emulator.request('DELETE', path, expect=(200, 204))
        self.ironic.power(node, 'rebooting', 'power on')
        # Ironic's ramdisk deployment boots the ISO at each start.
        self.assertEqual('Cd', self.sandbox.wait_boot('deployed', 2)[
            'class'])
        self.assertTrue(self.sessions())

        self.ironic.provision(node, 'deleted', 'available')
        self.sandbox.wait_stopped('deployed')
        self.sandbox.wait('datavolumes', volume, lambda it: it is None)
        # Ironic does not remove its persistent boot device.
        self.emulator.patch_system(machines.uuid_of(vm), {
            'Boot': {'BootSourceOverrideEnabled': 'Disabled'}})
        self.assertEqual(before, self.template('deployed'))

    def template(self, name):
        return self.sandbox.vm(name)['spec']['template']['spec']

    def test_enrolment_fails_without_trust_or_password(self):
        for name, more, why in (
                ('unverified', {'redfish_verify_ca': True}, 'certificate'),
                ('unknown', {'redfish_password': 'wrong'}, '')):
            with self.subTest(name):
                exc = self.assertRaises(
                    AssertionError, self.ironic.enrol, name, 'redfish',
                    self.driver_info(self.make(name), **more))
                self.assertIn(why, str(exc))
                self.assertNotIn(ADMIN[1], str(exc))
