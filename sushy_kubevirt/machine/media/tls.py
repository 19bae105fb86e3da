# SPDX-License-Identifier: Apache-2.0
"""Certificates and TLS contexts for connections to image servers.

Servers are verified against the system's certificates, those in the
operator's file and those installed for a device; CDI gets the latter two.
"""

from __future__ import annotations

import re
import ssl
import typing

from sushy_kubevirt.kube import errors

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import options

#: A certificate in PEM text. Only its ends are found here; OpenSSL parses it
#: (`context`, `ca_certificates.add`). `cryptography.x509` could do both, but
#: importing it adds 7.7 MiB (PSS) and 40 ms to a BMC process of 18 MiB that
#: does not need it otherwise.
_CERTIFICATE = re.compile(
    r'-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----')


def certificates(text: str) -> list[str]:
    """Split PEM text into certificates, without text in between."""
    return [certificate + '\n' for certificate in _CERTIFICATE.findall(text)]


def bundle(options: options.MediaOptions, installed: str = '') -> str:
    """Collect the certificates to verify servers against, besides the
    system's.

    :param installed: PEM of the certificates of the device
    :returns: PEM text; '' for none
    :raises: `errors.ConfigError`
    """
    trusted = []
    if options.ca_file:
        trusted += certificates(read(options.ca_file))
    trusted += certificates(installed)
    return ''.join(dict.fromkeys(trusted))


def read(path: str) -> str:
    """Read a file of certificates, which may have been replaced meanwhile.

    :raises: `errors.ConfigError`
    """
    try:
        with open(path, encoding='utf-8', errors='replace') as f:
            text = f.read()
    except OSError as e:
        raise errors.ConfigError(
            f'The certificates in {path} cannot be read: {e.strerror}'
        ) from None
    if not certificates(text):
        raise errors.ConfigError(f'{path} contains no PEM certificate')
    return text


def context(verify: bool, pem: str = '', system: bool = True
            ) -> ssl.SSLContext:
    """Create a client TLS context.

    :param verify: whether the server's certificate is verified
    :param pem: PEM of certificates to verify it against
    :param system: whether the system's certificates are used as well
    """
    created = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not verify:
        created.check_hostname = False
        created.verify_mode = ssl.CERT_NONE
        return created
    if system:
        created.load_default_certs()
    if pem:
        try:
            created.load_verify_locations(cadata=pem)
        except ssl.SSLError as e:
            raise errors.ConfigError(
                'The certificates to verify servers against cannot be used: '
                f'{e.reason or e}') from None
    # A server's own certificate may be installed instead of its CA's, as CDI
    # accepts it too.
    created.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return created
