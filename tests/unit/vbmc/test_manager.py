# SPDX-License-Identifier: Apache-2.0
import fixtures
from oslotest import base

from vbmc_kubevirt import manager
from vbmc_kubevirt import upstream

#: Options that the client always sends.
CLIENT_OPTIONS = {
    'username': 'admin', 'password': 'pw', 'address': '127.0.0.1',
    'libvirt_uri': 'qemu:///system', 'libvirt_sasl_username': None,
    'libvirt_sasl_password': None, 'command': 'x', 'namespace': None}


class FakeDriver:
    """Driver that records its entries."""

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


class OtherDriver(FakeDriver):

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
            lambda: {'libvirt': FakeDriver, 'other': OtherDriver}))
        self.manager = manager.Manager()

    def add(self, name, **more):
        return self.manager.add(domain_name=name, port=6230,
                                **dict(CLIENT_OPTIONS, **more))

    def status(self):
        rc, rows = self.manager.list()
        return {row['domain_name']: row['status'] for row in rows}

    def driver(self, name='libvirt'):
        return self.manager._drivers[name]

    def test_add_stores_only_options_of_the_driver(self):
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

    def test_add_rejects_invalid_options(self):
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
                                              **CLIENT_OPTIONS))
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

    def test_entry_without_driver_uses_libvirt(self):
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
        # A new daemon starts the BMCs that were running.
        self.manager = manager.Manager()
        self.manager.periodic()
        self.assertEqual(['vm'], list(self.driver().running))
        self.assertEqual((0, ''), self.manager.stop('vm'))
        self.assertEqual((0, ''), self.manager.stop('vm'))
        self.manager.periodic()
        self.assertEqual({}, self.driver().running)
        self.assertEqual({'vm': 'down'}, self.status())

    def test_periodic_retries_failed_start(self):
        self.add('vm')
        FakeDriver.fail = 'UDP port 6230: in use'
        self.addCleanup(setattr, FakeDriver, 'fail', None)
        self.assertEqual((1, 'UDP port 6230: in use'),
                         self.manager.start('vm'))
        self.manager.periodic()
        self.assertEqual({'vm': 'error'}, self.status())
        self.assertEqual('UDP port 6230: in use',
                         dict(self.manager.show('vm')[1])['problem'])
        FakeDriver.fail = None
        self.manager.periodic()
        self.assertEqual({'vm': 'running'}, self.status())

    def test_stop_after_failed_start(self):
        self.add('vm')
        FakeDriver.fail = 'no'
        self.addCleanup(setattr, FakeDriver, 'fail', None)
        self.manager.start('vm')
        self.assertEqual((0, ''), self.manager.stop('vm'))
        self.assertEqual({'vm': 'down'}, self.status())

    def test_show_contains_problem(self):
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

    def test_invalid_entry_does_not_affect_others(self):
        self.add('a')
        self.add('b')
        self.manager.start('b')
        with open(self.folder + '/a/config', 'w') as f:
            f.write('nonsense')
        self.manager = manager.Manager()
        self.manager.periodic()
        self.assertEqual({'a': 'error', 'b': 'running'}, self.status())
        self.assertRaises(upstream.VirtualBMCError, self.manager.show, 'a')

    def test_exception_in_driver_does_not_affect_others(self):
        self.add('a', driver='other')
        self.add('b')
        self.manager.start('b')
        self.manager.start('a')
        self.useFixture(fixtures.MockPatchObject(
            OtherDriver, 'start', side_effect=RuntimeError('a fault')))
        self.driver().running.clear()
        self.manager.periodic()
        self.assertEqual({'a': 'error', 'b': 'running'}, self.status())
        self.assertIn('b', self.driver().running)

    def test_entry_of_removed_driver_is_an_error(self):
        self.add('vm', driver='other')
        self.manager.start('vm')
        del self.manager._drivers['other']
        del self.manager._classes['other']
        self.manager.periodic()
        self.assertEqual({'vm': 'error'}, self.status())

    def test_shutdown_closes_drivers_and_keeps_entries(self):
        self.add('vm')
        self.manager.start('vm')
        self.manager.periodic(shutdown=True)
        self.assertEqual({}, self.driver().running)
        self.assertTrue(self.driver().closed)
        self.assertTrue(self.manager._entries.load('vm')['active'])
