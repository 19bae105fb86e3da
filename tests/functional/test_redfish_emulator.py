# SPDX-License-Identifier: Apache-2.0
"""sushy-emulator with the kubevirt driver, asked by real clients.

The config file the project ships, the unpatched command and gunicorn, the
sushy library, and plain HTTP for what no well-behaved client sends. What a
boot booted from, the guests' record tells.
"""

import concurrent.futures
import http.client
import itertools
import json
import re
import time
from urllib import parse

import bcrypt
import fixtures
import sushy
from sushy import auth
import yaml

from tests.functional import base
from tests.functional import emulator
from tests.functional import machines

SYSTEMS = '/redfish/v1/Systems'

_names = ('redfish-%d' % number for number in itertools.count(1))


class Case(base.EmulatorTestCase):
    """Each test has a VM of its own: ``name``, ``uuid``, ``path``."""

    VMS = 0

    def make(self, run_strategy='Halted', namespace='default', name=None,
             **spec):
        self.name = name or next(_names)
        vm = self.sandbox.create('virtualmachines', machines.vm(
            self.name, run_strategy, namespace, **spec), namespace)
        self.uuid = machines.uuid_of(vm)
        self.path = '%s/%s' % (SYSTEMS, self.uuid)
        self.appears(self.uuid)
        return vm

    def appears(self, uuid):
        """Wait until the emulator's watch has told of a VM."""
        self.until(lambda: self.emulator.request(
            'GET', '%s/%s' % (SYSTEMS, uuid)).status_code == 200)

    def until(self, condition, timeout=30):
        """Wait for what only asking again can tell."""
        deadline = time.monotonic() + timeout
        while not (found := condition()):
            if time.monotonic() >= deadline:
                raise AssertionError('not so within %g s' % timeout)
            time.sleep(0.02)
        return found

    def power_state(self, state):
        return self.until(lambda: self.emulator.system(self.uuid)[
            'PowerState'] == state)

    def sushy(self):
        """The system, as the sushy library sees it."""
        root = sushy.Sushy(self.emulator.url + '/redfish/v1/')
        return root.get_system(self.path)

    def refused(self, method, where, body, code, **options):
        """Make a call that is refused; the error's messages."""
        response = self.emulator.request(method, where, body, expect=code,
                                         **options)
        self.assertEqual('application/json',
                         response.headers['Content-Type'])
        self.assertNotIn('Traceback', response.text)
        error = response.json()['error']
        for entry in error['@Message.ExtendedInfo']:
            for member in ('MessageId', 'Message', 'MessageArgs',
                           'MessageSeverity', 'Resolution'):
                self.assertIn(member, entry)
        return [(entry['MessageId'].rpartition('.')[2],
                 *entry['MessageArgs'])
                for entry in error['@Message.ExtendedInfo']]


