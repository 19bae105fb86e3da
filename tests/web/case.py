# SPDX-License-Identifier: Apache-2.0
"""Test cases with a browser and a service whose web page it shows."""

import functools
import itertools

from testtools import content

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import qemu
from tests.fixtures import base
from tests.fixtures import browser
from tests.fixtures import emulator
from tests.fixtures import redfish_pod

_numbers = itertools.count(1)


@functools.cache
def certificate():
    """Return the certificate of all pods, as a browser is told which to trust.
    """
    return certificates.make(['127.0.0.1'])


class WebTestCase(base.SandboxTestCase):
    """Each test has a page of its own: ``page`` is Playwright's object.

    ``tab`` is the fixture with that page, ``browser`` that of the browser.
    """

    def setUp(self):
        super().setUp()
        self.serve()
        self.tab = self.open_tab()
        self.page = self.tab.page
        # Waits until what it is told becomes true.
        self.expect = self.browser.expect

    def serve(self):
        """Start service and browser if each test has its own."""

    def open_tab(self, **options):
        """Open another page, as a second user would.

        :param options: of Playwright's ``new_context()``, for example
            ``viewport={'width': 360, 'height': 640}``
        :returns: `browser.Page`
        """
        tab = self.browser.page(**options)
        # A failure of its end is the test's, with picture: thus `useFixture`
        # comes first.
        self.useFixture(tab)
        self.addOnException(lambda _exc_info: self._save(tab))
        return tab

    def hide(self, hidden):
        """Let the page take itself for a hidden or visible tab."""
        self.page.evaluate("""(hidden) => {
            Object.defineProperty(
                document, 'hidden', {value: hidden, configurable: true});
            document.dispatchEvent(new Event('visibilitychange'));
        }""", hidden)

    def _save(self, tab):
        if tab.page.is_closed():
            return
        name = f'{self.id()}-{next(_numbers)}'
        self.addDetail(f'picture {name}', content.text_content(
            str(tab.save(name))))

    def login(self, tab, user, password):
        """Open the page and log in.

        :param tab: `browser.Page`
        """
        # The page asks whether a login is needed.
        tab.allow_error(r'status of 401 .*/redfish/v1')
        tab.page.goto('/')
        self.fill_login(tab, user, password)

    def fill_login(self, tab, user, password):
        """Log in with the form, which the page shows."""
        tab.page.get_by_label('User name').fill(user)
        tab.page.get_by_label('Password').fill(password)
        tab.page.get_by_role('button', name='Log in').click()
        self.expect(tab.page.get_by_role(
            'button', name='Log out')).to_be_visible()


class WebPodTestCase(WebTestCase):
    """The BMC of the VM ``vm-0``, as it is in a pod, by HTTPS: ``pod``."""

    #: Further settings, as text, and whether there is an upload proxy.
    SETTINGS = ''
    UPLOADS = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pod = cls.share(redfish_pod.RedfishPod(
            cls.sandbox, settings=cls.SETTINGS, certificate=certificate(),
            proxy=cls.sandbox.upload_proxy() if cls.UPLOADS else None))
        cls.browser = cls.share(browser.Browser(
            cls.pod.url, [cls.pod.tls.path / 'tls.crt']))

    def log_in(self, tab=None):
        """Log in as the BMC's administrator."""
        self.login(tab or self.tab, redfish_pod.USER, self.pod.password)


class WebEmulatorTestCase(WebTestCase):
    """An emulator for all VMs of the sandbox, by HTTP, without login.

    ``emulator`` is the fixture; set ``VMS`` for more of them.
    """

    SETTINGS = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # The server of a pod has the WebSockets of consoles, too.
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(), cls.SETTINGS, server='pod'))
        cls.browser = cls.share(browser.Browser(cls.emulator.url))


class WebQemuTestCase(qemu.QemuTestCase, WebTestCase):
    """The BMC of a VM whose guest runs in QEMU, by HTTPS.

    Each test has its own: ``name``, ``console``, ``pod``. The machine is off.
    """

    #: Further options of `qemu.vm`, and whether ``console`` is connected, in
    #: which case no other client can be.
    OPTIONS = {}
    WATCH = False

    def serve(self):
        self.make(run_strategy='Halted', watch=self.WATCH, **self.OPTIONS)
        self.pod = self.useFixture(redfish_pod.RedfishPod(
            self.sandbox, self.name, certificate=certificate()))
        self.browser = self.useFixture(browser.Browser(
            self.pod.url, [self.pod.tls.path / 'tls.crt']))

    def log_in(self, tab=None):
        """Log in as the BMC's administrator."""
        self.login(tab or self.tab, redfish_pod.USER, self.pod.password)
