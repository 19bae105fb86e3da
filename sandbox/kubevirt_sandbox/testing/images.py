# SPDX-License-Identifier: Apache-2.0
"""Build two small boot images that report on the serial port.

Both contain a kernel of Debian and an initramfs with busybox, and boot with
BIOS (isolinux) and with UEFI (the kernel as one EFI program). The kernel is
the one for clouds, which boots with half of the CPU time; images for guests
that must see disks of SATA or USB have the other one. The booted system prints
a banner that names the image, the firmware and the machine, and then executes
commands from the serial port; see :data:`INIT`. It shuts down when
the power button is pressed.

The images are kept in `CACHE` under a name that depends on their inputs, so
that tests in several processes build them once.
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import time

#: Folder of the built images, shared by all test runs of a user.
CACHE = pathlib.Path(os.environ.get('XDG_CACHE_HOME')
                     or pathlib.Path.home() / '.cache') / 'kubevirt-sandbox'

#: How long an image is kept after it was built, if others are built.
_KEPT_SECONDS = 7 * 24 * 3600

BANNER = 'sushy-kubevirt test: booted from %s'

#: Input files of the images on Debian, and the packages that contain them.
NEEDED = {
    '/bin/busybox': 'busybox-static',
    '/usr/lib/ISOLINUX/isolinux.bin': 'isolinux',
    '/usr/lib/syslinux/modules/bios/ldlinux.c32': 'syslinux-common',
    '/usr/lib/systemd/boot/efi/linuxx64.efi.stub': 'systemd-boot-efi',
    '/usr/bin/xorriso': 'xorriso',
    '/usr/bin/mcopy': 'mtools',
    '/usr/bin/objcopy': 'binutils',
}

INIT = r'''#!/bin/busybox sh
# The first process. It needs only this image.
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
exec </dev/ttyS0 >/dev/ttyS0 2>&1
stty -echo
for name in button evdev; do
    insmod /lib/$name.ko
done
# 24 bytes are one event. Keyboards send the same, but no test uses one.
# Opened before the start is reported, so that no later event is lost.
for device in /dev/input/event*; do
    exec 3<"$device"
    (head -c 24 <&3 >/dev/null && echo power button && poweroff -f) &
done
exec 3<&-
read -r line </proc/cmdline
image=${line##*image=} image=${image%% *}
firmware=BIOS
[ -d /sys/firmware/efi ] && firmware=UEFI
banner() {
    echo "sushy-kubevirt test: booted from $image by $firmware" \
        "on $(cat /sys/class/dmi/id/product_uuid)" \
        "$(cat /sys/class/dmi/id/product_serial)"
}
drivers() {
    [ -d /sys/module/sr_mod ] && return
    for name in MODULES; do insmod /lib/$name.ko; done
    sleep 2
}
# Each disk: name, sectors, the name of the image in it.
disks() {
    drivers
    for disk in /sys/block/*; do
        name=${disk##*/}
        echo "disk $name $(cat $disk/size)" \
            "$(dd if=/dev/$name bs=1 skip=32808 count=24 2>/dev/null)."
    done
    echo "that was all"
}
banner
while read -r word rest; do
    case $word in
        who) banner ;;
        disks) disks ;;
        cards) drivers; cat /sys/class/net/*/address ;;
        hold) exec 3</dev/sr0; echo held ;;
        release) exec 3<&-; echo released ;;
        size) echo "size $(nproc) $(grep MemTotal /proc/meminfo)" ;;
        echo) echo "$rest" ;;
        reboot|poweroff) echo "$word now"; $word -f ;;
        panic) echo c >/proc/sysrq-trigger ;;
        deaf) kill $(jobs -p); echo "deaf now" ;;
        login) stty sane; login; stty -echo; echo "logged out" ;;
    esac
done
'''

#: The user of ``login``: root, with the password ``console``.
PASSWD = (
    'root:$5$consoletest$lKfrQKTMeSk0yaOejRCs'
    'cgGjP.XshkV7VAfWfnlLloB:0:0:root:/:/bin/sh\n')

MODULES_AT_ONCE = ('button', 'evdev')
MODULES_LATER = ('virtio_pci', 'virtio_blk', 'virtio_scsi', 'virtio_net',
                 'sd_mod', 'sr_mod')

#: Those that only the larger kernel has.
MODULES_FULL = 'ahci', 'xhci-pci', 'usb-storage'


class Missing(Exception):
    """Packages needed to build the images are not installed."""


def missing():
    """Return the names of the Debian packages that must be installed."""
    absent = {package for path, package in NEEDED.items()
              if not os.path.exists(path)}
    for full, package in ((False, 'linux-image-cloud-amd64'),
                          (True, 'linux-image-amd64')):
        if _kernel(full) is None:
            absent.add(package)
    return sorted(absent)


def iso(full=False):
    """Return the path of the image for a CD-ROM drive.

    :param full: whether it has the drivers for SATA and USB.
    """
    return _image('ISO', full)


def disk(full=False):
    """Return the path of the image for a disk; likewise."""
    return _image('DISK', full)


def _kernel(full):
    """Return the path of the newest readable Debian kernel, or None.

    :param full: whether it has the drivers for SATA and USB.
    """
    found = [path for path in pathlib.Path('/boot').glob('vmlinuz-*-amd64')
             if os.access(path, os.R_OK)
             and ('-cloud-' not in path.name) == full]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _image(name, full):
    if absent := missing():
        raise Missing('these packages are needed to build the images that '
                      'boot: ' + ' '.join(absent))
    kernel = _kernel(full)
    digest = hashlib.sha256(pathlib.Path(__file__).read_bytes())
    for path in (kernel, *NEEDED):
        about = os.stat(path)
        digest.update(f'{path} {about.st_size} {about.st_mtime}'.encode())
    folder = CACHE / 'images'
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f'{name.lower()}-{digest.hexdigest()[:16]}.img'
    with open(folder / 'lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            # Another checkout may be using a newer one.
            for old in folder.glob(f'{name.lower()}-*.img'):
                if old.stat().st_mtime < time.time() - _KEPT_SECONDS:
                    old.unlink()
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                _build(pathlib.Path(scratch), kernel, name, full).rename(path)
    return path


def _build(scratch, kernel, name, full):
    """Build an image.

    :param scratch: temporary folder.
    :param kernel: path of the kernel.
    :param name: file name of the image.
    :param full: whether it has the drivers for SATA and USB.
    :returns: path of the image below ``scratch``.
    """
    initrd = scratch / 'initrd'
    initrd.write_bytes(_archive(_files(kernel, full)))
    # On a busy host, interrupts are too late for the check of the timer, and
    # the kernel panics.
    words = ('console=ttyS0 loglevel=3 rdinit=/init panic=-1 no_timer_check '
             f'image={name}')
    root = scratch / 'root'
    boot = root / 'isolinux'
    boot.mkdir(parents=True)
    shutil.copy('/usr/lib/ISOLINUX/isolinux.bin', boot)
    shutil.copy('/usr/lib/syslinux/modules/bios/ldlinux.c32', boot)
    shutil.copy(kernel, boot / 'linux')
    shutil.copy(initrd, boot / 'initrd')
    (boot / 'isolinux.cfg').write_text(
        'default linux\nprompt 0\ntimeout 1\nlabel linux\n  kernel linux\n'
        f'  append initrd=initrd {words}\n')
    (root / 'efi.img').touch()
    _efi(scratch, kernel, initrd, words, root / 'efi.img')
    image = scratch / 'image'
    _run('xorriso', '-as', 'mkisofs', '-quiet', '-o', image,
         '-V', f'SUSHY_{name}', '-r',
         '-isohybrid-mbr', '/usr/lib/ISOLINUX/isohdpfx.bin',
         '-c', 'isolinux/boot.cat', '-b', 'isolinux/isolinux.bin',
         '-no-emul-boot', '-boot-load-size', 4, '-boot-info-table',
         '-eltorito-alt-boot', '-e', 'efi.img', '-no-emul-boot',
         '-isohybrid-gpt-basdat', root)
    return image


def _efi(scratch, kernel, initrd, words, partition):
    """Make a FAT file system with an EFI program.

    The program combines the kernel, its command line and the initramfs.
    """
    (scratch / 'words').write_text(words)
    program = scratch / 'bootx64.efi'
    _run('objcopy',
         '--add-section', f'.cmdline={scratch / "words"}',
         '--change-section-vma', '.cmdline=0x30000',
         '--add-section', f'.linux={kernel}',
         '--change-section-vma', '.linux=0x2000000',
         '--add-section', f'.initrd={initrd}',
         '--change-section-vma', '.initrd=0x3000000',
         '/usr/lib/systemd/boot/efi/linuxx64.efi.stub', program)
    sectors = program.stat().st_size // 512 + 1024
    _run('mformat', '-C', '-i', partition, '-T', sectors, '-h', 16, '-s', 32,
         '::')
    _run('mmd', '-i', partition, '::/EFI', '::/EFI/BOOT')
    _run('mcopy', '-i', partition, program, '::/EFI/BOOT/BOOTX64.EFI')


def _run(*command):
    done = subprocess.run([str(word) for word in command],
                          stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)
    if done.returncode != 0:
        raise RuntimeError(f'{command[0]}: {done.stderr[-2000:]}')


def _files(kernel, full):
    """Return the files of the initramfs as (path, mode, content)."""
    folder = pathlib.Path('/lib/modules', kernel.name.partition('-')[2])
    needs = {}
    for line in (folder / 'modules.dep').read_text().splitlines():
        path, _, others = line.partition(':')
        needs[pathlib.Path(path).stem] = path, others.split()

    def load(names):
        """Sort modules in the order in which they can be loaded."""
        for name in names:
            path, others = needs[name]
            for other in (*reversed(others), path):
                if other not in order:
                    order.append(other)

    order = []
    load(MODULES_AT_ONCE)
    load(MODULES_LATER + (MODULES_FULL if full else ()))
    later = [pathlib.Path(path).stem for path in order]
    text = INIT.replace('MODULES', ' '.join(
        name for name in later if name not in MODULES_AT_ONCE))
    yield from ((name, stat.S_IFDIR | 0o755, b'') for name in (
        'bin', 'dev', 'etc', 'lib', 'proc', 'sys'))
    yield 'init', stat.S_IFREG | 0o755, text.encode()
    yield 'etc/passwd', stat.S_IFREG | 0o644, PASSWD.encode()
    yield ('bin/busybox', stat.S_IFREG | 0o755,
           pathlib.Path('/bin/busybox').read_bytes())
    for path in order:
        yield ('lib/' + pathlib.Path(path).name, stat.S_IFREG | 0o644,
               (folder / path).read_bytes())


def _archive(files):
    """Pack files as an initramfs (cpio, the newc format)."""
    result = bytearray()
    for number, (name, mode, content) in enumerate(
            (*files, ('TRAILER!!!', 0, b'')), 1):
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0,
                  len(name) + 1, 0)
        result += b'070701' + b''.join(b'%08X' % field for field in fields)
        result += name.encode() + b'\0'
        result += bytes(-len(result) % 4)
        result += content
        result += bytes(-len(result) % 4)
    return bytes(result)
