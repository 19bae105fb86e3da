# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import pathlib
from unittest import mock

from oslotest import base
import yaml

from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import deployments
from tests.unit.operator import bodies
from vbmc_kubevirt.cmd import ipmi

CRD = pathlib.Path(__file__).parents[4] / (
    'etc/kubernetes/crd/virtualmachinebmc.yaml')

REQUIRED = {'VIRTBMC_VM': 'lab/node-0', 'VIRTBMC_AUTH_FOLDER': '/etc/auth'}


class ReadTest(base.BaseTestCase):

    def test_defaults(self):
        settings = ipmi.read(REQUIRED)
        self.assertEqual(
            ('lab/node-0', '/etc/auth', '::', 6230, 8082),
            (settings.vm, settings.folder, settings.address, settings.port,
             settings.health_port))
        self.assertEqual(
            'RerunOnFailure',
            settings.machine_options.run_strategy)
        self.assertEqual(8, settings.machine_options.write_deadline)
        self.assertEqual(300, settings.machine_options.watch_seconds)
        self.assertTrue(settings.machine_options.reconcile)

    def test_reads_all_variables(self):
        settings = ipmi.read(dict(
            REQUIRED, POD_IP='10.0.0.7', VIRTBMC_PORT='623',
            VIRTBMC_HEALTH_PORT='0', VIRTBMC_RUN_STRATEGY='Manual',
            VIRTBMC_SERVICE_PORT='1623', VIRTBMC_ACCOUNT_MANAGEMENT='false'))
        self.assertFalse(settings.account_management)
        self.assertEqual(('10.0.0.7', 623, 1623, 0, 'Manual'), (
            settings.address, settings.port, settings.client_port,
            settings.health_port,
            settings.machine_options.run_strategy))

    def test_error_names_invalid_variable(self):
        for name, value in (
                ('VIRTBMC_VM', ''), ('VIRTBMC_VM', 'node-0'),
                ('VIRTBMC_VM', 'a/b/c'), ('VIRTBMC_VM', 'a/b\n'),
                ('VIRTBMC_VM', 'a/..'), ('VIRTBMC_AUTH_FOLDER', ''),
                ('VIRTBMC_PORT', '-1'), ('VIRTBMC_PORT', '65536'),
                ('VIRTBMC_HEALTH_PORT', 'x'), ('VIRTBMC_SERVICE_PORT', 'x'),
                ('VIRTBMC_RUN_STRATEGY', 'Halted'),
                ('VIRTBMC_RUN_STRATEGY', 'once'),
                ('VIRTBMC_ACCOUNT_MANAGEMENT', 'no')):
            with self.assertRaisesRegex(ipmi.Invalid, name):
                ipmi.read(dict(REQUIRED, **{name: value}))

    def test_matches_deployment_of_the_operator(self):
        # The operator does not import this package; both define names.
        for strategy in run_strategy.STARTABLE:
            bmc = bodies.bmc(runStrategy=strategy)
            container, = [one for one in deployments.deployment(
                bmc, deployments.Defaults('any'))['spec']['template']['spec'][
                    'containers'] if one['name'] == deployments.IPMI]
            environ = {one['name']: one.get('value', '10.0.0.7')
                       for one in container['env']}
            settings = ipmi.read(environ)
            self.assertEqual(
                ('lab/vm', config_map.AUTH_FOLDER, '10.0.0.7',
                 deployments.IPMI_PORT, deployments.IPMI_HEALTH_PORT, 623),
                (settings.vm, settings.folder, settings.address,
                 settings.port, settings.health_port,
                 settings.client_port))
            self.assertEqual(strategy, settings.machine_options.run_strategy)
            self.assertEqual(config_map.WATCH_SECONDS,
                             settings.machine_options.watch_seconds)
            self.assertTrue(settings.account_management)
        least = ipmi.read(REQUIRED)
        self.assertEqual((deployments.IPMI_PORT, deployments.IPMI_HEALTH_PORT),
                         (least.port, least.health_port))

    def test_run_strategies_match_crd(self):
        definition = yaml.safe_load(CRD.read_text())
        spec = definition['spec']['versions'][0]['schema'][
            'openAPIV3Schema']['properties']['spec']['properties']
        self.assertEqual(set(run_strategy.STARTABLE),
                         set(spec['runStrategy']['enum']))


class MainTest(base.BaseTestCase):

    def main(self, *argv, environ=None):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err), \
                mock.patch.dict(ipmi.os.environ, environ or {}, clear=True):
            return ipmi.main(list(argv)), out.getvalue(), err.getvalue()

    def test_help_lists_variables(self):
        code, out, err = self.main('--help')
        self.assertEqual((0, ''), (code, err))
        for name in (*REQUIRED, 'POD_IP', 'VIRTBMC_PORT',
                     'VIRTBMC_SERVICE_PORT', 'VIRTBMC_HEALTH_PORT',
                     'VIRTBMC_RUN_STRATEGY', 'VIRTBMC_ACCOUNT_MANAGEMENT'):
            self.assertIn(name, out)

    def test_version(self):
        code, out, err = self.main('--version')
        self.assertEqual((0, ''), (code, err))
        self.assertRegex(out, r'^sushy-kubevirt-ipmi \d+\.\d+')

    def test_unknown_option_is_usage_error(self):
        code, out, err = self.main('--port', '1')
        self.assertEqual((2, ''), (code, out))
        self.assertIn('usage', err)

    def test_invalid_environment_is_an_error(self):
        code, out, err = self.main()
        self.assertEqual((2, ''), (code, out))
        self.assertIn('VIRTBMC_VM', err)
