# SPDX-License-Identifier: Apache-2.0
"""uv takes packages from where pip does."""

import os
import socket
import subprocess
import sys

import fixtures
from oslotest import base

from tests.fixtures import checkout

OTHER = 'http://127.0.0.1:1/other'


class IndexTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        # Nothing listens there.
        bound = socket.socket()
        self.addCleanup(bound.close)
        bound.bind(('127.0.0.1', 0))
        self.index = 'http://127.0.0.1:%d/simple' % bound.getsockname()[1]
        self.home = self.useFixture(fixtures.TempDir())

    def resolve(self, **variables):
        """Resolve a package, without cache and without retries."""
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(('PIP_', 'UV_'))}
        done = subprocess.run(
            [sys.executable, '-m', 'tools.uv', 'pip', 'compile', '--no-cache',
             self.home.join('requirements.in')], cwd=checkout.ROOT, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=120,
            env={**kept, 'HOME': self.home.path, 'UV_HTTP_RETRIES': '0',
                 **variables})
        self.assertNotEqual(0, done.returncode)
        return done.stdout

    def test_index(self):
        with open(self.home.join('requirements.in'), 'w') as stream:
            stream.write('six\n')
        config = self.home.join('pip.conf')
        with open(config, 'w') as stream:
            stream.write(f'[global]\nindex-url = {OTHER}\n'
                         f'[install]\nindex-url = {self.index}\n')
        other = self.home.join('other.conf')
        with open(other, 'w') as stream:
            stream.write(f'[install]\nindex-url = {OTHER}\n')
        for variables in ({'PIP_CONFIG_FILE': config},
                          {'PIP_INDEX_URL': self.index},
                          {'PIP_CONFIG_FILE': other,
                           'PIP_INDEX_URL': self.index},
                          {'PIP_INDEX_URL': OTHER,
                           'UV_DEFAULT_INDEX': self.index}):
            with self.subTest(variables):
                self.assertIn(self.index, self.resolve(**variables))
