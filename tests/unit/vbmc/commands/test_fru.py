# SPDX-License-Identifier: Apache-2.0
import struct
import threading
import types

import fixtures
from oslotest import base

from tests.unit.vbmc import bmc_case
from vbmc_kubevirt.commands import fru
from vbmc_kubevirt.commands import fru_image

CHUNK = 24


def image(tag='', product='vm-a', serial=bmc_case.SERIAL, version='v1.9.0'):
    return fru_image.build('KubeVirt', product, serial, version, tag)


def image_of(tag):
    """Make an image with the bytes of an asset tag, as a client writes it."""
    one = image('#' * len(tag)).replace(b'#' * len(tag), tag)
    # The checksum of the product area, the last one.
    start = one[4] * 8
    end = start + one[start + 1] * 8 - 1
    return one[:end] + bytes((-sum(one[start:end]) % 256,)) + one[end + 1:]


class ImageTest(base.BaseTestCase):

    def test_checksums_and_sizes(self):
        for text in ('', 'a', 'ab', 'x' * 63, 'x' * 300, 'ü'):
            one = fru_image.build(text, text, text, text, text)
            self.assertEqual(fru_image.SIZE, len(one))
            self.assertTrue(fru_image.is_complete(one))
            self.assertEqual(text[:63], fru_image.asset_tag(one))

    def test_characters_without_code_are_replaced(self):
        self.assertEqual('??', fru_image.asset_tag(image('日本')))

    def test_characters_beyond_ascii(self):
        """ISO 8859-1, or UTF-8 as ipmitool writes it."""
        for text in 'Écran à 2', 'ü', 'x' * 61 + 'ü':
            for encoding in 'latin-1', 'utf-8':
                self.assertEqual(text, fru_image.asset_tag(
                    image_of(text.encode(encoding))))

    def test_control_characters_are_replaced(self):
        """A terminal would obey those of another client."""
        for text in '\x1b[31m', 'a\x00b', 'a\nb', '\x9b1m':
            made = image(text, serial=text)
            self.assertEqual(text.replace(
                next(filter(lambda one: not one.isprintable(), text)), '?'),
                fru_image.asset_tag(made))
            self.assertNotIn(text.encode('latin-1'), made)

    def test_invalid_images(self):
        one = image()
        for at in range(fru_image.SIZE):
            for value in (0, 1, 0xC1, 0xFF):
                changed = one[:at] + bytes((value,)) + one[at + 1:]
                try:
                    fru_image.protected(changed)
                    fru_image.asset_tag(changed)
                except fru_image.Invalid:
                    pass
                fru_image.is_complete(changed)