class TestReads(Case):

    def test_sushy_reads_everything(self):
        vm = self.make('RerunOnFailure')
        self.sandbox.wait_running(self.name)
        self.power_state('On')
        system = self.sushy()
        self.assertEqual(self.uuid, system.uuid)
        self.assertEqual(self.name, system.name)
        self.assertEqual(sushy.SystemType.VIRTUAL, system.system_type)
        self.assertEqual(sushy.PowerState.ON, system.power_state)
        self.assertEqual(sushy.Health.OK, system.status.health)
        self.assertEqual(sushy.State.ENABLED, system.status.state)
        self.assertEqual(1, system.memory_summary.size_gib)
        self.assertEqual(sushy.BOOT_SOURCE_ENABLED_DISABLED,
                         system.boot.enabled)
        self.assertEqual(sushy.BOOT_SOURCE_TARGET_NONE, system.boot.target)
        self.assertIsNotNone(system.boot.mode)
        self.assertEqual(
            {sushy.BOOT_SOURCE_TARGET_NONE, sushy.BOOT_SOURCE_TARGET_PXE,
             sushy.BOOT_SOURCE_TARGET_HDD, sushy.BOOT_SOURCE_TARGET_CD},
            system.get_allowed_system_boot_source_values())
        resets = system.get_allowed_reset_system_values()
        self.assertNotIn(sushy.RESET_TYPE_NMI, resets)
        self.assertEqual(10, len(resets))

        self.assertEqual((2, sushy.ProcessorArchitecture.X86),
                         tuple(system.processors.summary))
        [nic] = system.ethernet_interfaces.get_members()
        vmi = self.sandbox.vmi(self.name)
        self.assertEqual(vmi['status']['interfaces'][0]['mac'],
                         nic.mac_address)
        self.assertEqual({nic.mac_address: sushy.State.ENABLED},
                         system.ethernet_interfaces.summary)
        self.assertEqual([10 * 2 ** 30],
                         system.simple_storage.disks_sizes_bytes)
        self.assertEqual({}, system.bios.attributes)
        self.assertFalse(system.secure_boot.enabled)
        self.assertEqual([], system.virtual_media.get_members())
        [manager] = system.managers
        self.assertEqual(self.uuid, manager.uuid)
        [chassis] = system.chassis
        self.assertIsNotNone(chassis.uuid)
        self.assertEqual(
            vm['metadata']['namespace'] + '/' + self.name,
            system.description.rpartition(' ')[2])

    def test_a_get_costs_no_call(self):
        self.make()
        self.emulator.system(self.uuid)
        parts = [self.path + part for part in (
            '', '/Processors', '/EthernetInterfaces', '/SimpleStorage',
            '/BIOS', '/SecureBoot')] + [
                SYSTEMS, '/redfish/v1/Managers/' + self.uuid]
        # What other threads do by themselves (watches that are renewed)
        # comes by the second; what a GET costs, by the GET.
        before = self._calls()
        for _number in range(20):
            for part in parts:
                self.emulator.request('GET', part, expect=200)
        calls = self._calls() - before
        self.assertLess(calls, 10)

    def _calls(self):
        def count(value):
            if isinstance(value, dict):
                return sum(map(count, value.values()))
            if isinstance(value, list):
                return sum(map(count, value))
            return value if isinstance(value, int) else 0
        return count(self.sandbox.stats())

    def test_names(self):
        self.make()
        for name in (self.name, 'default:' + self.name,
                     'default%2F' + self.name):
            response = self.emulator.request(
                'GET', '%s/%s/BIOS?x=1' % (SYSTEMS, name),
                allow_redirects=False, expect=307)
            self.assertEqual(
                self.path + '/BIOS?x=1',
                parse.urlsplit(response.headers['Location']).path + '?x=1')
            self.assertEqual(self.uuid, self.emulator.system(name)['Id'])
        # POST is repeated as it was.
        self.emulator.reset(self.name, 'On')
        self.sandbox.wait_running(self.name)

    def test_cannot_start(self):
        # No cluster has a node with this.
        vm = machines.vm(next(_names), 'RerunOnFailure')
        vm['spec']['template']['spec']['nodeSelector'] = {'no': 'such'}
        vm = self.sandbox.create('virtualmachines', vm)
        self.uuid = machines.uuid_of(vm)
        self.appears(self.uuid)
        self.until(lambda: 'Conditions' in self.emulator.system(self.uuid)[
            'Status'])
        body = self.emulator.system(self.uuid)
        self.assertEqual('Off', body['PowerState'])
        self.assertEqual('Critical', body['Status']['Health'])
        self.assertIn('Unschedulable', body['Status']['Conditions'][0][
            'MessageArgs'][1])


