# SPDX-License-Identifier: Apache-2.0
"""The scripts of ``findings/``."""

import os
import re
from unittest import mock

import fixtures
from oslotest import base

from tests.fixtures import checkout
from tools.checks import suites

FOLDER = checkout.ROOT / 'findings'
SCRIPTS = sorted(FOLDER.glob('*.sh'))


class FindingsTestCase(base.BaseTestCase):

    def test_readme_lists_each_script_with_its_title(self):
        text = (FOLDER / 'README.rst').read_text()
        rows = {}
        for line in text.split('Finding\n')[1].splitlines()[1:]:
            if line.startswith('='):
                break
            if match := re.match(r'``([\w-]+)``', line):
                name, line = match[1], line[match.end():]
            rows[name] = f'{rows.get(name, "")} {line.strip()}'.strip()
        self.assertEqual(
            {script.stem: script.read_text().splitlines()[3][2:]
             for script in SCRIPTS}, rows)

    def test_scripts_are_strict_clean_up_and_do_not_wait(self):
        for script in SCRIPTS:
            text = script.read_text()
            self.assertTrue(os.access(script, os.X_OK), script.name)
            self.assertTrue(text.startswith(
                '#!/bin/bash\n# SPDX-License-Identifier: Apache-2.0\n#\n# '))
            for part in ('\n# Behaviour: ', '\n# Seen', '\ntimeout ',
                         '\nset -euo pipefail\nfolder=$(mktemp -d)\n'
                         'trap \'rm -rf "$folder"\' EXIT\ncd "$folder"\n'):
                self.assertIn(part, text, script.name)
            self.assertNotIn('sleep', text, script.name)

    def test_each_script_is_one_test(self):
        run = mock.Mock(side_effect=[suites.Result(failed=1)]
                        + [suites.Result(passed=1)] * (len(SCRIPTS) - 1))
        self.useFixture(fixtures.MockPatchObject(suites, 'run_as_test', run))
        self.assertEqual(suites.Result(len(SCRIPTS) - 1, 1),
                         suites.findings(None))
        self.assertEqual(SCRIPTS, [call.args[0] for call in
                                   run.call_args_list])