class FruTest(bmc_case.BmcTestCase):

    def setUp(self):
        super().setUp()
        self.machine.name = 'vm-a'
        self.machine.gates = types.SimpleNamespace(version='v1.9.0')
        self.tag('')
        self.machine.set_asset_tag.side_effect = self.tag

    def tag(self, tag):
        self.machine.asset_tag.return_value = tag

    def read(self):
        code, data = self.ask(0x0A, 0x10, 0)
        size, access = struct.unpack('<HB', data)
        self.assertEqual((0, 0), (code, access))
        found = b''
        while len(found) < size:
            code, data = self.ask(
                0x0A, 0x11, 0, *struct.pack('<H', len(found)), 32)
            self.assertEqual((0, len(data) - 1), (code, data[0]))
            found += data[1:]
        return found

    def write(self, new, start=0):
        """Write an image in chunks; return the completion codes."""
        return [self.ask(0x0A, 0x12, 0, *struct.pack('<H', at),
                         *new[at:at + CHUNK])[0]
                for at in range(start, len(new), CHUNK)]

    def test_read(self):
        self.assertEqual(image(), self.read())
        self.tag('rack 7')
        self.assertEqual(image('rack 7'), self.read())

    def test_read_limits(self):
        end = struct.pack('<H', fru_image.SIZE - 1)
        self.assertEqual((0, b'\1\0'), self.ask(0x0A, 0x11, 0, *end, 16))
        self.assertEqual(255, self.ask(0x0A, 0x11, 0, 0, 0, 255)[1][0])
        for offset in (fru_image.SIZE, 0xFFFF):
            self.assertEqual((0xC9, b''), self.ask(
                0x0A, 0x11, 0, *struct.pack('<H', offset), 1))
        for request in ((0x10, 1), (0x11, 1, 0, 0, 1), (0x12, 1, 0, 0, 1)):
            self.assertEqual((0xCB, b''), self.ask(0x0A, *request))

    def test_write_asset_tag(self):
        for tag in ('rack 7', 'x' * 63, 'rack 8', ''):
            self.assertEqual({0}, set(self.write(image(tag))))
            self.assertEqual(tag, self.machine.asset_tag())
            self.assertEqual(image(tag), self.read())
        self.assertEqual(4, self.machine.set_asset_tag.call_count)

    def test_write_of_product_area_only(self):
        self.tag('rack 7')
        new = image('rack 8')
        self.assertEqual({0}, set(self.write(new, new[4] * 8)))
        self.machine.set_asset_tag.assert_called_once_with('rack 8')

    def test_checksum_that_is_right_by_chance(self):
        """Between two chunks, for some of these tags."""
        for first in map(chr, range(33, 127)):
            self.tag('')
            tag = first + 'x' * 59
            self.assertEqual({0}, set(self.write(image(tag))))
            self.machine.set_asset_tag.assert_called_once_with(tag)
            self.machine.set_asset_tag.reset_mock()

    def test_unchanged_image_does_not_cut_a_long_tag(self):
        self.tag('x' * 200)
        self.assertEqual({0}, set(self.write(self.read())))
        self.machine.set_asset_tag.assert_not_called()

    def test_other_fields_are_protected(self):
        for changed in (dict(product='vm-b'), dict(serial='1' * 36),
                        dict(version='v9.9.9'), dict(product='longer-name')):
            codes = self.write(image('other', **changed))
            self.assertIn(0x80, codes)
            self.assertEqual(image(), self.read())
        self.assertIn(0x80, self.write(bytes(fru_image.SIZE)))
        self.machine.set_asset_tag.assert_not_called()
        # A refused write does not spoil the next one.
        self.assertEqual({0}, set(self.write(image('rack 7'))))
        self.assertEqual('rack 7', self.machine.asset_tag())

    def test_control_characters_are_refused(self):
        new = image_of(b'\x1b[31m')
        self.assertTrue(fru_image.is_complete(new))
        self.assertIn(0x80, self.write(new))
        self.machine.set_asset_tag.assert_not_called()

    def test_incomplete_write_is_dropped(self):
        new = image('x' * 60)
        for _ in range(2):
            at = new.index(b'x' * 30)
            self.assertEqual((0, b'\1'), self.ask(
                0x0A, 0x12, 0, *struct.pack('<H', at - 1), 0xFC))
            self.assertEqual(image(), self.read())
            with fixtures.MockPatchObject(
                    fru, 'WRITE_SECONDS', -1):
                self.assertEqual({0}, {self.ask(
                    0x0A, 0x12, 0, 0, 0, *image()[:8])[0]})
        self.machine.set_asset_tag.assert_not_called()

    def test_reset_drops_a_write_without_waiting_for_it(self):
        self.tag('rack 6')
        new = image('rack 7')
        cut = new.index(b'rack 7') + len('rack 7')
        end = (new[4] + new[new[4] * 8 + 1]) * 8    # of the product area

        def asset_tag():
            # As the event loop does, while the write waits for the API.
            self.machine.asset_tag.side_effect = None
            thread = threading.Thread(target=self.bmc.warm_reset)
            thread.start()
            thread.join(10)
            self.assertFalse(thread.is_alive())
            return 'rack 6'

        def write(start, end):
            return self.ask(0x0A, 0x12, 0, *struct.pack('<H', start),
                            *new[start:end])[0]

        self.machine.asset_tag.side_effect = asset_tag
        self.assertEqual(0, write(0, cut))
        self.assertEqual(0, write(cut, end))
        self.machine.set_asset_tag.assert_not_called()
        # Without a reset, the two are one image.
        self.bmc.warm_reset()
        self.assertEqual(0, write(0, cut))
        self.assertEqual(0, write(cut, end))
        self.machine.set_asset_tag.assert_called_once_with('rack 7')

    def test_long_write_is_cut(self):
        self.assertEqual((0, b'\xFF'), self.ask(
            0x0A, 0x12, 0, 0, 0, *image()[:300]))

    def test_write_beyond_the_end(self):
        self.assertEqual((0xC9, b''), self.ask(
            0x0A, 0x12, 0, *struct.pack('<H', fru_image.SIZE - 1), 1, 2))
