# SPDX-License-Identifier: Apache-2.0
"""Converts a downloaded image to a raw disk.

Accepts the bytes in pieces, detects the format from the header as CDI does,
unpacks gzip and xz, converts other formats with ``qemu-img`` and leaves a
sparse file. At most a few pieces are in memory. Callers provide the bytes.

Source: pkg/importer/format-readers.go, data-processor.go, file.go,
pkg/image/filefmt.go, qemu.go (CDI 1.65).
"""
import fractions
import itertools
import json
import lzma
import math
import os
import shutil
import subprocess
import zlib

OVERHEAD = '0.06'
"""Share of a disk's size that CDI adds for the file system by default."""

MIB = 1 << 20

_HEAD = 512
_HOLE = 64 * 1024
_ZEROS = bytes(_HOLE)
_PIECE = MIB
_CONVERSION = 3600

_MAGIC = {
    'gz': (0, b'\x1f\x8b'),
    'zst': (0, b'\x28\xb5\x2f\xfd'),
    'qcow2': (0, b'QFI\xfb'),
    'xz': (0, b'\xfd7zXZ\0'),
    'vmdk': (0, b'KDMV'),
    'vdi': (0x40, b'\x7f\x10\xda\xbe'),
    'vhd': (0, b'conectix'),
    'vhdx': (0, b'vhdxfile'),
}
_CONVERTED = ('qcow2', 'vmdk', 'vdi', 'vhd', 'vhdx')
_SUPPORTED = ('raw', 'qcow2', 'vmdk', 'vdi', 'vpc', 'vhdx')


class ImageError(Exception):
    """An image that cannot be written; the message is CDI's."""


class TooLargeError(ImageError):
    """The claim is too small for the image."""


