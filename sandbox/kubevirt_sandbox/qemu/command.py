# SPDX-License-Identifier: Apache-2.0
"""Builds QEMU's command line for a VMI.

The result is what libvirt makes of KubeVirt's domain for the VMI, as far as
firmware and BMC are concerned: processors, memory, SMBIOS, firmware, drives,
cards, boot order, display, serial port, and the action on reboot. Cards in the
pod network have a DHCP server, and a connection to other hosts if the settings
say so; for others see :mod:`kubevirt_sandbox.qemu.networks`.

Source: pkg/virt-launcher/virtwrap/converter (KubeVirt 1.9), libvirt's
src/qemu/qemu_command.c.
"""

import json

from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.kubevirt import firmware
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt import vmi_status

SPLASH_MS = 10000
_SATA_PORTS = 6
_VIDEOS = {'vga': 'VGA', 'cirrus': 'cirrus-vga', 'virtio': 'virtio-vga',
           'ramfb': 'ramfb', 'bochs': 'bochs-display'}
_CARDS = {'virtio': 'virtio-net-pci', 'e1000': 'e1000', 'e1000e': 'e1000e',
          'rtl8139': 'rtl8139', 'ne2k_pci': 'ne2k_pci', 'pcnet': 'pcnet'}
_CHASSIS = (('manufacturer', 'manufacturer'), ('version', 'version'),
            ('serial', 'serial'), ('asset', 'asset'), ('sku', 'sku'))


def build(settings, vmi, drives, variables, qmp, serial, display, links=None):
    """Build the command line.

    :param settings: the :class:`host.Settings`.
    :param vmi: the VMI.
    :param drives: list of :class:`drives.Drive`.
    :param variables: path of the file with the UEFI variables.
    :param qmp: file descriptor of a connected socket for QMP.
    :param serial: file descriptor of a connected socket for the serial port.
    :param display: path of the VNC socket that QEMU creates.
    :param links: file descriptors of connected datagram sockets, by the names
        of the networks whose frames they carry.
    :returns: list of arguments, starting with the program.
    """
    spec = vmi['spec']
    domain = spec['domain']
    return [
        settings.program, '-nodefaults', '-no-user-config',
        '-display', 'none',
        '-name', _join('guest=' + _quote('_'.join(paths.key(vmi)))),
        *_processor(settings, domain), *_smbios(domain),
        *_firmware(settings, spec, variables),
        '-chardev', f'socket,id=qmp,fd={qmp}',
        '-mon', 'chardev=qmp,mode=control',
        *_actions(spec), *_boot(spec), *_serial(domain, serial),
        *_display(spec, display), *_drives(spec, drives),
        *_cards(settings, vmi, links or {})]


def memory(settings, domain):
    """Return the memory of a guest in MiB."""
    wanted = paths.at(domain, 'memory', 'guest')
    amount = int(quantity.value(wanted)) // 2 ** 20 if wanted else 128
    return max(1, min(amount, settings.memory))


def cpus(settings, domain):
    """Return the processors of a guest as (sockets, cores, threads)."""
    cpu = domain.get('cpu') or {}
    sockets, cores, threads = (
        cpu.get(kind) or 1 for kind in ('sockets', 'cores', 'threads'))
    if sockets * cores * threads <= settings.cpus:
        return sockets, cores, threads
    return 1, settings.cpus, 1


def _processor(settings, domain):
    sockets, cores, threads = cpus(settings, domain)
    accelerator = ('kvm' if settings.accelerator == 'kvm'
                   else 'tcg,thread=multi')
    return ['-accel', accelerator,
            '-cpu', 'host' if settings.accelerator == 'kvm' else 'max',
            '-smp', _join(f'cpus={sockets * cores * threads}',
                          f'sockets={sockets}', f'cores={cores}',
                          f'threads={threads}'),
            '-m', f'{memory(settings, domain)}M']


def _smbios(domain):
    said = domain.get('firmware') or {}
    found = []
    system = {'manufacturer': 'KubeVirt', 'product': 'None',
              'family': 'KubeVirt', 'serial': said.get('serial'),
              'uuid': said.get('uuid')}
    if said.get('uuid'):
        found += ['-uuid', said['uuid']]
    chassis = domain.get('chassis') or {}
    for number, values in ((1, system), (3, {
            ours: chassis.get(theirs) for ours, theirs in _CHASSIS})):
        given = [f'{k}={_quote(v)}' for k, v in values.items() if v]
        if given:
            found += ['-smbios', _join(f'type={number}', *given)]
    return found


def _firmware(settings, spec, variables):
    domain = spec['domain']
    kind = firmware.kind(spec)
    machine = ['q35']
    if (paths.at(domain, 'features', 'acpi') or {}).get('enabled') is False:
        machine.append('acpi=off')
    if kind == 'bios':
        if paths.at(domain, 'firmware', 'bootloader', 'bios', 'useSerial'):
            machine.append('graphics=off')
        return ['-machine', _join(*machine)]
    secure = kind == 'efi-secure'
    machine.append(f'smm={"on" if secure else "off"}')
    found = ['-machine', _join(*machine)]
    if secure:
        found += ['-global', 'driver=cfi.pflash01,property=secure,value=on']
    code = (settings.secure if secure else settings.efi).code
    return found + [
        '-drive', _join('if=pflash', 'format=raw', 'unit=0', 'readonly=on',
                        f'file={_quote(code)}'),
        '-drive', _join('if=pflash', 'format=raw', 'unit=1',
                        f'file={_quote(variables)}')]


