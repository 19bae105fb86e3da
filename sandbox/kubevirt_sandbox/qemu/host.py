# SPDX-License-Identifier: Apache-2.0
"""What this computer has to run guests with: QEMU, firmware, KVM."""

import dataclasses
import os
import pathlib
import shutil
import subprocess

PROGRAM = 'qemu-system-x86_64'
ACCELERATORS = ('auto', 'kvm', 'tcg')
DEFAULT_MEMORY = 1024

_FOLDERS = ('/usr/share/OVMF', '/usr/share/edk2/ovmf',
            '/usr/share/edk2/x64', '/usr/share/qemu')


class SettingsError(Exception):
    """Guests cannot be run here; says what is missing."""


@dataclasses.dataclass(frozen=True)
class Firmware:
    """UEFI firmware: the code and what its variables are at first."""

    code: str
    variables: str


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to run guests.

    :param program: path of QEMU.
    :param accelerator: ``kvm`` or ``tcg``.
    :param memory: MiB that a guest gets at most.
    :param cpus: processors that a guest gets at most.
    :param images: files by the references of the container images that
        they stand for.
    :param efi: the :class:`Firmware`, or None when there is none.
    :param secure: the same, with secure boot and Microsoft's keys.
    """

    program: str
    accelerator: str
    memory: int = DEFAULT_MEMORY
    cpus: int = 1
    images: dict = dataclasses.field(default_factory=dict)
    efi: Firmware | None = None
    secure: Firmware | None = None


def find(accelerator='auto', memory=DEFAULT_MEMORY, images=None):
    """See what there is.

    :param accelerator: one of :data:`ACCELERATORS`; ``auto`` is KVM where
        it works, else TCG.
    :param memory: MiB that a guest gets at most.
    :param images: paths by references, see :class:`Settings`.
    :returns: the :class:`Settings`.
    :raises: SettingsError
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise SettingsError(
            f'{PROGRAM} is not installed; guests of the kind qemu need it '
            '(on Debian: apt-get install qemu-system-x86 ovmf)')
    if shutil.which('setpriv') is None:
        raise SettingsError('setpriv is not installed; guests of the kind '
                            'qemu need it (on Debian: util-linux)')
    for reference, path in (images or {}).items():
        if not os.path.isfile(path) or not os.access(path, os.R_OK):
            raise SettingsError(f'image {reference}: there is no file '
                                f'{path} that can be read')
    if accelerator != 'tcg':
        why = _kvm_fails(program)
        if why and accelerator == 'kvm':
            raise SettingsError(f'KVM does not work here: {why}')
        accelerator = 'tcg' if why else 'kvm'
    return Settings(
        program, accelerator, memory, os.cpu_count() or 1,
        {reference: os.path.abspath(path)
         for reference, path in (images or {}).items()},
        _firmware(('OVMF_CODE_4M.fd', 'OVMF_VARS_4M.fd'),
                  ('OVMF_CODE.fd', 'OVMF_VARS.fd'),
                  ('OVMF_CODE.4m.fd', 'OVMF_VARS.4m.fd')),
        _firmware(('OVMF_CODE_4M.secboot.fd', 'OVMF_VARS_4M.ms.fd'),
                  ('OVMF_CODE.secboot.fd', 'OVMF_VARS.secboot.fd')))


def _firmware(*pairs):
    for folder in map(pathlib.Path, _FOLDERS):
        for code, variables in pairs:
            if (folder / code).exists() and (folder / variables).exists():
                return Firmware(str(folder / code), str(folder / variables))
    return None


def _kvm_fails(program):
    """Why KVM cannot be used, or ''.

    That the device can be opened says little, in a machine that is virtual
    itself: a processor has to be made.
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
