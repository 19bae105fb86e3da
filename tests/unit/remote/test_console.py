# SPDX-License-Identifier: Apache-2.0
"""Escape sequences of the console."""

from oslotest import base

from sushy_kubevirt.remote import console


class EscapesTestCase(base.BaseTestCase):

    def check(self, sent, commands, *typed):
        escapes = console.Escapes()
        found = [escapes.read(data) for data in typed]
        self.assertEqual((sent, commands), (
            b''.join(data for data, _ in found),
            ''.join(words for _, words in found)))

    def test_at_the_beginning_of_a_line(self):
        for line_end in b'\r', b'\n':
            self.check(b'x' + line_end, '.', b'x' + line_end + b'~.')
        self.check(b'', '.', b'~.')
        self.check(b'', '.', b'~', b'.')

    def test_nowhere_else(self):
        self.check(b'x~.', '', b'x~.')
        self.check(b'cd ~/\r', '', b'cd ~/\r')

    def test_nothing_after_the_end_is_sent(self):
        self.check(b'a\r', '.', b'a\r~.reboot\r')

    def test_tilde(self):
        self.check(b'~.', '', b'~~.')
        self.check(b'~/x\r', '', b'~/x\r')
        self.check(b'~\xe4', '', b'~', b'\xe4')
        # A second tilde of a line is no escape.
        self.check(b'~~~\r', '', b'~~~~\r')

    def test_help_leaves_the_beginning_of_the_line(self):
        self.check(b'x', '?', b'~?x')
        self.check(b'', '?.', b'~?~.')
