# SPDX-License-Identifier: Apache-2.0
"""The driver, and virtualpdu with it."""

import configparser
import logging
import socket
import threading
from unittest import mock

import fixtures
from oslotest import base
from pysnmp.smi import error as smi_error

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.pdu import driver

ON, OFF = driver.core.POWER_ON, driver.core.POWER_OFF
TIMEOUT = 30


class DriverTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.machines = mock.Mock(default_namespace='lab')
        self.machines.cache.problem = ''
        self.machine = self.machines.machine.return_value
        self.driver = driver.KubeVirtDriver(self.machines)

    def test_power(self):
        self.driver.power_off('vm')
        self.driver.power_on('vm')
        self.assertEqual(
            [mock.call(power_state.ResetType.FORCE_OFF),
             mock.call(power_state.ResetType.ON)],
            self.machine.reset.mock_calls)
        self.machines.machine.assert_called_with('lab/vm', wait=False)

    def test_states(self):
        for state in power_state.PowerState:
            self.machine.power_state.return_value = state
            self.assertEqual(
                OFF if state.name in ('OFF', 'POWERING_OFF') else ON,
                self.driver.get_power_state('vm'), state)

    def test_stale_cache_is_no_answer(self):
        self.machines.cache.problem = 'Watch failed'
        self.assertRaises(errors.Unavailable, self.driver.get_power_state,
                          'vm')


class OutletsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.driver = mock.Mock()
        self.driver.get_power_state.return_value = OFF
        self.core = driver.Outlets(
            self.driver, {('pdu', 1): 'a', ('pdu', 2): 'b'}, ON)
        self.addCleanup(self.wait)
        self.release = threading.Event()
        # Before the clean-up that waits for commands.
        self.addCleanup(self.release.set)

    def wait(self):
        """Wait for all commands."""
        for thread in self.core._threads.values():
            thread.shutdown()

    def block(self):
        """Let power_on wait, and tell when it does."""
        waits = threading.Event()

        def power_on(name):
            waits.set()
            self.assertTrue(self.release.wait(TIMEOUT))

        self.driver.power_on.side_effect = power_on
        return waits

    def state(self, outlet=1):
        return self.core.get_pdu_outlet_state('pdu', outlet)

    def command(self, command, outlet=1):
        self.core.set_pdu_outlet_command('pdu', outlet, command)

    def test_state_is_read_each_time(self):
        self.assertEqual(OFF, self.state())
        self.driver.get_power_state.return_value = ON
        self.assertEqual(ON, self.state())

    def test_outlet_without_a_device(self):
        self.assertEqual(ON, self.state(3))
        self.command(OFF, 3)
        self.assertEqual(OFF, self.state(3))

    def test_outlet_is_on_while_its_device_is_started(self):
        waits = self.block()
        self.command('REBOOT')
        self.assertTrue(waits.wait(TIMEOUT))
        self.assertEqual(ON, self.state())
        self.command(OFF)
        self.assertEqual(OFF, self.state())
        self.release.set()
        self.wait()
        self.assertEqual(['power_off', 'power_on', 'power_off'], [
            call[0] for call in self.driver.method_calls
            if call[0] != 'get_power_state'])

    def test_devices_do_not_wait_for_each_other(self):
        waits = self.block()
        self.command(ON)
        self.assertTrue(waits.wait(TIMEOUT))
        done = threading.Event()
        self.driver.power_off.side_effect = lambda name: done.set()
        self.command(OFF, 2)
        self.assertTrue(done.wait(TIMEOUT))

    def test_repeated_request_is_one_command(self):
        self.block()
        for _ in range(3):
            self.command('REBOOT')
        self.release.set()
        self.wait()
        self.assertEqual(1, self.driver.power_on.call_count)

    def test_failed_command_is_logged(self):
        log = self.useFixture(fixtures.FakeLogger(level=logging.ERROR))
        self.driver.power_on.side_effect = errors.WrongState('is deleted')
        self.driver.power_off.side_effect = RuntimeError('a bug')
        self.command(ON)
        self.command(OFF)
        self.wait()
        self.assertIn('a: POWER_ON failed: is deleted\n', log.output)
        self.assertIn('RuntimeError: a bug', log.output)

    def test_unknown_state_is_an_error_of_snmp(self):
        self.driver.get_power_state.side_effect = errors.Unavailable('lost')
        self.assertRaises(smi_error.SmiError, self.state)


class ServeTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.start = self.useFixture(fixtures.MockPatch(
            'threading.Thread')).mock
        self.create = self.useFixture(fixtures.MockPatchObject(
            driver.pysnmp_handler, 'create_snmp_engine')).mock

    def serve(self, **options):
        parser = configparser.RawConfigParser()
        parser['rack'] = {'listen_address': '127.0.0.1', 'listen_port': '0',
                          'snmp_versions': '1, 2c', **options}
        driver.serve(parser['rack'], mock.Mock())

    def test_options(self):
        self.serve(engine_id='0x8000000001', community='word')
        self.assertEqual(
            {'snmp_versions': ['1', '2c'], 'community': 'word',
             'engine_id': '8000000001', 'context_engine_id': None},
            self.create.call_args.kwargs)

    def test_port(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(('127.0.0.1', 0))
            for port, text in ((other.getsockname()[1], 'in use'),
                               (65536, '65535')):
                error = self.assertRaises(
                    errors.MachineError, self.serve, listen_port=str(port))
                self.assertIn(f'[rack]: 127.0.0.1:{port}: ', str(error))
                self.assertIn(text, str(error))
        self.create.assert_not_called()

    def test_exceptions_of_handlers_end_nothing(self):
        self.serve()
        dispatcher = self.create.return_value.transportDispatcher
        dispatcher.runDispatcher.side_effect = [
            RuntimeError('a bug'), ValueError('another'), SystemExit]
        thread = self.start.call_args.kwargs
        self.assertRaises(SystemExit, thread['target'], *thread['args'])
