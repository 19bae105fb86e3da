# SPDX-License-Identifier: Apache-2.0
"""Schema of the domain: the virtual hardware of a machine."""

from kubevirt_sandbox.kubevirt.schema import openapi

_BOOT_ORDER = openapi.unsigned(
    'The place among the devices to boot from, from 1 up; as soon as one '
    'device has a number, devices without are not tried.', '*uint')

_BUS = openapi.text('virtio, sata, scsi or usb.')


def _disk():
    return openapi.record('A disk, LUN or CD-ROM drive.', {
        'name': openapi.text('The name of the volume that it shows.'),
        'disk': openapi.record('Shown as a hard disk.', {
            'bus': _BUS, 'readonly': openapi.flag('Not to be written to.'),
            'pciAddress': openapi.text('A fixed place on the PCI bus.')}),
        'cdrom': openapi.record('Shown as a CD-ROM drive.', {
            'bus': _BUS, 'readonly': openapi.boolean('Not to be written to.'),
            'tray': openapi.text('open or closed.')}),
        'lun': openapi.record('Shown as a LUN.', {
            'bus': _BUS, 'readonly': openapi.flag('Not to be written to.'),
            'reservation': openapi.flag('With persistent reservations.')}),
        'bootOrder': _BOOT_ORDER,
        'serial': openapi.text('The serial number that the guest sees.'),
        'dedicatedIOThread': openapi.boolean('With an I/O thread of its own.'),
        'cache': openapi.text('none, writethrough or writeback.'),
        'io': openapi.text('native or threads.'),
        'tag': openapi.text('A tag for the guest.'),
        'blockSize': openapi.record('The size of its blocks.', {
            'custom': openapi.record('Sizes in bytes.', {
                'logical': openapi.unsigned(go='uint'),
                'physical': openapi.unsigned(go='uint'),
                'discardGranularity': openapi.unsigned(go='*uint'),
            }, required=('logical', 'physical')),
            'matchVolume': openapi.switch('As the volume has them.')}),
        'shareable': openapi.boolean('Used by several machines.'),
        'errorPolicy': openapi.text('stop, ignore, report or enospace.'),
        'changedBlockTracking': openapi.boolean('For incremental backups.'),
    }, required=('name',))


def _interface():
    return openapi.record('A network card.', {
        'name': openapi.text('The name of the network that it is on.'),
        'model': openapi.text(
            'virtio (default), e1000, e1000e, igb, rtl8139, ...'),
        'bridge': openapi.anything('On the network through a bridge.'),
        'masquerade': openapi.anything('Behind the pod\'s address.'),
        'sriov': openapi.anything('A virtual function of a card.'),
        'passt': openapi.anything('Through passt.'),
        'passtBinding': openapi.anything('Through passt.'),
        'binding': openapi.record('Through a plugin.',
                                  {'name': openapi.text()},
                                  required=('name',)),
        'ports': openapi.many(openapi.record('A port.', {
            'name': openapi.text(), 'protocol': openapi.text('TCP or UDP.'),
            'port': openapi.integer('1 to 65535.')}, required=('port',)),
            'Ports that are forwarded; none: all.'),
        'portRanges': openapi.many(openapi.anything(),
                                   'Ranges of such ports.'),
        'macAddress': openapi.text('For example de:ad:00:00:be:af.'),
        'bootOrder': _BOOT_ORDER,
        'pciAddress': openapi.text('A fixed place on the PCI bus.'),
        'dhcpOptions': openapi.record('DHCP options of the guest.', {
            'bootFileName': openapi.text('Option 67.'),
            'tftpServerName': openapi.text('Option 66.'),
            'ntpServers': openapi.strings('Option 42.'),
            'privateOptions': openapi.many(openapi.record(
                'A private option.', {
                    'option': openapi.integer('224 to 254.', 64),
                    'value': openapi.text(),
                }, required=('option', 'value')))}),
        'tag': openapi.text('A tag for the guest.'),
        'acpiIndex': openapi.integer('An index that udev names the card by.',
                                     64),
        'state': openapi.text('up, down or absent.'),
    }, required=('name',))


