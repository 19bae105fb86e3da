# SPDX-License-Identifier: Apache-2.0
"""Schema of the domain: the virtual hardware of a machine."""

from kubevirt_sandbox.kubevirt.schema import openapi as o

_BOOT_ORDER = o.unsigned(
    'The place among the devices to boot from, from 1 up; as soon as one '
    'device has a number, devices without are not tried.', '*uint')

_BUS = o.text('virtio, sata, scsi or usb.')


def _disk():
    return o.record('A disk, LUN or CD-ROM drive.', {
        'name': o.text('The name of the volume that it shows.'),
        'disk': o.record('Shown as a hard disk.', {
            'bus': _BUS, 'readonly': o.flag('Not to be written to.'),
            'pciAddress': o.text('A fixed place on the PCI bus.')}),
        'cdrom': o.record('Shown as a CD-ROM drive.', {
            'bus': _BUS, 'readonly': o.boolean('Not to be written to.'),
            'tray': o.text('open or closed.')}),
        'lun': o.record('Shown as a LUN.', {
            'bus': _BUS, 'readonly': o.flag('Not to be written to.'),
            'reservation': o.flag('With persistent reservations.')}),
        'bootOrder': _BOOT_ORDER,
        'serial': o.text('The serial number that the guest sees.'),
        'dedicatedIOThread': o.boolean('With an I/O thread of its own.'),
        'cache': o.text('none, writethrough or writeback.'),
        'io': o.text('native or threads.'),
        'tag': o.text('A tag for the guest.'),
        'blockSize': o.record('The size of its blocks.', {
            'custom': o.record('Sizes in bytes.', {
                'logical': o.unsigned(go='uint'),
                'physical': o.unsigned(go='uint'),
                'discardGranularity': o.unsigned(go='*uint'),
            }, required=('logical', 'physical')),
            'matchVolume': o.switch('As the volume has them.')}),
        'shareable': o.boolean('Used by several machines.'),
        'errorPolicy': o.text('stop, ignore, report or enospace.'),
        'changedBlockTracking': o.boolean('For incremental backups.'),
    }, required=('name',))


def _interface():
    return o.record('A network card.', {
        'name': o.text('The name of the network that it is on.'),
        'model': o.text('virtio (default), e1000, e1000e, igb, rtl8139, ...'),
        'bridge': o.anything('On the network through a bridge.'),
        'masquerade': o.anything('Behind the pod\'s address.'),
        'sriov': o.anything('A virtual function of a card.'),
        'passt': o.anything('Through passt.'),
        'passtBinding': o.anything('Through passt.'),
        'binding': o.record('Through a plugin.', {'name': o.text()},
                            required=('name',)),
        'ports': o.many(o.record('A port.', {
            'name': o.text(), 'protocol': o.text('TCP or UDP.'),
            'port': o.integer('1 to 65535.')}, required=('port',)),
            'Ports that are forwarded; none: all.'),
        'portRanges': o.many(o.anything(), 'Ranges of such ports.'),
        'macAddress': o.text('For example de:ad:00:00:be:af.'),
        'bootOrder': _BOOT_ORDER,
        'pciAddress': o.text('A fixed place on the PCI bus.'),
        'dhcpOptions': o.record('What DHCP tells the guest.', {
            'bootFileName': o.text('Option 67.'),
            'tftpServerName': o.text('Option 66.'),
            'ntpServers': o.strings('Option 42.'),
            'privateOptions': o.many(o.record('A private option.', {
                'option': o.integer('224 to 254.', 64), 'value': o.text(),
            }, required=('option', 'value')))}),
        'tag': o.text('A tag for the guest.'),
        'acpiIndex': o.integer('An index that udev names the card by.', 64),
        'state': o.text('up, down or absent.'),
    }, required=('name',))


def _devices():
    return o.record('Disks, network cards and other devices.', {
        'disks': o.many(_disk(), 'Disks, LUNs and CD-ROM drives.', 256),
        'interfaces': o.many(_interface(), 'Network cards.', 256),
        'inputs': o.many(o.record('A pointing device.', {
            'name': o.text(), 'type': o.text('tablet.'),
            'bus': o.text('virtio or usb.')}, required=('name', 'type'))),
        'rng': o.anything('A source of random numbers.'),
        'watchdog': o.record('A watchdog.', {
            'name': o.text(), 'i6300esb': o.record('PCI watchdog.', {
                'action': o.text('poweroff, reset or shutdown.')}),
            'diag288': o.anything('Watchdog of s390x.'),
        }, required=('name',)),
        'tpm': o.record('A TPM.', {
            'enabled': o.boolean(), 'persistent': o.boolean(
                'Its state outlives the VMI.')}),
        'video': o.record('The graphics card.', {'type': o.text()}),
        'sound': o.record('A sound card.', {
            'name': o.text(), 'model': o.text('ich9 or ac97.')},
            required=('name',)),
        'autoattachGraphicsDevice': o.boolean('With a graphics card.'),
        'autoattachInputDevice': o.boolean('With a tablet.'),
        'autoattachMemBalloon': o.boolean('With a memory balloon.'),
        'autoattachPodInterface': o.boolean('With a card on the pod network '
                                            'if none is named.'),
        'autoattachSerialConsole': o.boolean('With a serial console.'),
        'autoattachVSOCK': o.boolean('With a vsock device.'),
        'logSerialConsole': o.boolean('The console goes to a log, too.'),
        'blockMultiQueue': o.boolean(), 'disableHotplug': o.flag(),
        'networkInterfaceMultiqueue': o.boolean(),
        'useVirtioTransitional': o.boolean(),
        'clientPassthrough': o.anything('USB devices of the client.'),
        'downwardMetrics': o.anything('Metrics of the host.'),
        'filesystems': o.many(o.record('A directory, by virtiofs.', {
            'name': o.text(), 'virtiofs': o.anything()},
            required=('name', 'virtiofs'))),
        'gpus': o.many(o.anything()), 'hostDevices': o.many(o.anything()),
        'panicDevices': o.many(o.record('Tells the host of a panic.', {
            'model': o.choice('hyperv, isa or pvpanic.', 'hyperv', 'isa',
                              'pvpanic')})),
    }, struct=True)


