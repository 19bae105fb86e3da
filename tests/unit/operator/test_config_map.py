# SPDX-License-Identifier: Apache-2.0
import contextlib
import dataclasses
import json
import os
import pathlib
import tempfile

import fixtures
from oslotest import base

from sushy_kubevirt.emulator import settings
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import url_policy
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import spec
from sushy_kubevirt.pod import options_file
from tests.unit.operator import bodies


DEFINITION = (
    pathlib.Path(__file__).parents[3] / 'etc' / 'kubernetes' / 'crd'
    / 'virtualmachinebmc.yaml').read_text()

ENVIRON = {'POD_IP': '10.1.2.3',
           'VIRTBMC_AUTH_FOLDER': '/etc/virtbmc/auth',
           'VIRTBMC_TLS_FOLDER': '/etc/virtbmc/tls'}


def options(bmc, proxy=None, folder=None):
    """Return the options of the emulator in a pod.

    :param bmc: a `spec.Bmc`
    :param proxy: a `config_map.Proxy`
    :param folder: where the ConfigMap is mounted; None for a temporary one
    """
    with contextlib.ExitStack() as stack:
        folder = folder or stack.enter_context(tempfile.TemporaryDirectory())
        for name, text in config_map.config_map(bmc, proxy)['data'].items():
            (pathlib.Path(folder) / name).write_text(text)
        environ = {**ENVIRON, options_file.VARIABLE: os.path.join(
            folder, options_file.FILE)}
        if bmc.redfish.plain:
            del environ[options_file.TLS_VARIABLE]
        return options_file.config(environ)


# (fields of the spec, attribute of the emulator's settings, its value)
CASES = (
    ({}, 'vm', 'lab/vm'),
    ({}, 'accounts', ('/etc/virtbmc/auth',)),
    ({}, 'namespaces', None),
    ({}, 'machine.run_strategy', 'RerunOnFailure'),
    ({}, 'machine.watch_seconds', 300),
    ({}, 'account_management', True),
    ({'accountManagement': {'enabled': False}}, 'account_management', False),
    ({}, 'web_page', True),
    ({'redfish': {'webPage': False}}, 'web_page', False),
    ({'runStrategy': 'Manual'}, 'machine.run_strategy', 'Manual'),
    ({'virtualMedia': {'storageClassName': 'fast'}},
     'machine.media.storage_class', 'fast'),
    ({}, 'machine.media.access_mode', 'ReadWriteOnce'),
    ({'virtualMedia': {'accessMode': 'auto'}}, 'machine.media.access_mode',
     'auto'),
    ({'virtualMedia': {'volumeMode': 'Block'}}, 'machine.media.volume_mode',
     'Block'),
    ({}, 'machine.media.volume_mode', None),
    ({'redfish': {'virtualMedia': {'tls': {'caBundleConfigMapRef': {
        'name': 'ca'}}}}}, 'machine.media.ca_config_map', 'ca'),
    ({'virtualMedia': {'mode': 'upload'}}, 'machine.media.mode', 'upload'),
    *(({'virtualMedia': {'defaultSize': text}}, 'machine.media.default_size',
       size) for text, size in (('4Gi', 4 << 30), ('5000000', 5000000),
                                ('9k', 9000), ('9999Ti', 9999 << 40))),
    ({'virtualMedia': {'allowLoopback': True}},
     'machine.media.allow_loopback', True),
    ({}, 'machine.media.allow_loopback', False),
    ({'virtualMedia': {'verifyCertificate': False}}, 'machine.media.verify',
     False),
    ({}, 'machine.media.verify', True),
    ({}, 'service_ports', (('HTTPS', 443), ('IPMI', 623))),
    ({'virtualMachineRef': {'name': 'vm'}}, 'service_ports',
     (('HTTP', 80), ('HTTPS', 443), ('IPMI', 623))),
    # The Service of KubeVirtBMC's name is in the cluster.
    ({'virtualMachineRef': {'name': 'vm'}, 'service': {'type': 'NodePort'}},
     'service_ports', (('HTTP', 80), ('HTTPS', 443), ('IPMI', 623))),
    # The BMC's own Service has that name.
    ({'virtualMachineRef': {'name': 'node'}, 'service': {'type': 'NodePort'}},
     'service_ports', (('HTTPS', 443), ('IPMI', 623))),
    ({'redfish': {'plainHTTP': True}, 'ipmi': {'enabled': False}},
     'service_ports', (('HTTP', 80),)),
    ({'service': {'ports': {'redfish': 8443, 'ipmi': 6230}}},
     'service_ports', (('HTTPS', 8443), ('IPMI', 6230))),
    ({'virtualMedia': {'allowedHosts': ['a.test', '10.0.0.0/8']}},
     'machine.media.allowed_hosts', ('a.test', '10.0.0.0/8')),
)


