# SPDX-License-Identifier: Apache-2.0
"""One process that serves the BMCs of many VMs."""

from concurrent import futures
import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import types

import requests

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import process
from tests.fixtures import base
from tests.fixtures import shared_pod
from tests.fixtures import terminal
from tests.fixtures import udp_relay

SYSTEM = '/redfish/v1/Systems/1'
SESSIONS = '/redfish/v1/SessionService/Sessions'
ACCOUNTS = '/redfish/v1/AccountService/Accounts'

#: Paths that need no login.
_PUBLIC = {'/redfish/v1', '/redfish/v1/', '/redfish/v1/odata',
           '/redfish/v1/$metadata'}

_SYSTEM = re.compile(r'^(/redfish/v1/(?:Systems|Managers|Chassis)/)1\b')


class SharedPodTestCase(base.SandboxTestCase):

    VMS = 3

    def setUp(self):
        super().setUp()
        self.pod = self.useFixture(shared_pod.SharedPod(self.sandbox))

    def bmcs(self, count):
        made = [self.pod.bmc(f'vm-{number}', number)
                for number in range(count)]
        self.pod.list(*made)
        self.wait_served(*made)
        return made

    def wait_served(self, *bmcs):
        wanted = {one.name: (one.digest, '') for one in bmcs}
        self.until(lambda: self.pod.served() == wanted,
                   describe=lambda: f'{self.pod.served()} != {wanted}')

    def problem(self, bmc):
        """Wait until a BMC is reported with a problem; return that."""
        def found():
            digest, problem = self.pod.served().get(bmc.name, ('', ''))
            return digest == bmc.digest and problem
        return self.until(found)

    def connections(self, bmc, session):
        """Return the connection pool of a `requests.Session`."""
        return session.adapters['https://'].get_connection_with_tls_context(
            requests.Request('GET', bmc.url).prepare(), bmc.ca)

    def ipmitool(self, *words, bmc, relay=None):
        """Run ``ipmitool`` in a terminal."""
        to = relay or bmc
        return self.useFixture(terminal.Terminal(
            ['ipmitool', '-I', 'lanplus', '-H', to.address, '-p',
             str(to.port), '-U', bmc.username, '-E', *words],
            process.environment(process.NO_HOME, {
                'IPMI_PASSWORD': bmc.password, 'TERM': 'dumb'})))

    def login(self, bmc):
        return bmc.request('POST', SESSIONS, {
            'UserName': bmc.username, 'Password': bmc.password},
            expect=201).headers['X-Auth-Token']


