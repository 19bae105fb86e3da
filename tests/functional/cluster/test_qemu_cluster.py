# SPDX-License-Identifier: Apache-2.0
"""Nodes of clusters as QEMU guests: their disks and their networks."""

from testtools import content

from kubevirt_sandbox.testing import console
from kubevirt_sandbox.testing import qemu
from tests.fixtures import operator
from tests.fixtures import virtual_cluster_case


class QemuClusterTestCase(virtual_cluster_case.VirtualClusterTestCase):

    @classmethod
    def setUpClass(cls):
        if missing := qemu.needed():
            raise AssertionError('these packages are needed (see bindep.txt): '
                                 + ' '.join(missing))
        cls.SANDBOX = (*operator.PRETENDED_PODS, '--guests', 'qemu',
                       '--qemu-accel', qemu.ACCELERATOR)
        super().setUpClass()
        cls.web = cls.share(qemu.WebServer())

    def declare(self, name, count):
        return self.read(f'''\
            cluster: {{name: {name}}}
            default_boot_mode: bios
            networks: {{lan: {{}}, pods: {{attachment: pod}}}}
            node_types:
              guest:
                vcpus: 1
                memory_mb: 256
                physical_networks: [pods, lan]
                volumes:
                - {{capacity: 64MiB, image: "{self.web.url}disk-full"}}
                - {{capacity: 8MiB, bus: sata}}
                vm: {{spec: {{runStrategy: Always}}}}
            specs: [{{type: guest, count: {count}}}]
            ''')

    def console(self, node):
        """Follow the console of a node, from its start."""
        guest = self.useFixture(console.Console(
            self.sandbox, node.name, self.namespace))
        self.addOnException(lambda _: self.addDetail(
            node.name, content.text_content(guest.output[-5000:])))
        return guest

    def log_in(self, guest, node):
        """Wait until a node has booted its disk, and log in."""
        guest.wait(qemu.DISK, timeout=400)
        guest.send_line('cards')
        for one in node.interfaces:
            guest.wait(one.mac)
        guest.send_line('login')
        guest.wait('login: ')
        guest.send_line('root')
        guest.wait('Password: ')
        guest.send_line('console')
        guest.wait('# ')

    def run_in(self, guest, command):
        """:returns: exit status of a command"""
        mark = guest.mark()
        guest.send_line(command + '; echo "status=$?"')
        return int(guest.wait(r'status=(\d+)', mark)[1])

    def give_address(self, guest, node, address):
        """Give the card in the physical network an address."""
        self.assertEqual(0, self.run_in(guest, (
            f'd=$(grep -l {node.interfaces[1].mac} '
            '/sys/class/net/*/address); d=${d%/address}; d=${d##*/}; '
            f'ip addr add {address}/24 dev $d && ip link set $d up')))

    def test_disks_and_networks(self):
        """Nodes of a cluster reach one another, those of others do not."""
        self.allow_networks()
        one, other = self.declare('one', 2), self.declare('other', 1)
        nodes = [*one.nodes, *other.nodes]
        guests = [self.console(node) for node in nodes]
        self.apply(one)
        self.apply(other)
        for number, (guest, node) in enumerate(
                zip(guests, nodes, strict=True), 1):
            self.log_in(guest, node)
            self.give_address(guest, node, f'10.7.7.{number}')
        for address, expected in (('10.7.7.2', 0), ('10.7.7.3', 1)):
            self.assertEqual(expected, self.run_in(
                guests[0], f'ping -c 2 -W 3 {address}'))
        # The second disk is blank: larger than nothing, without an image.
        self.assertEqual(0, self.run_in(
            guests[0], "grep -c '^16384$' /sys/block/sd*/size"))
        for name in 'one', 'other':
            self.assertEqual({}, self.user.teardown(name).failed)
        self.until('nothing is left', self.everything, self.initial)
