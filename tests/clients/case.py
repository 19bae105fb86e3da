# SPDX-License-Identifier: Apache-2.0
"""A BMC for the tests of one client, and the record of what they show."""

import json
import pathlib
import secrets
import subprocess
import unittest

import fixtures
import requests
from testtools import content

from kubevirt_sandbox.testing import api_user
from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import process
from kubevirt_sandbox.testing import webserver
from tests.clients import environment
from tests.fixtures import base
from tests.fixtures import image_server
from tests.fixtures import media_case
from tests.fixtures import operator
from tests.fixtures import sandbox
from tests.fixtures import terminal
from tests.fixtures import vbmcd

#: What the table says of a client's function that does what it should.
WORKS = 'works'

#: Namespace and name of the VM and the BMC.
NAMESPACE = 'default'
NAME = 'box'

#: Matches the address of the interface that a BMC reports: in the sandbox,
#: pods use the loopback interface of this host.
POD_ADDRESS = r'^127\.'

#: The path of the system.
SYSTEM = '/redfish/v1/Systems/1'


@unittest.skipUnless(kubectl.KUBECTL, 'kubectl is not installed')
class ClientTestCase(base.FunctionalTestCase):
    """A test case with the operator and the BMC of one VM, in ``bmc``.

    The tests of a class share the VM; each brings it into the power state
    that it needs.

    :cvar CLIENT: name of the client in the table.
    :cvar VARIABLES: additional environment variables of its commands.
    """

    CLIENT = None
    VARIABLES = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not environment.RESULTS.exists():
            raise RuntimeError('run: python -m tests.clients.environment')
        cls.home = pathlib.Path(cls.share(fixtures.TempDir()).path)
        cls.sandbox = cls.share(sandbox.Sandbox(vms=0))
        admin = api_user.ApiUser(cls.sandbox.kubeconfig)
        operator.install(admin)
        cls.share(operator.Operator(cls.sandbox.account(
            operator.NAME, operator.NAMESPACE)))
        vm = machines.vm(NAME, 'Halted', NAMESPACE)
        media_case.drop_medium(vm['spec']['template']['spec'])
        cls.uuid = machines.uuid_of(vm)
        vm = cls.sandbox.create('virtualmachines', vm)
        cls.serial = vm['spec']['template']['spec']['domain']['firmware'][
            'serial']
        cls.kubectl = user = admin.within(NAMESPACE)
        password = secrets.token_hex(8)
        cls.host = webserver.own_address()
        user.apply(operator.secret_manifest(NAME + '-bmc', 'admin', password),
                   operator.bmc_manifest(NAME, NAME, NAME + '-bmc', **({
                       'virtualMedia': {'allowedHosts': [cls.host]}}
                       if cls.host else {})))
        made = operator.Bmc(user, NAME, 'admin', password).ready()
        cls.addClassCleanup(cls.check_logs, user)
        endpoints = made.status['endpoints']
        # It serves the ports that clients expect.
        assert endpoints['ipmi']['port'] == 623, endpoints
        cls.bmc = vbmcd.Bmc(NAME, 'admin', password, 623)
        cls.bmc.address = cls.address = endpoints['ipmi']['host']
        cls.url = 'https://' + cls.address
        cls.ca = made.ca_file()
        cls.rows = {}
        cls.skipped = None
        cls.missing = set(unittest.defaultTestLoader.getTestCaseNames(cls))
        cls.addClassCleanup(cls.write_rows)

    def setUp(self):
        super().setUp()
        self.missing.discard(self._testMethodName)

    @classmethod
    def check_logs(cls, user):
        """Check that no request was an error of the BMC's program.

        :param user: `kubectl.Kubectl` within the namespace
        """
        logs = user.run('logs', '--all-containers', '--tail=-1', '-l',
                        operator.LABEL + NAME).stdout
        assert 'Redfish on' in logs and 'IPMI on' in logs, logs
        assert 'Traceback' not in logs, logs[-20000:]

    @classmethod
    def version(cls):
        """Return the client's version as it reports it."""
        raise NotImplementedError

    @classmethod
    def write_rows(cls):
        """Write what the tests recorded, for `tests.clients.table`.

        Nothing is written if only some tests of the class were run, and of
        skipped tests only why.
        """
        if not cls.missing:
            report = {'version': cls.version(), 'rows': cls.rows}
        elif cls.skipped:
            report = {'skipped': cls.skipped}
        else:
            return
        (environment.RESULTS / f'{cls.__name__}.json').write_text(
            json.dumps({'client': cls.CLIENT, **report}))

    def record(self, *functions, result=WORKS):
        """Record what the table says of some functions.

        A test calls it at its end, so that a failure leaves them out.

        :param functions: commands or functions of the client.
        :param result: what they do.
        """
        self.rows.update(dict.fromkeys(functions, result))

    @classmethod
    def environment(cls):
        """Return the environment of the client's commands."""
        return process.environment(cls.home, {
            'NO_PROXY': '*', 'REQUESTS_CA_BUNDLE': cls.ca,
            'CURL_CA_BUNDLE': cls.ca, **cls.VARIABLES})

    def run_command(self, *words, code=0, timeout=120):
        """Run a client's command.

        :param words: program and arguments.
        :param code: the expected exit code; None for any.
        :param timeout: seconds.
        :returns: its output, standard error included.
        """
        done = subprocess.run(
            [str(word) for word in words], cwd=self.home,
            env=self.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=timeout)
        self.addDetail(pathlib.Path(words[0]).name, content.text_content(
            done.stdout[-20000:]))
        if code is not None and done.returncode != code:
            shown = [word for word in map(str, words)
                     if self.bmc.password not in word]
            self.fail(f'{shown}: exit code {done.returncode}: '
                      f'{done.stdout[-3000:]}')
        return done.stdout

    def host_address(self):
        """Return an address of this host that the BMC may connect to."""
        if self.host is None:
            self.missing.add(self._testMethodName)
            type(self).skipped = (
                'this host has loopback only, which a BMC refuses')
            self.skipTest(self.skipped)
        return self.host

    def image(self):
        """Return the URL of an ISO image that the BMC may read."""
        return self.useFixture(image_server.ImageServer(
            self.host_address())).url + '/medium.iso'

    def power(self, state):
        """Bring the VM into a power state and wait for it.

        :param state: ``On`` or ``Off``.
        """
        if self.power_state() != state:
            self.request(
                'POST', SYSTEM + '/Actions/ComputerSystem.Reset',
                {'ResetType': 'On' if state == 'On' else 'ForceOff'})
        self.wait_power(state)

    def wait_power(self, state):
        """Wait until Redfish reports a power state."""
        self.until(lambda: self.power_state() == state,
                   describe=self.power_state)

    def power_state(self):
        return self.get(SYSTEM)['PowerState']

    def get(self, path):
        """Read a Redfish resource."""
        return self.request('GET', path).json()

    def request(self, method, path, body=None):
        """Send a Redfish request, which must succeed."""
        with requests.Session() as session:
            session.trust_env = False
            response = session.request(
                method, self.url + path, json=body, verify=str(self.ca),
                auth=(self.bmc.username, self.bmc.password), timeout=30)
        self.assertLess(response.status_code, 300, response.text)
        return response

    def ipmi(self, *words):
        """Run ``ipmitool``, which must succeed, and return its output."""
        done = vbmcd.ipmitool(self.bmc, *words,
                              options=('-N', vbmcd.PATIENCE))
        self.assertEqual(0, done.returncode, (words, done.stdout))
        return done.stdout

    def ipmi_failure(self, *words):
        """Run ``ipmitool``, which must fail, and return its output."""
        done = vbmcd.ipmitool(self.bmc, *words)
        self.assertNotEqual(0, done.returncode, (words, done.stdout))
        return done.stdout

    def ipmi_login(self, name, password, level='USER'):
        """Return whether ``ipmitool`` can log in."""
        return vbmcd.ipmitool(
            self.bmc, '-L', level, 'mc', 'info', username=name,
            password=password, options=('-N', vbmcd.PATIENCE, '-R', '1')
        ).returncode == 0

    def console(self, *words):
        """Run a console client in a terminal, with the VM's guest running.

        :param words: program and arguments.
        :returns: `terminal.Terminal`
        """
        self.power('On')
        return self.useFixture(terminal.Terminal(
            [str(word) for word in words],
            {**self.environment(), 'TERM': 'dumb'}))

    def check_console(self, client):
        """Check that the guest echoes, and that its output is complete."""
        client.say(b'', rb'\r\n# ')
        printed = client.say(b'print 64000', rb'\r\n# ')[0]
        self.assertEqual(
            [b'%010d' % number for number in range(1000)],
            [line[:10] for line in printed.split(b'\r\n')[1:-1]])

    def boots(self):
        """List the classes of the devices that the guest booted from."""
        return [boot['class'] for boot in self.sandbox.boots(NAME)]
