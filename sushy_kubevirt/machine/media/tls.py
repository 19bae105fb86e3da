# SPDX-License-Identifier: Apache-2.0
"""Which servers of images are believed to be who they say.

The system's certificates, those of the operator's file and those that were
installed for a device count, all alike; CDI is given the latter two.
"""

import re
import ssl

from sushy_kubevirt.kube import errors

_CERTIFICATE = re.compile(
    r'-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----')


def certificates(text):
    """Take PEM apart.

    :returns: list of PEM texts, one a certificate, without what stands
        between them
    """
    return [found + '\n' for found in _CERTIFICATE.findall(text)]


def bundle(options, installed=''):
    """What servers are checked against beside the system's certificates.

    :param options: an `options.MediaOptions`
    :param installed: PEM of the certificates of the device
    :returns: PEM text; '' if there are none
    :raises: `errors.ConfigError`
    """
    found = []
    if options.ca_file:
        found += certificates(read(options.ca_file))
    found += certificates(installed)
    return ''.join(dict.fromkeys(found))


def read(path):
    """Read a file of certificates, which may have been replaced meanwhile.

    :raises: `errors.ConfigError`
    """
    try:
        with open(path, encoding='utf-8', errors='replace') as f:
            text = f.read()
    except OSError as e:
        raise errors.ConfigError('The certificates of %s cannot be read: %s'
                                 % (path, e.strerror)) from None
    if not certificates(text):
        raise errors.ConfigError(f'{path} holds no certificate')
    return text


def context(verify, pem='', system=True):
    """What TLS needs.

    :param verify: whether the server's certificate is checked
    :param pem: certificates to check it against
    :param system: whether the system's count as well
    :returns: `ssl.SSLContext`
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
        return made
    if system:
        made.load_default_certs()
    if pem:
        try:
            made.load_verify_locations(cadata=pem)
        except ssl.SSLError as e:
            raise errors.ConfigError(
                'The certificates to check servers against cannot be used: '
                '%s' % (e.reason or e)) from None
    # A server's own certificate may be installed in the place of its CA's;
    # CDI takes it for that too.
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return made