class TestWrites(Case):

    def test_power(self):
        self.make()
        self.assertEqual('Off', self.emulator.system(self.uuid)['PowerState'])
        system = self.sushy()
        system.reset_system(sushy.RESET_TYPE_ON)
        # Read back at once: no longer off, though no guest runs yet.
        self.assertIn(self.emulator.system(self.uuid)['PowerState'],
                      ('PoweringOn', 'On'))
        first = self.sandbox.wait_running(self.name)['metadata']['uid']
        self.power_state('On')
        self.assertEqual('RerunOnFailure', self.sandbox.vm(self.name)[
            'spec']['runStrategy'])
        system.reset_system(sushy.RESET_TYPE_ON)
        system.reset_system(sushy.RESET_TYPE_FORCE_RESTART)
        self.sandbox.wait_running(self.name, other_than=first)
        system.reset_system(sushy.RESET_TYPE_FORCE_OFF)
        self.sandbox.wait_stopped(self.name)
        self.power_state('Off')
        system.reset_system(sushy.RESET_TYPE_FORCE_OFF)
        [entry] = self.refused(
            'POST', self.path + '/Actions/ComputerSystem.Reset',
            {'ResetType': 'ForceRestart'}, 409)
        self.assertEqual(('PropertyValueResourceConflict', 'ResetType',
                          'ForceRestart', self.path), entry)
        self.assertEqual(2, len(self.sandbox.boots(self.name)))

    def test_pause(self):
        self.make('RerunOnFailure')
        self.sandbox.wait_running(self.name)
        self.power_state('On')
        self.emulator.reset(self.uuid, 'Pause')
        self.power_state('Paused')
        self.emulator.reset(self.uuid, 'Resume')
        self.power_state('On')

    def test_boot_once(self):
        self.make()
        system = self.sushy()
        system.set_system_boot_options(
            sushy.BOOT_SOURCE_TARGET_CD,
            enabled=sushy.BOOT_SOURCE_ENABLED_ONCE,
            mode=sushy.BOOT_SOURCE_MODE_UEFI)
        system.refresh(force=True)
        self.assertEqual(
            (sushy.BOOT_SOURCE_TARGET_CD, sushy.BOOT_SOURCE_ENABLED_ONCE,
             sushy.BOOT_SOURCE_MODE_UEFI),
            (system.boot.target, system.boot.enabled, system.boot.mode))
        self.assertEqual('Off', self.emulator.system(self.uuid)['PowerState'])
        self.emulator.reset(self.uuid, 'On')
        boot = self.sandbox.wait_boot(self.name, 1)
        self.assertEqual(('Cd', 'efi'), (boot['class'], boot['firmware']))
        self.until(lambda: self.emulator.system(self.uuid)['Boot'][
            'BootSourceOverrideEnabled'] == 'Disabled')
        self.emulator.reset(self.uuid, 'ForceRestart')
        boot = self.sandbox.wait_boot(self.name, 2)
        self.assertEqual(('Hdd', 'bios'), (boot['class'], boot['firmware']))

    def test_boot_continuous(self):
        self.make()
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootSourceOverrideTarget': 'Pxe',
            'BootSourceOverrideEnabled': 'Continuous'}})
        boot = self.emulator.system(self.uuid)['Boot']
        self.assertEqual(('Pxe', 'Continuous'), (
            boot['BootSourceOverrideTarget'],
            boot['BootSourceOverrideEnabled']))
        self.emulator.reset(self.uuid, 'On')
        self.assertEqual('Pxe',
                         self.sandbox.wait_boot(self.name, 1)['class'])
        self.emulator.reset(self.uuid, 'PowerCycle')
        self.assertEqual('Pxe',
                         self.sandbox.wait_boot(self.name, 2)['class'])
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootSourceOverrideTarget': 'None'}})
        self.assertEqual('Disabled', self.emulator.system(self.uuid)['Boot'][
            'BootSourceOverrideEnabled'])

    def test_settings(self):
        self.make()
        system = self.sushy()
        system.set_indicator_led(sushy.IndicatorLED.BLINKING)
        self.assertEqual('Blinking', self.emulator.system(self.uuid)[
            'IndicatorLED'])
        system.bios.set_attributes({'QuietBoot': 'true', 'NumCores': 4})
        system.bios.refresh(force=True)
        self.assertEqual({'QuietBoot': 'true', 'NumCores': 4},
                         system.bios.attributes)
        system.bios.reset_bios()
        system.bios.refresh(force=True)
        self.assertEqual({}, system.bios.attributes)
        self.emulator.patch_system(
            self.uuid, {'Boot': {'BootSourceOverrideMode': 'UEFI'}})
        system.secure_boot.set_enabled(True)
        system.secure_boot.refresh(force=True)
        self.assertTrue(system.secure_boot.enabled)
        # Nothing of this is the emulator's own.
        self.emulator.process.restart()
        self.emulator.url = self.emulator.process.match[1].rstrip('/')
        body = self.emulator.system(self.uuid)
        self.assertEqual('Blinking', body['IndicatorLED'])
        self.assertEqual('UEFI', body['Boot']['BootSourceOverrideMode'])
        self.emulator.reset(self.uuid, 'On')
        self.assertEqual('efi-secure',
                         self.sandbox.wait_boot(self.name, 1)['firmware'])


