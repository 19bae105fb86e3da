# SPDX-License-Identifier: Apache-2.0
"""DMTF's validators report no failure.

Each class has its own emulator with one VM: over HTTP and HTTPS, with each
server, with a VM that is off and with one that runs with a medium in its
drive. Each run of a validator is one test. Every warning must be explained
here and in ``doc/source/reference/conformance.rst``.
"""

import os
import pathlib
import re
import secrets
import time

import bcrypt
import fixtures
from testtools import content

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import machines
from tests.dmtf import validators
from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import image_server

_USER = 'admin'

#: Accepted warnings: regular expression and reason.
EXPLAINED = {
    r'\| IndicatorLED \|.*deprecated':
        'Ironic sets IndicatorLED; LocationIndicatorActive is also present.',
    r'/Managers/[^/|]+ \|.*\| VirtualMedia \|.*deprecated':
        'Ironic looks for virtual media below the manager first.',
    r'/Managers/[^/|]+/VirtualMedia.*Deprecated URI':
        'The same.',
    r'/Managers/[^/|]+ \|.*\| SerialConsole \|.*deprecated':
        'The system has it too, for clients of a newer schema.',
    r'\| EventService .*\| EventTypesForSubscription.*deprecated':
        'Ironic subscribes by EventTypes.',
    r'\| EventService .*SSEFilterPropertiesSupported/EventType.*deprecated':
        'The same.',
    r'\| EventDestination .*\| EventTypes.*deprecated':
        'The same.',
    r'\| MessageRegistry .*\| Messages/\w+/Severity \|.*deprecated':
        'The schema that calls it deprecated requires it.',
    r'Oem/SushyKubevirt/@odata\.type \| \[Not Present\]':
        'The project publishes no schema that a type could refer to.',
}

#: DSP0266 allows credentials over HTTPS only. A service that accepts them
#: over HTTP fails these two assertions; one that does not fails others.
HTTP_ONLY = {'SEC_BASIC_AUTH_OVER_HTTPS', 'SEC_SESSION_CREATE_HTTPS_ONLY'}


def explained(text):
    """Return whether a warning matches `EXPLAINED`."""
    return any(re.search(pattern, text) for pattern in EXPLAINED)


class _Case:
    """Mixin with the tests; a subclass defines the VM and the server."""

    VMS = 0
    RUNNING = False
    SERVER = 'gunicorn'
    HTTPS = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        vm = machines.vm('machine', 'Always' if cls.RUNNING else 'Halted')
        # Remove the medium in its drive.
        del vm['spec']['template']['spec']['volumes'][1]
        cls.sandbox.create('virtualmachines', vm, 'default')
        home = pathlib.Path(cls.share(fixtures.TempDir()).path)
        password = secrets.token_urlsafe(12)
        accounts = home / 'accounts'
        hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4))
        accounts.write_text(f'{_USER}:{hashed.decode()}\n')
        tls = (cls.share(certificates.Certificate()).tls if cls.HTTPS
               else None)
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.kubeconfig,
            {'SUSHY_EMULATOR_KUBEVIRT_VM': 'default/machine',
             'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK': True,
             'SUSHY_EMULATOR_KUBEVIRT_MEDIA_UPLOAD_PROXY_URL':
                 cls.sandbox.upload_proxy()[0],
             'SUSHY_EMULATOR_AUTH_FILE': str(accounts)},
            cls.SERVER, auth=(_USER, password), tls=tls))
        cls.service = validators.Service(
            cls.emulator.url, _USER, password, tls and tls[2])
        cls.path, = cls.emulator.systems()
        if cls.RUNNING:
            cls._fill()
        # A subscription for the validators to read; the address is one for
        # documentation (RFC 5737), at which no host listens.
        cls.emulator.request(
            'POST', '/redfish/v1/EventService/Subscriptions',
            {'Destination': 'http://192.0.2.1:9/', 'Protocol': 'Redfish',
             'Context': 'test', 'DeliveryRetryPolicy': 'RetryForever'},
            expect=201)

    @classmethod
    def _fill(cls):
        """Wait until the VM runs and insert a medium into its drive."""
        images = cls.share(image_server.ImageServer())
        cls._until(lambda: cls.emulator.request(
            'GET', cls.path).json()['PowerState'] == 'On')
        device = cls.path + '/VirtualMedia/Cd'
        cls.emulator.request(
            'POST', device + '/Actions/VirtualMedia.InsertMedia',
            {'Image': images.url + '/medium.iso'}, expect=204)
        cls._until(lambda: cls.emulator.request('GET', device).json()[
            'Status'] == {'State': 'Enabled', 'Health': 'OK'})

    @staticmethod
    def _until(condition, timeout=60):
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f'condition not met within {timeout} s')
            time.sleep(0.05)

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)

    def check(self, report, allowed=()):
        """Check that there are no failures and no unexplained warnings.

        :param report: :class:`tests.dmtf.validators.Report`
        :param allowed: names of assertions that are expected to fail
        """
        self.addDetail('output', content.text_content(
            report.output[-20000:]))
        summary = os.environ.get('DMTF_SUMMARY')
        if summary:
            with open(summary, 'a') as stream:
                stream.write(
                    f'{type(self).__name__}.{self._testMethodName}: '
                    f'{report}\n')
                stream.writelines(f'    {kind} {text}\n'
                                  for kind, text in report.findings)
        # The validator must have tested the service.
        self.assertGreater(report.passed, 50)
        self.assertEqual(report.failed, len(report.of('FAIL')))
        self.assertEqual(sorted(allowed), sorted(
            text.partition(' | ')[0] if allowed else text
            for text in report.of('FAIL')))
        self.assertEqual([], [text for text in report.of('WARN')
                              if not explained(text)])
        self.assertEqual(report.warned, len(report.of('WARN')))

    def skip_without(self, path):
        """Skip the test if a file or folder is missing."""
        if not path.exists():
            self.skipTest(
                f"{path} is absent: DMTF's schemas and profiles are not part "
                "of this repository")

    def test_protocol(self):
        self.check(validators.protocol(self.service, self.folder),
                   () if self.HTTPS else HTTP_ONLY)

    def test_service_with_session(self):
        self.skip_without(validators.SCHEMAS)
        self.check(validators.schema(self.service, self.folder, 'Session'))

    def test_service_with_basic(self):
        self.skip_without(validators.SCHEMAS)
        self.check(validators.schema(self.service, self.folder, 'Basic'))

    def test_interoperability_with_session(self):
        self.skip_without(validators.PROFILE)
        self.check(validators.interoperability(
            self.service, self.folder, 'Session'))

    def test_interoperability_with_basic(self):
        self.skip_without(validators.PROFILE)
        self.check(validators.interoperability(
            self.service, self.folder, 'Basic'))


class TestOffHttp(_Case, base.SandboxTestCase):
    """A VM that is off, over HTTP, with Werkzeug's server."""

    SERVER = 'werkzeug'


class TestOffHttps(_Case, base.SandboxTestCase):
    """A VM that is off, over HTTPS, with gunicorn."""

    HTTPS = True


class TestOnHttp(_Case, base.SandboxTestCase):
    """A VM that runs, over HTTP, with gunicorn."""

    RUNNING = True


class TestOnHttps(_Case, base.SandboxTestCase):
    """A VM that runs, over HTTPS, served as in the pod of a BMC."""

    RUNNING = True
    SERVER = 'pod'
    HTTPS = True