def usable(size, block=False, overhead=OVERHEAD):
    """Return the maximum size of a disk in a claim.

    :param size: size of the claim in bytes.
    :param block: a claim without a file system.
    :param overhead: of the file system, share of the disk's size.
    """
    if block:
        return size
    # Not a float, which would be off for large disks.
    return -(-size // (1 + fractions.Fraction(overhead))) // MIB * MIB


def required(size, block=False, overhead=OVERHEAD):
    """Return the size of a claim for a disk; see :func:`usable`."""
    if block:
        return size
    aligned = -(-size // MIB) * MIB
    return math.ceil(aligned * (1 + fractions.Fraction(overhead)))


def too_large(size, available):
    """Make the error for an image that does not fit, with CDI's message."""
    return TooLargeError(
        f'virtual image size {size} is larger than the reported available '
        f'storage {available}. A larger PVC is required')


class Image:
    """A disk that is being written.

    :param path: the file to write; what is there is replaced.
    :param available: bytes that the disk may have.
    :param expected: expected size in bytes, or 0 when it is unknown.
    :param archive: what comes is a tar archive to be unpacked beside the
        path instead of a disk.
    """

    def __init__(self, path, available, expected=0, archive=False):
        self.path = path
        self.available = available
        self._expected = expected
        self._archive = archive
        self._scratch = path.with_name('scratch.img')
        self._head = bytearray()
        self._enough = _HEAD
        self._layers = []
        self._file = None
        self._size = 0
        self._convert = archive
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.discard()

    def begin_raw(self):
        """Accept a raw disk, without detecting the format."""
        self._create(self.path)

    def feed(self, data):
        """Add received bytes.

        :raises ImageError: the image is invalid or too large.
        """
        if self._file is not None:
            self._pass(data, 0)
            return
        self._head += data
        if len(self._head) >= self._enough:
            self._begin(bytes(self._head))

    def received(self):
        """Finish the disk after the last byte.

        :raises ImageError: the image is incomplete.
        """
        if self._file is None and len(self._head) >= _HEAD:
            self._begin(bytes(self._head))
        if self._file is None:
            raise ImageError(
                'Unable to obtain information about data source: could not '
                'process image header: '
                + ('unexpected EOF' if self._head else 'EOF'))
        for layer in self._layers:
            if not layer.eof:
                raise ImageError('Unable to transfer source data to scratch '
                                 'space: failed to pull image: unexpected '
                                 'EOF')
        self._file.truncate(self._size)
        self._file.close()

    def finish(self):
        """Convert what was received and give the disk its size.

        :raises ImageError: the file is not a disk image, or too large.
        """
        if self._archive:
            self._unpack()
            return
        if self._convert:
            self._to_raw()
        size = os.stat(self.path).st_size
        if size > self.available:
            raise too_large(size, self.available)
        if size < self.available:
            os.truncate(self.path, self.available)

    def discard(self):
        """Remove what was written."""
        if self._file is not None:
            self._file.close()
        for path in (self.path, self._scratch):
            path.unlink(missing_ok=True)

    # -- received data ----------------------------------------------------

    def _begin(self, data):
        """Find out what comes and set up the layers to unpack it."""
        known, piece = dict(_MAGIC), data
        while True:
            found = next((name for name, (at, magic) in known.items()
                          if piece[at:at + len(magic)] == magic), None)
            known.pop(found, None)
            if found in ('gz', 'xz'):
                layer = (_Gzip if found == 'gz' else _Xz)()
                # Its head must be read as well; it is read again below.
                piece = b''.join(itertools.islice(
                    layer.take(piece, _HOLE), 4))
                self._layers.append(layer)
                if len(piece) < _HEAD:
                    # There is too little unpacked data yet.
                    self._layers.clear()
                    self._convert = self._archive
                    self._enough = 2 * len(data)
                    return
                continue
            if found == 'zst':
                raise ImageError('Unable to obtain information about data '
                                 'source: the sandbox cannot unpack zstd')
            self._convert |= found in _CONVERTED
            break
        if not self._convert and not self._layers and (
                self._expected > self.available):
            raise too_large(self._expected, self.available)
        self._create(self._scratch if self._convert else self.path)
        for layer in self._layers:
            layer.restart()
        self._head.clear()
        self._pass(data, 0)

    def _create(self, path):
        self._file = open(os.open(
            path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), 'wb',
            buffering=0)

    def _pass(self, data, depth):
        """Hand bytes to a layer, and at last to the file."""
        if depth == len(self._layers):
            self._write(data)
            return
        for piece in self._layers[depth].take(data, _PIECE):
            self._pass(piece, depth + 1)

    def _write(self, data):
        if self._size + len(data) > self.available and not self._convert:
            raise TooLargeError(
                'Unable to transfer source data to scratch space: unable to '
                f'write to file: write {self.path.name}: no space left on '
                'device')
        if self._convert and self._size + len(data) > self.available + (
                self.available // 8) + 64 * MIB:
            raise TooLargeError(
                'Unable to transfer source data to scratch space: unable to '
                'write to file: write /scratch/tmpimage: no space left on '
                'device')
        for at in range(0, len(data), _HOLE):
            block = data[at:at + _HOLE]
            if block == _ZEROS[:len(block)]:
                self._file.seek(len(block), os.SEEK_CUR)
                continue
            while block:
                block = block[self._file.write(block):]
        self._size += len(data)

    # -- conversion -------------------------------------------------------

    def _unpack(self):
        import tarfile
        try:
            with tarfile.open(self._scratch) as archive:
                self._extract(archive)
        except (tarfile.TarError, OSError) as exc:
            raise ImageError('Unable to transfer source data to target '
                             'directory: unable to untar files from '
                             f'endpoint: {exc}') from None
        finally:
            self._scratch.unlink(missing_ok=True)

    def _extract(self, archive):
        # Not `extractall`: its filters came with Python 3.11.4.
        folder = self.path.parent.resolve()
        for member in archive:
            place = (folder / member.name).resolve()
            if not place.is_relative_to(folder):
                raise OSError(f'{member.name} leads out of the claim')
            if member.isdir():
                place.mkdir(parents=True, exist_ok=True)
            elif member.isfile():
                place.parent.mkdir(parents=True, exist_ok=True)
                with archive.extractfile(member) as content, open(
                        place, 'wb') as target:
                    shutil.copyfileobj(content, target)

    def _to_raw(self):
        tool = shutil.which('qemu-img')
        prefix = 'Unable to convert source data to target format: '
        if tool is None:
            raise ImageError(prefix + 'the sandbox has no qemu-img')
        try:
            info = json.loads(_run(
                [tool, 'info', '--output=json', '-f', self._format(),
                 str(self._scratch)], prefix))
            self._check(info, prefix)
            _run([tool, 'convert', '-f', info['format'], '-O', 'raw',
                  str(self._scratch), str(self.path)],
                 prefix + 'Conversion to Raw failed: could not convert '
                 'image to raw: ')
        finally:
            self._scratch.unlink(missing_ok=True)

    def _format(self):
        with open(self._scratch, 'rb') as file:
            head = file.read(_HEAD)
        found = next(name for name in _CONVERTED if head[
            _MAGIC[name][0]:].startswith(_MAGIC[name][1]))
        return 'vpc' if found == 'vhd' else found

    def _check(self, info, prefix):
        if info.get('format') not in _SUPPORTED:
            raise ImageError(f'{prefix}Invalid format {info.get("format")} '
                             'for image /scratch/tmpimage')
        # An image must not make the sandbox read other files.
        backing = info.get('backing-filename') or (
            info.get('format-specific') or {}).get('data', {}).get(
                'data-file')
        if backing:
            raise ImageError(
                f'{prefix}Image /scratch/tmpimage is invalid because it has '
                f'invalid backing file {backing}')
        if info['virtual-size'] > self.available:
            raise too_large(info['virtual-size'], self.available)


def _run(command, prefix):
    try:
        return subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=_CONVERSION).stdout
    except subprocess.CalledProcessError as exc:
        raise ImageError(prefix + exc.stderr.decode(
            errors='replace').strip()[:500]) from None
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ImageError(f'{prefix}{exc}') from None


class _Gzip:
    """Unpacks gzip, a piece at a time."""

    def __init__(self):
        self.restart()

    def restart(self):
        self._unpacker = zlib.decompressobj(31)

    @property
    def eof(self):
        return self._unpacker.eof

    def take(self, data, limit):
        """Yield what is unpacked, in pieces of at most ``limit`` bytes."""
        try:
            while data:
                if self._unpacker.eof:
                    # Members one behind the other are one file.
                    self.restart()
                piece = self._unpacker.decompress(data, limit)
                data = (self._unpacker.unused_data if self._unpacker.eof
                        else self._unpacker.unconsumed_tail)
                if piece:
                    yield piece
                if self._unpacker.eof and not data.strip(b'\0'):
                    return
        except zlib.error as exc:
            raise ImageError('Unable to transfer source data to scratch '
                             'space: failed to pull image: gzip: invalid '
                             f'data: {exc}') from None


class _Xz:
    """Unpacks xz, a piece at a time."""

    def __init__(self):
        self.restart()

    def restart(self):
        self._unpacker = lzma.LZMADecompressor(
            lzma.FORMAT_XZ, memlimit=256 * MIB)

    @property
    def eof(self):
        return self._unpacker.eof

    def take(self, data, limit):
        """Yield what is unpacked, in pieces of at most ``limit`` bytes."""
        try:
            while True:
                if self._unpacker.eof:
                    if not data.strip(b'\0'):
                        return
                    self.restart()
                piece = self._unpacker.decompress(data, limit)
                if piece:
                    yield piece
                if self._unpacker.eof:
                    data = self._unpacker.unused_data
                    continue
                data = b''
                if self._unpacker.needs_input:
                    return
        except (lzma.LZMAError, EOFError) as exc:
            raise ImageError('Unable to transfer source data to scratch '
                             'space: failed to pull image: xz: invalid '
                             f'data: {exc}') from None
