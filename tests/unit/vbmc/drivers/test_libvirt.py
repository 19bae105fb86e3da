# SPDX-License-Identifier: Apache-2.0
import importlib.util
import os
import signal
import socket
import unittest

import fixtures
from oslotest import base

from vbmc_kubevirt.drivers import libvirt
from vbmc_kubevirt import upstream


class DriverTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.here, there = os.pipe()

        def serve(entry):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.write(there, repr(sorted(entry.items())).encode())
            signal.pause()

        self.useFixture(fixtures.MockPatchObject(upstream, 'serve_libvirt',
                                                 serve))
        self.driver = libvirt.Driver()
        self.addCleanup(self.driver.close)
        self.entry = {'domain_name': 'test', 'address': '127.0.0.1',
                      'port': 0, 'libvirt_uri': 'test:///default'}

    def test_start_state_and_stop(self):
        self.assertEqual(upstream.ERROR, self.driver.state('test')[0])
        self.assertTrue(self.driver.start(self.entry))
        # Options that are not set are None, as upstream's class expects.
        self.assertIn("('libvirt_sasl_username', None)",
                      os.read(self.here, 1000).decode())
        self.assertFalse(self.driver.start(self.entry))
        self.assertEqual((upstream.RUNNING, ''), self.driver.state('test'))
        pid = self.driver._processes['test'].pid
        self.assertTrue(self.driver.stop('test'))
        self.assertFalse(self.driver.stop('test'))
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    def test_restarts_ended_process(self):
        self.driver.start(self.entry)
        process = self.driver._processes['test']
        os.read(self.here, 1000)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        self.assertEqual(upstream.ERROR, self.driver.state('test')[0])
        self.assertTrue(self.driver.start(self.entry))
        self.assertEqual((upstream.RUNNING, ''), self.driver.state('test'))

    def test_start_rejects_port_in_use(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(('127.0.0.1', 0))
            self.entry['port'] = other.getsockname()[1]
            self.assertRaisesRegex(upstream.VirtualBMCError, 'in use',
                                   self.driver.start, self.entry)

    @unittest.skipUnless(importlib.util.find_spec('libvirtmod'),
                         "libvirt's module is for the Python of .venv only")
    def test_check_rejects_unknown_domain(self):
        self.assertEqual(self.entry, self.driver.check(self.entry))
        self.entry['domain_name'] = 'other'
        self.assertRaises(upstream.DomainNotFound, self.driver.check,
                          self.entry)
