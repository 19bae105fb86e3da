# SPDX-License-Identifier: Apache-2.0

import pathlib
import re

from oslotest import base

from sushy_kubevirt.emulator import settings
from sushy_kubevirt.machine import options
from sushy_kubevirt.redfish.services import settings as service_settings
from tests.fixtures import file_servers

CONFIG = (pathlib.Path(__file__).parents[3] / 'etc' / 'sushy-emulator'
          / 'kubevirt.conf')
CERTIFICATE = file_servers.pair()[0]


class TestSettings(base.BaseTestCase):

    def read(self, **options):
        return settings.read(options)

    def refused(self, *words, **options):
        exc = self.assertRaises(settings.InvalidSettings, self.read,
                                **options)
        for word in (*words, *options):
            self.assertIn(word, str(exc))

    def test_defaults(self):
        found = self.read(OTHER=1)
        self.assertIsNone(found.namespaces)
        self.assertIsNone(found.allowed)
        self.assertTrue(found.power_off)
        self.assertEqual('RerunOnFailure', found.machine.run_strategy)

    def test_reads_all_options(self):
        found = self.read(
            SUSHY_EMULATOR_KUBEVIRT_KUBECONFIG='/k',
            SUSHY_EMULATOR_KUBEVIRT_CONTEXT='c',
            SUSHY_EMULATOR_KUBEVIRT_NAMESPACES=['a', 'b'],
            SUSHY_EMULATOR_KUBEVIRT_LABEL_SELECTOR='x=y',
            SUSHY_EMULATOR_KUBEVIRT_RUN_STRATEGY='Always',
            SUSHY_EMULATOR_KUBEVIRT_REBOOT_POLICY=False,
            SUSHY_EMULATOR_KUBEVIRT_WRITE_DEADLINE=7,
            SUSHY_EMULATOR_KUBEVIRT_READ_DEADLINE=3.5,
            SUSHY_EMULATOR_KUBEVIRT_STALE_SECONDS=4,
            SUSHY_EMULATOR_KUBEVIRT_WATCH_SECONDS=300,
            SUSHY_EMULATOR_ALLOWED_INSTANCES=[
                'ns/vm', '6D8C9B464D5A4A469D530000000000AA'],
            SUSHY_EMULATOR_DISABLE_POWER_OFF=True)
        self.assertEqual(('/k', 'c', ('a', 'b'), 'x=y'), (
            found.kubeconfig, found.context, found.namespaces,
            found.label_selector))
        self.assertEqual(('Always', 7, 3.5, 4, 300), (
            found.machine.run_strategy, found.machine.write_deadline,
            found.machine.read_deadline, found.machine.stale_seconds,
            found.machine.watch_seconds))
        self.assertEqual(
            {'ns/vm', '6d8c9b46-4d5a-4a46-9d53-0000000000aa'}, found.allowed)
        self.assertFalse(found.power_off)
        self.assertFalse(found.machine.reboot_policy)

    def test_accounts(self):
        self.assertEqual((), self.read().accounts)
        for options_, expected in (
                ({'KUBEVIRT_ACCOUNTS': '/a'}, ('/a',)),
                ({'KUBEVIRT_ACCOUNTS': ['/a', '/b', '/a']}, ('/a', '/b')),
                ({'AUTH_FILE': '/f'}, ('/f',)),
                ({'AUTH_FILE': '/f', 'KUBEVIRT_ACCOUNTS': ['/a', '/f']},
                 ('/f', '/a'))):
            self.assertEqual(expected, self.read(**{
                'SUSHY_EMULATOR_' + name: value
                for name, value in options_.items()}).accounts)
        # A value that is ignored would disable authentication.
        for value in '', [], [''], 7, [7], {'/a'}, False, True:
            self.refused(SUSHY_EMULATOR_KUBEVIRT_ACCOUNTS=value)
        for value in '', 7, ['/a']:
            self.refused(SUSHY_EMULATOR_AUTH_FILE=value)

    def test_session_timeout(self):
        name = 'SUSHY_EMULATOR_KUBEVIRT_SESSION_TIMEOUT'
        self.assertEqual(1800, self.read().session_timeout)
        self.assertEqual(30, self.read(**{name: 30}).session_timeout)
        for value in 29, 86401, 60.5, True, '60', []:
            self.refused(**{name: value})

    def test_trusted_proxies(self):
        name = 'SUSHY_EMULATOR_KUBEVIRT_TRUSTED_PROXIES'
        self.assertEqual((), self.read().trusted_proxies)
        self.assertEqual(
            ['10.0.0.1/32', '10.1.0.0/16', '2001:db8::/32'],
            [str(network) for network in self.read(**{name: [
                '10.0.0.1', '10.1.0.0/16', '2001:db8::/32']}
            ).trusted_proxies])
        self.assertEqual(1, len(self.read(**{name: '::1'}).trusted_proxies))
        for value in ('proxy', 7, ['10.0.0.1/8'], [''], {'a': 1}):
            self.refused(**{name: value})

    def test_host_names(self):
        name = 'SUSHY_EMULATOR_KUBEVIRT_HOST_NAMES'
        self.assertEqual((), self.read().host_names)
        for value in ['bmc.example.org', '*.svc'], ['*'], []:
            self.assertEqual(tuple(value),
                             self.read(**{name: value}).host_names)
        for value in 'bmc', 7, [7], [''], ['*.'], ['*x'], ['x:80'], ['a b']:
            self.refused(**{name: value})

    def test_service_ports(self):
        name = 'SUSHY_EMULATOR_KUBEVIRT_SERVICE_PORTS'
        self.assertEqual((('HTTPS', 443), ('IPMI', 623)), self.read(
            **{name: {'IPMI': 623, 'HTTPS': 443}}).service_ports)
        for value in (443, ['HTTP'], {'SSH': 22}, {'HTTP': 0}, {'HTTP': '80'},
                      {'HTTP': True}, {'HTTP': 65536}, {1: 80}):
            self.refused(**{name: value})

    def test_names_of_options(self):
        found = self.read()
        prefix = 'SUSHY_EMULATOR_KUBEVIRT_'
        self.assertEqual(prefix + 'MEDIA_ALLOWED_HOSTS',
                         found.machine.media.names['allowed_hosts'])
        self.assertEqual(prefix + 'EVENT_DENIED_HOSTS',
                         found.events.names['denied_hosts'])
        name = prefix + 'OPTION_NAMES'
        found = self.read(**{name: {'MEDIA_MODE': 'spec.mode',
                                    'MEDIA_OF_LATER': 'spec.later'}})
        self.assertEqual({'mode': 'spec.mode'}, found.machine.media.names)
        self.assertEqual({}, found.events.names)
        for value in ('x', {'MEDIA_MODE': ''}, {'MEDIA_MODE': 7}):
            self.refused(**{name: value})

    def test_reads_all_media_options(self):
        self.assertEqual(options.MediaOptions(), self.read().machine.media)
        file, hosts = self.create_tempfiles([
            ('ca', CERTIFICATE), ('hosts', '10.0.0.0/8\n192.0.2.1:6443\n')])
        prefix = 'SUSHY_EMULATOR_KUBEVIRT_MEDIA_'
        given = {
            'STORAGE_CLASS': 'fast', 'ACCESS_MODE': 'ReadWriteMany',
            'VOLUME_MODE': 'Block', 'SIZE_MARGIN': 20,
            'CA_CONFIG_MAP': 'ca',
            'MINIMUM_SIZE': '1Gi', 'DEFAULT_SIZE': 5, 'MODE': 'upload',
            'WAIT': 7, 'PROBE_SECONDS': 3, 'ALLOWED_HOSTS': ['*.a', '::1'],
            'DENIED_HOSTS': ['10.0.0.0/8', '192.0.2.1:6443'],
            'DENIED_HOSTS_FILE': hosts,
            'DENIED_EXCEPT': ['10.0.0.1'], 'ALLOW_LOOPBACK': True,
            'ALLOW_LINK_LOCAL': True, 'CA_FILE': file, 'VERIFY': False,
            'UPLOAD_PROXY_URL': 'https://a:8443/x', 'UPLOAD_PROXY_CA': file}
        self.assertEqual({prefix + name for name in given}, {
            name for name in settings.OPTIONS if name.startswith(prefix)})
        self.assertEqual(
            options.MediaOptions(
                storage_class='fast', access_mode='ReadWriteMany',
                volume_mode='Block', size_margin=20, ca_config_map='ca',
                minimum_size=1 << 30, default_size=5, mode='upload',
                wait=True, wait_seconds=7, probe_seconds=3,
                allowed_hosts=('*.a', '::1'),
                denied_hosts=('10.0.0.0/8', '192.0.2.1:6443'),
                denied_hosts_file=hosts, denied_except=('10.0.0.1',),
                allow_loopback=True, allow_link_local=True, ca_file=file,
                verify=False, upload_proxy_url='https://a:8443/x',
                upload_proxy_ca=file),
            self.read(**{prefix + name: value for name, value
                         in given.items()}).machine.media)

    def test_media_wait(self):
        def read(value):
            found = self.read(
                SUSHY_EMULATOR_KUBEVIRT_MEDIA_WAIT=value).machine.media
            return found.wait, found.wait_seconds
        self.assertEqual((True, 600), read(True))
        self.assertEqual((True, 5), read(5))
        self.assertEqual((False, 600), read(False))
        self.assertEqual((False, 600), read(0))

    def test_invalid_media_options(self):
        file = self.create_tempfiles([('none', 'no certificate')])[0]
        for name, values in (
                ('MODE', ('download', True, [])),
                ('WAIT', ('yes', -1, 10 ** 6, [])),
                ('DEFAULT_SIZE', (0, -1, True, 'big', '4 Gi', [])),
                ('ALLOWED_HOSTS', ('a', [1], ['a/b'], ['10.0.0.1/8'],
                                   ['http://a/'], [''])),
                ('DENIED_HOSTS', ('a', {'a': 1})),
                ('DENIED_HOSTS_FILE', (7, '', '/missing', str(CONFIG))),
                ('CA_FILE', ('/no/such/file', file, 7, '/', '')),
                ('VOLUME_MODE', ('block', '', True, [])),
                ('SIZE_MARGIN', (-1, 1001, '5', True, 1.5)),
                ('CA_CONFIG_MAP', ('', 'a/b', 'A', 7)),
                ('VERIFY', ('no', 1)),
                ('UPLOAD_PROXY_URL', ('a', 'ftp://a', 'https://', 7,
                                      'https://u@a', 'https://a:x')),
                ('STORAGE_CLASS', ('', 7))):
            for value in values:
                option = 'SUSHY_EMULATOR_KUBEVIRT_MEDIA_' + name
                self.refused(**{option: value})

    def test_all_namespaces(self):
        self.assertEqual(
            (), self.read(SUSHY_EMULATOR_KUBEVIRT_NAMESPACES='*').namespaces)

    def test_one_namespace(self):
        self.assertEqual(('a',), self.read(
            SUSHY_EMULATOR_KUBEVIRT_NAMESPACES='a').namespaces)

    def test_empty_list_allows_no_machine(self):
        self.assertEqual(frozenset(), self.read(
            SUSHY_EMULATOR_ALLOWED_INSTANCES=[]).allowed)

    def test_names_need_namespace_in_several_namespaces(self):
        for namespaces in (None, ['a']):
            self.assertEqual({'vm'}, self.read(
                SUSHY_EMULATOR_KUBEVIRT_NAMESPACES=namespaces,
                SUSHY_EMULATOR_ALLOWED_INSTANCES=['vm']).allowed)
        for namespaces in ('*', ['a', 'b']):
            exc = self.assertRaises(
                settings.InvalidSettings, self.read,
                SUSHY_EMULATOR_KUBEVIRT_NAMESPACES=namespaces,
                SUSHY_EMULATOR_ALLOWED_INSTANCES=['vm', 'a/b'])
            self.assertIn("vm must be given as 'namespace/name'", str(exc))

    def test_unknown_option(self):
        self.refused('SUSHY_EMULATOR_KUBEVIRT_NAMESPACES',
                     SUSHY_EMULATOR_KUBEVIRT_NAMESPACE='a')

    def test_invalid_values(self):
        for name, *values in (
                ('KUBEVIRT_KUBECONFIG', '', 5),
                ('KUBEVIRT_NAMESPACES', 'A B', [], ['A B'], [1], {}),
                ('KUBEVIRT_VM', 'vm', 'a/b/c', '/vm', 'a/', 5),
                ('KUBEVIRT_RUN_STRATEGY', 'Halted', 'always', 1, []),
                ('KUBEVIRT_WRITE_DEADLINE', '5', 0, -1, True,
                 float('nan')),
                ('ALLOWED_INSTANCES', 'vm', ['V M'], [5], {'a': 1}),
                ('DISABLE_POWER_OFF', 'yes', 1)):
            for value in values:
                self.refused(repr(value), **{'SUSHY_EMULATOR_' + name: value})

    def test_reports_all_problems_at_once(self):
        self.refused(SUSHY_EMULATOR_KUBEVIRT_CONTEXT='',
                     SUSHY_EMULATOR_KUBEVIRT_VM='vm')

    def test_vm_and_namespaces_exclude_each_other(self):
        self.refused(SUSHY_EMULATOR_KUBEVIRT_VM='a/b',
                     SUSHY_EMULATOR_KUBEVIRT_NAMESPACES=['a'])


class TestConfigFile(base.BaseTestCase):

    def test_config_file_has_every_option(self):
        text = CONFIG.read_text()
        options_in_file = set(re.findall(
            r'^# (SUSHY_EMULATOR_KUBEVIRT_\w+) = ', text, re.MULTILINE))
        self.assertEqual(set(settings.OPTIONS), options_in_file)

    def test_config_file_has_actual_defaults(self):
        documented = {}
        for name, value in re.findall(
                r'^# (SUSHY_EMULATOR_\w+) = (.*)$', CONFIG.read_text(),
                re.MULTILINE):
            documented[name] = eval(value, {})
        self.assertEqual(service_settings.Settings(),
                         settings.read(documented))
