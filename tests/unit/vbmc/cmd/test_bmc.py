# SPDX-License-Identifier: Apache-2.0
import contextlib
import gc
import io
import pathlib
import re
from unittest import mock

from oslotest import base
import yaml

from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import deployments
from tests.unit.operator import bodies
from vbmc_kubevirt.cmd import bmc as command

CRD = pathlib.Path(__file__).parents[4] / (
    'etc/kubernetes/crd/virtualmachinebmc.yaml')

REQUIRED = {'VIRTBMC_VM': 'lab/node-0', 'VIRTBMC_AUTH_FOLDER': '/etc/auth'}


class ReadTest(base.BaseTestCase):

    def test_defaults(self):
        settings = command.read(REQUIRED)
        self.assertEqual(
            ('lab/node-0', '/etc/auth', '::', 6230),
            (settings.vm, settings.folder, settings.address, settings.port))
        self.assertEqual(
            'RerunOnFailure',
            settings.machine_options.run_strategy)
        self.assertEqual(7, settings.machine_options.write_deadline)
        self.assertEqual(300, settings.machine_options.watch_seconds)
        self.assertTrue(settings.machine_options.reconcile)

    def test_reads_all_variables(self):
        settings = command.read(dict(
            REQUIRED, POD_IP='10.0.0.7', VIRTBMC_PORT='623',
            VIRTBMC_RUN_STRATEGY='Manual', VIRTBMC_SERVICE_PORT='1623',
            VIRTBMC_ACCOUNT_MANAGEMENT='false'))
        self.assertFalse(settings.account_management)
        self.assertEqual(('10.0.0.7', 623, 1623, 'Manual'), (
            settings.address, settings.port, settings.client_port,
            settings.machine_options.run_strategy))

    def test_error_names_invalid_variable(self):
        for name, value in (
                ('VIRTBMC_VM', ''), ('VIRTBMC_VM', 'node-0'),
                ('VIRTBMC_VM', 'a/b/c'), ('VIRTBMC_VM', 'a/b\n'),
                ('VIRTBMC_VM', 'a/..'), ('VIRTBMC_AUTH_FOLDER', ''),
                ('VIRTBMC_PORT', '-1'), ('VIRTBMC_PORT', '65536'),
                ('VIRTBMC_SERVICE_PORT', 'x'),
                ('VIRTBMC_RUN_STRATEGY', 'Halted'),
                ('VIRTBMC_RUN_STRATEGY', 'once'),
                ('VIRTBMC_ACCOUNT_MANAGEMENT', 'no')):
            with self.assertRaisesRegex(command.Invalid, name):
                command.read(dict(REQUIRED, **{name: value}))

    def test_matches_deployment_of_the_operator(self):
        # The operator does not import this package; both define names.
        for strategy in run_strategy.STARTABLE:
            bmc = bodies.bmc(runStrategy=strategy)
            container, = [one for one in deployments.deployment(
                bmc, deployments.Defaults('any'))['spec']['template']['spec'][
                    'containers']]
            environ = {one['name']: one.get('value', '10.0.0.7')
                       for one in container['env']}
            settings = command.read(environ)
            self.assertEqual(
                ('lab/vm', config_map.AUTH_FOLDER, '10.0.0.7',
                 deployments.IPMI_PORT, 623),
                (settings.vm, settings.folder, settings.address,
                 settings.port, settings.client_port))
            self.assertEqual(strategy, settings.machine_options.run_strategy)
            self.assertEqual(config_map.WATCH_SECONDS,
                             settings.machine_options.watch_seconds)
            self.assertTrue(settings.account_management)
        self.assertEqual(
            (deployments.IPMI_PORT, deployments.HEALTH_PORT),
            (command.read(REQUIRED).port, command.HEALTH_PORT))

    def test_run_strategies_match_crd(self):
        definition = yaml.safe_load(CRD.read_text())
        spec = definition['spec']['versions'][0]['schema'][
            'openAPIV3Schema']['properties']['spec']['properties']
        self.assertEqual(set(run_strategy.STARTABLE),
                         set(spec['runStrategy']['enum']))


class MainTest(base.BaseTestCase):

    PROGRAMS = {'sushy-kubevirt-bmc': command.main,
                'sushy-kubevirt-redfish': command.redfish,
                'sushy-kubevirt-ipmi': command.ipmi}

    IPMI = {'POD_IP', 'VIRTBMC_HEALTH_PORT', 'VIRTBMC_PORT',
            'VIRTBMC_SERVICE_PORT', 'VIRTBMC_RUN_STRATEGY',
            'VIRTBMC_ACCOUNT_MANAGEMENT', *REQUIRED}
    REDFISH = {'POD_IP', 'VIRTBMC_HEALTH_PORT', 'VIRTBMC_HTTP_PORT',
               'SUSHY_EMULATOR_CONFIG', 'VIRTBMC_OPTIONS'}

    def setUp(self):
        super().setUp()
        # It stays in this process.
        patch = mock.patch.object(command.rare_modules, 'defer')
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(gc.enable)

    def main(self, program, *argv, **environ):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err), \
                mock.patch.dict(command.os.environ, environ, clear=True):
            return (self.PROGRAMS[program](list(argv)), out.getvalue(),
                    err.getvalue())

    def test_help_lists_variables(self):
        for program, names in (
                ('sushy-kubevirt-bmc', self.IPMI | self.REDFISH | {
                    'VIRTBMC_SHARED', 'VIRTBMC_OPTIONS_FOLDER'}),
                ('sushy-kubevirt-redfish', self.REDFISH),
                ('sushy-kubevirt-ipmi', self.IPMI)):
            code, out, err = self.main(program, '--help')
            self.assertEqual((0, ''), (code, err))
            listed = set(re.findall(r'(?m)^  ([A-Z_]+)', out))
            self.assertEqual(names, listed)
            self.assertIn(f'(default: {command.HEALTH_PORT})', out)
            self.assertLessEqual(max(map(len, out.splitlines())), 79)

    def test_version(self):
        for program in self.PROGRAMS:
            code, out, err = self.main(program, '--version')
            self.assertEqual((0, ''), (code, err))
            self.assertRegex(out, rf'^{program} \d+\.\d+')

    def test_unknown_option_is_usage_error(self):
        for program in self.PROGRAMS:
            code, out, err = self.main(program, '--port', '1')
            self.assertEqual((2, ''), (code, out))
            self.assertIn('usage', err)

    def test_no_protocol_is_an_error(self):
        code, out, err = self.main('sushy-kubevirt-bmc')
        self.assertEqual((2, ''), (code, out))
        self.assertIn('VIRTBMC_PORT', err)
        self.assertIn('SUSHY_EMULATOR_CONFIG or VIRTBMC_OPTIONS', err)

    def test_invalid_environment_is_an_error(self):
        for program, environ, name in (
                ('sushy-kubevirt-ipmi', {}, 'VIRTBMC_VM'),
                ('sushy-kubevirt-bmc', {'VIRTBMC_PORT': '0'}, 'VIRTBMC_VM'),
                ('sushy-kubevirt-redfish', {}, 'SUSHY_EMULATOR_CONFIG'),
                *(('sushy-kubevirt-redfish', {
                    'SUSHY_EMULATOR_CONFIG': '/x', name: value}, name)
                  for name in ('VIRTBMC_HEALTH_PORT', 'VIRTBMC_HTTP_PORT')
                  for value in ('x', '-1', '65536'))):
            code, out, err = self.main(program, **environ)
            self.assertEqual((2, ''), (code, out))
            self.assertIn(program + ': ', err)
            self.assertIn(name, err)
