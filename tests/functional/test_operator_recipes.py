# SPDX-License-Identifier: Apache-2.0
"""The recipes of the documents do what they say, in their order."""

import pathlib
import re
import subprocess
import textwrap

import fixtures
import yaml

from tests.functional import operator
from tests.functional import process

PAGE = process.ROOT / 'doc/source/operator/recipes.rst'

#: What stands after a block that nobody can run here, with the reason.
NOT_RUN = '.. not run: '


def blocks(text):
    """Literal blocks of a page.

    :returns: list of (title of the section, text of the block, whether it is
        to be run)
    """
    found, title, lines = [], '', text.splitlines()
    for number, line in enumerate(lines):
        if re.fullmatch('=+', line) and lines[number - 1]:
            title = lines[number - 1]
        if not line.endswith('::') or line.startswith('..'):
            continue
        rest = lines[number + 1:]
        length = next((i for i, one in enumerate(rest)
                       if one and not one.startswith('    ')), len(rest))
        after = rest[length] if length < len(rest) else ''
        found.append((title, textwrap.dedent(
            '\n'.join(rest[:length])).strip('\n'),
            not after.startswith(NOT_RUN)))
    return found


class RecipesTestCase(operator.OperatorTestCase):

    def test_all(self):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (home / 'etc').symlink_to(process.ROOT / 'etc')
        script, manifests = ['set -e'], []
        for title, text, runs in blocks(PAGE.read_text()):
            if text.startswith('apiVersion:'):
                manifests.append(yaml.safe_load(text))
            elif runs:
                script += ['echo "## %s"' % title, text]
        self.assertGreater(len(script), 12)
        # An answer of HTTP that is no success is to end it too.
        script.insert(0, 'curl() { command curl -sS --fail-with-body '
                      '--max-time 30 --noproxy "*" "$@"; }')
        (home / 'script').write_text('\n'.join(script))
        done = subprocess.run(
            ['bash', 'script'], cwd=home, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=240, env=process.environment(
                home, {'KUBECONFIG': self.sandbox.kubeconfig}))
        self.assertEqual(0, done.returncode, done.stdout[-5000:])
        said = dict(re.findall(
            r'(?ms)^## ([^\n]+)\n(.*?)(?=^## |\Z)', done.stdout))
        self.assertIn('Chassis Power is off', said['Inside the cluster'])
        self.assertEqual(4, done.stdout.count('"PowerState":'))
        self.assertEqual([], self.owned())
        self.manifests_name_what_there_is(manifests)

    def manifests_name_what_there_is(self, manifests):
        """Names and paths in manifests of others are those of the BMC."""
        host, machine = manifests
        self.assertEqual('BareMetalHost', host['kind'])
        self.assertEqual(
            'redfish-virtualmedia://node-0-virtbmc.default.svc'
            '/redfish/v1/Systems/1', host['spec']['bmc']['address'])
        secret = yaml.safe_load(
            (operator.MANIFESTS / 'samples/secret.yaml').read_text())
        name = secret['metadata']['name']
        self.assertEqual(name, host['spec']['bmc']['credentialsName'])
        connection = machine['spec']['connection']
        self.assertEqual('node-0-virtbmc.default.svc', connection['host'])
        self.assertEqual(name, connection['authSecretRef']['name'])
