# SPDX-License-Identifier: Apache-2.0
"""The driver, and virtualpdu's core with it."""

import io
import logging
import threading
from unittest import mock

import fixtures
from oslotest import base
from pysnmp.smi import error as smi_error

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.pdu import driver
from sushy_kubevirt.pdu import upstream

ON, OFF = upstream.POWER_ON, upstream.POWER_OFF
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
            with mock.patch.object(power_state, 'of', return_value=state):
                self.assertEqual(
                    OFF if state.name in ('OFF', 'POWERING_OFF') else ON,
                    self.driver.get_power_state('vm'), state)

    def test_stale_cache_is_no_answer(self):
        self.machines.cache.problem = 'Watch failed'
        self.assertRaises(errors.Unavailable, self.driver.get_power_state,
                          'vm')

    def test_vm_that_is_deleted_meanwhile(self):
        self.machine.cached_state.return_value = None
        self.assertRaises(errors.MachineNotFound,
                          self.driver.get_power_state, 'vm')


class CoreTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.commands = upstream.Commands()
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.pdu.upstream._commands', self.commands))
        self.addCleanup(self.commands.close)
        self.driver = mock.Mock()
        self.driver.get_power_state.return_value = OFF
        self.core = upstream.Core(
            driver=self.driver, mapping={('pdu', 1): 'a', ('pdu', 2): 'b'},
            store={}, default_state=ON)
        self.release = threading.Event()
        # Before the clean-up that waits for commands.
        self.addCleanup(self.release.set)

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
        self.commands.close()
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
        self.commands.close()
        self.assertEqual(1, self.driver.power_on.call_count)

    def test_failed_command_is_logged(self):
        log = self.useFixture(fixtures.FakeLogger(level=logging.ERROR))
        self.driver.power_on.side_effect = errors.WrongState('is deleted')
        self.driver.power_off.side_effect = RuntimeError('a bug')
        self.command(ON)
        self.command(OFF)
        self.commands.close()
        self.assertIn('a: POWER_ON failed: is deleted\n', log.output)
        self.assertIn('RuntimeError: a bug', log.output)

    def test_unknown_state_is_an_error_of_snmp(self):
        self.driver.get_power_state.side_effect = errors.Unavailable('lost')
        self.assertRaises(smi_error.SmiError, self.state)


class UpstreamTestCase(base.BaseTestCase):
    """What `upstream` replaces is there, and is used."""

    def run_with(self, main):
        self.useFixture(fixtures.MonkeyPatch('sys.argv', ['program', 'x']))
        for name in ('core.Core', 'main.get_driver_from_config',
                     'pysnmp_handler.create_snmp_engine'):
            where = f'sushy_kubevirt.pdu.upstream.{name}'
            self.useFixture(fixtures.MonkeyPatch(where, None))
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.pdu.upstream.main.main', main))
        upstream.run('driver', 'path')

    def test_run(self):
        def main():
            self.assertEqual('driver', upstream.main.get_driver_from_config(
                io.StringIO()))
            self.assertIs(upstream.Core, upstream.main.virtualpdu.core.Core)
            self.assertIs(upstream._create_snmp_engine,
                          upstream.pysnmp_handler.create_snmp_engine)

        self.run_with(main)

    def test_errors(self):
        for raised, expected in (
                (KeyError('ROT13'), errors.ConfigError),
                (upstream.main.UnableToParseConfig('x'), errors.MachineError),
                (ValueError('x'), errors.MachineError)):
            self.assertRaises(expected, self.run_with,
                              mock.Mock(side_effect=raised))

    def test_dispatcher_goes_on(self):
        engine = mock.Mock()
        run = engine.transportDispatcher.runDispatcher
        run.side_effect = [upstream.pysnmp_error.PySnmpError('x'), None]
        with mock.patch.object(upstream, '_upstream_engine',
                               return_value=engine):
            made = upstream._create_snmp_engine(None, '127.0.0.1', 0)
        made.transportDispatcher.runDispatcher()
        self.assertEqual(2, run.call_count)