def _devices():
    return openapi.record('Disks, network cards and other devices.', {
        'disks': openapi.many(_disk(), 'Disks, LUNs and CD-ROM drives.', 256),
        'interfaces': openapi.many(_interface(), 'Network cards.', 256),
        'inputs': openapi.many(openapi.record('A pointing device.', {
            'name': openapi.text(), 'type': openapi.text('tablet.'),
            'bus': openapi.text('virtio or usb.'),
        }, required=('name', 'type'))),
        'rng': openapi.anything('A source of random numbers.'),
        'watchdog': openapi.record('A watchdog.', {
            'name': openapi.text(),
            'i6300esb': openapi.record('PCI watchdog.', {
                'action': openapi.text('poweroff, reset or shutdown.')}),
            'diag288': openapi.anything('Watchdog of s390x.'),
        }, required=('name',)),
        'tpm': openapi.record('A TPM.', {
            'enabled': openapi.boolean(), 'persistent': openapi.boolean(
                'Its state outlives the VMI.')}),
        'video': openapi.record('The graphics card.',
                                {'type': openapi.text()}),
        'sound': openapi.record('A sound card.', {
            'name': openapi.text(), 'model': openapi.text('ich9 or ac97.')},
            required=('name',)),
        'autoattachGraphicsDevice': openapi.boolean('With a graphics card.'),
        'autoattachInputDevice': openapi.boolean('With a tablet.'),
        'autoattachMemBalloon': openapi.boolean('With a memory balloon.'),
        'autoattachPodInterface': openapi.boolean(
            'With a card on the pod network if none is named.'),
        'autoattachSerialConsole': openapi.boolean('With a serial console.'),
        'autoattachVSOCK': openapi.boolean('With a vsock device.'),
        'logSerialConsole': openapi.boolean('The console goes to a log, too.'),
        'blockMultiQueue': openapi.boolean(), 'disableHotplug': openapi.flag(),
        'networkInterfaceMultiqueue': openapi.boolean(),
        'useVirtioTransitional': openapi.boolean(),
        'clientPassthrough': openapi.anything('USB devices of the client.'),
        'downwardMetrics': openapi.anything('Metrics of the host.'),
        'filesystems': openapi.many(openapi.record(
            'A directory, by virtiofs.', {
                'name': openapi.text(), 'virtiofs': openapi.anything(),
            }, required=('name', 'virtiofs'))),
        'gpus': openapi.many(openapi.anything()),
        'hostDevices': openapi.many(openapi.anything()),
        'panicDevices': openapi.many(openapi.record(
            'Reports a panic to the host.', {
                'model': openapi.choice('hyperv, isa or pvpanic.', 'hyperv',
                                        'isa',
                                        'pvpanic')})),
    }, struct=True)


def _cpu():
    return openapi.record('The processors.', {
        'sockets': openapi.unsigned('Number of sockets.'),
        'cores': openapi.unsigned('Cores of each socket.'),
        'threads': openapi.unsigned('Threads of each core.'),
        'maxSockets': openapi.unsigned(
            'Maximum number of sockets for hotplug.'),
        'model': openapi.text('The CPU model; host-model if not set.'),
        'features': openapi.many(openapi.record('A CPU feature.', {
            'name': openapi.text(), 'policy': openapi.text(
                'force, require, optional, disable or forbid.')},
            required=('name',))),
        'dedicatedCpuPlacement': openapi.flag(
            'With CPUs of the node of its own.'),
        'isolateEmulatorThread': openapi.flag('The emulator has one, too.'),
        'numa': openapi.record('NUMA of the guest.', {
            'guestMappingPassthrough': openapi.anything(
                'As the node has it.')}),
        'realtime': openapi.anything('For real-time guests.'),
    })


