# SPDX-License-Identifier: Apache-2.0
"""The measured programs: an emulator and a daemon, ours and stock.

Both pairs run the same programs (gunicorn with one worker of four threads,
vbmcd), started the same way. Ours use a sandbox; the stock ones use libvirt's
test driver, which is part of libvirt's library and makes no requests.
"""

import base64
import pathlib

import bcrypt
import fixtures

from kubevirt_sandbox.testing import machines
from tests.fixtures import emulator
from tests.fixtures import sandbox
from tests.fixtures import vbmcd

#: URI of the test driver with its built-in domain, for ``vbmc add``.
STOCK_URI = 'test:///default'
STOCK_WORDS = ('test', '--libvirt-uri', STOCK_URI)

_NODE = """<node>
  <cpu><mhz>2000</mhz><model>x</model><active>4</active><nodes>1</nodes>
    <sockets>1</sockets><cores>4</cores><threads>1</threads></cpu>
  <memory>8192000</memory>
%s</node>
"""
_DOMAIN = """  <domain type='test'><name>%s</name><memory>1048576</memory>
    <vcpu>2</vcpu><os><type>hvm</type></os></domain>
"""


USER, PASSWORD = 'admin', 'a password'

SESSIONS = '/redfish/v1/SessionService/Sessions'


class Ours(fixtures.Fixture):
    """This project's emulator and daemon, with a sandbox.

    ``paths`` are systems for four clients, ``bmc`` is one BMC, ``secured``
    an emulator of the same systems that requires authentication.
    """

    name = 'ours'
    clients = 4

    def _setUp(self):
        self.sandbox = self.useFixture(sandbox.Sandbox(
            vms=self.clients, boot_seconds=0))
        self.emulator = self.useFixture(emulator.Emulator(
            self.sandbox.kubeconfig, server='gunicorn', settings={
                'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK': True}))
        self.paths = self.emulator.systems()
        for path in self.paths:
            self.emulator.reset(path.rpartition('/')[2], 'On')
        accounts = pathlib.Path(self.useFixture(fixtures.TempDir()).path,
                                'accounts')
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(10))
        accounts.write_text(f'{USER}:{hashed.decode()}\n')
        self.secured = self.useFixture(emulator.Emulator(
            self.sandbox.kubeconfig, server='gunicorn', settings={
                'SUSHY_EMULATOR_KUBEVIRT_ACCOUNTS': str(accounts)}))
        self.vbmcd = self.daemon()
        self.bmc = self.vbmcd.add(*self.words(1)[0])

    def basic(self):
        """Return the headers for HTTP Basic authentication."""
        pair = f'{USER}:{PASSWORD}'
        return {'Authorization': 'Basic ' + base64.b64encode(
            pair.encode()).decode()}

    def session(self):
        """Create a session; return the headers that use it."""
        answer = self.secured.request('POST', SESSIONS, {
            'UserName': USER, 'Password': PASSWORD}, expect=201)
        return {'X-Auth-Token': answer.headers['X-Auth-Token']}

    def daemon(self):
        return self.useFixture(vbmcd.Vbmcd(self.sandbox.kubeconfig))

    def words(self, count):
        """List arguments of ``vbmc add`` for ``count`` different VMs."""
        for number in range(count - self.clients):
            self.sandbox.create('virtualmachines', machines.vm(
                f'more-{number}', 'Halted'))
        return [('default/' + vm['metadata']['name'],)
                for vm in self.sandbox.list('virtualmachines')[:count]]


class Stock(fixtures.Fixture):
    """Upstream's emulator and daemon, with libvirt's test driver.

    The attributes are those of `Ours`. The driver has one domain, so all
    clients request the same. There are no sessions and no authentication,
    which is the least work for a server.
    """

    name = 'stock'
    clients = 4

    def _setUp(self):
        self.emulator = self.useFixture(emulator.Emulator(
            settings={'SUSHY_EMULATOR_LIBVIRT_URI': STOCK_URI},
            server='gunicorn', config='/dev/null'))
        self.secured = self.emulator
        self.paths = self.emulator.systems() * self.clients
        self.vbmcd = self.daemon()
        self.bmc = self.vbmcd.add(*STOCK_WORDS, driver=None)

    def basic(self):
        return {}

    session = basic

    def daemon(self):
        return self.useFixture(vbmcd.Vbmcd(command='vbmcd'))

    def words(self, count):
        if count == 1:
            return [STOCK_WORDS]
        # More than one domain needs a file.
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path,
                            'node.xml')
        names = [f'test{number}' for number in range(1, count + 1)]
        path.write_text(_NODE % ''.join(_DOMAIN % name for name in names))
        return [(name, '--libvirt-uri', f'test://{path}')
                for name in names]


class Many(fixtures.Fixture):
    """A daemon for a growing number of BMCs.

    :param subject: :class:`Ours` or :class:`Stock`, running.
    :param most: maximum number of BMCs.
    """

    def __init__(self, subject, most):
        super().__init__()
        self.subject = subject
        self.most = most

    def _setUp(self):
        self._words = self.subject.words(self.most)
        self.vbmcd = self.subject.daemon()

    def grow(self, count):
        """Add BMCs up to ``count`` and send each of them a request."""
        stock = {'driver': None} if self.subject.name == 'stock' else {}
        for words in self._words[len(self.vbmcd.bmcs):count]:
            self.vbmcd.add(*words, **stock)
        for name in self.vbmcd.bmcs:
            self.vbmcd.ipmi(name, 'power', 'status')
