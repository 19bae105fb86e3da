# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

from oslotest import base

from sushy_kubevirt.cluster import identity


class NamesTestCase(base.BaseTestCase):

    def test_long_names_are_shortened_and_stay_distinct(self):
        names = {identity.valid_name(f'{"n" * 62}vol{index}')
                 for index in range(12)}
        self.assertEqual(12, len(names))
        for name in names:
            self.assertTrue(identity.is_name(name), name)
            self.assertEqual(63, len(name))

    def test_names_of_networks_become_valid(self):
        self.assertEqual('physnet1', identity.valid_name('physnet1'))
        names = {identity.valid_name(one)
                 for one in ('Rack_1', 'rack.1', 'rack-1', '__', '--')}
        self.assertEqual(5, len(names))
        for name in names:
            self.assertTrue(identity.is_name(name), name)

    def test_bridges_are_named_after_namespace_cluster_and_network(self):
        names = {identity.bridge_name(namespace, cluster, network, shared)
                 for namespace in 'ab' for cluster in 'cd' for network in 'ef'
                 for shared in (True, False)}
        # Those that are shared do not depend on the cluster.
        self.assertEqual(8 + 4, len(names))
        for name in names:
            self.assertEqual(14, len(name))

    def test_valid_names(self):
        for name in 'a', '0', 'tk-0', 'a' * 63:
            self.assertTrue(identity.is_name(name), name)
        for name in '', '-a', 'a-', 'A', 'a_b', 'a.b', 'a' * 64, 'a\n':
            self.assertFalse(identity.is_name(name), name)
        self.assertTrue(identity.is_object_name('a.b-c.d'))
        self.assertFalse(identity.is_object_name('a..b'))

    def test_labels(self):
        for label in 'a', 'A_b.c', 'kubernetes.io/hostname':
            self.assertTrue(identity.is_label(label), label)
        for label in '', '/a', 'a/', 'a/b/c', 'a b', 'A/b', 'a' * 64:
            self.assertFalse(identity.is_label(label), label)

    def test_name_of_a_cluster_from_that_of_a_file(self):
        self.assertEqual('my-lab', identity.cluster_name('My_lab'))
        self.assertEqual('', identity.cluster_name('_'))
        self.assertNotEqual(identity.cluster_name('x' * 60 + '1'),
                            identity.cluster_name('x' * 60 + '2'))


class MacTestCase(base.BaseTestCase):

    def test_address_depends_on_cluster_node_and_network(self):
        addresses = {
            identity.mac(cluster, node, network, attempt)
            for cluster in 'ab' for node in 'cd' for network in 'ef'
            for attempt in range(2)}
        self.assertEqual(16, len(addresses))
        for one in addresses:
            self.assertTrue(identity.is_mac(one))
            self.assertTrue(one.startswith('52:54:00:'))

    def test_address_never_changes(self):
        """Ironic's ports would lose their VMs."""
        self.assertEqual('52:54:00:ff:ff:87',
                         identity.mac('lab', 'tk0', 'physnet0'))


class HashTestCase(base.BaseTestCase):

    def test_order_of_keys_and_kind_of_sequence_do_not_count(self):
        self.assertEqual(identity.hash_of({'a': 1, 'b': [1, 2]}),
                         identity.hash_of({'b': (1, 2), 'a': 1}))

    def test_values_count(self):
        values = ({'a': 1}, {'a': 2}, {'a': '1'}, {'a': None}, {}, [], None,
                  {'a': [1, 2]}, {'a': [2, 1]})
        self.assertEqual(len(values),
                         len({identity.hash_of(one) for one in values}))

    def test_hash_is_the_same_in_another_process(self):
        text = "{'z': ['é', None], 'a': {'c': True, 'b': 1.5}}"
        found = subprocess.run(
            (sys.executable, '-c',
             'from sushy_kubevirt.cluster import identity\n'
             f'print(identity.hash_of({text}))'),
            capture_output=True, text=True, check=True).stdout.strip()
        self.assertEqual(
            found,
            identity.hash_of({'a': {'b': 1.5, 'c': True}, 'z': ['é', None]}))
        self.assertEqual(16, len(found))
