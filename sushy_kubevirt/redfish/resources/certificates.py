# SPDX-License-Identifier: Apache-2.0
"""Certificate v1.9 of media devices, and CertificateService v1.1.

Image servers are verified against these certificates.
"""

from __future__ import annotations

import re
import typing

import flask

from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.protocol import system_access
from sushy_kubevirt.redfish.resources import resource_paths
from sushy_kubevirt.redfish.resources import virtual_media

if typing.TYPE_CHECKING:
    from cryptography import x509

    from sushy_kubevirt.machine import machine
    from sushy_kubevirt.machine import media

SERVICE = '/redfish/v1/CertificateService'

_REPLACE = 'CertificateService.ReplaceCertificate'
_REPLACE_PATH = f'{SERVICE}/Actions/{_REPLACE}'
_PEM = 'PEM'

# CertificateUri of ReplaceCertificate: collection, identity, device,
# certificate.
_URI = ('(/redfish/v1/(?:Systems|Managers))/([^/]+)/VirtualMedia/'
        '([^/]+)/Certificates/([^/]+)/?')

# X.509 attribute type: property of Redfish's Identifier.
_NAMES = {'commonName': 'CommonName', 'organizationName': 'Organization',
          'organizationalUnitName': 'OrganizationalUnit',
          'localityName': 'City', 'stateOrProvinceName': 'State',
          'countryName': 'Country', 'emailAddress': 'Email'}


# Reading a certificate

def _parse_pem(text: str) -> tuple[str, x509.Certificate]:
    """Parse one certificate.

    :param text: PEM; text before and after the certificate is ignored
    :returns: PEM of the certificate alone, and what it contains
    :raises: `ValueError`, with a sentence for the client
    """
    # Imported on demand: it takes 8 MiB, and few processes need it.
    from cryptography.hazmat.primitives import serialization
    from cryptography import x509

    if 'PRIVATE KEY' in text:
        raise ValueError('It contains a private key; send the certificate '
                         'only.')
    try:
        certificates = x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        raise ValueError('It is not a certificate in PEM.') from None
    if len(certificates) != 1:
        raise ValueError(f'It contains {len(certificates)} certificates; send '
                         'one at a time.')
    pem = certificates[0].public_bytes(serialization.Encoding.PEM).decode()
    return pem, certificates[0]


def _identifier(name: x509.Name) -> dict[str, str]:
    """Convert a subject or issuer; of repeated attributes the first counts."""
    identifier: dict[str, str] = {}
    for attribute in name:
        known = _NAMES.get(attribute.oid._name)
        if known and isinstance(attribute.value, str):
            identifier.setdefault(known, attribute.value)
    return identifier


def _certificate_string(values: responses.Json, action: str | None = None
                        ) -> str:
    """Return the PEM of CertificateString, a property or parameter.

    :raises: `error_responses.RedfishError`, 400
    """
    name = 'CertificateString'
    try:
        return _parse_pem(values[name])[0]
    except ValueError as exc:
        if action:
            entry = messages.message('ActionParameterValueError', name,
                                     action, detail=str(exc))
        else:
            # Without the value, which may contain a private key.
            entry = messages.message(
                'PropertyValueFormatError', '…', name, detail=str(exc),
                related=['#/' + name])
        raise error_responses.RedfishError(400, entry) from None


# Certificates of a device

def collection(machine: machine.Machine, device: str) -> responses.Json:
    """GET …/VirtualMedia/<device>/Certificates"""
    device_id = virtual_media.find(machine, device).id
    return {
        **responses.collection(
            'Certificate', 'Certificate Collection',
            virtual_media.path(machine, device_id, 'Certificates'),
            _by_id(machine, device_id)),
        '@Redfish.SupportedCertificates': [_PEM],
    }


def add(machine: machine.Machine, device: str) -> flask.Response:
    """POST …/VirtualMedia/<device>/Certificates

    The certificate is used from the next insert on.
    """
    device_id = virtual_media.find(machine, device).id
    required = ('CertificateString', 'CertificateType')
    values = payload.properties(
        {'CertificateString': str, 'CertificateType': (_PEM,)}, required)
    added = machine.add_media_certificate(
        device_id, _certificate_string(values))
    flask.current_app.logger.info(
        'Certificate %s of %s of %s added', added.id, device_id,
        machine.qualified_name)
    return responses.created(_body(added, virtual_media.path(
        machine, device_id, 'Certificates', added.id)))


def _by_id(machine: machine.Machine, device_id: str
           ) -> dict[str, media.Certificate]:
    return {certificate.id: certificate
            for certificate in machine.media_certificates(device_id)}


def _find(machine: machine.Machine, device: str, cert_id: str
          ) -> tuple[str, media.Certificate]:
    """Find a certificate; return the id of its device with it."""
    device_id = virtual_media.find(machine, device).id
    return device_id, resource_paths.member(
        'Certificate', cert_id, _by_id(machine, device_id))


def resource(machine: machine.Machine, device: str, cert_id: str
             ) -> responses.Json:
    """GET …/VirtualMedia/<device>/Certificates/<cert_id>"""
    device_id, certificate = _find(machine, device, cert_id)
    return _body(certificate, virtual_media.path(
        machine, device_id, 'Certificates', cert_id))


def delete(machine: machine.Machine, device: str, cert_id: str) -> None:
    """DELETE …/VirtualMedia/<device>/Certificates/<cert_id>"""
    device_id, _certificate = _find(machine, device, cert_id)
    try:
        machine.delete_media_certificate(device_id, cert_id)
    except errors.InvalidValue:
        raise error_responses.resource_not_found(
            'Certificate', cert_id) from None
    flask.current_app.logger.info(
        'Certificate %s of %s of %s deleted', cert_id, device_id,
        machine.qualified_name)