class MembershipTestCase(SharedPodTestCase):

    def test_serves_what_is_listed(self):
        self.until(lambda: self.pod.probe('/readyz')[0] == 200)
        one, two = self.bmcs(2)
        for bmc in one, two:
            found = bmc.request('GET', SYSTEM, expect=200).json()
            self.assertEqual(bmc.vm, found['Name'])
            self.assertIn('Chassis Power', bmc.ipmi('power', 'status'))
        text = self.pod.probe('/metrics')[1]
        for line in ('virtbmc_bmcs 2', 'virtbmc_redfish_requests_total{route='
                     '"/redfish/v1/Systems/<identity>",method="GET",'
                     'code="200"} 2'):
            self.assertIn(line + '\n', text)
        one.ipmi('power', 'on')
        self.sandbox.wait_running('vm-0')
        self.until(lambda: one.request('GET', SYSTEM).json()[
            'PowerState'] == 'On')
        self.assertEqual('Off', two.request('GET', SYSTEM).json()[
            'PowerState'])
        # What clients have set survives the process.
        self.assertEqual(201, one.request('POST', ACCOUNTS, {
            'UserName': 'bob', 'Password': 'secret-of-bob',
            'RoleId': 'ReadOnly'}).status_code)
        self.pod.process.send(signal.SIGTERM)
        self.assertEqual(0, self.pod.process.wait())
        self.assertNotIn('Traceback', self.pod.process.output)
        self.assertNotIn('secret-of', self.pod.process.output)
        self.pod.cluster.patch('configmaps', shared_pod.REPORT, [
            {'op': 'add', 'path': '/data', 'value': {}}])
        self.pod.start()
        self.wait_served(one, two)
        self.until(lambda: one.request(
            'GET', SYSTEM, auth=('bob', 'secret-of-bob')).status_code == 200)
        self.assertEqual({}, self.sandbox.stats()['refused'])

    def test_reservation_is_not_served(self):
        one, two = self.bmcs(2)
        for entry in ({'slot': 2, 'uid': 'x'}, {'slot': 1, 'uid': 'y'}):
            self.pod.bmcs['vm-2'] = types.SimpleNamespace(
                name='vm-2', vm='vm-2', text=json.dumps(entry))
            # Something else that is reported after it.
            one.entry['account_management'] ^= True
            self.pod.list(one)
            self.wait_served(one, two)
        two.entry = {'slot': two.slot, 'uid': two.spec.uid}
        self.pod.list(two)
        self.wait_served(one)
        self.assertRaises(requests.ConnectionError, two.request, 'GET', SYSTEM)
        self.assertNotIn('Traceback', self.pod.process.output)

    def test_bad_secret_is_the_problem_of_one(self):
        good, bad = self.pod.bmc('vm-0', 0), self.pod.bmc('vm-1', 1)
        self.pod.set_secret('vm-1-auth', username='admin')
        self.pod.list(good, bad)
        self.assertIn('password', self.problem(bad))
        self.until(lambda: self.pod.served().get('vm-0') == (good.digest, ''))
        good.request('GET', SYSTEM, expect=200)
        self.assertEqual(200, self.pod.probe('/readyz')[0])
        # Corrected without a change of the list: it is tried again.
        self.pod.set_secret('vm-1-auth', username='admin',
                            password=bad.password)
        self.wait_served(good, bad)
        bad.request('GET', SYSTEM, expect=200)

    def test_renewed_secrets_interrupt_nothing(self):
        one, two = self.bmcs(2)
        with requests.Session() as session:
            one.request('GET', SYSTEM, session=session, expect=200)
            pool = self.connections(one, session)
            old_ca = one.ca
            one.password = 'secret-number-2'
            self.pod.set_secret('vm-0-auth', username=one.username,
                                password=one.password)
            self.pod.set_secret('vm-0-tls', **self.pod.certificate(one))
            for part in one.entry['auth'], one.entry['redfish']['tls']:
                part['version'] = '2'
            self.pod.list(one)
            self.wait_served(one, two)
            # The connection is the same, the password is the new one.
            one.request('GET', SYSTEM, session=session, expect=200)
            self.assertEqual(1, pool.num_connections)
        self.assertIn('Chassis Power', one.ipmi('power', 'status'))
        self.assertEqual(old_ca, one.ca)
        one.request('GET', SYSTEM, expect=200)
        self.assertEqual(401, one.request(
            'GET', SYSTEM, auth=(one.username, 'secret-of-vm-0')).status_code)