class TestErrors(Case):

    def test_values(self):
        self.make()
        for method, where, body, entries in (
                ('POST', '/Actions/ComputerSystem.Reset',
                 {'ResetType': 'Nmi'},
                 [('ActionParameterValueNotInList', 'Nmi', 'ResetType',
                   'ComputerSystem.Reset')]),
                ('POST', '/Actions/ComputerSystem.Reset', {'ResetType': 5},
                 [('ActionParameterValueTypeError', '5', 'ResetType',
                   'ComputerSystem.Reset')]),
                ('PATCH', '', {'Boot': {
                    'BootSourceOverrideTarget': 'Floppy'}},
                 [('PropertyValueNotInList', 'Floppy',
                   'BootSourceOverrideTarget')]),
                ('PATCH', '', {'Boot': {'BootSourceOverrideTarget': 'Pxe'},
                               'Nonsense': 1},
                 [('PropertyUnknown', 'Nonsense')]),
                ('PATCH', '/SecureBoot', {'SecureBootEnable': 'yes'},
                 [('PropertyValueTypeError', 'yes', 'SecureBootEnable')])):
            self.assertEqual(
                entries, self.refused(method, self.path + where, body, 400))
        # All or nothing: the Pxe of the fourth was not set.
        self.assertEqual('None', self.emulator.system(self.uuid)['Boot'][
            'BootSourceOverrideTarget'])

    def test_bodies(self):
        self.make()
        reset = self.path + '/Actions/ComputerSystem.Reset'
        headers = {'Content-Type': 'application/json'}
        for data in '', '{', '[1]', '[' * 10000:
            self.assertEqual([('MalformedJSON',)], self.refused(
                'POST', reset, None, 400, data=data, headers=headers))
        self.refused('POST', reset, None, 415, data='ResetType=On')
        self.refused('DELETE', self.path, None, 405)
        self.refused('GET', '/redfish/v1/Nonsense', None, 404)

    def test_chunked(self):
        """A body whose length nobody tells beforehand."""
        self.make()
        url = parse.urlsplit(self.emulator.url)
        connection = http.client.HTTPConnection(url.hostname, url.port,
                                                timeout=30)
        self.addCleanup(connection.close)
        connection.request(
            'PATCH', self.path, iter([b'{"IndicatorLED":', b' "Lit"}']),
            {'Content-Type': 'application/json'}, encode_chunked=True)
        self.assertIn(connection.getresponse().status, (204, 400))

    def test_deleted_a_moment_ago(self):
        self.make()
        self.sandbox.delete('virtualmachines', self.name)
        [entry] = self.refused(
            'POST', self.path + '/Actions/ComputerSystem.Reset',
            {'ResetType': 'On'}, 404)
        self.assertEqual(('ResourceNotFound', 'ComputerSystem'), entry[:2])
        self.refused('GET', self.path, None, 404)

    def test_ambiguous(self):
        name = next(_names)
        with emulator.Emulator(
                self.sandbox.kubeconfig,
                {'SUSHY_EMULATOR_KUBEVIRT_NAMESPACES': '*'}) as everywhere:
            self.sandbox.request('POST', '/api/v1/namespaces', {
                'apiVersion': 'v1', 'kind': 'Namespace',
                'metadata': {'name': 'other'}})
            for namespace in 'default', 'other':
                self.sandbox.create(
                    'virtualmachines',
                    machines.vm(name, 'Halted', namespace), namespace)

            def both_are_seen():
                return everywhere.request(
                    'GET', '%s/%s' % (SYSTEMS, name)).status_code == 409

            self.until(both_are_seen)
            message = everywhere.request('GET', '%s/%s' % (
                SYSTEMS, name)).json()['error']['message']
            self.assertIn('default/' + name, message)
            self.assertIn('other/' + name, message)
            self.assertEqual(
                'KubeVirt VirtualMachine other/' + name,
                everywhere.system('other:' + name)['Description'])


