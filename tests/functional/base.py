# SPDX-License-Identifier: Apache-2.0
"""What functional tests have in common: real processes, shared by a class.

A process takes a second or so to start, a test a fraction of that, so the
tests of one class share theirs, and each test leaves them as another can
use them (VMs of its own, or reset ones). When a test fails it shows what
the processes printed while it ran.
"""

import fixtures
from oslotest import base
from testtools import content

from tests.functional import emulator
from tests.functional import process
from tests.functional import sandbox
from tests.functional import vbmcd


def _processes(fixture):
    """Find the processes of a fixture and of the fixtures it uses."""
    for value in list(vars(fixture).values()):
        if isinstance(value, process.Process):
            yield value


class FunctionalTestCase(base.BaseTestCase):
    """A test case whose class shares fixtures."""

    _shared = ()

    @classmethod
    def share(cls, fixture):
        """Set up a fixture for all tests of the class.

        To be called in ``setUpClass``; the clean-up is registered.

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
        super().setUp()
        marks = [(one, one.mark()) for fixture in self._shared
                 for one in _processes(fixture)]

        def attach(exc_info):
            for number, (one, mark) in enumerate(marks):
                # A restarted process has begun its output anew.
                text = one.since(mark if mark <= one.mark() else 0)
                self.addDetail('%s-%d' % (one.name, number),
                               content.text_content(text[-50000:]))

        self.addOnException(attach)


class SandboxTestCase(FunctionalTestCase):
    """A test case with a stand-in cluster, as ``sandbox``."""

    VMS = 2
    BOOT_SECONDS = 0.2
    SANDBOX_ARGUMENTS = ()

    #: Whether accounts of BMCs are refused something, on purpose.
    REFUSES = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.share(sandbox.Sandbox(
            cls.VMS, cls.BOOT_SECONDS, cls.SANDBOX_ARGUMENTS))
        if not cls.REFUSES:
            cls.addClassCleanup(cls.nothing_was_refused)

    @classmethod
    def nothing_was_refused(cls):
        """See that BMCs asked for nothing that their accounts may not do."""
        if cls.sandbox.process.returncode is None:
            refused = cls.sandbox.refused()
            if refused:
                raise AssertionError('Refused: %r' % refused)

    def setUp(self):
        super().setUp()
        self.addCleanup(self.sandbox.clear_faults)


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
