# SPDX-License-Identifier: Apache-2.0

import pathlib
import re

from oslotest import base

from sushy_kubevirt import settings

CONFIG = (pathlib.Path(__file__).parents[2] / 'etc' / 'sushy-emulator'
          / 'kubevirt.conf')


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

    def test_all(self):
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
            SUSHY_EMULATOR_ALLOWED_INSTANCES=[
                'ns/vm', '6D8C9B464D5A4A469D530000000000AA'],
            SUSHY_EMULATOR_DISABLE_POWER_OFF=True)
        self.assertEqual(('/k', 'c', ('a', 'b'), 'x=y'), (
            found.kubeconfig, found.context, found.namespaces,
            found.label_selector))
        self.assertEqual(('Always', 7, 3.5, 4), (
            found.machine.run_strategy, found.machine.write_deadline,
            found.machine.read_deadline, found.machine.stale_seconds))
        self.assertEqual(
            {'ns/vm', '6d8c9b46-4d5a-4a46-9d53-0000000000aa'}, found.allowed)
        self.assertFalse(found.power_off)
        self.assertFalse(found.machine.reboot_policy)

    def test_all_namespaces(self):
        self.assertEqual(
            (), self.read(SUSHY_EMULATOR_KUBEVIRT_NAMESPACES='*').namespaces)

    def test_one_namespace(self):
        self.assertEqual(('a',), self.read(
            SUSHY_EMULATOR_KUBEVIRT_NAMESPACES='a').namespaces)

    def test_nobody_allowed(self):
        self.assertEqual(frozenset(), self.read(
            SUSHY_EMULATOR_ALLOWED_INSTANCES=[]).allowed)

    def test_names_are_allowed_of_one_namespace(self):
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

    def test_unknown(self):
        self.refused('SUSHY_EMULATOR_KUBEVIRT_NAMESPACES',
                     SUSHY_EMULATOR_KUBEVIRT_NAMESPACE='a')

    def test_wrong(self):
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

    def test_all_problems_at_once(self):
        self.refused(SUSHY_EMULATOR_KUBEVIRT_CONTEXT='',
                     SUSHY_EMULATOR_KUBEVIRT_VM='vm')

    def test_vm_and_namespaces(self):
        self.refused(SUSHY_EMULATOR_KUBEVIRT_VM='a/b',
                     SUSHY_EMULATOR_KUBEVIRT_NAMESPACES=['a'])


class TestConfigFile(base.BaseTestCase):

    def test_every_option_is_there(self):
        text = CONFIG.read_text()
        named = set(re.findall(r'^# (SUSHY_EMULATOR_KUBEVIRT_\w+) = ', text,
                               re.MULTILINE))
        self.assertEqual(set(settings.OPTIONS), named)

    def test_defaults_are_told_as_they_are(self):
        said = {}
        for name, value in re.findall(
                r'^# (SUSHY_EMULATOR_\w+) = (.*)$', CONFIG.read_text(),
                re.MULTILINE):
            said[name] = eval(value, {})
        self.assertEqual(settings.Settings(), settings.read(said))