class TestOutage(Case):
    """The API goes away and comes back."""

    SETTINGS = {'SUSHY_EMULATOR_KUBEVIRT_STALE_SECONDS': 1,
                'SUSHY_EMULATOR_KUBEVIRT_WRITE_DEADLINE': 1}

    def test_outage(self):
        self.make()
        self.sandbox.outage(5)
        # A write needs the API; a read does when the cache is too old.
        for answer in (
                self.emulator.reset(self.uuid, 'On', expect=503),
                self.until_away()):
            self.assertGreaterEqual(int(answer.headers['Retry-After']), 1)
            self.assertEqual(
                'ServiceTemporarilyUnavailable',
                answer.json()['error']['code'].rpartition('.')[2])
        self.emulator.request('GET', '/redfish/v1/', expect=200)
        self.until(lambda: self.emulator.request(
            'GET', self.path).status_code == 200, timeout=10)
        self.emulator.reset(self.uuid, 'On')
        self.sandbox.wait_running(self.name)

    def until_away(self):
        def away():
            response = self.emulator.request('GET', self.path)
            # A Response of an error is falsy.
            return (response,) if response.status_code == 503 else ()
        return self.until(away)[0]


class TestStart(base.SandboxTestCase):
    """What becomes of the emulator when something is wrong at its start."""

    VMS = 1

    def start(self, settings=None, kubeconfig=None, server='werkzeug'):
        fixture = emulator.Emulator(kubeconfig or self.sandbox.kubeconfig,
                                    settings, server)
        fixture.setUp()
        self.addCleanup(fixture.cleanUp)
        return fixture

    def fails(self, words, *arguments, **options):
        exc = self.assertRaises(fixtures.MultipleExceptions, self.start,
                                *arguments, **options)
        text = str(exc.args[0][1])
        for word in words:
            self.assertIn(word, text)
        self.assertNotIn('Traceback', text)

    def test_bad_options(self):
        self.fails(['SUSHY_EMULATOR_KUBEVIRT_VM', "'no-slash'"],
                   {'SUSHY_EMULATOR_KUBEVIRT_VM': 'no-slash'})
        self.fails(['SUSHY_EMULATOR_KUBEVIRT_NAMESPACE '],
                   {'SUSHY_EMULATOR_KUBEVIRT_NAMESPACE': 'x'})
        self.fails(['no-such-context'],
                   {'SUSHY_EMULATOR_KUBEVIRT_CONTEXT': 'no-such-context'})
        self.fails(["'nonsense'", 'kubevirt, libvirt'],
                   {'SUSHY_EMULATOR_SYSTEM_DRIVER': 'nonsense'})
        self.fails(['/nonexistent'], kubeconfig='/nonexistent')

    def test_bad_options_of_gunicorn(self):
        # It listens before its workers have read the options, and must not
        # start them over and over.
        started = self.start({'SUSHY_EMULATOR_KUBEVIRT_VM': 'no-slash'},
                             server='gunicorn')
        self.assertEqual(3, started.process.wait())
        self.assertIn("SUSHY_EMULATOR_KUBEVIRT_VM must be one VM as "
                      "'namespace/name'; it is 'no-slash'",
                      started.process.output)
        self.assertNotIn('Traceback', started.process.output)

    def test_unreachable_cluster(self):
        kubeconfig = yaml.safe_load(self.sandbox.kubeconfig.read_text())
        kubeconfig['clusters'][0]['cluster']['server'] = 'https://127.0.0.1:1'
        path = self.sandbox.kubeconfig.with_name('unreachable')
        path.write_text(yaml.safe_dump(kubeconfig))
        started = self.start(kubeconfig=path)
        response = started.request('GET', SYSTEMS, expect=503)
        self.assertIn('Retry-After', response.headers)
        started.request('GET', '/redfish/v1/', expect=200)

    def test_wrong_token(self):
        kubeconfig = yaml.safe_load(self.sandbox.kubeconfig.read_text())
        kubeconfig['users'][0]['user']['token'] = 'wrong-token-7'
        path = self.sandbox.kubeconfig.with_name('wrong-token')
        path.write_text(yaml.safe_dump(kubeconfig))
        started = self.start(kubeconfig=path)
        response = started.request('GET', SYSTEMS, expect=500)
        self.assertEqual('AccessDenied', response.json()['error'][
            'code'].rpartition('.')[2])
        self.assertNotIn('Retry-After', response.headers)
        self.assertIn('refuses access', started.process.output)
        self.assertNotIn('wrong-token-7',
                         started.process.output + response.text)


