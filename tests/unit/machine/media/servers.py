# SPDX-License-Identifier: Apache-2.0
"""Servers of images, and an upload proxy, that do what a test says."""

import datetime
import ipaddress
import ssl

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography import x509
from cryptography.x509 import oid
import fixtures

from kubevirt_sandbox.testing import webserver


class Server(fixtures.Fixture):
    """An HTTP server on loopback.

    :param answer: function of the request's handler (an
        `http.server.BaseHTTPRequestHandler`), for every method
    :param pair: (certificate, key), PEM, to speak TLS with; see `pair`

    ``requests`` lists (method, path, headers) of what was asked.
    """

    def __init__(self, answer, pair=None):
        super().__init__()
        self.answer = answer
        self.pair = pair
        self.requests = []

    def _setUp(self):
        fixture = self

        class Handler(webserver.Handler):

            def handle_any(self):
                fixture.requests.append(
                    (self.command, self.path, dict(self.headers)))
                try:
                    fixture.answer(self)
                except OSError:
                    # Whoever asked has heard enough.
                    self.close_connection = True

            do_GET = do_HEAD = do_POST = handle_any

        context = None
        if self.pair:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            path = self.useFixture(fixtures.TempDir()).join('pair.pem')
            with open(path, 'w') as f:
                f.write(''.join(self.pair))
            context.load_cert_chain(path)
        server = self.useFixture(webserver.WebServer(Handler, context))
        self.port, self.url = server.port, server.url


def send(handler, code, body=b'', **headers):
    """Answer a request; headers with _ for -."""
    handler.send_response(code)
    for name, value in headers.items():
        handler.send_header(name.replace('_', '-'), str(value))
    if 'Content_Length' not in headers and (
            'Transfer_Encoding' not in headers):
        handler.send_header('Content-Length', str(len(body)))
    handler.end_headers()
    if handler.command != 'HEAD':
        handler.wfile.write(body)


def image(content, ranges=True, head=True):
    """What answers with an image as a good server does."""
    def answer(handler):
        if handler.command == 'HEAD' and not head:
            send(handler, 405)
            return
        wanted = handler.headers.get('Range')
        if ranges and wanted and handler.command == 'GET':
            last = int(wanted.rpartition('-')[2])
            part = content[:last + 1]
            send(handler, 206, part, Content_Range='bytes 0-%d/%d' % (
                len(part) - 1, len(content)))
            return
        send(handler, 200, content)
    return answer


def pair(name='127.0.0.1', ca=False, issuer=None):
    """Make a certificate.

    :param name: host or address it is for
    :param ca: whether it may sign others
    :param issuer: (certificate, key) that signs it; None for itself
    :returns: (certificate, key), PEM texts
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, name)])
    signer, signer_key = subject, key
    if issuer:
        signer = x509.load_pem_x509_certificate(issuer[0].encode()).subject
        signer_key = serialization.load_pem_private_key(
            issuer[1].encode(), None)
    try:
        alternative = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        alternative = x509.DNSName(name)
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    made = (x509.CertificateBuilder()
            .subject_name(subject).issuer_name(signer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day).not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(ca, None), True)
            .add_extension(x509.SubjectAlternativeName([alternative]), False)
            .sign(signer_key, hashes.SHA256()))
    return (made.public_bytes(serialization.Encoding.PEM).decode(),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption()).decode())
