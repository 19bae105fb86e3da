# SPDX-License-Identifier: Apache-2.0
"""A certificate for a server on this host, as files."""

import pathlib

import fixtures

from kubevirt_sandbox.api import certificates

#: Make a certificate and the authority that signed it, in memory.
make = certificates.make


class Certificate(fixtures.Fixture):
    """A certificate of an authority of its own.

    :param names: names and addresses that it is good for.

    ``certificate``, ``key`` and ``ca`` are paths; ``tls`` is all three, as
    :class:`tests.fixtures.emulator.Emulator` takes them.
    """

    def __init__(self, names=('127.0.0.1', 'localhost')):
        super().__init__()
        self._names = list(names)

    def _setUp(self):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        made = certificates.make(self._names)
        self.certificate = home / 'server.crt'
        self.key = home / 'server.key'
        self.ca = home / 'ca.crt'
        self.certificate.write_bytes(made.certificate)
        self.key.write_bytes(made.key)
        self.ca.write_bytes(made.ca)
        self.tls = (self.certificate, self.key, self.ca)
