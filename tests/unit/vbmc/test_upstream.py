# SPDX-License-Identifier: Apache-2.0
"""The internals of virtualbmc that `upstream` depends on.

After an update of virtualbmc, a failure shows what to adapt in `upstream`.
"""

import importlib.util
import inspect
import io
import json
import logging
import os
import subprocess
import sys
import unittest
from unittest import mock

import fixtures
from oslotest import base
from vbmc_kubevirt import manager
from vbmc_kubevirt import upstream  # before virtualbmc, to defer its libvirt
from virtualbmc.cmd import vbmc
from virtualbmc.cmd import vbmcd
from virtualbmc import control
from virtualbmc import exception
from virtualbmc import log
from virtualbmc import manager as upstream_manager
from virtualbmc import utils
import virtualbmc.vbmc


class InternalsTest(base.BaseTestCase):

    def assert_source(self, where, *texts):
        source = inspect.getsource(where)
        for text in texts:
            self.assertIn(text, source)

    def test_application_resolves_replaced_names_at_run_time(self):
        self.assert_source(control.application, 'VirtualBMCManager()',
                           'main_loop(vbmc_manager, command_dispatcher)',
                           'vbmc_manager.periodic()',
                           'vbmc_manager.periodic(shutdown=True)')

    def test_daemon_resolves_application_at_run_time(self):
        self.assert_source(vbmcd.main, 'wrap_with_pidfile(control.application')

    def test_manager_has_methods_that_the_dispatcher_calls(self):
        source = inspect.getsource(control)
        for name in ('add', 'delete', 'start', 'stop', 'list', 'show',
                     'periodic'):
            self.assertIn(f'vbmc_manager.{name}(', source)
            self.assertTrue(callable(getattr(manager.Manager, name)))
        self.assertEqual(
            [], [name for name, value in vars(
                upstream_manager.VirtualBMCManager).items()
                if inspect.isfunction(value) and not name.startswith('_')
                and not hasattr(manager.Manager, name)])

    def test_main_loop_catches_virtualbmc_errors_only(self):
        self.assert_source(control.main_loop,
                           'except exception.VirtualBMCError')

    def test_main_loop_logs_requests_with_passwords(self):
        self.assert_source(control.main_loop,
                           "LOG.debug('Command request data: %(request)s',")

    def test_detached_daemon_writes_0_to_pid_file(self):
        self.assert_source(
            vbmcd.main, 'with utils.detach_process() as pid:',
            'return wrap_with_pidfile(control.application, pid)')
        self.assert_source(utils.detach_process.__enter__, 'return pid')
        self.assert_source(utils.detach_process._change_file_creation_mask,
                           'os.umask(0)')

    def test_runner_takes_options_of_an_entry(self):
        self.assertEqual(['bmc_config'], list(
            inspect.signature(upstream_manager.vbmc_runner).parameters))
        self.assertLessEqual(
            {'username', 'password', 'port', 'address', 'domain_name',
             'libvirt_uri', 'kwargs'},
            set(inspect.signature(virtualbmc.vbmc.VirtualBMC).parameters))

    @unittest.skipUnless(importlib.util.find_spec('libvirtmod'),
                         "libvirt's module is for the Python of .venv only")
    def test_imports_libvirt_when_a_domain_is_served(self):
        # A new interpreter, because this one has imported libvirt already.
        script = """
import sys
import unittest
from vbmc_kubevirt import upstream
assert not {'libvirtmod', 'pyghmi', 'virtualbmc.vbmc'} & sys.modules.keys()
assert upstream.manager.VirtualBMC is None
upstream.check_libvirt({'libvirt_uri': 'test:///default',
                        'domain_name': 'test'})
try:
    upstream.check_libvirt({'libvirt_uri': 'test:///default',
                            'domain_name': 'other'})
except upstream.DomainNotFound:
    pass
from virtualbmc import vbmc
assert upstream.manager.VirtualBMC is vbmc.VirtualBMC
"""
        done = subprocess.run([sys.executable, '-c', script], text=True,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60)
        self.assertEqual(0, done.returncode, done.stdout)

    def test_client_runs_without_libvirt(self):
        script = """
import sys
import unittest
class NoLibvirt:
    def find_spec(self, name, *rest):
        if name.startswith('libvirt'):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoLibvirt())
from vbmc_kubevirt.cmd import vbmc
sys.exit(vbmc.main(['add', '--help']))
"""
        done = subprocess.run([sys.executable, '-c', script], text=True,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60)
        self.assertEqual(0, done.returncode, done.stdout)
        # The options of this project are there, too.
        self.assertIn('--driver', done.stdout)

    def test_client_sends_all_options_and_prints_any_columns(self):
        self.assertEqual({'a': 1}, vbmc.ZmqClient.to_dict(
            type('Options', (), {'a': 1, '_b': 2})()))
        self.assert_source(vbmc.ListCommand.take_action, "rsp['header']")

    def test_logger_has_no_parent(self):
        self.assertIsInstance(upstream.LOG, log.VirtualBMCLogger)
        self.assertIsNone(upstream.LOG.parent)

    def test_config_sections(self):
        self.assertIn('server_port', upstream.section('default'))
        self.assertEqual({}, upstream.section('no such section'))