class UninterruptedTestCase(SharedPodTestCase):

    def test_changes_of_others_interrupt_nothing(self):
        one = self.bmcs(1)[0]
        with requests.Session() as session, session.get(
                one.url + '/redfish/v1/EventService/SSE', stream=True,
                verify=one.ca, auth=(one.username, one.password),
                timeout=60) as stream, subprocess.Popen(
                ['ipmitool', '-I', 'lanplus', '-H', one.address, '-p',
                 str(one.port), '-U', one.username, '-E', 'shell'],
                env=process.environment(process.NO_HOME, {
                    'IPMI_PASSWORD': one.password}),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                bufsize=0) as shell, contextlib.ExitStack() as stack:
            stack.callback(shell.kill)

            def say(words):
                shell.stdin.write(words.encode() + b'\n')
                while line := shell.stdout.readline().decode():
                    if 'Chassis Power' in line or 'activated' in line:
                        return line
                return ''

            lines = []

            def read():
                # The end of the test closes the stream.
                with contextlib.suppress(AttributeError, OSError):
                    for line in stream.iter_lines():
                        lines.append(line)

            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            connection = requests.Session()
            self.addCleanup(connection.close)
            self.assertIn('off', say('power status'))
            one.request('GET', SYSTEM, session=connection, expect=200)
            pool = self.connections(one, connection)
            two = self.pod.bmc('vm-1', 1)
            self.pod.list(two)
            self.wait_served(one, two)
            two.entry['slot'], two.port = 7, 30007
            two.url = two.url.replace('10001', '10007')
            self.pod.list(two)
            self.wait_served(one, two)
            two.request('GET', SYSTEM, expect=200)
            self.assertIn('Chassis Power', two.ipmi('power', 'status'))
            self.pod.unlist(two)
            self.wait_served(one)
            self.assertRaises(requests.ConnectionError, two.request, 'GET',
                              SYSTEM)
            self.assertIn('off', say('power status'))
            one.request('GET', SYSTEM, session=connection, expect=200)
            self.assertEqual(1, pool.num_connections)
            one.request('POST', '/redfish/v1/EventService/Actions/'
                        'EventService.SubmitTestEvent', {}, expect=204)
            self.until(lambda: any(b'TestMessage' in line for line in lines))

    @given_cluster.needs_sandbox("the sandbox's guest, which has a shell")
    def test_serial_console_stays_connected(self):
        one = self.pod.bmc('vm-0', 0)
        one.entry['ipmi']['port'] = one.port    # there is no Service
        self.pod.list(one)
        self.wait_served(one)
        one.ipmi('power', 'on')
        self.sandbox.wait_running('vm-0')
        console = self.ipmitool('sol', 'activate', bmc=one)
        console.wait(rb'SOL Session operational')
        console.say(b'', rb'\r\n# ')
        two = self.pod.bmc('vm-1', 1)
        self.pod.list(two)
        self.wait_served(one, two)
        console.say(b'print 64', rb'0000000000 \.+\r\n# ')
        two.entry['slot'] = 7
        self.pod.list(two)
        self.wait_served(one, two)
        console.say(b'print 64', rb'0000000000 \.+\r\n# ')
        self.pod.unlist(two)
        self.wait_served(one)
        console.say(b'print 64', rb'0000000000 \.+\r\n# ')
        self.assertEqual(1, console.output.count(b'operational'))
        # It would tell that the VM's console was connected again.
        self.assertNotIn(b'console of', console.output)
        console.send(b'\r~.')
        self.assertEqual(0, console.wait_end())