def _firmware():
    return openapi.record('BIOS or UEFI, and SMBIOS data.', {
        'uuid': openapi.text('The UUID in SMBIOS; given at creation.'),
        'serial': openapi.text(
            'The serial number in SMBIOS; given at creation.'),
        'bootloader': openapi.record('Which firmware; BIOS if not set.', {
            'bios': openapi.record('SeaBIOS.', {
                'useSerial': openapi.boolean('Its output goes to the serial '
                                             'console.')}),
            'efi': openapi.record('UEFI.', {
                'secureBoot': openapi.boolean('Only signed loaders start; on '
                                              'unless false. Needs SMM.'),
                'persistent': openapi.boolean(
                    'Its variables outlive the VMI.'),
            })}),
        'kernelBoot': openapi.record('Start a kernel without a boot loader.', {
            'kernelArgs': openapi.text(),
            'container': openapi.record('Where kernel and initrd are.', {
                'image': openapi.text(),
                'imagePullPolicy': openapi.text(),
                'imagePullSecret': openapi.text(),
                'kernelPath': openapi.text(),
                'initrdPath': openapi.text(),
            }, required=('image',))}),
        'acpi': openapi.record('ACPI tables.', {
            'slicNameRef': openapi.text(), 'msdmNameRef': openapi.text()}),
    })


def _timer(description):
    return openapi.record(description, {
        'present': openapi.boolean(), 'tickPolicy': openapi.text(),
        'track': openapi.text()})


def _features():
    return openapi.record('Features of the hypervisor.', {
        'acpi': openapi.switch('ACPI.', struct=True),
        'apic': openapi.record('APIC.', {'enabled': openapi.boolean(),
                                         'endOfInterrupt': openapi.flag()}),
        'smm': openapi.switch('System management mode.'),
        'kvm': openapi.record('KVM.', {'hidden': openapi.flag()}),
        'pvspinlock': openapi.switch('Paravirtualised spin locks.'),
        'hyperv': openapi.anything('Hyper-V enlightenments.'),
        'hypervPassthrough': openapi.switch('All that the host has of it.'),
    })


def _resources():
    amounts = openapi.mapping(openapi.quantity())
    return openapi.record('Resources of the node.', {
        'requests': amounts, 'limits': amounts,
        'overcommitGuestOverhead': openapi.flag('Not counting the overhead.'),
    }, struct=True)


DOMAIN = openapi.record('The virtual hardware.', {
    'devices': _devices(),
    'cpu': _cpu(),
    'memory': openapi.record('The memory.', {
        'guest': openapi.quantity('Memory that the guest sees.'),
        'maxGuest': openapi.quantity('Maximum memory for hotplug.'),
        'hugepages': openapi.record('On huge pages.', {
            'pageSize': openapi.text('Their size, e.g. 2Mi.')}),
        'reservedOverhead': openapi.anything('Overhead that is known ahead.'),
    }),
    'resources': _resources(),
    'firmware': _firmware(),
    'machine': openapi.record('The machine type of QEMU.', {
        'type': openapi.text('q35 if not set.')}),
    'features': _features(),
    'clock': openapi.record('The clock and its timers.', {
        'timezone': openapi.text('Local time of this zone.'),
        'utc': openapi.record('UTC.', {'offsetSeconds': openapi.integer(
            '', 64, pointer=True)}),
        'timer': openapi.record('The timers.', {
            'hpet': _timer('HPET.'), 'kvm': _timer('KVM clock.'),
            'pit': _timer('PIT.'), 'rtc': _timer('RTC.'),
            'hyperv': _timer('Hyper-V clock.')})}),
    'chassis': openapi.record('SMBIOS data of the chassis.', {
        key: openapi.text() for key in
        ('manufacturer', 'version', 'serial', 'asset', 'sku')}),
    'ioThreads': openapi.record('I/O threads.', {
        'supplementalPoolThreadCount': openapi.unsigned('', '*uint32')}),
    'ioThreadsPolicy': openapi.text('shared, auto or supplementalPool.'),
    'launchSecurity': openapi.anything('Encrypted memory.'),
    'rebootPolicy': openapi.choice(
        'What a reboot of the guest does: Reboot (default) keeps the VMI, '
        'Terminate ends it so that its controller makes a new one.',
        'Reboot', 'Terminate'),
}, required=('devices',), struct=True)
"""``spec.domain`` of a VMI."""
