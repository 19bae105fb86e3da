# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-bmc``: one process with both protocols of a BMC."""

import signal
import subprocess

from kubevirt_sandbox.testing import process
from sushy_kubevirt.pod import rare_modules
from tests.fixtures import base
from tests.fixtures import bmc_pod
from tests.fixtures import link_crawler
from tests.fixtures import redfish_pod

SYSTEM = '/redfish/v1/Systems/1'
ACCOUNTS = '/redfish/v1/AccountService/Accounts'
LOG = SYSTEM + '/LogServices/Events'


class BmcProcessTestCase(base.SandboxTestCase):

    VMS = 2

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pod = cls.share(bmc_pod.BmcPod(cls.sandbox))

    def setUp(self):
        super().setUp()
        self.until(lambda: self.pod.probe('/readyz')[0] == 200)

    def status(self, account):
        """Return the HTTP status of a GET by another account."""
        return self.pod.curl(
            SYSTEM, config='user = "{username}:{password}"\n'.format(
                **account)).code

    def system(self):
        return self.pod.request('GET', SYSTEM, expect=200).json()

    def test_each_protocol_shows_what_the_other_has_set(self):
        """At once, as both read one cache."""
        self.pod.ipmi('chassis', 'bootdev', 'pxe')
        self.assertEqual('Pxe', self.system()['Boot'][
            'BootSourceOverrideTarget'])
        self.pod.request('PATCH', SYSTEM, {'Boot': {
            'BootSourceOverrideEnabled': 'Disabled'}}, expect=204)
        self.assertIn('No override', self.pod.ipmi(
            'chassis', 'bootparam', 'get', '5'))

    def test_account_is_valid_at_once_in_both_protocols(self):
        bob = {'username': 'bob', 'password': 'secret-of-bob'}
        made = self.pod.request('POST', ACCOUNTS, {
            'UserName': 'bob', 'Password': bob['password'],
            'RoleId': 'Administrator'}, expect=201)
        self.assertIn('Chassis Power', self.pod.ipmi(
            'power', 'status', **bob))
        number = made.headers['Location'].rpartition('/')[2]
        self.pod.ipmi('user', 'set', 'password', number, 'other-secret')
        self.assertEqual(401, self.status(bob))
        self.assertEqual(200, self.status(
            {**bob, 'password': 'other-secret'}))
        self.pod.ipmi('user', 'disable', number)
        refused = self.pod.ipmitool(
            'power', 'status', options=('-R', '1', '-N', '1'), **bob)
        self.assertNotEqual(0, refused.returncode)
        self.assertFalse(self.pod.request(
            'GET', f'{ACCOUNTS}/{number}', expect=200).json()['Enabled'])
        self.pod.request('DELETE', f'{ACCOUNTS}/{number}', expect=204)
        self.assertNotIn('bob', self.pod.ipmi('user', 'list', '1'))

    def test_log_is_the_same_at_once_in_both_protocols(self):
        def entries():
            return [one['MessageId'].rpartition('.')[2] for one in
                    self.pod.request('GET', LOG + '/Entries', expect=200)
                    .json()['Members']]

        entries()       # which Redfish keeps for two seconds
        self.pod.ipmi(*'raw 4 2 4 7 1 0x6f 1 0 0'.split())
        self.assertIn('SelEntryAdded', entries())
        self.pod.request('POST', LOG + '/Actions/LogService.ClearLog', {},
                         expect=204)
        self.assertNotIn('SelEntryAdded', entries())

    def test_metrics_and_probes_of_both(self):
        self.pod.request('GET', SYSTEM, expect=200)
        self.pod.ipmi('power', 'status')
        for start in ('virtbmc_redfish_requests_total{',
                      'virtbmc_ipmi_commands_total{',
                      'virtbmc_api_calls_total{', 'virtbmc_cache_age_seconds',
                      'process_cpu_seconds_total'):
            self.assertIsNotNone(self.pod.metric(start), start)
        text = self.pod.probe('/metrics')[1]
        self.assertEqual(1, text.count('# TYPE virtbmc_api_calls_total'))
        self.assertEqual((200, 'ok'), self.pod.probe('/livez'))

    def test_rare_modules_after_all_resources_and_a_session(self):
        # A module that a request loads costs as much as one at start.
        link_crawler.crawl(
            lambda path: self.pod.request('GET', path, stream=True))
        self.pod.ipmi('chassis', 'status')
        self.pod.ipmi('sel', 'list')
        loaded = self.pod.loaded.of(self.pod.process, self.until)
        self.assertLess({'sushy_kubevirt.redfish.routes',
                         'vbmc_kubevirt.ipmi.session20'}, loaded)
        self.assertEqual(set(), loaded & {
            # The version of a manager, and the UUID of the service root.
            *rare_modules.NAMES.keys() - {'importlib.metadata', 'uuid'},
            'argparse', 'click', 'cryptography.x509', 'html',
            'jinja2.environment', 'libvirt', 'openstack', 'requests',
            'webob'})

    def test_one_watch_of_each_kind(self):
        for resource in ('virtualmachines.kubevirt.io', 'secrets',
                         'virtualmachineinstances.kubevirt.io'):
            self.assertEqual(1, self.pod.metric(
                f'virtbmc_api_calls_total{{verb="list",resource="{resource}",'
                'code="200"}'), resource)