def _body(certificate: media.Certificate, here: str) -> responses.Json:
    body: responses.Json = {
        '@odata.id': here,
        '@odata.type': '#Certificate.v1_9_1.Certificate',
        'Id': certificate.id,
        'Name': f'Certificate {certificate.id}',
        'Description': 'Trusted certificate for image servers',
        'CertificateString': certificate.pem,
        'CertificateType': _PEM,
    }
    try:
        _pem, content = _parse_pem(certificate.pem)
    except ValueError:
        # Other clients of Kubernetes can write the ConfigMap, too.
        return body
    from cryptography.hazmat.primitives import hashes

    body.update({
        'Subject': _identifier(content.subject),
        'Issuer': _identifier(content.issuer),
        'ValidNotBefore': content.not_valid_before_utc.isoformat(),
        'ValidNotAfter': content.not_valid_after_utc.isoformat(),
        'SerialNumber': _colons(content.serial_number.to_bytes(
            (content.serial_number.bit_length() + 7) // 8 or 1, 'big')),
        'Fingerprint': _colons(content.fingerprint(hashes.SHA256())),
        'FingerprintHashAlgorithm': 'TPM_ALG_SHA256',
    })
    return body


def _colons(digits: bytes) -> str:
    return digits.hex(':').upper()


# CertificateService

def service() -> responses.Json:
    """GET /redfish/v1/CertificateService"""
    return {
        '@odata.id': SERVICE,
        '@odata.type': '#CertificateService.v1_1_1.CertificateService',
        'Id': 'CertificateService',
        'Name': 'Certificate Service',
        'CertificateLocations': responses.link(
            SERVICE + '/CertificateLocations'),
        'Actions': {'#' + _REPLACE: {
            'target': _REPLACE_PATH,
            '@Redfish.ActionInfo':
                SERVICE + '/ReplaceCertificateActionInfo',
        }},
    }


def locations() -> responses.Json:
    """GET /redfish/v1/CertificateService/CertificateLocations

    Links to the certificates of all devices of all systems.
    """
    certificates = [
        responses.link(resource_paths.manager(
            machine, 'VirtualMedia', device.id, 'Certificates',
            certificate.id))
        for machine in application.current().systems.machines()
        for device in machine.media_devices()
        for certificate in machine.media_certificates(device.id)]
    return {
        '@odata.id': SERVICE + '/CertificateLocations',
        '@odata.type': '#CertificateLocations.v1_0_4.CertificateLocations',
        'Id': 'CertificateLocations',
        'Name': 'Certificate Locations',
        'Links': {'Certificates': certificates,
                  'Certificates@odata.count': len(certificates)},
    }


def replace_info() -> responses.Json:
    """GET …/CertificateService/ReplaceCertificateActionInfo"""
    return responses.action_info(
        SERVICE + '/ReplaceCertificateActionInfo',
        'Replace Certificate Action Info',
        responses.parameter('CertificateString', True),
        responses.parameter('CertificateType', True, values=[_PEM]),
        responses.parameter('CertificateUri', True, 'Object'))


def replace() -> flask.Response:
    """POST …/Actions/CertificateService.ReplaceCertificate

    Adds the new certificate, then deletes the old one if it is another.

    :returns: 204; Location has the path of the new certificate, which has
        its own Id
    :raises: `error_responses.RedfishError`: 400 invalid parameters, 404 no
        such certificate
    """
    # CertificateUri is a reference (DSP0268); sushy sends the plain path.
    values = payload.parameters(_REPLACE, {
        'CertificateString': str, 'CertificateType': (_PEM,),
        'CertificateUri': str | dict, 'Password': str | None},
        required=('CertificateString', 'CertificateType', 'CertificateUri'))
    uri = values['CertificateUri']
    if isinstance(uri, dict):
        uri = uri.get('@odata.id')
    match = re.fullmatch(_URI, uri) if isinstance(uri, str) else None
    if match is None:
        raise error_responses.base_error(404, 'ResourceMissingAtURI', uri)
    collection, identity, device, cert_id = match.groups()
    machine = system_access.find_machine(collection, identity)
    device_id, _certificate = _find(machine, device, cert_id)
    added = machine.add_media_certificate(
        device_id, _certificate_string(values, _REPLACE))
    if added.id != cert_id:
        try:
            delete(machine, device_id, cert_id)
        except errors.MachineError:
            machine.delete_media_certificate(device_id, added.id)
            raise
    answer = responses.no_content()
    answer.headers['Location'] = resource_paths.place(collection)(
        machine, 'VirtualMedia', device_id, 'Certificates', added.id)
    return answer


# Start of upstream's endpoints.
_MEDIA = 'VirtualMedia.virtual_media_'
_SERVICE = 'CertificateService.certificate_service_'

ROOT_LINKS = {'CertificateService': SERVICE}

_MANAGERS = (resource_paths.MANAGERS
             + '/<identity>/VirtualMedia/<device>/Certificates')

ROUTES = (
    routing.replace(_MEDIA + 'certificates', collection),
    routing.replace(_MEDIA + 'add_certificate', post=add),
    routing.replace(_MEDIA + 'get_certificate', resource),
    routing.replace(_MEDIA + 'delete_certificate', delete=delete),
    routing.add(_MANAGERS, collection, post=add),
    routing.add(_MANAGERS + '/<cert_id>', resource, delete=delete),
    routing.replace(_SERVICE + 'resource', service),
    routing.replace(_SERVICE + 'locations', locations),
    routing.replace(_SERVICE + 'replace_certificate', post=replace),
    routing.add(SERVICE + '/ReplaceCertificateActionInfo', replace_info),
)
