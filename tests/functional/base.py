# SPDX-License-Identifier: Apache-2.0
"""Test cases with this project's processes, shared by the tests of a class."""

from kubevirt_sandbox.testing import case
from tests.functional import emulator
from tests.functional import sandbox
from tests.functional import vbmcd

FunctionalTestCase = case.FunctionalTestCase


class SandboxTestCase(case.SandboxTestCase):
    """A test case with a sandbox whose BMCs are refused nothing."""

    SANDBOX = sandbox.Sandbox

    #: Whether the tests have BMCs' accounts refused something on purpose.
    REFUSES = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not cls.REFUSES:
            cls.addClassCleanup(cls.nothing_was_refused)

    @classmethod
    def nothing_was_refused(cls):
        """Check that no BMC asked for what its account may not do."""
        if cls.sandbox.process.returncode is None:
            refused = cls.sandbox.refused()
            if refused:
                raise AssertionError(f'Refused: {refused!r}')


class EmulatorTestCase(SandboxTestCase):
    """A test case with an emulator for the sandbox, as ``emulator``."""

    SERVER = 'werkzeug'
    SETTINGS = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(), cls.SETTINGS, cls.SERVER))


class VbmcdTestCase(SandboxTestCase):
    """A test case with ``vbmcd-kubevirt`` for the sandbox, as ``vbmcd``."""

    CONFIG = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.vbmcd = cls.share(vbmcd.Vbmcd(cls.sandbox.bmc_account(),
                                          cls.CONFIG))
