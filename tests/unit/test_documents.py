# SPDX-License-Identifier: Apache-2.0
"""The documentation covers every option."""

import argparse
import dataclasses
import pathlib
import re

from oslotest import base

from sushy_kubevirt.emulator import settings
from sushy_kubevirt.machine import options
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator.diagnose import command
from sushy_kubevirt.operator import metrics
from vbmc_kubevirt import drivers

ROOT = pathlib.Path(__file__).parents[2]


class OptionsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.text = (ROOT / 'doc/source/configure.rst').read_text()

    def assert_documented(self, name, text=None):
        # The option must be a term of a definition list, alone or with
        # others on the line.
        for line in (text or self.text).splitlines():
            if line.lstrip().startswith('``') and (
                    f'``{name}``' in line or f'``{name} ' in line):
                return
        self.fail(f'the documents do not explain {name}')

    def assert_options_documented(self, parser, text=None):
        for action in parser._actions:
            for option in action.option_strings:
                if option.startswith('--') and option != '--help':
                    self.assert_documented(option, text)

    def test_emulator_options_are_documented(self):
        for name in settings.OPTIONS:
            self.assert_documented(name)

    def test_vbmcd_options_are_documented(self):
        for field in dataclasses.fields(options.Options):
            if field.name != 'media':
                self.assert_documented(field.name)
        for name in 'kubeconfig', 'context', 'namespace':
            self.assert_documented(name)

    def test_vbmc_add_options_are_documented(self):
        for driver in drivers.load().values():
            parser = argparse.ArgumentParser()
            driver.add_arguments(parser)
            self.assert_options_documented(parser)
        self.assert_documented('--driver')

    def test_operator_options_are_documented(self):
        text = (ROOT / 'doc/source/operator/running.rst').read_text()
        self.assert_options_documented(command_line.parser({}), text)

    def test_options_of_diagnose_are_documented(self):
        text = (ROOT / 'doc/source/operator/troubleshooting.rst').read_text()
        self.assert_options_documented(command.parser({}), text)

    def test_operator_metrics_are_documented(self):
        text = (ROOT / 'doc/source/operator/running.rst').read_text()
        exported = metrics.Metrics()
        exported.set_bmcs({'ServiceReady': 1})
        exported.set_queue_length(0)
        for name in re.findall(r'(?m)^# TYPE (\S+)', exported.text().decode()):
            if not name.startswith('process_'):
                self.assert_documented(name, text)

    def test_sample_configuration_has_every_option(self):
        text = (ROOT / 'etc/sushy-emulator/kubevirt.conf').read_text()
        for name in settings.OPTIONS:
            self.assertIn(f'\n# {name} = ', text)
