# SPDX-License-Identifier: Apache-2.0
"""The documentation covers every option."""

import argparse
import pathlib
import re

from oslotest import base

from sushy_kubevirt.emulator import settings
from sushy_kubevirt.machine import options
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator.diagnose import command
from sushy_kubevirt.operator.metal3 import claim_kubeconfig
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
        for name in options.Options._fields:
            if name != 'media':
                self.assert_documented(name)
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

    def test_options_of_claim_kubeconfig_are_documented(self):
        text = (ROOT / 'doc/source/operator/metal3.rst').read_text()
        self.assert_options_documented(claim_kubeconfig.parser(), text)

    def test_operator_metrics_are_documented(self):
        text = (ROOT / 'doc/source/operator/running.rst').read_text()
        exported = metrics.Metrics()
        exported.bmcs = {'ServiceReady': 1}
        exported.queue_length = 0
        for name in re.findall(r'(?m)^# TYPE (\S+)', exported.text().decode()):
            if not name.startswith('process_'):
                self.assert_documented(name, text)

    def test_sample_configuration_has_every_option(self):
        text = (ROOT / 'etc/sushy-emulator/kubevirt.conf').read_text()
        for name in settings.OPTIONS:
            self.assertIn(f'\n# {name} = ', text)


class DevStackTestCase(base.BaseTestCase):

    #: Folders, which users do not change.
    INTERNAL = {'SUSHY_KUBEVIRT_DIR', 'SUSHY_KUBEVIRT_DATA_DIR',
                'SUSHY_KUBEVIRT_VENV'}

    def test_settings(self):
        folder = ROOT / 'devstack'
        declared = {name for file in ('settings', 'override-defaults')
                    for name in re.findall(
                        r'(?m)^ *(SUSHY_KUBEVIRT_\w+)=',
                        (folder / file).read_text())}
        shown = set(re.findall(r'``(SUSHY_KUBEVIRT_\w+)',
                               (folder / 'README.rst').read_text()))
        self.assertEqual(declared - self.INTERNAL, shown)

    def test_variables_of_nodes(self):
        folder = ROOT / 'devstack'
        text = (folder / 'README.rst').read_text()
        for name in re.findall(r'\$\{(IRONIC_\w+)\}', (
                folder / 'files' / 'cluster.yaml').read_text()):
            self.assertIn(f'``{name}``', text)


class ReadmeTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.text = (ROOT / 'README.rst').read_text()

    def test_is_short(self):
        lines = self.text.splitlines()
        self.assertLessEqual(len(lines), 150)
        for line in '    tools/demo', '    tools/test':
            self.assertIn(line, lines[:40])

    def test_links(self):
        """They point to files that exist, and to no parts of them."""
        targets = re.findall(r'(?m)<([^<>`]+)>`_|^   :target: (\S+)$',
                             self.text)
        paths = [one or other for one, other in targets
                 if not one.startswith('https://')]
        self.assertGreater(len(paths), 20)
        self.assertEqual([], [path for path in paths
                              if not (ROOT / path).is_file()])


class PicturesTestCase(base.BaseTestCase):

    #: Bytes; see `tools.web_pictures`.
    LIMIT = 60_000

    def test_pictures_of_the_web_page(self):
        """They exist, are small, and are shown."""
        folder = ROOT / 'doc' / 'source'
        shown = {(base_folder / name).resolve()
                 for page, base_folder in (
                     (folder / 'web.rst', folder), (ROOT / 'README.rst', ROOT))
                 for name in re.findall(r'(?m)^\.\. image:: (\S+)$',
                                        page.read_text())}
        self.assertEqual(set((folder / '_static' / 'web').iterdir()), shown)
        self.assertEqual([], [one for one in shown
                              if one.stat().st_size > self.LIMIT])
