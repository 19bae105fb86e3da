# SPDX-License-Identifier: Apache-2.0

import gzip
import io
import lzma
import os
import pathlib
import tarfile
import tempfile
import tracemalloc

from oslotest import base

from kubevirt_sandbox.cdi import images

MIB = images.MIB
DATA = os.urandom(150000) + bytes(3 * MIB) + os.urandom(1000)


class SizesTest(base.BaseTestCase):

    def test_required_claim_has_room_for_disk(self):
        for size in (1, MIB, 10 * MIB, 64 * MIB + 1, 10 << 30, 7 << 40):
            for block in (False, True):
                claim = images.required(size, block)
                self.assertLessEqual(size, images.usable(claim, block))
                self.assertLess(claim, (size + MIB) * 1.07)

    def test_sizes_match_cdi(self):
        self.assertEqual(71135396, images.required(64 * MIB))
        self.assertEqual(64 * MIB, images.usable(71135396))
        self.assertEqual(60 * MIB, images.usable(64 * MIB))


class ImageTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        self.path = pathlib.Path(home.name) / 'claim' / 'disk.img'

    def image(self, available=4 * MIB, **more):
        image = images.Image(self.path, available, **more)
        self.addCleanup(image.discard)
        return image

    @staticmethod
    def feed(image, data, step):
        for at in range(0, len(data), step):
            image.feed(data[at:at + step])

    def assert_written(self, data, step):
        image = self.image()
        self.feed(image, data, step)
        image.received()
        image.finish()
        content = self.path.read_bytes()
        self.assertEqual(4 * MIB, len(content))
        self.assertTrue(content.startswith(DATA))
        self.assertEqual(['disk.img'], os.listdir(self.path.parent))
        return image

    def test_raw_image_is_sparse(self):
        self.assert_written(DATA, 100000)
        self.assertLess(self.path.stat().st_blocks * 512, MIB)
        self.assertEqual(0o600, self.path.stat().st_mode & 0o777)

    def test_decompresses_gzip_and_xz(self):
        half = len(DATA) // 2
        for packed in (
                gzip.compress(DATA), lzma.compress(DATA),
                gzip.compress(lzma.compress(DATA)),
                lzma.compress(gzip.compress(DATA)),
                gzip.compress(DATA[:half]) + gzip.compress(DATA[half:]),
                lzma.compress(DATA) + bytes(1024)):
            for step in (97, 100000, 4 * MIB):
                self.assert_written(packed, step)

    def test_rejects_short_image(self):
        for data, why in ((b'', 'EOF'), (b'x' * 511, 'unexpected EOF'),
                          (gzip.compress(b'x' * 511), 'unexpected EOF')):
            image = self.image()
            self.feed(image, data, 1000)
            exc = self.assertRaises(images.ImageError, image.received)
            self.assertTrue(str(exc).endswith(
                'could not process image header: ' + why), exc)

    def test_rejects_truncated_compressed_image(self):
        for pack in (gzip.compress, lzma.compress):
            image = self.image()
            self.feed(image, pack(DATA)[:-500], 100000)
            exc = self.assertRaises(images.ImageError, image.received)
            self.assertIn('unexpected EOF', str(exc))

    def test_rejects_damaged_compressed_image(self):
        for pack in (gzip.compress, lzma.compress):
            packed = bytearray(pack(DATA))
            packed[90000:90010] = b'0123456789'
            exc = self.assertRaises(images.ImageError, self.feed,
                                    self.image(), bytes(packed), 5000)
            self.assertIn('invalid data', str(exc))

    def test_rejects_image_larger_than_claim(self):
        image = self.image(MIB)
        self.assertRaises(images.TooLargeError, self.feed, image, DATA, 9999)
        image.discard()
        self.assertEqual([], os.listdir(self.path.parent))
        exc = self.assertRaises(
            images.TooLargeError, self.image(MIB, expected=2 * MIB).feed,
            bytes(512))
        self.assertIn('virtual image size 2097152 is larger than the '
                      'reported available storage 1048576', str(exc))

    def test_decompression_bomb_needs_little_memory(self):
        bomb = gzip.compress(bytes(200 * MIB))
        image = self.image(300 * MIB)
        tracemalloc.start()
        try:
            self.feed(image, bomb, MIB)
            image.received()
            self.assertLess(tracemalloc.get_traced_memory()[1], 8 * MIB)
        finally:
            tracemalloc.stop()
        image.finish()
        self.assertEqual(300 * MIB, self.path.stat().st_size)

    def test_extracts_archive(self):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode='w') as archive:
            entry = tarfile.TarInfo('sub/file')
            entry.size = 1000
            archive.addfile(entry, io.BytesIO(DATA))
        image = self.image(archive=True)
        self.feed(image, gzip.compress(file.getvalue()), 100)
        image.received()
        image.finish()
        self.assertEqual(DATA[:1000], (
            self.path.parent / 'sub' / 'file').read_bytes())
        self.assertEqual(['sub'], os.listdir(self.path.parent))

    def test_rejects_archive_with_paths_outside(self):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode='w') as archive:
            archive.addfile(tarfile.TarInfo('../../outside'))
        image = self.image(archive=True)
        self.feed(image, file.getvalue(), 9999)
        image.received()
        exc = self.assertRaises(images.ImageError, image.finish)
        self.assertIn('unable to untar', str(exc))

    def test_replaces_existing_disk(self):
        self.path.parent.mkdir(parents=True)
        self.path.write_bytes(b'old' * 3 * MIB)
        self.assert_written(DATA, MIB)
