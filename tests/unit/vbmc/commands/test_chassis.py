# SPDX-License-Identifier: Apache-2.0
"""Chassis commands that `test_bmc` does not have."""

import datetime
import threading
import types
from unittest import mock

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import vm_state
from tests.unit.vbmc import bmc_case
from vbmc_kubevirt.commands import chassis
from vbmc_kubevirt import restart_cause


class ChassisTest(bmc_case.BmcTestCase):

    def test_capabilities_are_fixed(self):
        now = b'\0\x20\x20\x20\x20'
        self.assertEqual((0, now), self.ask(0, 0))
        self.assertEqual((0, b''), self.ask(0, 5, *now))
        for other in (b'\1' + now[1:], now[:4] + b'\x22'):
            self.assertEqual((0xCC, b''), self.ask(0, 5, *other))

    def test_no_buttons_and_no_cycle_interval(self):
        for command in 0x0A, 0x0B:
            self.assertEqual((0, b''), self.ask(0, command, 0))
            self.assertEqual((0xCC, b''), self.ask(0, command, 1))

    def test_poh_counter_has_minutes_of_present_run(self):
        now = datetime.datetime.now(datetime.timezone.utc)
        for started, minutes in (
                (now - datetime.timedelta(minutes=70, seconds=5), 70),
                (now + datetime.timedelta(minutes=1), 0), ('', 0)):
            if started:
                started = started.strftime('%Y-%m-%dT%H:%M:%SZ')
            self.machine.inventory.return_value = types.SimpleNamespace(
                started=started)
            self.assertEqual((0, bytes((1, minutes, 0, 0, 0))),
                             self.ask(0, 0x0F))

    def test_control_has_begun_when_the_machine_shows_it(self):
        self.machine.running_uid.return_value = 'u0'
        self.ask(0, 2, 3)
        command = self.commands[0, 2]
        for shown in True, False:
            self.machine.shows.return_value = shown
            self.assertIs(shown, command.begun(self.session, b'\3'))
        self.machine.shows.assert_called_with(
            power_state.ResetType.FORCE_RESTART, 'u0')


class StatusTest(bmc_case.BmcTestCase):

    def power(self, state):
        """Change the power state; return the state in the response."""
        self.machine.power_state.return_value = state
        return self.ask(0, 1)[1][0] & 1

    def test_is_read_again_when_the_machine_has_changed(self):
        on, off = power_state.PowerState.ON, power_state.PowerState.OFF
        self.machine.version.return_value = 1
        self.assertEqual(1, self.power(on))
        self.assertEqual(1, self.power(off))
        self.machine.version.return_value = 2
        self.assertEqual(0, self.power(off))
        # No version is known.
        self.machine.version.return_value = None
        self.assertEqual([1, 0], [self.power(on), self.power(off)])


