# SPDX-License-Identifier: Apache-2.0
"""The commands work with only the required packages installed."""

import configparser
import pathlib
import subprocess
import sys

from oslotest import base

ROOT = pathlib.Path(__file__).parents[2]

# Packages that tests and the sandbox need, but the product does not.
NOT_REQUIRED = ('aiohttp', 'kopf')

# Runs a command as if some modules were not installed.
RUN_WITHOUT = """
import importlib
import sys
for name in sys.argv.pop(1).split(','):
    sys.modules[name] = None
module, _, function = sys.argv.pop(1).partition(':')
sys.exit(getattr(importlib.import_module(module), function)())
"""


def setup():
    config = configparser.ConfigParser()
    config.read(ROOT / 'setup.cfg')
    return config


def commands():
    """Return a dict of commands and their entry points, module:function."""
    return dict(line.split(' = ') for line in setup()['entry_points'][
        'console_scripts'].strip().splitlines())


class HelpTestCase(base.BaseTestCase):

    def run_without(self, command, modules, *words):
        return subprocess.run(
            [sys.executable, '-c', RUN_WITHOUT, ','.join(sorted(modules)),
             commands()[command], *words], capture_output=True, text=True,
            cwd=ROOT, timeout=60)

    def test_help_without_optional_packages(self):
        for command in commands():
            done = self.run_without(command, NOT_REQUIRED, '--help')
            self.assertEqual(0, done.returncode, (command, done.stderr))
            self.assertNotIn('Traceback', done.stderr, command)
            self.assertTrue(done.stdout)
