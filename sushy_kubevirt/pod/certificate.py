# SPDX-License-Identifier: Apache-2.0
"""TLS certificate of the Redfish server, reloaded when its files change.

A mounted Secret is renewed while the server runs. The files are checked with
`os.stat` on each connection, so an idle server does nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.pod import secret_values

LOG = logging.getLogger(__name__)

#: Number of cached TLS 1.2 sessions after which a new context, with an empty
#: cache, is made. OpenSSL would cache thousands, at some KiB each.
_MAX_SESSIONS = 200

# Device, inode, time of modification in nanoseconds, and size of a file.
_Stamp: typing.TypeAlias = tuple[int, int, int, int]


class Certificate:
    """A certificate and its key, in files. Not thread-safe.

    :param certificate: path; PEM, with the intermediate certificates
    :param key: path; PEM, without a password
    :raises: OSError if they cannot be used; its text has both paths
    """

    def __init__(self, certificate: str, key: str) -> None:
        self._paths = (certificate, key)
        self._loaded_stamps = self._stamps()
        self._rejected_stamps: list[_Stamp | None] | None = None
        try:
            self._context = self._load()
        except OSError as exc:
            raise OSError(
                exc.errno, f'The certificate {certificate} and its key {key} '
                f'cannot be used: {_reason(exc)}') from None

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection.

        If the present files cannot be used, for example while they are being
        written, the previous certificate stays in use.
        """
        stamps = self._stamps()
        full = self._context.session_stats()['number'] >= _MAX_SESSIONS
        if stamps not in (self._loaded_stamps, self._rejected_stamps) or (
                full and stamps == self._loaded_stamps):
            self._reload(stamps)
        return self._context

    def _reload(self, stamps: list[_Stamp | None]) -> None:
        try:
            context = self._load()
        except OSError as exc:
            self._rejected_stamps = stamps
            LOG.error('The certificate %s and its key cannot be used; the '
                      'previous certificate stays in use: %s',
                      self._paths[0], _reason(exc))
            return
        if self._stamps() != stamps:
            # Changed meanwhile: certificate and key may not belong together.
            return
        if stamps != self._loaded_stamps:
            LOG.info('The certificate %s was renewed', self._paths[0])
        self._context = context
        self._loaded_stamps, self._rejected_stamps = stamps, None

    def _stamps(self) -> list[_Stamp | None]:
        """Return what changes with the files; None for a missing one."""
        stamps: list[_Stamp | None] = []
        for path in self._paths:
            try:
                stat = os.stat(path)
            except OSError:
                stamps.append(None)
            else:
                stamps.append((stat.st_dev, stat.st_ino, stat.st_mtime_ns,
                               stat.st_size))
        return stamps

    def _load(self) -> ssl.SSLContext:
        return _context(*self._paths)


class CertificateInMemory:
    """A certificate and its key that are in no file. Not thread-safe.

    :param secret: with the keys ``tls.crt`` and ``tls.key``, PEM
    :raises: OSError if they cannot be used
    """

    def __init__(self, secret: secret_values.SecretValues) -> None:
        self._secret = secret
        self._version = secret.version
        self._context = self._load()

    @property
    def problem(self) -> str:
        """Why the present values cannot be used; '' if they can."""
        if self._secret.version == self._version:
            return ''
        try:
            self._context = self._load()
        except OSError as exc:
            return str(exc)
        self._version = self._secret.version
        return ''

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        if self._context.session_stats()['number'] >= _MAX_SESSIONS and (
                self._secret.version == self._version):
            self._context = self._load()
        return self._context

    def _load(self) -> ssl.SSLContext:
        with contextlib.ExitStack() as files:
            paths = []
            for name in ('tls.crt', 'tls.key'):
                # OpenSSL reads files only. This one has no name, and no other
                # process can open it.
                stream = files.enter_context(open(
                    os.memfd_create(name, os.MFD_CLOEXEC), 'wb'))
                stream.write(self._secret.values.get(name, b''))
                stream.flush()
                paths.append(f'/proc/self/fd/{stream.fileno()}')
            try:
                return _context(*paths)
            except OSError as exc:
                raise OSError(
                    exc.errno, f'The certificate and key in Secret '
                    f'{self._secret} cannot be used: {_reason(exc)}'
                ) from None


def _context(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without a password OpenSSL would ask for one on the terminal.
    context.load_cert_chain(certificate, key, password='')
    return context


def _reason(exc: OSError) -> str | None:
    # `ssl.SSLError` is a subclass of OSError and has a `reason`.
    return getattr(exc, 'reason', None) or exc.strerror
