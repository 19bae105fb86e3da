# SPDX-License-Identifier: Apache-2.0
import pathlib
import socket
import struct
from unittest import mock

import fixtures
from oslotest import base

from sushy_kubevirt.bmc import interfaces

ROUTE = """\
Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask
lo\t0000FEA9\t00000000\t0001\t0\t0\t0\t0000FFFF
lo\t00000000\t{gateway}\t0003\t0\t0\t0\t00000000
"""
ARP = """\
IP address       HW type     Flags       HW address            Mask     Device
127.0.0.9        0x1         0x2         02:00:00:00:00:09     *        lo
"""
INET6 = '00000000000000000000000000000001 01 80 10 80       lo\n'


class InterfacesTest(base.BaseTestCase):
    """The loopback interface of this host, with files of another."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        gateway, = struct.unpack('=I', socket.inet_aton('127.0.0.9'))
        self.write('route', ROUTE.format(gateway=f'{gateway:08X}'))
        self.write('arp', ARP)
        self.write('if_inet6', INET6)
        (self.folder / 'lo').mkdir()
        self.write('lo/address', '02:00:00:00:00:01\n')
        self.write('lo/mtu', '65536\n')
        for name in '_PROC', '_SYS':
            patch = mock.patch.object(interfaces, name, self.folder)
            patch.start()
            self.addCleanup(patch.stop)

    def write(self, name, text):
        (self.folder / name).write_text(text)

    EXPECTED = interfaces.Interface(
        b'\x7f\0\0\1', b'\xff\0\0\0', b'\2\0\0\0\0\1', b'\x7f\0\0\t',
        b'\2\0\0\0\0\t', 'lo', (interfaces.Ipv6Address('::1', 128),), 65536)

    def test_ipv4(self):
        self.assertEqual(self.EXPECTED, interfaces.towards(('127.0.0.1', 623)))
        self.assertEqual(self.EXPECTED, interfaces.towards(
            ('::ffff:127.0.0.1', 623, 0, 0)))

    def test_ipv6(self):
        """All addresses of the interface, also for a client with IPv6."""
        real = socket.socket

        def make(family, kind):
            if family == socket.AF_INET:
                return real(family, kind)
            found = mock.MagicMock()
            sock = found.__enter__.return_value
            sock.getsockname.return_value = ('::1', 40000, 0, 0)
            return found

        with mock.patch.object(interfaces.socket, 'socket', make):
            found = interfaces.towards(('::1', 623, 0, 0))
        self.assertEqual(self.EXPECTED, found)

    def test_states_of_ipv6_addresses(self):
        self.write('if_inet6', ''.join(
            f'fe80{"0" * 27}{number} 01 40 20 {flags:02x}       lo\n'
            for number, flags in enumerate((0x80, 0xa0, 0x40, 0xc8)))
            + '20010db8000000000000000000000001 02 40 00 80     eth7\n')
        found = interfaces.towards(('127.0.0.1', 623)).ipv6
        self.assertEqual(
            [('fe80::', 'Preferred'), ('fe80::1', 'Deprecated'),
             ('fe80::2', 'Tentative'), ('fe80::3', 'Failed')],
            [(one.address, one.state) for one in found])
        self.assertEqual({(64, True)},
                         {(one.prefix, one.link_local) for one in found})

    def test_missing_files_and_unresolved_gateway(self):
        (self.folder / 'arp').unlink()
        self.write('lo/address', '')
        found = interfaces.towards(('127.0.0.1', 623))
        self.assertEqual((b'\x7f\0\0\t', bytes(6), bytes(6)), (
            found.gateway, found.gateway_mac, found.mac))
        (self.folder / 'route').unlink()
        self.assertEqual(bytes(4),
                         interfaces.towards(('127.0.0.1', 623)).gateway)

    def test_unreachable_client(self):
        with mock.patch.object(interfaces.socket, 'socket',
                               side_effect=OSError):
            self.assertEqual(interfaces.Interface(),
                             interfaces.towards(('192.0.2.1', 623)))