class StartTestCase(base.SandboxTestCase):

    VMS = 1

    #: Modules that the first answer must not wait for, or packages.
    RARE = (
        'backports.zstd', 'decimal', 'email.charset', 'email.header',
        'importlib.metadata', 'itsdangerous', 'pickle', 'platform', 'sqlite3',
        'stringprep',
        'sushy_tools.emulator.resources.chassis', 'tempfile', 'tenacity',
        'tokenize', 'urllib3.filepost', 'uuid', 'uvicorn._types',
        'uvicorn.middleware.wsgi', 'werkzeug.formparser',
        'werkzeug.sansio.multipart',
        'sushy_kubevirt.machine.media.upload',
        'sushy_kubevirt.redfish.resources.media_status',
        'sushy_kubevirt.redfish.services.events.delivery',
    )

    def test_modules_at_the_first_answer(self):
        pod = self.useFixture(redfish_pod.RedfishPod(self.sandbox))
        self.assertEqual('Off', pod.request(
            'GET', SYSTEM, expect=200).json()['PowerState'])
        loaded = pod.loaded.of(pod.process, self.until)
        self.assertIn('sushy_kubevirt.redfish.resources.computer_system',
                      loaded)
        self.assertEqual([], sorted(
            name for name in loaded
            if name.startswith(tuple(f'{rare}.' for rare in self.RARE))
            or name in self.RARE))

    def test_frameworks_are_loaded_before_serving(self):
        """Not by two requests at once, as their imports are circular."""
        pod = self.useFixture(redfish_pod.RedfishPod(self.sandbox))

        def loaded():
            return {name for name in pod.loaded.of(pod.process, self.until)
                    if name.partition('.')[0] in ('flask', 'werkzeug')}

        first = loaded()
        self.assertLess({'flask.app', 'werkzeug.routing.map'}, first)
        link_crawler.crawl(lambda path: pod.request('GET', path, stream=True))
        pod.request('GET', '/nothing', expect=404)
        pod.request('PATCH', SYSTEM, {'AssetTag': 'rack 7'}, expect=204)
        self.assertEqual(set(), loaded() - first)

    def test_modules_of_a_login_are_loaded_without_one(self):
        pod = self.useFixture(bmc_pod.BmcPod(self.sandbox))
        self.until(lambda: {
            'Cryptodome.Cipher.AES', 'vbmc_kubevirt.commands.watchdog'
        } <= pod.loaded.of(pod.process, self.until))


class EndTestCase(base.SandboxTestCase):

    VMS = 1

    def test_sigterm_finishes_commands_of_both_protocols(self):
        pod = self.useFixture(bmc_pod.BmcPod(self.sandbox))
        self.until(lambda: pod.probe('/readyz')[0] == 200)
        self.sandbox.fault('delay', verb='PATCH', count=100,
                           where='virtualmachines/vm-0', delay=0.5)
        environ = process.environment(process.NO_HOME, {
            'IPMI_PASSWORD': pod.password})
        with subprocess.Popen(
                ['ipmitool', '-I', 'lanplus', '-H', '127.0.0.1', '-p',
                 str(pod.ipmi_port), '-U', redfish_pod.USER, '-E', '-N', '5',
                 'power', 'on'], env=environ, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT) as one, subprocess.Popen(
                ['curl', '-sS', '-k', '-K', '-', '-X', 'PATCH', '-w',
                 '%{http_code}', '-H', 'Content-Type: application/json', '-d',
                 '{"AssetTag": "rack 7"}', pod.url + SYSTEM],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            other.stdin.write(
                f'user = "{redfish_pod.USER}:{pod.password}"'.encode())
            other.stdin.close()
            self.until(lambda: self.sandbox.faults()['faults'][0]['hits'] > 1)
            pod.process.send(signal.SIGTERM)
            self.assertIn(b'Up/On', one.communicate(timeout=20)[0])
            self.assertIn(b'204', other.stdout.read())
        self.assertEqual(0, pod.process.wait())
        self.assertNotIn('Traceback', pod.process.output)
        self.assertEqual('rack 7', self.sandbox.vm('vm-0')['metadata'][
            'annotations']['sushy-kubevirt.openstack.org/asset-tag'])
        self.sandbox.wait_running('vm-0')