class IsolationTestCase(SharedPodTestCase):

    def test_each_bmc_has_its_vm_only(self):
        one, two = self.bmcs(2)
        other = self.sandbox.vm('vm-1')
        uuid = other['spec']['template']['spec']['domain']['firmware']['uuid']
        rules = self.rules(one)
        self.assertGreater(len(rules), 50)
        token = self.login(two)
        made = two.request('POST', ACCOUNTS, {
            'UserName': 'eve', 'Password': 'secret-of-eve',
            'RoleId': 'Administrator'}, expect=201)
        asked = [(method, path, name) for rule in sorted(rules)
                 for name, methods in (
                     (uuid, ('GET', 'PATCH', 'POST', 'PUT', 'DELETE')),
                     ('vm-1', ('GET', 'POST')), ('default%2Fvm-1', ('GET',)))
                 for method in methods
                 if (path := _SYSTEM.sub(r'\g<1>' + name, rule)) != rule]
        self.assertGreater(len(asked), 200)
        # In parallel, as a name that is not found is looked for some time.

        def ask(each):
            method, path, name = each
            answer = one.request(method, path, None if method == 'GET' else {})
            # Nothing but what the client has sent.
            return answer.status_code, uuid in answer.text.replace(name, '')

        with futures.ThreadPoolExecutor(16) as pool:
            answers = dict(zip(asked, pool.map(ask, asked)))
        self.assertEqual({}, {
            each: answer for each, answer in answers.items()
            if answer not in ((404, False), (405, False))})
        # Neither its sessions nor its accounts are worth anything here.
        for rule in rules - _PUBLIC:
            self.assertEqual(401, requests.get(
                one.url + rule, verify=one.ca, timeout=30,
                headers={'X-Auth-Token': token}).status_code, rule)
        for auth in ((two.username, two.password), ('eve', 'secret-of-eve')):
            self.assertEqual(401, one.request(
                'GET', SYSTEM, auth=auth).status_code)
        number = made.headers['Location'].rpartition('/')[2]
        self.assertEqual(404, one.request(
            'GET', f'{ACCOUNTS}/{number}').status_code)
        self.assertEqual(1, len(two.request('GET', SESSIONS).json()[
            'Members']))
        self.assertEqual([], one.request('GET', SESSIONS).json()['Members'])
        self.assertNotIn('vm-1', one.ipmi('dcmi', 'get_mc_id_string'))

    def rules(self, bmc):
        """Crawl a BMC; return the set of its paths."""
        found, waiting = set(), ['/redfish/v1/']
        while waiting:
            path = waiting.pop().partition('#')[0]
            if path in found or not path.startswith('/redfish/v1'):
                continue
            found.add(path)
            answer = bmc.request('GET', path)
            if answer.headers.get('Content-Type', '').startswith(
                    'application/json'):
                waiting += re.findall(
                    r'"(?:@odata.id|target)": ?"([^"]+)"', answer.text)
        return found

    def test_ipmi_of_each_bmc_is_its_own(self):
        one, two = self.bmcs(2)
        refused = one.ipmitool('power', 'status', password=two.password,
                               options=('-R', '1', '-N', '1'))
        self.assertNotEqual(0, refused.returncode)
        guid = self.sandbox.vm('vm-0')['spec']['template']['spec']['domain'][
            'firmware']['uuid']
        self.assertIn(guid, one.ipmi('mc', 'guid'))
        self.assertNotIn(guid, two.ipmi('mc', 'guid'))
        one.ipmi('chassis', 'bootdev', 'pxe')
        self.assertIn('No override', two.ipmi('chassis', 'bootparam', 'get',
                                              '5'))
        one.ipmi(*'raw 4 2 4 7 1 0x6f 1 0 0'.split())
        self.assertNotIn('Temperature', two.ipmi('sel', 'elist'))

    def test_ipmi_flood_of_one_bmc(self):
        flooded, other = self.bmcs(2)
        # Get Channel Authentication Capabilities
        flood = self.useFixture(process.Process(
            [sys.executable, '-c', f"""
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.connect({(flooded.address, flooded.port)})
data = bytes.fromhex('0600ff07000000000000000000092018c88100388e04b5')
print('sending', flush=True)
while True:
    one.send(data)
"""], ready='sending'))
        for path in SYSTEM, '/redfish/v1/Managers/1':
            other.request('GET', path, expect=200)
        self.assertIn('Chassis Power', other.ipmi('power', 'status'))
        self.assertNotIn('Traceback', flood.output)

    def test_session_of_one_bmc_is_refused_by_another(self):
        """Its packets come from the same address, for the same account."""
        one, two = self.pod.bmc('vm-0', 0), self.pod.bmc('vm-1', 1)
        two.password = one.password
        self.pod.set_secret('vm-1-auth', username=two.username,
                            password=two.password)
        self.pod.list(one, two)
        self.wait_served(one, two)
        relay = self.useFixture(udp_relay.Relay(lambda number: False))
        relay.connect(one.address, one.port)
        shell = self.ipmitool('-N', '2', '-R', '2', 'shell', bmc=one,
                              relay=relay)
        prompt = rb'ipmitool> '
        shell.wait(prompt)

        def say(words):
            mark = shell.mark()
            shell.send(words + b'\r')
            return shell.wait(rb'(.*)' + prompt, mark)[1]

        self.assertIn(b'Chassis Power is off', say(b'power status'))
        relay.connect(two.address, two.port)
        self.assertIn(b'Unable to set', say(b'power on'))
        relay.connect(one.address, one.port)
        self.assertIn(b'Chassis Power is off', say(b'power status'))
        self.assertIn('is off', two.ipmi('power', 'status'))

    def test_same_uuid_of_another_vm_changes_nothing(self):
        one, two = self.bmcs(2)
        before = one.request('GET', SYSTEM).json()['UUID']
        self.sandbox.patch('virtualmachines', 'vm-1', [
            {'op': 'replace', 'value': before,
             'path': '/spec/template/spec/domain/firmware/uuid'}])
        self.until(lambda: two.request('GET', SYSTEM).json()['UUID']
                   == before)
        self.assertEqual(before, one.request('GET', SYSTEM).json()['UUID'])
        for bmc in one, two:
            self.assertEqual(bmc.vm, bmc.request(
                'GET', '/redfish/v1/Systems/' + before).json()['Name'])
