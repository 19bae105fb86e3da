# SPDX-License-Identifier: Apache-2.0
import os
from unittest import mock

import fixtures
from oslotest import base
from virtualbmc import manager as upstream_manager

from vbmc_kubevirt import entries
from vbmc_kubevirt import upstream


def entry(name='vm', **more):
    return dict({'domain_name': name, 'username': 'admin',
                 'password': 'pass', 'address': '::', 'port': 623,
                 'active': False}, **more)


class EntriesTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.folder = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'vbmc')
        self.entries = entries.Entries(self.folder)

    def test_create_load_store_remove(self):
        one = entry('lab/vm.a-b', driver='kubevirt', namespace='lab')
        self.entries.create(one)
        self.assertEqual(one, self.entries.load('lab/vm.a-b'))
        self.assertEqual(['lab/vm.a-b'], self.entries.names())
        self.assertEqual(['lab:vm.a-b'], os.listdir(self.folder))
        self.entries.store(dict(one, active=True))
        self.assertTrue(self.entries.load('lab/vm.a-b')['active'])
        self.entries.remove('lab/vm.a-b')
        self.assertEqual([], os.listdir(self.folder))

    def test_omits_options_that_are_none(self):
        self.entries.create(entry(context=None))
        self.assertNotIn('context', self.entries.load('vm'))

    def test_passwords_with_special_characters(self):
        for number, password in enumerate(('%', '%(port)s', '100%%', 'a=b',
                                           '#x', ';', 'schlüssel', "'\"")):
            name = f'vm{number}'
            self.entries.create(entry(name, password=password))
            self.assertEqual(password, self.entries.load(name)['password'])

    def test_upstream_reads_our_file(self):
        self.entries.create(entry('test', password='50%',
                                  libvirt_uri='test:///default'))
        patch = mock.patch.dict(upstream_manager.CONF['default'],
                                config_dir=self.folder)
        patch.start()
        self.addCleanup(patch.stop)
        read = upstream_manager.VirtualBMCManager()._parse_config('test')
        self.assertEqual(('50%', 'test:///default', 623, 'False'),
                         (read['password'], read['libvirt_uri'],
                          read['port'], read['active']))

    def test_reads_file_of_upstream(self):
        patch = mock.patch.dict(upstream_manager.CONF['default'],
                                config_dir=self.folder)
        patch.start()
        self.addCleanup(patch.stop)
        stock = upstream_manager.VirtualBMCManager()
        for name in 'test', 'my vm:1':
            os.mkdir(os.path.join(self.folder, name))
            stock._store_config(
                domain_name=name, username='admin', password='p', port='623',
                address='::', libvirt_uri='test:///default', active=True)
        self.assertEqual(['my vm:1', 'test'], self.entries.names())
        for name in self.entries.names():
            read = self.entries.load(name)
            self.assertEqual((name, 'test:///default', 623, True),
                             (read['domain_name'], read['libvirt_uri'],
                              read['port'], read['active']))

    def test_only_owner_can_read_files(self):
        old = os.umask(0)
        self.addCleanup(os.umask, old)
        self.entries.create(entry())
        for path, mode in (('vm', 0o700), ('vm/config', 0o600)):
            path = os.path.join(self.folder, path)
            self.assertEqual(mode, os.stat(path).st_mode & 0o777)
            os.chmod(path, 0o777)
        self.entries.store(entry())
        self.assertEqual(0o700, os.stat(
            os.path.join(self.folder, 'vm')).st_mode & 0o777)
        self.assertEqual(0o600, os.stat(os.path.join(
            self.folder, 'vm', 'config')).st_mode & 0o777)
        self.assertEqual(['config'],
                         os.listdir(os.path.join(self.folder, 'vm')))

    def test_rejects_names_that_are_other_paths(self):
        os.mkdir(os.path.join(self.folder, '..', 'other'))
        for name in ('', '.', '..', '/', '/vm', 'lab/', 'lab/..', '../vm',
                     '../other', 'a/b/c', './vm', 'a\0b', 'a:b/c', 'a/b:c'):
            for method in (self.entries.load, self.entries.remove,
                           lambda name: self.entries.create(entry(name))):
                self.assertRaises(upstream.DomainNotFound, method, name)
        self.assertEqual([], os.listdir(self.folder))

    def test_create_rejects_existing_name(self):
        self.entries.create(entry())
        self.assertRaisesRegex(
            upstream.VirtualBMCError, 'BMC for vm already exists',
            self.entries.create, entry(password='other'))
        self.assertEqual('pass', self.entries.load('vm')['password'])

    def test_rejects_unusable_files(self):
        path = os.path.join(self.folder, 'vm')
        os.mkdir(path)
        self.assertEqual([], self.entries.names())
        for text in ('', 'nonsense', '[VirtualBMC]\nport = x\n', '\xff',
                     '[VirtualBMC]\nusername = a\npassword = b\n'
                     'address = ::\nport = 65536\n'):
            with open(os.path.join(path, 'config'), 'wb') as f:
                f.write(text.encode('latin-1'))
            self.assertEqual(['vm'], self.entries.names())
            self.assertRaises(upstream.VirtualBMCError, self.entries.load,
                              'vm')
