# SPDX-License-Identifier: Apache-2.0
"""TLS of the Redfish server, with the certificate as it is on disk now.

Whoever mounts certificates renews them while the server runs. The files are
looked at when somebody connects, which costs a few calls of the kernel, and
nothing while nobody does.
"""

import logging
import os
import ssl

LOG = logging.getLogger(__name__)

#: OpenSSL keeps sessions of TLS 1.2 for clients that come again, thousands
#: of them at some KiB each. After so many, it begins anew.
_SESSIONS = 200


class Certificate:
    """A certificate and its key, in files.

    For one thread.

    :param certificate: path; PEM, with what leads to its authority
    :param key: path; PEM, without a password
    :raises: OSError if they cannot be used, with both in its text
    """

    def __init__(self, certificate, key):
        self._paths = (certificate, key)
        self._seen = self._look()
        self._refused = None
        try:
            self._context = self._load()
        except OSError as exc:
            raise OSError(exc.errno, 'The certificate %s and its key %s '
                          'cannot be used: %s' % (*self._paths, _why(exc))
                          ) from None

    def context(self):
        """What to serve the next connection with.

        Files that cannot be used, as while they are being written, leave the
        certificate that there was.

        :returns: `ssl.SSLContext`
        """
        seen = self._look()
        full = self._context.session_stats()['number'] >= _SESSIONS
        if seen not in (self._seen, self._refused) or (
                full and seen == self._seen):
            self._take(seen)
        return self._context

    def _take(self, seen):
        try:
            made = self._load()
        except OSError as exc:
            self._refused = seen
            LOG.error('The certificate %s and its key cannot be used; the '
                      'one read before still is: %s', self._paths[0],
                      _why(exc))
            return
        if self._look() != seen:
            # Changed meanwhile, so the two may not belong together.
            return
        if seen != self._seen:
            LOG.info('The certificate %s was renewed', self._paths[0])
        self._context, self._seen, self._refused = made, seen, None

    def _look(self):
        """What changes with the files; of one that is not there, None."""
        found = []
        for path in self._paths:
            try:
                about = os.stat(path)
            except OSError:
                found.append(None)
            else:
                found.append((about.st_dev, about.st_ino, about.st_mtime_ns,
                              about.st_size))
        return found

    def _load(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A password would be asked for on a terminal that there is not.
        context.load_cert_chain(*self._paths, password='')
        return context


def _why(exc):
    # An `ssl.SSLError` is an OSError, too.
    return getattr(exc, 'reason', None) or exc.strerror