class IdentifyTest(bmc_case.BmcTestCase):

    def setUp(self):
        super().setUp()
        self.machine.power_state.return_value = power_state.PowerState.OFF
        self.indicator = 'Off'
        self.machine.indicator.side_effect = lambda: self.indicator
        self.machine.set_indicator.side_effect = self.set_indicator
        self.run_later = self.bmc.server.run_later

    def set_indicator(self, state):
        self.indicator = state

    def state(self):
        """Return bit 6, "supported", and the state in Get Chassis Status."""
        return self.ask(0, 1)[1][2]

    def test_timed(self):
        for data, seconds in ((), 15), ((30,), 30), ((30, 0), 30):
            self.assertEqual((0, b''), self.ask(0, 4, *data))
            self.assertEqual(('Blinking', 0x50),
                             (self.indicator, self.state()))
            self.assertEqual(seconds, self.run_later.call_args.args[0])
            self.run_later.call_args.args[1]()
            self.assertEqual(('Off', 0x40), (self.indicator, self.state()))

    def test_indefinite_and_off(self):
        self.assertEqual((0, b''), self.ask(0, 4, 5, 1))
        self.assertEqual(('Lit', 0x60), (self.indicator, self.state()))
        self.run_later.assert_not_called()
        self.assertEqual((0, b''), self.ask(0, 4, 0))
        self.assertEqual(('Off', 0x40), (self.indicator, self.state()))

    def test_request_replaces_the_timer(self):
        self.ask(0, 4, 5)
        first = self.run_later.return_value
        self.ask(0, 4, 0, 1)
        first.cancel.assert_called_once_with()
        self.assertEqual(0x60, self.state())

    def test_refused_identify_leaves_the_timer(self):
        self.ask(0, 4, 5)
        self.machine.set_indicator.side_effect = errors.Unavailable('away')
        self.assertNotEqual(0, self.ask(0, 4, 0)[0])
        self.run_later.return_value.cancel.assert_not_called()
        self.assertEqual(0x50, self.state())

    def test_end_keeps_what_another_client_set(self):
        self.ask(0, 4, 5)
        self.indicator = 'Lit'
        self.run_later.call_args.args[1]()
        self.assertEqual('Lit', self.indicator)

    def test_end_does_not_end_a_later_request(self):
        self.ask(0, 4, 5)
        expired = self.run_later.call_args.args[1]
        self.ask(0, 4, 5)
        expired()
        self.assertEqual(('Blinking', 0x50), (self.indicator, self.state()))
        self.run_later.call_args.args[1]()
        self.assertEqual('Off', self.indicator)

    def test_end_is_repeated_while_the_api_is_away(self):
        self.ask(0, 4, 5)
        self.machine.set_indicator.side_effect = errors.Unavailable('away')
        for _attempt in range(2):
            self.run_later.call_args.args[1]()
            self.assertEqual(chassis.RETRY_SECONDS,
                             self.run_later.call_args.args[0])
        self.assertEqual(('Blinking', 0x50), (self.indicator, self.state()))
        self.machine.set_indicator.side_effect = self.set_indicator
        self.run_later.call_args.args[1]()
        self.assertEqual(('Off', 0x40), (self.indicator, self.state()))
        self.assertEqual(3, self.run_later.call_count)

    def test_end_gives_up(self):
        for error, attempts in ((errors.Unavailable('away'),
                                 chassis.ATTEMPTS),
                                (errors.AccessDenied('no'), 1)):
            self.machine.set_indicator.side_effect = self.set_indicator
            self.ask(0, 4, 5)
            self.machine.set_indicator.side_effect = error
            waiting = [self.run_later.call_args.args[1]]
            self.run_later.side_effect = lambda seconds, function: (
                waiting.append(function))
            calls = 0
            while waiting:
                waiting.pop()()
                calls += 1
            self.assertEqual(attempts, calls)

    def test_state_that_redfish_set(self):
        for indicator, state in (('Lit', 0x60), ('Blinking', 0x60),
                                 ('Off', 0x40)):
            self.indicator = indicator
            self.assertEqual(state, self.state())