def _actions(spec):
    ends = spec['domain'].get('rebootPolicy') == 'Terminate'
    # Pause on shutdown: machine.py restarts or ends the guest, depending on
    # the origin of the shutdown.
    return ['-action', _join('shutdown=pause', 'reboot='
                             + ('shutdown' if ends else 'reset'))]


def _boot(spec):
    if spec.get('startStrategy') == 'Paused':
        return ['-boot', _join('strict=on', 'menu=on',
                               f'splash-time={SPLASH_MS}'), '-S']
    return ['-boot', 'strict=on']


def _serial(domain, descriptor):
    if paths.at(domain, 'devices', 'autoattachSerialConsole') is False:
        return []
    return ['-chardev', f'socket,id=serial0,fd={descriptor}',
            '-device', 'isa-serial,chardev=serial0']


def _display(spec, path):
    devices = paths.at(spec, 'domain', 'devices') or {}
    if devices.get('autoattachGraphicsDevice') is False:
        return ['-vga', 'none']
    usual = 'vga' if firmware.kind(spec) == 'bios' else 'bochs'
    video = paths.at(devices, 'video', 'type') or usual
    return ['-vga', 'none', '-device', _VIDEOS[video],
            '-vnc', f'unix:{_quote(path)}']


def _drives(spec, drives):
    found = []
    buses = {drive.bus for drive in drives}
    devices = paths.at(spec, 'domain', 'devices') or {}
    if 'scsi' in buses or not devices.get('disableHotplug'):
        found += ['-device', 'virtio-scsi-pci,id=scsi0']
    if 'usb' in buses:
        found += ['-device', 'qemu-xhci,id=usb']
    counts = {}
    for number, drive in enumerate(drives):
        position = counts.get(drive.bus, 0)
        counts[drive.bus] = position + 1
        if drive.bus == 'sata' and position and position % _SATA_PORTS == 0:
            found += ['-device', f'ich9-ahci,id={_controller(position)}']
        node = drive.medium and f'drive{number}'
        if _is_overlay(drive):
            # QEMU writes to an unnamed temporary file.
            found += ['-drive', _join(
                'if=none', f'id={node}', 'snapshot=on',
                f'format={drive.medium.format}',
                f'file={_quote(drive.medium.path)}')]
        elif node:
            found += ['-blockdev', json.dumps(blockdev(drive, node))]
        found += ['-device', json.dumps(device(drive, node, position))]
    return found


def nodes(drives):
    """Name the block devices of the drives' initial media.

    :returns: dictionary of node names by drive names.
    """
    return {drive.name: f'drive{number}'
            for number, drive in enumerate(drives)
            if drive.medium is not None and not _is_overlay(drive)}


def _is_overlay(drive):
    return (drive.medium is not None and drive.writable
            and not drive.medium.keep)


def _controller(position):
    """Name a drive's SATA controller; the first one is QEMU's own."""
    number = position // _SATA_PORTS
    return f'sata{number}' if number else 'ide'


def blockdev(drive, node):
    """Build the QEMU block device of a drive's medium.

    :param node: node name for the block device.
    """
    found = {'node-name': node, 'driver': drive.medium.format,
             'read-only': not drive.writable,
             'file': {'driver': 'file', 'filename': drive.medium.path}}
    if drive.writable:
        found['discard'] = 'unmap'
    return found


def device(drive, node, position):
    """Build the QEMU device of a drive.

    :param node: node name of its medium's block device, or None.
    :param position: index of the drive on its bus.
    """
    kind = 'cd' if drive.cdrom else 'hd'
    found = {'id': drive.id}
    if drive.bus == 'virtio':
        found['driver'] = 'virtio-blk-pci'
    elif drive.bus == 'scsi':
        found.update({'driver': f'scsi-{kind}', 'bus': 'scsi0.0',
                      'channel': 0, 'scsi-id': 0, 'lun': position})
    elif drive.bus == 'usb':
        found.update({'driver': 'usb-storage', 'bus': 'usb.0',
                      'removable': drive.cdrom})
    else:
        port = position % _SATA_PORTS
        name = _controller(position)
        found.update(driver=f'ide-{kind}', bus=f'{name}.{port}')
    if node:
        found['drive'] = node
    if drive.boot:
        found['bootindex'] = drive.boot
    if drive.serial:
        found['serial'] = drive.serial
    if drive.shared:
        found['share-rw'] = True
    return found


def _cards(settings, vmi, links):
    found = []
    restricted = 'off' if settings.outbound else 'on'
    for number, card in enumerate(paths.interfaces(vmi['spec'])):
        if card.get('state') == 'absent':
            continue
        order = card.get('bootOrder')
        about = {'driver': _CARDS.get(card.get('model') or 'virtio',
                                      'virtio-net-pci'),
                 'id': f'ua-{card["name"]}', 'netdev': f'net{number}',
                 'mac': vmi_status.mac_of(vmi, card)}
        if order:
            about['bootindex'] = order
        else:
            # A card outside the boot order gets no boot ROM.
            about['romfile'] = ''
        link = links.get(card['name'])
        found += ['-netdev',
                  f'user,id=net{number},restrict={restricted}' if link is None
                  else f'socket,id=net{number},fd={link}',
                  '-device', json.dumps(about)]
    return found


def _join(*parts):
    return ','.join(parts)


def _quote(text):
    """Escape the commas of a value in a comma-separated option."""
    return str(text).replace(',', ',,')