class TestStockDriver(base.FunctionalTestCase):
    """The stock drivers, named; the emulator is upstream's then."""

    def test_fake(self):
        started = self.useFixture(emulator.Emulator(
            settings={'SUSHY_EMULATOR_SYSTEM_DRIVER': 'fake'}))
        [path] = started.systems()
        body = started.request('GET', path, expect=200).json()
        self.assertEqual('Sushy Emulator', body['Manufacturer'])
        started.request('PATCH', path, {'Boot': {
            'BootSourceOverrideTarget': 'Cd'}}, expect=204)
        self.assertEqual('Cd', started.request('GET', path).json()['Boot'][
            'BootSourceOverrideTarget'])

    def test_libvirt(self):
        started = self.useFixture(emulator.Emulator(settings={
            'SUSHY_EMULATOR_SYSTEM_DRIVER': 'libvirt',
            'SUSHY_EMULATOR_LIBVIRT_URI': 'test:///default'}))
        [path] = started.systems()
        self.assertEqual('test', started.request(
            'GET', path, expect=200).json()['Name'])


class TestAccess(base.SandboxTestCase):
    """One system of several may be reached, by an option or by scope."""

    VMS = 0

    def check(self, settings, name='mine'):
        started = self.useFixture(emulator.Emulator(
            self.sandbox.kubeconfig, settings))
        mine, others = self.uuids['mine'], self.uuids['others']
        self.assertEqual(['%s/%s' % (SYSTEMS, mine)], started.systems())
        started.reset('mine', 'On')
        self.sandbox.wait_running('mine')
        for identity in (others, others.upper(), 'others', 'default:others',
                         'default%2Fothers'):
            for where in (SYSTEMS + '/%s', SYSTEMS + '/%s/BIOS',
                          SYSTEMS + '/%s/VirtualMedia',
                          SYSTEMS + '/%s/VirtualMedia/Cd',
                          SYSTEMS + '/%s/Storage',
                          '/redfish/v1/Managers/%s'):
                started.request('GET', where % identity, expect=404)
            started.request(
                'POST', SYSTEMS + '/%s/Actions/ComputerSystem.Reset'
                % identity, {'ResetType': 'On'}, expect=404)
        for where in '/redfish/v1/Managers', '/redfish/v1/Chassis/Chassis':
            text = started.request('GET', where, expect=200).text
            self.assertIn(mine, text)
            self.assertNotIn(others, text)
        self.assertEqual([], self.sandbox.boots('others'))
        started.reset('mine', 'ForceOff')
        self.sandbox.wait_stopped('mine')

    def setUp(self):
        super().setUp()
        self.uuids = {}
        for name in 'mine', 'others':
            self.uuids[name] = machines.uuid_of(self.sandbox.create(
                'virtualmachines', machines.vm(name, 'Halted')))
            self.addCleanup(self.sandbox.wait, 'virtualmachines', name,
                            lambda vm: vm is None)
            self.addCleanup(self.sandbox.delete, 'virtualmachines', name)

    def test_allowed_by_uuid(self):
        self.check({'SUSHY_EMULATOR_ALLOWED_INSTANCES':
                    [self.uuids['mine']]})

    def test_allowed_by_name(self):
        self.check({'SUSHY_EMULATOR_ALLOWED_INSTANCES': ['default/mine']})

    def test_one_vm(self):
        self.check({'SUSHY_EMULATOR_KUBEVIRT_VM': 'default/mine'})

    def test_authentication(self):
        digest = bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()
        path = self.sandbox.kubeconfig.with_name('htpasswd')
        path.write_text('admin:%s\n' % digest)
        started = self.useFixture(emulator.Emulator(
            self.sandbox.kubeconfig,
            {'SUSHY_EMULATOR_AUTH_FILE': str(path)}))
        started.request('GET', '/redfish/v1/', expect=200)
        for credentials in None, ('admin', 'wrong'), ('admin', 'x' * 100):
            response = started.request('GET', SYSTEMS, expect=401,
                                       auth=credentials)
            self.assertIn('NoValidSession', response.text)
        started.request('GET', SYSTEMS, expect=200,
                        auth=('admin', 'secret'))
        root = sushy.Sushy(started.url + '/redfish/v1/',
                           auth=auth.BasicAuth('admin', 'secret'))
        self.assertEqual(2, len(root.get_system_collection().get_members()))
        self.assertNotIn('secret', started.process.output)


