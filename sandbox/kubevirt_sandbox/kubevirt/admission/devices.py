# SPDX-License-Identifier: Apache-2.0
"""Admission of firmware and of devices other than disks and NICs.

Source: vmi-create-admitter.go, pkg/virt-api/webhooks (KubeVirt 1.9).
"""

from kubevirt_sandbox.kubevirt.admission import causes
from kubevirt_sandbox.kubevirt.admission import storage
from kubevirt_sandbox.kubevirt import paths

_VIDEOS = {'amd64': ('vga', 'cirrus', 'virtio', 'ramfb', 'bochs'),
           'arm64': ('virtio', 'ramfb'), 's390x': ('virtio',)}
# Member of ``watchdog``, and its name in messages.
_WATCHDOGS = {'amd64': ('i6300esb', 'I6300ESB'), 'arm64': (None, ''),
              's390x': ('diag288', 'Diag288')}


def check(field, spec, config):
    """List causes to refuse devices.

    :param field: the path of the VMI's spec.
    """
    devices = paths.at(spec, 'domain', 'devices') or {}
    return [*_check_inputs(field, devices), *_check_threads(field, spec),
            *_check_sound(field, devices), *_check_video(field, devices),
            *_check_panic(field, spec),
            *_check_gated(field, spec, config)]


def _check_inputs(field, devices):
    for index, device in enumerate(devices.get('inputs') or ()):
        where = f'{field}.domain.devices.inputs[{index}]'
        if device.get('bus', '') not in ('virtio', 'usb', ''):
            yield causes.Cause('Input device can have only virtio or usb bus.',
                               f'{where}.bus')
        if device.get('type') != 'tablet':
            yield causes.Cause('Input device can have only tablet type.',
                               f'{where}.type')


def _check_threads(field, spec):
    policy = paths.at(spec, 'domain', 'ioThreadsPolicy')
    if policy is None:
        return
    if policy not in ('shared', 'auto', 'supplementalPool'):
        yield causes.Cause(f'Invalid IOThreadsPolicy ({policy})',
                           f'{field}.domain.ioThreadsPolicy')
    if policy == 'supplementalPool' and (paths.at(
            spec, 'domain', 'ioThreads',
            'supplementalPoolThreadCount') or 0) < 1:
        yield causes.Cause(
            'the number of iothreads needs to be set and positive '
            'for the dedicated policy',
            f'{field}.domain.ioThreads.count')


def _check_sound(field, devices):
    sound = devices.get('sound')
    if sound is None:
        return
    if sound.get('model', '') not in ('', 'ich9', 'ac97'):
        yield causes.Cause(
            "Sound device type is not supported. Options: 'ich9' "
            "or 'ac97'", f'{field}.Sound')
    if not sound.get('name'):
        yield causes.Cause('Sound device requires a name field.',
                           f'{field}.Sound')


def _check_video(field, devices):
    if (devices.get('video') is not None
            and devices.get('autoattachGraphicsDevice') is False):
        yield causes.Cause('Video configuration is not allowed when '
                           'autoattachGraphicsDevice is set to false',
                           f'{field}.video')


def _check_panic(field, spec):
    if (spec.get('architecture') == 's390x'
            and paths.at(spec, 'domain', 'devices', 'panicDevices')):
        yield causes.Cause('custom panic devices are not supported on s390x '
                           'architecture',
                           f'{field}.domain.devices.panicDevices')


def _check_gated(field, spec, config):
    devices = paths.at(spec, 'domain', 'devices') or {}
    if devices.get('hostDevices') and not config.enabled('HostDevices'):
        yield causes.Cause('Host Devices feature gate is not enabled in '
                           'kubevirt-config', f'{field}.HostDevices')
    if devices.get('autoattachVSOCK') and not config.enabled('VSOCK'):
        yield causes.Cause(
            'VSOCK feature gate is not enabled in kubevirt-config',
            f'{field}.domain.devices.autoattachVSOCK')
    if (devices.get('downwardMetrics') is not None
            and not config.enabled('DownwardMetrics')):
        yield causes.Cause('downwardMetrics virtio serial is not allowed: '
                           'DownwardMetrics feature gate is not enabled',
                           f'{field}.domain.devices.downwardMetrics')
    if (paths.at(spec, 'domain', 'rebootPolicy') is not None
            and not config.enabled('RebootPolicy')):
        yield causes.Cause('RebootPolicy is specified but the RebootPolicy '
                           'feature gate is not enabled',
                           f'{field}.domain.rebootPolicy')
    if (paths.at(spec, 'domain', 'memory', 'reservedOverhead') is not None
            and not config.enabled('ReservedOverheadMemlock')):
        yield causes.Cause('Reserved overhead memlock feature gate is not '
                           'enabled in kubevirt-config',
                           f'{field}.domain.memory.reservedOverhead')
    if spec.get('utilityVolumes'):
        yield causes.Cause('cannot create VMI with utility volumes in spec, '
                           'utility volumes can only be added via hotplug',
                           f'{field}.utilityVolumes')


