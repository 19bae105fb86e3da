# SPDX-License-Identifier: Apache-2.0
"""Steps of a demonstration: a command and a check of its effect.

If a step affects what a VM boots, the check reads the guest's boot record
and not only the command's output.
"""

import collections.abc
import dataclasses


class Failed(Exception):
    """A step did not have its effect; the message has the reason."""


@dataclasses.dataclass
class Step:
    """One command of the demonstration.

    ``command`` is its text, or a function that returns it when the step is
    run, as addresses are not known earlier. ``check`` gets the command's
    output and returns a sentence with its findings; it raises :class:`Failed`
    or :class:`AssertionError`. ``needs`` is a program without which the step
    is skipped.
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
    """The sandbox's record of a VM's guest, with the part already checked.

    :param sandbox: ``tests.fixtures.sandbox.Sandbox``
    :param name: name of the VM
    """

    def __init__(self, sandbox, name):
        self.sandbox = sandbox
        self.name = name
        self.vmi = None
        self.booted = 0

    def expect_boot(self, device_class):
        """Wait for the next boot and check its boot device.

        :param device_class: expected class of the device
        :returns: a sentence about it
        :raises Failed: it booted from another device or more than once
        """
        running = self.sandbox.wait_running(self.name, other_than=self.vmi)
        self.vmi = running['metadata']['uid']
        boot = self.sandbox.wait_boot(self.name, self.booted + 1)
        boots = self.sandbox.boots(self.name)
        expect(len(boots) == self.booted + 1,
               f'{len(boots) - self.booted} boots instead of one')
        self.booted = len(boots)
        expect(boot['vmi'] == self.vmi, 'the boot is of another VMI')
        expect(boot['class'] == device_class,
               f"it booted from {boot['device']} ({boot['class']}) instead")
        return (
            f"the guest of {self.name} booted from {boot['device']} "
            f"({boot['class']}), in a new VMI")

    def expect_no_boot(self):
        expect(len(self.sandbox.boots(self.name)) == self.booted,
               'the guest has booted unexpectedly')

    def expect_running(self):
        expect(self.sandbox.guest(self.name)['running'],
               'the guest is not running')

    def expect_stopped(self):
        self.sandbox.wait_stopped(self.name)
        self.expect_no_boot()
        expect(not self.sandbox.guest(self.name)['running'],
               'the guest is still running')
        return 'the guest has ended, the VM has no VMI'
