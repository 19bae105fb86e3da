# SPDX-License-Identifier: Apache-2.0
"""Detects the host's means to run guests: QEMU, firmware and KVM."""

import dataclasses
import os
import pathlib
import shutil
import subprocess

from kubevirt_sandbox import qemu

PROGRAM = 'qemu-system-x86_64'

_FOLDERS = ('/usr/share/OVMF', '/usr/share/edk2/ovmf',
            '/usr/share/edk2/x64', '/usr/share/qemu')


@dataclasses.dataclass(frozen=True)
class Firmware:
    """UEFI firmware: its code and the template of its variables."""

    code: str
    variables: str


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings for running guests.

    :param program: path of QEMU.
    :param accelerator: ``kvm`` or ``tcg``.
    :param memory: maximum memory of a guest in MiB.
    :param cpus: maximum number of processors of a guest.
    :param images: dictionary of disk files by container image reference.
    :param efi: the :class:`Firmware`, or None when it is not installed.
    :param secure: the :class:`Firmware` with secure boot and Microsoft's
        keys, or None.
    :param outbound: whether cards in the pod network have a connection to
        this host and to what it reaches.
    """

    program: str
    accelerator: str
    memory: int = qemu.DEFAULT_MEMORY
    cpus: int = 1
    images: dict = dataclasses.field(default_factory=dict)
    efi: Firmware | None = None
    secure: Firmware | None = None
    outbound: bool = False


def find(accelerator='auto', memory=qemu.DEFAULT_MEMORY, images=None,
         outbound=False):
    """Detect what the host provides.

    :param accelerator: one of :data:`qemu.ACCELERATORS`; ``auto`` is KVM if it
        works, else TCG.
    :param memory: maximum memory of a guest in MiB.
    :param images: paths by references, see :class:`Settings`.
    :param outbound: see :class:`Settings`.
    :returns: the :class:`Settings`.
    :raises qemu.SettingsError: QEMU or the requested accelerator is missing.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise qemu.SettingsError(
            f'{PROGRAM} is not installed; guests of the kind qemu need it '
            '(on Debian: apt-get install qemu-system-x86 ovmf)')
    if shutil.which('setpriv') is None:
        raise qemu.SettingsError(
            'setpriv is not installed; guests of the kind qemu need it (on '
            'Debian: util-linux)')
    for reference, path in (images or {}).items():
        if not os.path.isfile(path) or not os.access(path, os.R_OK):
            raise qemu.SettingsError(f'image {reference}: there is no file '
                                     f'{path} that can be read')
    if accelerator != 'tcg':
        why = _kvm_fails(program)
        if why and accelerator == 'kvm':
            raise qemu.SettingsError(f'KVM does not work here: {why}')
        accelerator = 'tcg' if why else 'kvm'
    return Settings(
        program, accelerator, memory, os.cpu_count() or 1,
        {reference: os.path.abspath(path)
         for reference, path in (images or {}).items()},
        _firmware(('OVMF_CODE_4M.fd', 'OVMF_VARS_4M.fd'),
                  ('OVMF_CODE.fd', 'OVMF_VARS.fd'),
                  ('OVMF_CODE.4m.fd', 'OVMF_VARS.4m.fd')),
        _firmware(('OVMF_CODE_4M.secboot.fd', 'OVMF_VARS_4M.ms.fd'),
                  ('OVMF_CODE.secboot.fd', 'OVMF_VARS.secboot.fd')),
        outbound)


def _firmware(*pairs):
    for folder in map(pathlib.Path, _FOLDERS):
        for code, variables in pairs:
            if (folder / code).exists() and (folder / variables).exists():
                return Firmware(str(folder / code), str(folder / variables))
    return None


def _kvm_fails(program):
    """Return why KVM cannot be used, or ''.

    Opening the device is not a sufficient check in a virtual machine, so this
    creates a processor.
    """
    if not os.access('/dev/kvm', os.R_OK | os.W_OK):
        return '/dev/kvm cannot be opened'
    try:
        done = subprocess.run(
            [program, '-machine', 'q35', '-accel', 'kvm', '-cpu', 'host',
             '-m', '64', '-display', 'none', '-nodefaults', '-S',
             '-monitor', 'stdio'], input='quit\n', capture_output=True,
            text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return f'{program} does not end'
    if done.returncode == 0:
        return ''
    lines = done.stderr.strip().splitlines()
    return lines[0] if lines else f'exit code {done.returncode}'
