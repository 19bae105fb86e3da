# SPDX-License-Identifier: Apache-2.0
import fixtures
from oslotest import base

from vbmc_kubevirt import manager
from vbmc_kubevirt import upstream

#: What the client sends beside what it was told.
SENT = {'username': 'admin', 'password': 'pw', 'address': '127.0.0.1',
        'libvirt_uri': 'qemu:///system', 'libvirt_sasl_username': None,
        'libvirt_sasl_password': None, 'command': 'x', 'namespace': None}


class Fake:
    """A driver that keeps what it was told."""

    options = ('libvirt_uri',)
    chosen = ()
    fail = None

    def __init__(self):
        self.running = {}
        self.closed = False

    def check(self, entry):
        if entry['domain_name'] == 'missing':
            raise upstream.VirtualBMCError('There is no missing')
        return entry

    def start(self, entry):
        if self.fail:
            raise upstream.VirtualBMCError(self.fail)
        new = entry['domain_name'] not in self.running
        self.running[entry['domain_name']] = entry
        return new

    def stop(self, name):
        return self.running.pop(name, None) is not None

    def state(self, name):
        return upstream.RUNNING, 'a problem' if name == 'odd' else ''

    def close(self):
        self.running.clear()
        self.closed = True


class Other(Fake):

    options = chosen = ('namespace',)

    def check(self, entry):
        return super().check(entry) | {'namespace': 'found'}


class ManagerTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.folder = self.useFixture(fixtures.TempDir()).path
        self.conf = {'default': {'config_dir': self.folder,
                                 'show_passwords': False},
                     'drivers': {}}
        self.useFixture(fixtures.MockPatchObject(
            upstream, 'CONF', self.conf))
        self.useFixture(fixtures.MockPatchObject(
            manager.drivers, 'load',
            lambda: {'libvirt': Fake, 'other': Other}))
        self.manager = manager.Manager()

    def add(self, name, **more):
        return self.manager.add(domain_name=name, port=6230,
                                **dict(SENT, **more))

    def status(self):
        rc, rows = self.manager.list()
        return {row['domain_name']: row['status'] for row in rows}

    def driver(self, name='libvirt'):
        return self.manager._drivers[name]

    def test_add_keeps_the_drivers_options_only(self):
        self.assertEqual((0, ''), self.add('vm'))
        self.assertEqual((0, ''), self.add('k', driver='other'))
        shown = dict(self.manager.show('vm')[1])
        self.assertEqual(
            {'domain_name': 'vm', 'username': 'admin', 'password': '***',
             'address': '127.0.0.1', 'port': 6230, 'active': False,
             'libvirt_uri': 'qemu:///system', 'driver': 'libvirt',
             'status': 'down'}, shown)
        shown = dict(self.manager.show('k')[1])
        self.assertEqual('found', shown['namespace'])
        self.assertNotIn('libvirt_uri', shown)

    def test_add_is_refused(self):
        self.assertEqual((1, 'There is no missing'), self.add('missing'))
        self.assertEqual((1, 'Unknown driver x; installed: libvirt, '
                          'other'), self.add('vm', driver='x'))
        self.assertEqual((1, '--namespace is an option of driver other; '
                          'this BMC uses driver libvirt'),
                         self.add('vm', namespace='n'))
        self.assertEqual(1, self.add('../vm')[0])
        for port in -1, 0, 65536:
            self.assertEqual((1, f'{port} is not a valid port'),
                             self.manager.add(domain_name='vm', port=port,
                                              **SENT))
        self.assertEqual({}, self.status())
        self.add('vm')
        self.assertEqual((1, 'A BMC for vm already exists'),
                         self.add('vm'))

    def test_default_driver(self):
        self.conf['drivers']['default'] = 'other'
        self.manager = manager.Manager()
        self.add('vm')
        self.assertEqual('other', dict(self.manager.show('vm')[1])['driver'])
        self.conf['drivers']['default'] = 'unknown'
        self.assertRaisesRegex(upstream.VirtualBMCError,
                               'Unknown driver unknown; installed: libvirt',
                               manager.Manager)

    def test_entries_without_a_driver_are_libvirts(self):
        self.conf['drivers']['default'] = 'other'
        self.add('vm', driver='libvirt')
        entry = self.manager._entries.load('vm')
        entry['driver'] = None
        self.manager._entries.store(entry)
        self.manager = manager.Manager()
        self.assertEqual('libvirt',
                         dict(self.manager.show('vm')[1])['driver'])
        self.manager.start('vm')
        self.assertIn('vm', self.driver('libvirt').running)

    def test_start_and_stop(self):
        self.add('vm')
        self.assertEqual((0, ''), self.manager.start('vm'))
        self.assertEqual((0, ''), self.manager.start('vm'))
        self.assertEqual({'vm': 'running'}, self.status())
        # A new daemon finds it as it was left.
        self.manager = manager.Manager()
        self.manager.periodic()
        self.assertEqual(['vm'], list(self.driver().running))
        self.assertEqual((0, ''), self.manager.stop('vm'))
        self.assertEqual((0, ''), self.manager.stop('vm'))
        self.manager.periodic()
        self.assertEqual({}, self.driver().running)
        self.assertEqual({'vm': 'down'}, self.status())

    def test_what_failed_is_tried_again(self):
        self.add('vm')
        Fake.fail = 'UDP port 6230: in use'
        self.addCleanup(setattr, Fake, 'fail', None)
        self.assertEqual((1, 'UDP port 6230: in use'),
                         self.manager.start('vm'))
        self.manager.periodic()
        self.assertEqual({'vm': 'error'}, self.status())
        self.assertEqual('UDP port 6230: in use',
                         dict(self.manager.show('vm')[1])['problem'])
        Fake.fail = None
        self.manager.periodic()
        self.assertEqual({'vm': 'running'}, self.status())

    def test_what_failed_can_be_stopped(self):
        self.add('vm')
        Fake.fail = 'no'
        self.addCleanup(setattr, Fake, 'fail', None)
        self.manager.start('vm')
        self.assertEqual((0, ''), self.manager.stop('vm'))
        self.assertEqual({'vm': 'down'}, self.status())

    def test_problems_are_shown(self):
        self.add('odd')
        self.manager.start('odd')
        self.assertEqual('a problem',
                         dict(self.manager.show('odd')[1])['problem'])

    def test_delete(self):
        self.add('vm')
        self.manager.start('vm')
        self.assertEqual((0, ''), self.manager.delete('vm'))
        self.assertEqual({}, self.driver().running)
        self.assertEqual({}, self.status())
        for name in 'vm', '..', '../..':
            rc, message = self.manager.delete(name)
            self.assertEqual(1, rc)
            self.assertIn(name, message)

    def test_one_bad_entry_harms_no_other(self):
        self.add('a')
        self.add('b')
        self.manager.start('b')
        with open(self.folder + '/a/config', 'w') as f:
            f.write('nonsense')
        self.manager = manager.Manager()
        self.manager.periodic()
        self.assertEqual({'a': 'error', 'b': 'running'}, self.status())
        self.assertRaises(upstream.VirtualBMCError, self.manager.show, 'a')

    def test_a_fault_of_a_driver_harms_no_other(self):
        self.add('a', driver='other')
        self.add('b')
        self.manager.start('b')
        self.manager.start('a')
        self.useFixture(fixtures.MockPatchObject(
            Other, 'start', side_effect=RuntimeError('a fault')))
        self.driver().running.clear()
        self.manager.periodic()
        self.assertEqual({'a': 'error', 'b': 'running'}, self.status())
        self.assertIn('b', self.driver().running)

    def test_a_driver_that_is_gone(self):
        self.add('vm', driver='other')
        self.manager.start('vm')
        del self.manager._drivers['other']
        del self.manager._classes['other']
        self.manager.periodic()
        self.assertEqual({'vm': 'error'}, self.status())

    def test_shutdown(self):
        self.add('vm')
        self.manager.start('vm')
        self.manager.periodic(shutdown=True)
        self.assertEqual({}, self.driver().running)
        self.assertTrue(self.driver().closed)
        self.assertTrue(self.manager._entries.load('vm')['active'])