def _cpu():
    return o.record('The processors.', {
        'sockets': o.unsigned('How many sockets.'),
        'cores': o.unsigned('How many cores a socket has.'),
        'threads': o.unsigned('How many threads a core has.'),
        'maxSockets': o.unsigned('How many sockets there may ever be.'),
        'model': o.text('The CPU model; host-model if not set.'),
        'features': o.many(o.record('A CPU feature.', {
            'name': o.text(), 'policy': o.text(
                'force, require, optional, disable or forbid.')},
            required=('name',))),
        'dedicatedCpuPlacement': o.flag('With CPUs of the node of its own.'),
        'isolateEmulatorThread': o.flag('The emulator has one, too.'),
        'numa': o.record('NUMA of the guest.', {
            'guestMappingPassthrough': o.anything('As the node has it.')}),
        'realtime': o.anything('For real-time guests.'),
    })


def _firmware():
    return o.record('BIOS or UEFI, and what SMBIOS tells.', {
        'uuid': o.text('The UUID in SMBIOS; given at creation.'),
        'serial': o.text('The serial number in SMBIOS; given at creation.'),
        'bootloader': o.record('Which firmware; BIOS if not set.', {
            'bios': o.record('SeaBIOS.', {
                'useSerial': o.boolean('Its output goes to the serial '
                                       'console.')}),
            'efi': o.record('UEFI.', {
                'secureBoot': o.boolean('Only signed loaders start; on '
                                        'unless false. Needs SMM.'),
                'persistent': o.boolean('Its variables outlive the VMI.'),
            })}),
        'kernelBoot': o.record('Start a kernel without a boot loader.', {
            'kernelArgs': o.text(), 'container': o.record(
                'Where kernel and initrd are.', {
                    'image': o.text(), 'imagePullPolicy': o.text(),
                    'imagePullSecret': o.text(), 'kernelPath': o.text(),
                    'initrdPath': o.text()}, required=('image',))}),
        'acpi': o.record('ACPI tables.', {
            'slicNameRef': o.text(), 'msdmNameRef': o.text()}),
    })


def _timer(description):
    return o.record(description, {
        'present': o.boolean(), 'tickPolicy': o.text(), 'track': o.text()})


def _features():
    return o.record('Features of the hypervisor.', {
        'acpi': o.switch('ACPI.', struct=True),
        'apic': o.record('APIC.', {'enabled': o.boolean(),
                                   'endOfInterrupt': o.flag()}),
        'smm': o.switch('System management mode.'),
        'kvm': o.record('KVM.', {'hidden': o.flag()}),
        'pvspinlock': o.switch('Paravirtualised spin locks.'),
        'hyperv': o.anything('What Windows likes.'),
        'hypervPassthrough': o.switch('All that the host has of it.'),
    })


def _resources():
    amounts = o.mapping(o.quantity())
    return o.record('What the machine takes of the node.', {
        'requests': amounts, 'limits': amounts,
        'overcommitGuestOverhead': o.flag('Not counting the overhead.'),
    }, struct=True)


DOMAIN = o.record('The virtual hardware.', {
    'devices': _devices(),
    'cpu': _cpu(),
    'memory': o.record('The memory.', {
        'guest': o.quantity('How much the guest sees.'),
        'maxGuest': o.quantity('How much there may ever be.'),
        'hugepages': o.record('On huge pages.', {
            'pageSize': o.text('Their size, e.g. 2Mi.')}),
        'reservedOverhead': o.anything('Overhead that is known ahead.'),
    }),
    'resources': _resources(),
    'firmware': _firmware(),
    'machine': o.record('The machine type of QEMU.', {
        'type': o.text('q35 if not set.')}),
    'features': _features(),
    'clock': o.record('The clock and its timers.', {
        'timezone': o.text('Local time of this zone.'),
        'utc': o.record('UTC.', {'offsetSeconds': o.integer(
            '', 64, pointer=True)}),
        'timer': o.record('The timers.', {
            'hpet': _timer('HPET.'), 'kvm': _timer('KVM clock.'),
            'pit': _timer('PIT.'), 'rtc': _timer('RTC.'),
            'hyperv': _timer('Hyper-V clock.')})}),
    'chassis': o.record('What SMBIOS tells of the chassis.', {
        key: o.text() for key in
        ('manufacturer', 'version', 'serial', 'asset', 'sku')}),
    'ioThreads': o.record('I/O threads.', {
        'supplementalPoolThreadCount': o.unsigned('', '*uint32')}),
    'ioThreadsPolicy': o.text('shared, auto or supplementalPool.'),
    'launchSecurity': o.anything('Encrypted memory.'),
    'rebootPolicy': o.choice(
        'What a reboot of the guest does: Reboot (default) keeps the VMI, '
        'Terminate ends it so that its controller makes a new one.',
        'Reboot', 'Terminate'),
}, required=('devices',), struct=True)
"""``spec.domain`` of a VMI."""
