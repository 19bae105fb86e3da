# SPDX-License-Identifier: Apache-2.0
"""Test cases whose tests share real processes.

A process takes about a second to start, a test a fraction of that. Each test
must leave the shared processes usable for the next one: it creates its own
objects or resets those it changes. A failed test reports what the processes
printed while it ran.
"""

import functools
import unittest

import fixtures
from oslotest import base
from testtools import content

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import polling
from kubevirt_sandbox.testing import process
from kubevirt_sandbox.testing import sandbox


def _processes(fixture):
    """Find the processes of a fixture and of the fixtures it uses."""
    for value in list(vars(fixture).values()):
        if isinstance(value, process.Process):
            yield value


def _skip_each_test(owner):
    """Have a class whose `setUpClass` skips count as one skip for each test.

    :param owner: class that defines `setUpClass`
    """
    set_up = vars(owner)['setUpClass'].__func__

    @functools.wraps(set_up)
    def checked(cls):
        try:
            set_up(cls)
        except unittest.SkipTest as exc:
            # Not for a call by super().
            if owner is not next(one for one in cls.__mro__
                                 if 'setUpClass' in vars(one)):
                raise
            cls.__unittest_skip__ = True
            cls.__unittest_skip_why__ = str(exc)

    owner.setUpClass = classmethod(checked)


class FunctionalTestCase(base.BaseTestCase):
    """A test case whose class shares fixtures."""

    _shared = ()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if 'setUpClass' in vars(cls):
            _skip_each_test(cls)

    @classmethod
    def share(cls, fixture):
        """Set up a fixture for all tests of the class.

        Call it in ``setUpClass``; it registers the clean-up.

        :param fixture: the fixture to set up.
        :returns: the fixture.
        """
        try:
            fixture.setUp()
        except fixtures.MultipleExceptions as exc:
            raise process.cause(exc) from None
        cls.addClassCleanup(fixture.cleanUp)
        cls._shared = (*cls._shared, fixture)
        return fixture

    def setUp(self):
        """Attach the output of shared processes to a test that fails."""
        super().setUp()
        marks = [(one, one.mark()) for fixture in self._shared
                 for one in _processes(fixture)]

        def attach(exc_info):
            for number, (one, mark) in enumerate(marks):
                # The output of a restarted process starts from zero.
                text = one.since(mark if mark <= one.mark() else 0)
                self.addDetail(f'{one.name}-{number}',
                               content.text_content(text[-50000:]))

        self.addOnException(attach)

    def until(self, condition, seconds=60, describe=None):
        """Poll for a condition that has no watch.

        :param condition: function
        :param seconds: time limit, after which the test fails
        :param describe: function whose result is added to the message of the
            failure
        :returns: the first true value that the function returned
        """
        for _ in polling.attempts(seconds):
            if found := condition():
                return found
        self.fail(f'condition not met within {seconds:g} s: '
                  f'{describe() if describe else found!r}')


class SandboxTestCase(FunctionalTestCase):
    """A test case with a running sandbox in ``sandbox``.

    ``SANDBOX`` is the class of the fixture; ``VMS``, ``BOOT_SECONDS`` and
    ``SANDBOX_ARGUMENTS`` are its parameters.
    """

    SANDBOX = (given_cluster.GivenCluster if given_cluster.GIVEN
               else sandbox.Sandbox)
    VMS = 2
    BOOT_SECONDS = 0.2
    SANDBOX_ARGUMENTS = ()

    @classmethod
    def setUpClass(cls):
        """Start the sandbox for all tests of the class."""
        super().setUpClass()
        cls.sandbox = cls.share(cls.SANDBOX(
            cls.VMS, cls.BOOT_SECONDS, cls.SANDBOX_ARGUMENTS))

    def setUp(self):
        """Remove the configured faults after each test."""
        super().setUp()
        self.addCleanup(self.sandbox.clear_faults)
