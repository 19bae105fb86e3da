# SPDX-License-Identifier: Apache-2.0
import argparse
import os

from cliff import commandmanager
import fixtures
from oslotest import base
from virtualbmc.cmd import vbmc

from vbmc_kubevirt import add_hook
from vbmc_kubevirt import drivers


class AddHookTest(base.BaseTestCase):

    def parse(self, *words):
        app = vbmc.VirtualBMCApp()
        found, name, rest = app.command_manager.find_command(['add'])
        command = found(app, None, cmd_name='add')
        return command.get_parser('vbmc add').parse_args(list(words))

    def test_vbmc_add_has_the_options(self):
        self.useFixture(fixtures.MonkeyPatch('os.getcwd', lambda: '/where'))
        options = self.parse('ns/vm', '--driver', 'kubevirt', '--namespace',
                             'ns', '--kubeconfig', 'sub/../k', '--context',
                             'c', '--port', '6230')
        self.assertEqual(
            ('ns/vm', 'kubevirt', 'ns', '/where/k', 'c', 6230),
            (options.domain_name, options.driver, options.namespace,
             options.kubeconfig, options.context, options.port))

    def test_options_default_to_none(self):
        options = self.parse('vm')
        self.assertEqual((None,) * 4, (
            options.driver, options.namespace, options.kubeconfig,
            options.context))

    def test_expands_home_directory_in_kubeconfig(self):
        self.assertEqual(os.path.expanduser('~/k'),
                         self.parse('vm', '--kubeconfig', '~/k').kubeconfig)

    def test_accepts_installed_drivers_only(self):
        self.assertEqual({'kubevirt', 'libvirt'}, set(drivers.load()))
        self.useFixture(fixtures.MockPatch('sys.stderr'))
        self.assertRaises(SystemExit, self.parse, 'vm', '--driver', 'x')

    def test_hook_leaves_parser_and_result(self):
        manager = commandmanager.CommandManager('virtualbmc')
        self.assertEqual('virtualbmc', manager.namespace)
        hook = add_hook.AddHook(None)
        parser = argparse.ArgumentParser()
        self.assertIs(parser, hook.get_parser(parser))
        self.assertEqual('', hook.get_epilog())
        self.assertEqual(7, hook.before(7))
        self.assertEqual(3, hook.after(7, 3))