class TestGunicorn(Case):
    """Several workers with several threads each."""

    SERVER = 'gunicorn'
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        super(base.EmulatorTestCase, cls).setUpClass()
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.kubeconfig, server='gunicorn', workers=2, threads=4,
            env={'GUNICORN_CMD_ARGS': ' '.join(cls.OPTIONS)}))

    def workers(self):
        return set(re.findall(r'Booting worker with pid: (\d+)',
                              self.emulator.process.output))

    def test_many_clients(self):
        self.make()
        self.assertEqual(2, len(self.workers()))

        def ask(_number):
            url = parse.urlsplit(self.emulator.url)
            connection = http.client.HTTPConnection(url.hostname, url.port,
                                                    timeout=60)
            try:
                connection.request('GET', self.path)
                response = connection.getresponse()
                return response.status, json.loads(response.read())['UUID']
            finally:
                connection.close()

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual({(200, self.uuid)},
                             set(pool.map(ask, range(200))))

    def test_what_one_worker_wrote_all_read(self):
        self.make()
        self.emulator.patch_system(self.uuid, {'IndicatorLED': 'Lit'})
        # Each worker has a watch of its own: soon, not at once.
        seen = 0
        deadline = time.monotonic() + 10
        while seen < 30 and time.monotonic() < deadline:
            url = parse.urlsplit(self.emulator.url)
            connection = http.client.HTTPConnection(url.hostname, url.port,
                                                    timeout=60)
            connection.request('GET', self.path)
            body = json.loads(connection.getresponse().read())
            connection.close()
            seen = seen + 1 if body['IndicatorLED'] == 'Lit' else 0
        self.assertEqual(30, seen)

    def test_power_and_boot(self):
        self.make()
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootSourceOverrideTarget': 'Pxe',
            'BootSourceOverrideEnabled': 'Once'}})
        self.emulator.reset(self.uuid, 'On')
        self.assertEqual('Pxe', self.sandbox.wait_boot(self.name, 1)['class'])
        self.sandbox.wait_running(self.name)
        self.until(lambda: self.emulator.system(self.uuid)['Boot'][
            'BootSourceOverrideEnabled'] == 'Disabled')
        self.until(lambda: self.emulator.request(
            'POST', self.path + '/Actions/ComputerSystem.Reset',
            {'ResetType': 'ForceRestart'}).status_code == 204)
        self.assertEqual('Hdd', self.sandbox.wait_boot(self.name, 2)['class'])


class TestGunicornPreload(TestGunicorn):
    """The application is made before the workers are forked."""

    OPTIONS = ('--preload',)
