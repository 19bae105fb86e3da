# SPDX-License-Identifier: Apache-2.0
"""Fixture with a TLS server certificate for this host, as files."""

import pathlib

import fixtures

from kubevirt_sandbox.api import certificates

#: Create a certificate and its certificate authority, in memory.
make = certificates.make


class Certificate(fixtures.Fixture):
    """A server certificate signed by its own certificate authority.

    :param names: DNS names and IP addresses that the certificate covers.

    ``certificate``, ``key`` and ``ca`` are the paths of PEM files; ``tls``
    is the tuple of all three, for fixtures of TLS servers.
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