class ConfigMapTestCase(base.BaseTestCase):

    def test_emulator_reads_settings(self):
        for fields, path, expected in CASES:
            with self.subTest(fields=fields, path=path):
                found = settings.read(options(bodies.bmc(**fields)))
                for name in path.split('.'):
                    found = getattr(found, name)
                self.assertEqual(expected, found)

    def test_size_margin(self):
        for text, expected in (('25', 25), ('0', 0), ('much', 0)):
            self.assertEqual(expected, settings.read(options(spec.read(
                bodies.with_margin(text)))).machine.media.size_margin)

    def test_messages_name_fields(self):
        found = settings.read(options(bodies.bmc()))
        names = found.machine.media.names
        for field, name in (
                ('mode', 'spec.virtualMedia.mode'),
                ('volume_mode', 'spec.virtualMedia.volumeMode'),
                ('ca_config_map', 'spec.redfish.virtualMedia.tls.'
                 'caBundleConfigMapRef'),
                ('default_size', 'spec.virtualMedia.defaultSize'),
                ('allow_loopback', 'spec.virtualMedia.allowLoopback'),
                ('allowed_hosts', 'spec.virtualMedia.allowedHosts')):
            self.assertEqual(f'{name} of VirtualMachineBMC lab/node',
                             names[field])
            # The definition has it.
            self.assertIn(name.rpartition('.')[2], DEFINITION)
        self.assertEqual(
            'annotation bmc.kubevirt.io/datavolume-size-margin of '
            'VirtualMachineBMC lab/node', names['size_margin'])
        self.assertEqual('--upload-proxy-url of sushy-kubevirt-operator',
                         names['upload_proxy_url'])
        denied = '--denied-hosts of sushy-kubevirt-operator'
        self.assertEqual(denied, names['denied_hosts'])
        self.assertEqual({'denied_hosts': denied}, found.events.names)
        # Options that a BMC does not have.
        for field in 'allow_link_local', 'ca_file':
            self.assertNotIn(field, names)

    def test_vm_in_other_namespace(self):
        self.assertEqual('far/vm', settings.read(options(
            spec.read(bodies.cross_namespace()))).vm)

    def test_path_of_certificate(self):
        for fields, expected in (
                ({}, '/etc/virtbmc/tls/tls.crt'),
                ({'redfish': {'tls': {'secretName': 'a'}}},
                 '/etc/virtbmc/tls/tls.crt'),
                ({'redfish': {'plainHTTP': True}}, None)):
            with self.subTest(fields=fields):
                self.assertEqual(expected, options(bodies.bmc(**fields)).get(
                    'SUSHY_EMULATOR_SSL_CERT'))

    def test_upload_proxy(self):
        folder = self.useFixture(fixtures.TempDir()).path
        certificate = pki.make('a').certificate
        proxy = config_map.Proxy('https://proxy.test', certificate)
        found = settings.read(options(bodies.bmc(), proxy, folder)).machine
        self.assertEqual('https://proxy.test', found.media.upload_proxy_url)
        self.assertEqual(certificate, pathlib.Path(
            found.media.upload_proxy_ca).read_text())
        # A proxy whose certificate the system's CAs have signed.
        public_proxy = config_map.Proxy('https://proxy.test')
        self.assertEqual(['options.json'], list(config_map.config_map(
            bodies.bmc(), public_proxy)['data']))
        self.assertIsNone(settings.read(options(
            bodies.bmc(), public_proxy)).machine.media.upload_proxy_ca)
        self.assertEqual(3, len({config_map.digest(bodies.bmc(), one)
                                 for one in (None, public_proxy, proxy)}))

    def test_denied_hosts(self):
        denied = config_map.Denied(('10.96.0.0/12', '192.0.2.1:6443'),
                                   ('10.96.0.9',))
        path = self.useFixture(fixtures.TempDir()).join('options.json')
        # A BMC cannot widen what its operator denies.
        pathlib.Path(path).write_text(config_map.text(bodies.bmc(
            virtualMedia={'allowedHosts': ['*', '10.96.0.0/12']}), None,
            denied))
        found = settings.read(options_file.read(path))
        for one in found.machine.media, found.events:
            self.assertEqual(denied.hosts, one.denied_hosts)
            self.assertEqual(denied.excepted, one.denied_except)

    def test_hosts_of_the_cluster(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        bmc, denied = bodies.bmc(), config_map.Denied(
            ('a.test',), cluster=('10.96.0.0/12', '192.0.2.1:6443'))
        for name, text in config_map.config_map(bmc, None, denied)[
                'data'].items():
            (folder / name).write_text(text)
        found = settings.read(options_file.read(
            str(folder / options_file.FILE)))
        for options_ in found.machine.media, found.events:
            self.assertEqual(('a.test',), options_.denied_hosts)
            self.assertEqual(denied.cluster, url_policy.read_hosts(
                options_.denied_hosts_file))
        # A pod reads the file again, but not whether there is one.
        self.assertEqual(3, len({config_map.digest(bmc, None, one) for one in (
            denied, dataclasses.replace(denied, cluster=('10.4.0.0/16',)),
            dataclasses.replace(denied, cluster=()), config_map.Denied())}))

    def test_only_options_of_the_operator_are_read(self):
        """Others name files, which may have commands in them."""
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).join(
            options_file.FILE))
        own = json.loads(config_map.text(bodies.bmc()))
        for text in (
                'import os', '[]', '"', '',
                *(json.dumps({**own, name: '/etc/virtbmc/config/x'})
                  for name in (
                      'SUSHY_EMULATOR_KUBEVIRT_KUBECONFIG',
                      'SUSHY_EMULATOR_KUBEVIRT_WEB_MODULES',
                      'SUSHY_EMULATOR_KUBEVIRT_ACCOUNTS',
                      'SUSHY_EMULATOR_KUBEVIRT_MEDIA_CA_FILE',
                      'SUSHY_EMULATOR_KUBEVIRT_MEDIA_UPLOAD_PROXY_CA',
                      'SUSHY_EMULATOR_KUBEVIRT_MEDIA_DENIED_HOSTS_FILE',
                      'SUSHY_EMULATOR_AUTH_FILE', 'SUSHY_EMULATOR_SSL_KEY',
                      'SUSHY_EMULATOR_SYSTEM_DRIVER', 'TESTING'))):
            path.write_text(text)
            self.assertRaises(errors.ConfigError, options_file.read,
                              str(path))
        path.write_text(json.dumps(own))
        self.assertEqual(own, options_file.read(str(path)))

    def test_fields_are_escaped(self):
        injection = "x'; import os; os.abort() #\n'''\\"
        found = bodies.bmc(virtualMedia={
            'storageClassName': injection, 'allowedHosts': [injection]},
            runStrategy=injection)
        self.assertEqual(injection, options(found)[
            'SUSHY_EMULATOR_KUBEVIRT_MEDIA_STORAGE_CLASS'])
        self.assertEqual(
            {'SUSHY_EMULATOR_KUBEVIRT_MEDIA_STORAGE_CLASS',
             'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOWED_HOSTS',
             'SUSHY_EMULATOR_KUBEVIRT_RUN_STRATEGY'},
            options(found).keys() - options(bodies.bmc()).keys())

    def test_digest_depends_on_content_only(self):
        bmc = bodies.bmc()
        self.assertEqual(config_map.digest(bmc),
                         config_map.digest(bodies.bmc()))
        self.assertNotEqual(
            config_map.digest(bmc),
            config_map.digest(bodies.bmc(runStrategy='Always')))
        # Fields that are not in the file do not restart the pod.
        self.assertEqual(
            config_map.digest(bmc),
            config_map.digest(dataclasses.replace(bmc, generation=9)))
