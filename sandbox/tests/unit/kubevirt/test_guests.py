# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from oslotest import base

from kubevirt_sandbox.kubevirt import guests
from tests.unit.kubevirt import objects


class Loop:
    """Fake event loop whose delayed calls run on demand."""

    def __init__(self):
        self.calls = []

    def call_later(self, _seconds, function):
        handle = mock.Mock()
        entry = (handle, function)
        self.calls.append(entry)
        handle.cancel.side_effect = lambda: (
            entry in self.calls and self.calls.remove(entry))
        return handle

    def pass_time(self):
        calls, self.calls = self.calls, []
        for _, function in calls:
            function()


class GuestsTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.loop = Loop()
        self.ended, self.changed = mock.Mock(), mock.Mock()
        self.vmi = objects.vmi()
        self.guests = guests.Guests(
            self.loop, lambda namespace, name: self.vmi, self.ended,
            self.changed, 1)

    def _boots(self):
        return self.guests.record('default', 'one')['boots']

    def _annotate(self, name, value='true'):
        self.vmi['metadata']['annotations'][
            'sandbox.sushy-kubevirt/' + name] = value

    def test_start_boots_once(self):
        self.guests.start(self.vmi)
        self.guests.start(self.vmi)
        record = self.guests.record('default', 'one')
        self.assertEqual(('uid-1', True),
                         (record['vmi'], record['running']))
        self.assertEqual(['start'], [b['cause'] for b in record['boots']])

    def test_power_button_shuts_down_after_delay(self):
        self.guests.start(self.vmi)
        self.guests.press_power_button('uid-1')
        self.guests.press_power_button('uid-1')
        self.assertTrue(self.guests.alive('uid-1'))
        self.ended.assert_not_called()
        self.loop.pass_time()
        self.ended.assert_called_once_with('default', 'one', 'uid-1',
                                           guests.SHUTDOWN)
        self.assertFalse(self.guests.alive('uid-1'))

    def test_guest_without_acpi_ignores_power_button(self):
        for name, value in (('ignore-acpi', 'true'),
                            ('unbootable', 'root,default')):
            self.vmi = objects.vmi()
            self._annotate(name, value)
            self.guests.start(self.vmi)
            self.guests.press_power_button('uid-1')
            self.assertEqual([], self.loop.calls)
            self.guests.kill('uid-1')
        self.ended.assert_not_called()

    def test_kill_cancels_shutdown_without_callback(self):
        self.guests.start(self.vmi)
        self.guests.press_power_button('uid-1')
        self.guests.kill('uid-1')
        self.assertEqual([], self.loop.calls)
        self.ended.assert_not_called()

    def test_reset_uses_current_boot_order(self):
        self.guests.start(self.vmi)
        disk = self.vmi['spec']['domain']['devices']['disks'][0]
        disk['bootOrder'] = 9
        self.guests.reset('uid-1')
        self.guests.soft_reboot('uid-1')
        self.assertEqual(2, len(self._boots()))
        self.loop.pass_time()
        self.assertEqual(
            ['disk:root', 'interface:default', 'interface:default'],
            [b['device'] for b in self._boots()])

    def test_reboot_policy_terminate_ends_guest(self):
        for act in (lambda: self.guests.reset('uid-1'),
                    lambda: self.guests.act('default', 'one', 'reboot'),
                    lambda: (self.guests.soft_reboot('uid-1'),
                             self.loop.pass_time())):
            self.ended.reset_mock()
            self.vmi['spec']['domain']['rebootPolicy'] = 'Terminate'
            self.guests.start(self.vmi)
            act()
            self.ended.assert_called_once_with('default', 'one', 'uid-1',
                                               guests.SHUTDOWN)

    def test_shutdown_and_crash_of_guest(self):
        for action, how in (('shutdown', guests.SHUTDOWN),
                            ('crash', guests.CRASH)):
            self.ended.reset_mock()
            self.guests.start(self.vmi)
            self.assertEqual('', self.guests.act('default', 'one', action))
            self.ended.assert_called_once_with('default', 'one', 'uid-1',
                                               how)
        self.assertIn('no guest',
                      self.guests.act('default', 'one', 'crash'))

    def test_paused_start_boots_when_resumed(self):
        self.guests.start(self.vmi, paused=True)
        self.assertEqual([], self._boots())
        self.assertIn('no guest',
                      self.guests.act('default', 'one', 'shutdown'))
        self.guests.resume('uid-1')
        self.guests.pause('uid-1')
        self.guests.resume('uid-1')
        self.assertEqual(1, len(self._boots()))

    def test_io_error_pauses_until_resumed(self):
        self.guests.start(self.vmi)
        self.assertFalse(self.guests.io_error('uid-1'))
        self.assertEqual('', self.guests.act('default', 'one', 'io-error'))
        self.changed.assert_called_once_with('default', 'one')
        self.assertTrue(self.guests.paused('uid-1'))
        self.assertTrue(self.guests.io_error('uid-1'))
        self.guests.resume('uid-1')
        self.assertFalse(self.guests.io_error('uid-1'))
        self.assertFalse(self.guests.paused('uid-1'))

    def test_record_is_kept_and_limited(self):
        self.guests.start(self.vmi)
        for _ in range(300):
            self.guests.reset('uid-1')
        self.guests.kill('uid-1')
        self.assertEqual(200, len(self._boots()))
        self.assertFalse(self.guests.record('default', 'one')['running'])

    def test_agent_runs_with_the_guest(self):
        self.assertFalse(self.guests.has_agent(self.vmi))
        self._annotate('guest-agent')
        self.assertFalse(self.guests.has_agent(self.vmi))
        self.guests.start(self.vmi)
        self.assertTrue(self.guests.has_agent(self.vmi))