class RunTest(base.BaseTestCase):
    """The daemon's loop, without its socket."""

    def setUp(self):
        super().setUp()
        for name in ('VirtualBMCManager', 'command_dispatcher',
                     'application'):
            self.useFixture(fixtures.MonkeyPatch(
                'virtualbmc.control.' + name, getattr(control, name)))
        self.folder = self.useFixture(fixtures.TempDir()).path
        self.pid_file = os.path.join(self.folder, 'pid')
        patch = mock.patch.dict(upstream.CONF['default'],
                                pid_file=self.pid_file)
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(os.umask, os.umask(0o022))
        self.addCleanup(upstream.LOG.removeFilter, upstream._mask_request)
        # Its handler uses the stream that stderr was at import.
        self.addCleanup(setattr, upstream.LOG, 'handlers',
                        upstream.LOG.handlers)
        upstream.LOG.handlers = [logging.NullHandler()]
        for name in 'vbmc_kubevirt', 'sushy_kubevirt':
            logger = logging.getLogger(name)
            self.addCleanup(logger.setLevel, logger.level)
            self.addCleanup(setattr, logger, 'propagate', logger.propagate)
            self.addCleanup(setattr, logger, 'handlers', logger.handlers[:])
        self.seen = []

    def run_daemon(self, requests, manager_class):
        def main_loop(instance, dispatch):
            with open(self.pid_file) as f:
                self.seen.append(f.read())
            for request in requests:
                self.seen.append(dispatch(instance, request))

        self.useFixture(fixtures.MonkeyPatch('virtualbmc.control.main_loop',
                                             main_loop))
        self.useFixture(fixtures.MonkeyPatch('signal.signal',
                                             lambda *args: None))
        self.assertFalse(upstream.run(
            manager_class, (('Name', 'name'), ('Driver', 'driver')),
            ['--foreground']))
        return self.seen

    def test_dispatches_requests(self):
        class Manager:
            def periodic(self, shutdown=False):
                pass

            def list(self):
                return 0, [{'name': 'vm', 'driver': 'd', 'password': 'x'},
                           {'name': 'bad'}]

            def show(self, domain_name):
                raise KeyError('a fault')

            def start(self, name):
                raise exception.VirtualBMCError('no')

        seen = self.run_daemon([{'command': 'list'}, {'command': 'what'},
                                {'command': 'show', 'domain_name': 'vm'},
                                {}], Manager)
        self.assertEqual(str(os.getpid()), seen[0])
        self.assertEqual({'rc': 0, 'header': ['Name', 'Driver'],
                          'rows': [['vm', 'd'], ['bad', '']]}, seen[1])
        self.assertEqual(1, seen[2]['rc'])
        self.assertEqual({'rc': 1, 'msg': ["KeyError: 'a fault'"]}, seen[3])
        self.assertEqual(1, seen[4]['rc'])
        json.dumps(seen)
        for name in 'vbmc_kubevirt.bmc_process', 'sushy_kubevirt.machine':
            self.assertTrue(logging.getLogger(name).hasHandlers())
        self.assertEqual(0o077, os.umask(0))
        self.assertFalse(os.path.exists(self.pid_file))

    def test_corrects_pid_file(self):
        with open(self.pid_file, 'w') as f:
            f.write('0')
        upstream._correct_pid_file()
        with open(self.pid_file) as f:
            self.assertEqual(str(os.getpid()), f.read())

    def test_masks_passwords_in_logged_requests(self):
        stream = io.StringIO()
        handler = logging.StreamHandler(stream)
        logger = logging.Logger('x', logging.DEBUG)
        logger.addHandler(handler)
        logger.addFilter(upstream._mask_request)
        request = {'password': 'geheim', 'libvirt_sasl_password': 'geheim',
                   'name': 'vm'}
        logger.debug('Command request data: %(request)s',
                     {'request': request})
        self.assertIn('vm', stream.getvalue())
        self.assertNotIn('geheim', stream.getvalue())
        self.assertEqual('geheim', request['password'])
