# SPDX-License-Identifier: Apache-2.0
"""The commands, where what they need is not installed."""

import configparser
from importlib import metadata
import pathlib
import re
import subprocess
import sys
import tempfile

from oslotest import base

ROOT = pathlib.Path(__file__).parents[2]

# Runs a command as if some modules were not there.
WITHOUT = """
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
    """:returns: dict of a command and where it begins, module:function"""
    return dict(line.split(' = ') for line in setup()['entry_points'][
        'console_scripts'].strip().splitlines())


def only_of(extra):
    """Modules that nothing but an extra brings, by what is declared."""
    declared = {line.partition('>')[0].lower()
                for line in setup()['extras'][extra].split('\n') if line}
    run = (ROOT / 'requirements.txt').read_text().lower()
    return {module for module, of in metadata.packages_distributions().items()
            if {one.lower() for one in of} & declared
            and not any(f'\n{one.lower()}>' in run for one in of)}


class WithoutExtrasTestCase(base.BaseTestCase):

    def run_without(self, command, modules, *words):
        return subprocess.run(
            [sys.executable, '-c', WITHOUT, ','.join(sorted(modules)),
             commands()[command], *words], capture_output=True, text=True,
            cwd=ROOT, timeout=60)

    def test_it_is_said(self):
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        path = pathlib.Path(home.name) / 'kubeconfig'
        path.write_text('{"clusters": [{"name": "c", "cluster": {"server": '
                        '"http://127.0.0.1:9"}}], "contexts": [{"name": "x", '
                        '"context": {"cluster": "c", "user": "u"}}], "users":'
                        ' [{"name": "u", "user": {}}], '
                        '"current-context": "x"}')
        modules = only_of('operator')
        self.assertIn('aiohttp', modules)
        done = self.run_without('sushy-kubevirt-operator', modules,
                                '--kubeconfig', str(path))
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertEqual(1, len(done.stderr.splitlines()), done.stderr)
        self.assertIn(re.search('no Python module (\\w+)',
                                done.stderr)[1], modules)
        self.assertIn("pip install '/path/to/clone[operator]'", done.stderr)

    def test_what_needs_none(self):
        modules = only_of('operator')
        for command in commands():
            done = self.run_without(command, modules, '--help')
            self.assertEqual(0, done.returncode, (command, done.stderr))
            self.assertNotIn('Traceback', done.stderr, command)
            self.assertTrue(done.stdout)