class RestartCauseTest(bmc_case.BmcTestCase):

    def setUp(self):
        super().setUp()
        self.now = datetime.datetime.now(datetime.timezone.utc)
        self.bmc.restart_cause = restart_cause.RestartCause(
            lambda: self.now.timestamp())
        self.machine.power_state.return_value = power_state.PowerState.ON
        self.see('a', self.now - datetime.timedelta(hours=1))

    def see(self, uid, created=None):
        created = (created or self.now).strftime('%Y-%m-%dT%H:%M:%SZ')
        vmi = {'metadata': {'uid': uid, 'creationTimestamp': created}}
        self.machine.state.return_value = vm_state.VmState(
            {}, vmi if uid else None)

    def cause(self):
        code, data = self.ask(0, 7)
        self.assertEqual(0, code)
        return tuple(data)

    def test_chassis_control_is_the_cause_of_its_vmi_alone(self):
        self.assertEqual((0, 0), self.cause())
        self.ask(0, 2, 3)
        self.assertEqual((0, 0), self.cause())
        self.see(None)
        self.assertEqual((0, 0), self.cause())
        self.see('b')
        self.assertEqual((1, 1), self.cause())
        # Off: the cause of the last start.
        self.see(None)
        self.assertEqual((1, 1), self.cause())
        # Started by another client.
        self.see('c')
        self.assertEqual((0, 0), self.cause())

    def test_vmi_of_other_time_has_another_cause(self):
        self.machine.power_state.return_value = power_state.PowerState.OFF
        self.ask(0, 2, 1)
        for seconds in -20, 601:
            self.see('b', self.now + datetime.timedelta(seconds=seconds))
            self.assertEqual((0, 0), self.cause())
        self.see('b', self.now + datetime.timedelta(seconds=60))
        self.assertEqual((1, 1), self.cause())

    def test_refused_request_is_no_cause(self):
        self.machine.reset.side_effect = errors.WrongState('off')
        self.assertEqual((0xD5, b''), self.ask(0, 2, 3))
        self.see('b')
        self.assertEqual((0, 0), self.cause())

    def test_requests_that_start_nothing_are_no_cause(self):
        for state, control in (('ON', 0), ('ON', 1), ('ON', 5), ('PAUSED', 1),
                               ('POWERING_ON', 1), ('POWERING_OFF', 0)):
            self.see('a', self.now - datetime.timedelta(hours=1))
            self.machine.power_state.return_value = power_state.PowerState[
                state]
            self.assertEqual((0, b''), self.ask(0, 2, control))
            self.see('b')
            self.assertEqual((0, 0), self.cause(), (state, control))

    def test_requests_that_start_it(self):
        for number, (state, control) in enumerate((
                ('OFF', 1), ('POWERING_OFF', 1), ('ON', 2), ('ON', 3))):
            self.machine.power_state.return_value = power_state.PowerState[
                state]
            self.assertEqual((0, b''), self.ask(0, 2, control))
            self.see(f'new{number}')
            self.assertEqual((1, 1), self.cause(), (state, control))

    def test_power_off_ends_a_request_but_not_its_result(self):
        self.see(None)
        self.machine.power_state.return_value = power_state.PowerState.OFF
        self.ask(0, 2, 1)
        self.see('b')
        self.ask(0, 2, 0)
        self.see(None)
        self.assertEqual((1, 1), self.cause())
        # Off before it has started, then started by another client
        self.ask(0, 2, 1)
        self.ask(0, 2, 0)
        self.see('c')
        self.assertEqual((0, 0), self.cause())

    def test_clock_is_the_default(self):
        with mock.patch.object(restart_cause.time, 'time', return_value=5):
            cause = restart_cause.RestartCause(restart_cause.time.time)
            self.see(None)
            with cause.request(restart_cause.Cause.WATCHDOG, self.machine,
                               power_state.ResetType.POWER_CYCLE):
                pass
        self.assertEqual(4, cause.of({'metadata': {
            'uid': 'a', 'creationTimestamp': '1970-01-01T00:00:07Z'}}))

    def test_request_while_the_cause_is_read(self):
        """Reading and requesting are different threads."""
        cause = self.bmc.restart_cause
        threads = []

        def request():
            with cause.request(restart_cause.Cause.WATCHDOG, self.machine,
                               power_state.ResetType.FORCE_OFF):
                pass

        class Interrupted(restart_cause.RestartCause):

            @property
            def _requested(one):
                value = one._value
                if not threads:
                    threads.append(threading.Thread(target=request))
                    threads[0].start()
                    threads[0].join(0.1)
                return value

            @_requested.setter
            def _requested(one, value):
                one._value = value

        self.ask(0, 2, 3)
        self.see('b')
        cause.__class__ = Interrupted
        cause._value = cause.__dict__.pop('_requested')
        self.assertEqual((1, 1), self.cause())
        threads[0].join(10)
        self.assertIsNone(cause._requested)
