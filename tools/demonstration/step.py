# SPDX-License-Identifier: Apache-2.0
"""What a demonstration is made of: commands, and looks at what they did.

Where a step is about what a VM boots, the record of its guest decides, not
the command's answer.
"""

import collections.abc
import dataclasses


class Failed(Exception):
    """A step did not do what it says; the text tells how."""


@dataclasses.dataclass
class Step:
    """One command of the demonstration.

    ``command`` is its text, or a function that makes it when its turn has
    come: addresses are not known before. ``check`` gets the command's output
    and returns a sentence about what it found; it raises :class:`Failed` or
    :class:`AssertionError`. ``needs`` is a program the step is left out
    without.
    """

    title: str
    command: str | collections.abc.Callable[[], str]
    check: collections.abc.Callable[[str], str]
    needs: str = ''

    @property
    def text(self):
        return self.command() if callable(self.command) else self.command


def expect(condition, text):
    if not condition:
        raise Failed(text)


class Guest:
    """What the sandbox has recorded of a VM's guest, as far as it was seen.

    :param sandbox: ``tests.fixtures.sandbox.Sandbox``
    :param name: of the VM
    """

    def __init__(self, sandbox, name):
        self.sandbox = sandbox
        self.name = name
        self.vmi = None
        self.booted = 0

    def boots(self, device_class):
        """Wait for its next boot and look at the record of that."""
        running = self.sandbox.wait_running(self.name, other_than=self.vmi)
        self.vmi = running['metadata']['uid']
        boot = self.sandbox.wait_boot(self.name, self.booted + 1)
        boots = self.sandbox.boots(self.name)
        expect(len(boots) == self.booted + 1,
               '%d boots instead of one more' % (len(boots) - self.booted))
        self.booted = len(boots)
        expect(boot['vmi'] == self.vmi, 'the boot is of another VMI')
        expect(boot['class'] == device_class,
               f"it booted from {boot['device']} ({boot['class']})")
        return ('the guest of %s booted from %s (%s), in a new VMI'
                % (self.name, boot['device'], boot['class']))

    def still(self):
        expect(len(self.sandbox.boots(self.name)) == self.booted,
               'the guest booted, and should not have')

    def runs(self):
        expect(self.sandbox.guest(self.name)['running'],
               'the guest does not run')

    def stops(self):
        self.sandbox.wait_stopped(self.name)
        self.still()
        expect(not self.sandbox.guest(self.name)['running'],
               'the guest still runs')
        return 'the guest has ended, the VM has no VMI'