def check_architecture(field, spec):
    """Check a VMI's devices against its architecture.

    Source: amd64.go, arm64.go, s390x.go of pkg/virt-api/webhooks.
    """
    architecture = spec.get('architecture', '')
    if architecture not in _VIDEOS:
        yield causes.Cause(f'unsupported architecture: {architecture}',
                           f'{field}.architecture')
        return
    if architecture == 'arm64':
        yield from _check_arm64(field, spec)
    yield from _check_watchdog(field, spec, architecture)
    video = paths.at(spec, 'domain', 'devices', 'video')
    if video is not None and video.get('type', '') not in _VIDEOS[
            architecture]:
        yield causes.Cause(f"video model '{video.get('type', '')}' is not "
                           f'supported on {architecture} architecture',
                           f'{field}.domain.devices.video.type',
                           causes.NOT_SUPPORTED)


def _check_watchdog(field, spec, architecture):
    watchdog = paths.at(spec, 'domain', 'devices', 'watchdog')
    kind, name = _WATCHDOGS[architecture]
    if watchdog is None or kind and [
            key for key in ('i6300esb', 'diag288')
            if watchdog.get(key) is not None] == [kind]:
        return
    yield causes.Cause(
        f'{architecture} only supports {name} watchdog device' if kind
        else 'Arm64 not support Watchdog device',
        f'{field}.domain.devices.watchdog', causes.NOT_SUPPORTED)


def _check_arm64(field, spec):
    domain = f'{field}.domain'
    if paths.at(spec, 'domain', 'firmware', 'bootloader', 'bios') is not None:
        yield causes.Cause(
            'Arm64 does not support bios boot, please change to uefi boot',
            f'{domain}.firmware.bootloader.bios', causes.NOT_SUPPORTED)
    model = paths.at(spec, 'domain', 'cpu', 'model')
    if model and model != 'host-passthrough':
        yield causes.Cause('currently, host-passthrough is the only model '
                           'supported on Arm64', f'{domain}.cpu.model',
                           causes.NOT_SUPPORTED)
    for index, disk in enumerate(paths.disks(spec)):
        kind = storage.kind_of(disk)
        if (paths.at(disk, kind, 'bus') or '') not in ('', 'virtio', 'scsi'):
            yield causes.Cause(
                'Arm64 not support this disk bus type, please use virtio or '
                'scsi', f'{domain}.devices.disks[{index}].{kind}.bus',
                causes.NOT_SUPPORTED)
    if paths.at(spec, 'domain', 'devices', 'sound') is not None:
        yield causes.Cause('Arm64 not support sound device',
                           f'{domain}.devices.sound', causes.NOT_SUPPORTED)


def secure_boot(domain):
    """Tell whether a domain has secure boot, the default of UEFI."""
    efi = paths.at(domain, 'firmware', 'bootloader', 'efi')
    return efi is not None and efi.get('secureBoot', True)


def check_firmware(field, domain):
    """Check bootloader, secure boot with SMM, and kernel boot.

    :param field: the path of the domain.
    """
    loader = paths.at(domain, 'firmware', 'bootloader') or {}
    where = f'{field}.firmware.bootloader'
    if loader.get('efi') is not None and loader.get('bios') is not None:
        yield causes.Cause(
            f'{where} has both EFI and BIOS configured, but they '
            'are mutually exclusive.', where)
    yield from _check_kernel(f'{field}.firmware.kernelBoot', paths.at(
        domain, 'firmware', 'kernelBoot'))
    smm = paths.at(domain, 'features', 'smm')
    if (secure_boot(domain)
            and not (smm is not None and smm.get('enabled', True))
            and paths.at(domain, 'launchSecurity', 'tdx') is None):
        yield causes.Cause(f'{field} has EFI SecureBoot enabled. SecureBoot '
                           'requires SMM, which is currently disabled.', field)


def check_acpi(field, spec):
    """Check that the volumes with ACPI tables exist.

    :param field: the path of the VMI's spec.
    """
    acpi = paths.at(spec, 'domain', 'firmware', 'acpi')
    if acpi is None:
        return
    names = {k: acpi[k] for k in ('slicNameRef', 'msdmNameRef')
             if acpi.get(k)}
    where = f'{field}.acpi'
    if not names:
        yield causes.Cause(
            'ACPI was set but no SLIC nor MSDM volume reference '
            'was set', where)
    volumes = paths.named(paths.volumes(spec))
    for key, name in names.items():
        if name not in volumes:
            yield causes.Cause(f'{where} does not have a matching Volume.',
                               f'{where}.{key}')
        elif volumes[name].get('secret') is None:
            yield causes.Cause(
                f'{where} refers to Volume of unsupported type.',
                f'{where}.{key}')


def _check_kernel(field, kernel):
    if kernel is None:
        return
    container = kernel.get('container')
    if container is None:
        if kernel.get('kernelArgs'):
            yield causes.Cause(
                'kernel arguments cannot be provided without an '
                'external kernel', f'{field}.kernelArgs')
        return
    field = f'{field}.container'
    if not container.get('image'):
        yield causes.Cause(f'{field} must be defined with an image',
                           f'{field}.image', causes.REQUIRED)
    paths_given = {k: container[k] for k in ('kernelPath', 'initrdPath')
                   if container.get(k)}
    if not paths_given:
        yield causes.Cause(f'{field} must be defined with at least one of the '
                           'following: kernelPath, initrdPath', field,
                           causes.REQUIRED)
    for key, path in paths_given.items():
        yield from storage.check_path(f'{field}.{key}', path)
