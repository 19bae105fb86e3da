# SPDX-License-Identifier: Apache-2.0
"""Style of shell scripts."""

import configparser
import re
import shlex
import subprocess

from oslotest import base

from tests.devstack import case
from tests.fixtures import checkout
from tests.fixtures import containerfile


def scripts():
    """List the shell scripts that git tracks."""
    for name in containerfile.tracked('.'):
        with open(checkout.ROOT / name, 'rb') as stream:
            if re.match(rb'#!/bin/(ba)?sh', stream.readline()):
                yield name


def run(*words):
    return subprocess.run(
        words, cwd=checkout.ROOT, stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class ShellTestCase(base.BaseTestCase):

    def test_bashate(self):
        tox = configparser.ConfigParser(interpolation=None)
        tox.read(checkout.ROOT / 'tox.ini')
        command, *words = shlex.split(
            tox['testenv:bashate']['commands'].replace('\\\n', ' '))
        self.assertEqual('bashate', command)
        self.assertEqual(set(scripts()), {
            word for word in words if not word.startswith('-')})
        done = run(case.BIN / command, *words)
        self.assertEqual((0, ''), (done.returncode, done.stdout))

    def test_shellcheck(self):
        # SC2065 takes tools/test for the command test.
        done = run('shellcheck', '--external-sources', '--exclude=SC2065',
                   '--severity=warning', *scripts())
        self.assertEqual((0, ''), (done.returncode, done.stdout))

    def test_shellcheck_of_the_plugin(self):
        done = run('shellcheck', '--external-sources', *(
            name for name in scripts() if name.startswith('devstack/')))
        self.assertEqual((0, ''), (done.returncode, done.stdout))
