# SPDX-License-Identifier: Apache-2.0
import dataclasses

from oslotest import base
from sushy_tools import error

from sushy_kubevirt.emulator import media_driver
from sushy_kubevirt.emulator import system_driver
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import media
from tests.unit.redfish import fakes

CD = (fakes.A, 'Cd')
URL = 'http://host/a.iso'


class TestDriver(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.machine = fakes.Machine(fakes.A, 'vm-a')
        self.driver = media_driver.KubeVirtDriver(
            {}, None, system_driver.KubeVirtDriver.initialize({}, None)(
                fakes.Cluster(self.machine)))

    def test_devices(self):
        self.assertEqual(['Cd', 'USBStick'], self.driver.devices)
        self.assertEqual('<kubevirt-vmedia>', self.driver.driver)
        self.assertEqual('Virtual CD', self.driver.get_device_name(*CD))
        self.assertEqual(['CD', 'DVD'],
                         self.driver.get_device_media_types(*CD))
        self.assertEqual(['USBStick'], self.driver.get_device_media_types(
            fakes.A, 'USBStick'))

    def test_not_there(self):
        for identity, device in ((fakes.A, 'Floppy'), (fakes.A, 'HttpBoot'),
                                 (fakes.OTHER, 'Cd')):
            for name, arguments in (
                    ('add_certificate', ('x', 'PEM')),
                    ('delete_certificate', ('x',)), ('eject_image', ()),
                    ('get_device_image_info', ()),
                    ('get_device_media_types', ()), ('get_device_name', ()),
                    ('insert_image', ('http://x',)),
                    ('list_certificates', ()),
                    ('replace_certificate', ('x', 'y', 'PEM')),
                    ('update_device_info', ())):
                self.assertRaises(
                    error.NotFound, getattr(self.driver, name), identity,
                    device, *arguments)
        self.assertEqual([], self.machine.calls)

    def test_insert_and_eject(self):
        self.assertEqual(('', '', False, False, '', '', True),
                         self.driver.get_device_image_info(*CD))
        self.driver.insert_image(*CD, URL, username='me', password='s3cret')
        self.assertEqual(
            ('insert_media', 'Cd', media.Source(URL, 'me', 's3cret')),
            self.machine.calls[-1])
        self.machine.media['Cd'] = dataclasses.replace(
            self.machine.media['Cd'], username='me')
        self.assertEqual(('a.iso', URL, True, True, 'me', '', True),
                         self.driver.get_device_image_info(*CD))
        self.driver.eject_image(*CD)
        self.driver.insert_image(*CD, None)
        self.driver.insert_image(*CD, URL, inserted=False)
        self.assertEqual([('eject_media', 'Cd')] * 3,
                         self.machine.calls[-3:])

    def test_verify(self):
        self.driver.update_device_info(*CD, verify=False)
        self.assertFalse(self.driver.get_device_image_info(*CD).verify)

    def test_certificates(self):
        self.assertEqual([], self.driver.list_certificates(*CD))
        made = self.driver.add_certificate(*CD, 'x', 'PEM')
        self.assertEqual(('1', 'x', 'PEM'), made)
        made = self.driver.replace_certificate(*CD, '1', 'y', 'PEM')
        self.assertEqual([made], self.driver.list_certificates(*CD))
        self.assertEqual('y', made.string)
        self.assertRaises(error.NotFound, self.driver.replace_certificate,
                          *CD, '1', 'z', 'PEM')
        self.assertRaises(error.BadRequest, self.driver.add_certificate,
                          *CD, 'z', 'PKCS7')
        self.driver.delete_certificate(*CD, made.id)
        self.assertEqual([], self.driver.list_certificates(*CD))

    def test_errors(self):
        for raised, code in (
                (errors.MediaUnreachable('no', URL, 'missing'), 400),
                (errors.MediaUnreachable('no', URL, 'server'), 502),
                (errors.InvalidValue('Image', URL), 400),
                (errors.Rejected('quota'), 409),
                (errors.Unsupported('no CDI'), 501)):
            self.machine.fails = raised
            exc = self.assertRaises(error.FishyError,
                                    self.driver.insert_image, *CD, URL)
            self.assertEqual(code, exc.code)
