# SPDX-License-Identifier: Apache-2.0
"""Checks the certificate of a BMC: its validity, its names and its issuer.

What makes a certificate of a user's unusable, or expired, is in the
conditions.
"""

from __future__ import annotations

from collections import abc
import datetime
import typing

from cryptography.hazmat.primitives import serialization
from cryptography import x509

from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import pki

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.diagnose import bmc as bmcs
    from sushy_kubevirt.operator.diagnose import reader as readers

#: Time before the end of a user's certificate at which to warn. Those of the
#: operator are renewed earlier.
SOON = datetime.timedelta(days=14)


def check(reader: readers.Reader, bmc: bmcs.Bmc,
          now: datetime.datetime | None = None
          ) -> abc.Iterator[findings.Finding]:
    """Check the certificate.

    :param bmc: has a Service, which serves HTTPS
    :param now: aware; default: the present
    """
    now = now or datetime.datetime.now(datetime.UTC)
    pem = bmc.certificate
    if pem is None:
        # A condition says so.
        return
    if bmc.served is not None and _der(pem) != bmc.served:
        yield findings.warning(
            'CertificateNotServed',
            'The server sends another certificate than that of its Secret.',
            'A pod gets a renewed one within two minutes. If this lasts, '
            'something between here and the pod answers in its place.')
    begin, end = pki.validity(pem)
    if bmc.spec.redfish.secret:
        if now < end < now + SOON:
            yield findings.warning(
                'CertificateExpiresSoon',
                f'The certificate in Secret {bmc.spec.namespace}/'
                f'{bmc.spec.redfish.secret} is valid until {end:%F} only.',
                'Renew it.')
        if begin <= now < end:
            yield _names(bmc, pem, end)
        return
    if not begin <= now < end:
        yield findings.problem(
            'CertificateExpired',
            f'The certificate is valid from {begin:%F} to {end:%F}: the '
            'operator has not renewed it.',
            'See the findings about the operator, and its log.')
        return
    yield from _issued(reader, bmc, pem, end)


def _der(pem: str) -> bytes:
    return x509.load_pem_x509_certificate(pem.encode()).public_bytes(
        serialization.Encoding.DER)


def _names(bmc: bmcs.Bmc, pem: str,
           end: datetime.datetime) -> findings.Finding:
    try:
        alternatives = x509.load_pem_x509_certificate(
            pem.encode()).extensions.get_extension_for_class(
                x509.SubjectAlternativeName).value
        names = [str(alternative.value) for alternative in alternatives]
    except Exception:
        # The library raises many kinds, such as x509.DuplicateExtension.
        names = []
    if not names:
        return findings.warning(
            'CertificateWithoutName',
            f'The certificate in Secret {bmc.spec.namespace}/'
            f'{bmc.spec.redfish.secret} has no subject alternative name that '
            'can be read: clients that verify it refuse the BMC.',
            'Issue it with the names that clients use.')
    more = f' and {len(names) - 8} more' if len(names) > 8 else ''
    return findings.ok(
        'CertificateValid',
        f"The certificate is valid until {end:%F}, for {', '.join(names[:8])}"
        f'{more}.')


def _issued(reader: readers.Reader, bmc: bmcs.Bmc, pem: str,
            end: datetime.datetime) -> abc.Iterator[findings.Finding]:
    """Check names and issuer of a certificate of the operator's."""
    bundle = reader.get(bmc_resources.CONFIG_MAP, bmc.spec.namespace,
                        naming.authority(bmc.spec.name))
    text = ((bundle or {}).get('data') or {}).get(endpoints.AUTHORITY_KEY, '')
    judged = bmc.verdict
    assert judged is not None and judged.service is not None
    names = endpoints.names(bmc.spec, judged.service, judged.vm_service,
                            judged.route)
    try:
        authorities = x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        yield findings.problem(
            'AuthorityNotPublished',
            f'ConfigMap {naming.authority(bmc.spec.name)} has no CA '
            'certificate for clients.', 'The operator restores it; see the '
            'findings about the operator, and its log.')
        return
    if not any(pki.is_issued_for(pem, names, authority.public_bytes(
            serialization.Encoding.PEM).decode())
            for authority in authorities):
        yield findings.problem(
            'CertificateOutdated',
            'The certificate is not one of the present authority for the '
            f"present names of the BMC, {', '.join(names[:4])} …",
            'The operator issues it again; see the findings about the '
            'operator, and its log.')
        return
    yield findings.ok(
        'CertificateValid',
        f'The certificate is valid until {end:%F}, for all names of the BMC, '
        'and verified by the CA in ConfigMap '
        f'{naming.authority(bmc.spec.name)}.')
