# SPDX-License-Identifier: Apache-2.0
import datetime
from unittest import mock

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import vm_state
from tests.unit.vbmc import bmc_case
from vbmc_kubevirt.commands import chassis
from vbmc_kubevirt.commands import watchdog
from vbmc_kubevirt import restart_cause


class WatchdogTest(bmc_case.BmcTestCase):

    def setUp(self):
        self.now = 1000.0
        patch = mock.patch.object(
            watchdog.Watchdog, '__init__',
            lambda one, bmc, init=watchdog.Watchdog.__init__: init(
                one, bmc, lambda: self.now))
        patch.start()
        self.addCleanup(patch.stop)
        super().setUp()
        self.machine.qualified_name = 'lab/vm'
        self.machine.power_state.return_value = power_state.PowerState.ON
        self.timers = []
        self.bmc.server.run_later.side_effect = self.run_later

    def run_later(self, seconds, function):
        timer = mock.Mock()
        timer.due, timer.function = self.now + seconds, function
        timer.cancel.side_effect = lambda: self.timers.remove(timer)
        self.timers.append(timer)
        return timer

    def advance(self, seconds):
        """Let time pass, and timers expire."""
        self.now += seconds
        for timer in [one for one in self.timers if one.due <= self.now]:
            self.timers.remove(timer)
            timer.cancel.side_effect = None
            timer.function()

    def set(self, use=4, action=1, tenths=100, flags=0, interrupt=0):
        return self.ask(6, 0x24, use, interrupt << 4 | action, 0, flags,
                        *tenths.to_bytes(2, 'little'))

    def state(self):
        """:returns: started, flags, initial and present countdown"""
        code, data = self.ask(6, 0x25)
        self.assertEqual((0, 8), (code, len(data)))
        return (bool(data[0] & 0x40), data[3],
                int.from_bytes(data[4:6], 'little'),
                int.from_bytes(data[6:], 'little'))

    def test_needs_to_be_set(self):
        self.assertEqual((False, 0, 0, 0), self.state())
        self.assertEqual((0x80, b''), self.ask(6, 0x22))

    def test_starts_and_counts_down(self):
        self.assertEqual((0, b''), self.set())
        self.assertEqual((False, 0, 100, 100), self.state())
        self.assertEqual([], self.timers)
        self.assertEqual((0, b''), self.ask(6, 0x22))
        self.advance(4)
        self.assertEqual((True, 0, 100, 60), self.state())
        self.ask(6, 0x22)
        self.assertEqual((True, 0, 100, 100), self.state())
        self.assertEqual(1, len(self.timers))
        self.machine.reset.assert_not_called()

    def test_actions(self):
        for action, reset in ((1, 'ForceRestart'), (2, 'ForceOff'),
                              (3, 'PowerCycle')):
            self.machine.reset.reset_mock()
            self.set(action=action, flags=0xFF)
            self.assertEqual((), self.bmc.watchdog_events())
            self.ask(6, 0x22)
            self.advance(10)
            self.machine.reset.assert_called_once_with(
                power_state.ResetType(reset), restart_powers_on=False)
            self.assertEqual((False, 0x10, 100, 100), self.state())
            self.assertEqual((action,), self.bmc.watchdog_events())
            self.advance(100)
            self.assertEqual(1, self.machine.reset.call_count)

    def test_no_action(self):
        self.set(action=0)
        self.ask(6, 0x22)
        self.advance(10)
        self.assertEqual(0x10, self.state()[1])
        self.assertEqual((0,), self.bmc.watchdog_events())
        self.machine.reset.assert_not_called()
        self.log.add.assert_called_once()

    def test_machine_that_is_off_stays_off(self):
        self.machine.power_state.return_value = power_state.PowerState.OFF
        self.set(action=3)
        self.ask(6, 0x22)
        self.advance(10)
        self.machine.reset.assert_not_called()

    def test_flags_of_each_use_until_cleared(self):
        for use, flag in ((1, 2), (2, 4), (3, 8), (4, 0x10), (5, 0x20)):
            self.set(use=use, action=0, flags=0xFF)
            self.ask(6, 0x22)
            self.advance(10)
            self.assertEqual(flag, self.state()[1])
        # Only the bits given are cleared.
        self.set(flags=0x01)
        self.assertEqual(0x20, self.state()[1])
        self.set(flags=0x20)
        self.assertEqual(0, self.state()[1])

    def test_expiry_shows_before_the_action(self):
        """The action may wait for another change of the VM."""
        self.set()
        self.ask(6, 0x22)
        self.now += 10
        self.assertEqual((False, 0x10, 100, 100), self.state())
        self.advance(0)
        self.machine.reset.assert_called_once()

    def test_setting_stops_unless_told_otherwise(self):
        self.set()
        self.ask(6, 0x22)
        self.set(use=0x44, tenths=50)
        self.assertEqual((True, 0, 50, 50), self.state())
        self.set()
        self.assertEqual((False, 0, 100, 100), self.state())
        self.assertEqual([], self.timers)
        # It does not start a timer that is stopped.
        self.set(use=0x44)
        self.assertFalse(self.state()[0])

    def test_late_function_of_stopped_timer_does_nothing(self):
        self.set()
        self.ask(6, 0x22)
        timer, = self.timers
        self.now += 9
        for stop in (lambda: self.set(), lambda: self.ask(6, 0x22),
                     lambda: self.ask(6, 3)):
            stop()
            timer.function()
            self.machine.reset.assert_not_called()

    def test_what_has_expired_is_done(self):
        """Even if a client sets or starts the timer before the action."""
        for number, after in enumerate((
                lambda: self.set(use=3, action=2, flags=0xFF, tenths=900),
                lambda: self.ask(6, 0x22), self.state,
                lambda: [self.state(), self.ask(6, 3)]), 1):
            self.set(flags=0xFF)
            self.ask(6, 0x22)
            timer, = self.timers
            self.now += 10
            after()
            self.assertIn(timer, self.timers)
            timer.function()
            self.timers.remove(timer)
            self.machine.reset.assert_called_with(
                power_state.ResetType.FORCE_RESTART, restart_powers_on=False)
            # Once, and with its entry.
            timer.function()
            self.assertEqual([number] * 2, [self.machine.reset.call_count,
                                            self.log.add.call_count])
            self.assertEqual('SMS/OS', self.log.add.call_args.args[2][1])

    def test_set_ends_attempts_of_what_has_expired(self):
        self.machine.reset.side_effect = errors.Unavailable('away')
        self.set()
        self.ask(6, 0x22)
        timer, = self.timers
        self.now += 10
        self.set()
        self.timers.remove(timer)
        timer.function()
        self.assertEqual((1, []), (self.machine.reset.call_count,
                                   self.timers))

    def test_acts_before_it_logs(self):
        begun = datetime.datetime.now(datetime.timezone.utc)
        self.machine.reset.side_effect = lambda *args, **more: (
            self.log.add.assert_not_called())
        self.set()
        self.ask(6, 0x22)
        self.advance(10)
        self.machine.reset.assert_called_once()
        when = self.log.add.call_args.args[4]
        self.assertLessEqual(begun, when)

    def test_rejects_other_values(self):
        for values in ({'use': 0}, {'use': 6}, {'use': 7}, {'action': 4},
                       {'action': 7}, {'interrupt': 1}, {'interrupt': 3}):
            self.assertEqual((0xCC, b''), self.set(**values))

    def test_resets_stop_it(self):
        for command in 3, 2:
            self.set()
            self.ask(6, 0x22)
            self.ask(6, command)
            self.assertFalse(self.state()[0])
            self.assertEqual([], self.timers)

    def test_expiry_is_logged(self):
        self.set(use=3, action=2)
        self.ask(6, 0x22)
        self.advance(10)
        found, message, args, raw, _when = self.log.add.call_args.args
        self.assertEqual(
            (self.machine, event_registry.WATCHDOG_EXPIRED,
             ('lab/vm', 'OS Load', 'power down')), (found, message, args))
        # Watchdog 2, sensor-specific offset 2; timer use 3 in event data 2.
        self.assertEqual((0x23, 0x6F, 0xC2, 3),
                         (raw[10], raw[12], raw[13], raw[14]))
        self.log.add.reset_mock()
        self.set(use=0x84)
        self.ask(6, 0x22)
        self.advance(10)
        self.log.add.assert_not_called()

    def test_acts_although_the_log_fails(self):
        self.log.add.side_effect = errors.AccessDenied('no')
        self.set()
        self.ask(6, 0x22)
        self.advance(10)
        self.machine.reset.assert_called_once()

    def test_repeats_the_action_during_an_outage(self):
        self.machine.reset.side_effect = [
            errors.Unavailable('away'), errors.Unavailable('away'), None]
        self.set()
        self.ask(6, 0x22)
        self.advance(10)
        for _attempt in range(5):
            self.advance(chassis.RETRY_SECONDS)
        self.assertEqual(3, self.machine.reset.call_count)
        self.assertEqual([], self.timers)

    def test_new_timer_ends_the_attempts(self):
        self.machine.reset.side_effect = errors.Unavailable('away')
        self.set()
        self.ask(6, 0x22)
        self.advance(10)
        self.set()
        self.advance(100)
        self.assertEqual(1, self.machine.reset.call_count)

    def test_is_the_restart_cause(self):
        self.set()
        self.ask(6, 0x22)
        self.advance(10)
        with mock.patch.object(restart_cause, '_created',
                               lambda vmi: restart_cause.time.time()):
            self.machine.state.return_value = vm_state.VmState(
                {}, {'metadata': {'uid': 'new'}})
            self.assertEqual((0, b'\4\1'), self.ask(0, 7))
