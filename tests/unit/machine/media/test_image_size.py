# SPDX-License-Identifier: Apache-2.0
import dataclasses
import socket
import socketserver
import struct
import threading
import time

import fixtures
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import image_size
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import options
from tests.fixtures import black_hole
from tests.fixtures import file_servers

OPTIONS = options.MediaOptions(allow_loopback=True, probe_seconds=10)

QCOW2 = b'QFI\xfb' + struct.pack('>IQIIQ', 3, 0, 0, 16, 5 << 30)


class ProbeTestCase(base.BaseTestCase):

    def serve(self, answer, pair=None):
        return self.useFixture(file_servers.Server(answer, pair))

    def probe(self, url, *credentials, verify=True, certificates='',
              **changes):
        return image_size.probe(
            model.Source(url, *credentials),
            dataclasses.replace(OPTIONS, **changes), verify, certificates)

    def refused(self, kind, *args, **kwargs):
        error = self.assertRaises(errors.MediaUnreachable, self.probe, *args,
                                  **kwargs)
        self.assertEqual(kind, error.kind, str(error))
        return error


class TestSize(ProbeTestCase):

    def test_size_from_head(self):
        server = self.serve(file_servers.image(b'x' * 5000))
        self.assertEqual(image_size.Probe(5000, 5000),
                         self.probe(server.url + '/a.ISO?x=y'))
        [(method, path, headers)] = server.requests
        self.assertEqual(('HEAD', '/a.ISO?x=y'), (method, path))
        self.assertEqual(f'127.0.0.1:{server.port}', headers['Host'])
        self.assertNotIn('Authorization', headers)

    def test_size_from_ranged_get(self):
        server = self.serve(file_servers.image(b'x' * 5000, head=False))
        self.assertEqual(image_size.Probe(5000, 5000),
                         self.probe(server.url + '/a.iso'))
        self.assertEqual(['HEAD', 'GET'], [each[0] for each in
                                           server.requests])
        self.assertEqual('bytes=0-511', server.requests[1][2]['Range'])

    def test_size_from_get_without_ranges(self):
        server = self.serve(file_servers.image(b'x' * 5000, ranges=False,
                                               head=False))
        self.assertEqual(image_size.Probe(5000, 5000),
                         self.probe(server.url + '/a.iso'))

    def test_get_after_head_is_disconnected(self):
        def answer(handler):
            if handler.command == 'HEAD':
                handler.connection.close()
                raise OSError
            file_servers.send(handler, 200, b'x' * 700)
        server = self.serve(answer)
        self.assertEqual(700, self.probe(server.url + '/a.iso').bytes)

    def test_unknown_size_needs_default(self):
        def answer(handler):
            handler.close_connection = True
            handler.send_response(200)
            handler.end_headers()
            if handler.command != 'HEAD':
                handler.wfile.write(b'x' * 5000)
        server = self.serve(answer)
        self.assertIn('Set default_size to', str(
            self.refused('size', server.url + '/a.iso')))
        self.assertTrue(str(self.refused(
            'size', server.url + '/a.iso', names={})).endswith(
                'its server does not report one'))
        self.assertEqual(
            image_size.Probe(1 << 30),
            self.probe(server.url + '/a.iso', default_size=1 << 30))

    def test_invalid_sizes_are_refused(self):
        for headers in ({'Content_Range': 'bytes 7-518/900'},
                        {'Content_Range': 'bytes 0-511/*'},
                        {'Content_Range': 'nonsense'}, {},
                        {'Content_Range': 'bytes 0-511/' + '9' * 30}):
            def answer(handler, headers=headers):
                if handler.command == 'HEAD':
                    file_servers.send(handler, 403)
                else:
                    file_servers.send(handler, 206, b'x' * 512, **headers)
            self.refused('size', self.serve(answer).url + '/a.iso')
        for length in '-1', '1e3', '9' * 40, '', '٣':
            def answer(handler, length=length):
                handler.close_connection = True
                handler.send_response(200)
                handler.wfile.write(b'')
                handler._headers_buffer.append(
                    b'Content-Length: %s\r\n' % length.encode())
                handler.end_headers()
            self.refused('size', self.serve(answer).url + '/a.iso')

    def test_empty_image_is_refused(self):
        server = self.serve(file_servers.image(b'', ranges=False))
        self.assertIn('is empty', str(
            self.refused('missing', server.url + '/a.iso')))

    def test_content_encoding_is_refused(self):
        def answer(handler):
            file_servers.send(handler, 200, b'x' * 600,
                              Content_Encoding='gzip')
        self.refused('size', self.serve(answer).url + '/a.iso')


class TestFormats(ProbeTestCase):

    def test_virtual_size_of_qcow2(self):
        server = self.serve(file_servers.image(QCOW2 + bytes(5000)))
        self.assertEqual(
            image_size.Probe(5 << 30, len(QCOW2) + 5000),
            self.probe(server.url + '/a.img'))

    def test_size_of_raw_image(self):
        server = self.serve(file_servers.image(bytes(70000)))
        self.assertEqual(image_size.Probe(70000, 70000),
                         self.probe(server.url + '/a.img'))

    def test_compressed_image_needs_default_size(self):
        server = self.serve(file_servers.image(b'\xfd7zXZ\x00' + bytes(5000)))
        self.assertIn('compressed (xz)', str(
            self.refused('size', server.url + '/a.xz')))
        self.assertEqual(1 << 30, self.probe(
            server.url + '/a.xz', default_size=1 << 30).bytes)

    def test_format_by_header(self):
        vmdk = b'KDMV' + bytes(8) + struct.pack('<Q', 2048)
        vdi = bytes(64) + b'\x7f\x10\xda\xbe' + bytes(300) + struct.pack(
            '<Q', 7 << 20)
        for head, expected in (
            (b'', image_size.Format()),
            (b'QFI\xfb', image_size.Format()),
            (QCOW2, image_size.Format(bytes=5 << 30)),
            (vmdk, image_size.Format(bytes=1 << 20)),
            (vdi, image_size.Format(bytes=7 << 20)),
            (b'\x1f\x8b\x08', image_size.Format('gz')),
            (b'\x28\xb5\x2f\xfd', image_size.Format('zst')),
            (bytes(512), image_size.Format()),
        ):
            self.assertEqual(expected, image_size.format_of(head))

    def test_implausible_virtual_size_is_refused(self):
        head = b'QFI\xfb' + struct.pack('>IQIIQ', 3, 0, 0, 16, 2 ** 63)
        server = self.serve(file_servers.image(head + bytes(600)))
        self.refused('size', server.url + '/a.img')


class TestRefusals(ProbeTestCase):

    def test_error_statuses(self):
        for code, kind in ((401, 'unauthorized'), (403, 'unauthorized'),
                           (404, 'missing'), (410, 'missing'),
                           (500, 'server'), (503, 'server'),
                           (400, 'unreachable')):
            server = self.serve(
                lambda handler, code=code: file_servers.send(handler, code))
            error = self.refused(kind, server.url + '/a.iso?sig=1',
                                 default_size=1 << 30
                                 if kind != 'unreachable' else None)
            self.assertIn(str(code), str(error))
            self.assertEqual(server.url + '/a.iso', error.url)

    def test_connection_refused(self):
        server = file_servers.Server(file_servers.image(b''))
        with server:
            url = server.url
        error = self.refused('unreachable', url + '/a.iso')
        self.assertIn('Connection refused', str(error))
        self.assertEqual(1 << 30, self.probe(
            url + '/a.iso', default_size=1 << 30).bytes)

    def test_no_response_at_all(self):
        port = self.useFixture(black_hole.BlackHole()).port
        error = self.refused('unreachable', f'http://127.0.0.1:{port}/a.iso',
                             probe_seconds=0.4)
        self.assertIn('no NetworkPolicy or firewall', str(error))

    def test_no_dns(self):
        self.useFixture(fixtures.MockPatchObject(
            socket, 'getaddrinfo', side_effect=socket.gaierror(
                socket.EAI_AGAIN, 'Temporary failure in name resolution')))
        error = self.refused('unreachable', 'http://images.test/a.iso')
        self.assertIn('Temporary failure in name resolution; check that no '
                      'NetworkPolicy', str(error))
        self.assertTrue(str(error).endswith(' to DNS'))

    def test_unknown_host(self):
        url = 'http://nobody.invalid/a.iso'
        self.refused('unreachable', url)
        # Its address cannot be checked, so the name must be allowed.
        self.refused('unreachable', url, default_size=1 << 30)
        self.refused('unreachable', url, default_size=1 << 30,
                     allowed_hosts=('10.0.0.0/8',))
        self.assertEqual(1 << 30, self.probe(
            url, default_size=1 << 30, allowed_hosts=('*.invalid',)).bytes)
        self.refused('unreachable', url, default_size=1 << 30,
                     allowed_hosts=('*',), denied_hosts=('10.96.0.0/12',))

    def test_forbidden_address_is_not_contacted(self):
        server = self.serve(file_servers.image(b'x'))
        self.assertRaises(errors.InvalidValue, self.probe,
                          server.url + '/a.iso', allow_loopback=False,
                          default_size=1 << 30)
        self.assertEqual([], server.requests)

    def test_response_that_is_not_http(self):
        def answer(handler):
            handler.close_connection = True
            handler.wfile.write(b'SSH-2.0-OpenSSH_9.2\r\n')
        error = self.refused('unreachable', self.serve(answer).url + '/a')
        self.assertNotIn('OpenSSH', str(error))

    def test_slow_response_times_out(self):
        def answer(handler):
            # Sends continuously and never ends.
            handler.wfile.write(b'HTTP/1.1 200 OK\r\n')
            for number in range(1000):
                handler.wfile.write(b'X-%d: y\r\n' % number)
                time.sleep(0.02)
        server = self.serve(answer)
        begun = time.monotonic()
        error = self.refused('unreachable', server.url + '/a',
                             probe_seconds=0.4)
        self.assertIn('in time', str(error))
        self.assertLess(time.monotonic() - begun, 15)

    def test_endless_body_is_not_read(self):
        def answer(handler):
            if handler.command == 'HEAD':
                file_servers.send(handler, 405)
                return
            handler.send_response(200)
            handler.send_header('Content-Length', str(10 << 40))
            handler.end_headers()
            while True:
                handler.wfile.write(bytes(65536))
        server = self.serve(answer)
        self.assertEqual(10 << 40, self.probe(server.url + '/a.iso').bytes)


class TestNames(ProbeTestCase):

    def resolve_to(self, *answers):
        """Resolve images.test to the next of these addresses at a lookup."""
        real, lookups = socket.getaddrinfo, []
        answers = iter(answers)

        def getaddrinfo(host, port, *args, **kwargs):
            if host == 'images.test':
                lookups.append(host)
                host = next(answers)
            return real(host, port, *args, **kwargs)
        self.useFixture(fixtures.MockPatchObject(
            socket, 'getaddrinfo', getaddrinfo))
        return lookups

    def test_connects_to_checked_address(self):
        # The name resolves to another address at the second lookup.
        lookups = self.resolve_to('127.0.0.1', '169.254.169.254')
        server = self.serve(file_servers.image(b'x' * 10))
        where = f'images.test:{server.port}'
        self.assertEqual(10, self.probe(f'http://{where}/a.iso').bytes)
        self.assertEqual(1, len(lookups))
        self.assertEqual(where, server.requests[0][2]['Host'])
        self.assertRaises(errors.InvalidValue, self.probe,
                          f'http://{where}/a.iso')
        self.assertEqual(1, len(server.requests))

    def test_certificate_is_checked_for_host_name(self):
        self.resolve_to(*['127.0.0.1'] * 3)
        pair = file_servers.pair('images.test')
        server = self.serve(file_servers.image(b'x' * 10), pair)
        url = f'https://images.test:{server.port}/a.iso'
        self.assertEqual(10, self.probe(url, certificates=pair[0]).bytes)
        other = file_servers.pair()
        server = self.serve(file_servers.image(b'x' * 10), other)
        url = f'https://images.test:{server.port}/a.iso'
        self.refused('tls', url, certificates=other[0])

    def test_tries_next_address(self):
        server = self.serve(file_servers.image(b'x' * 10))

        def getaddrinfo(host, port, *_args, **_kwargs):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, '',
                     (address, port)) for address in (
                         (host,) if host[0] == '1'
                         else ('127.9.9.9', '127.0.0.1'))]
        self.useFixture(fixtures.MockPatchObject(
            socket, 'getaddrinfo', getaddrinfo))
        self.assertEqual(10, self.probe(
            f'http://images.test:{server.port}/a.iso').bytes)


class TestCredentials(ProbeTestCase):

    def test_credentials_are_sent(self):
        server = self.serve(file_servers.image(b'x' * 10))
        self.probe(server.url + '/a.iso', 'me', 'pä:ss')
        self.assertEqual('Basic bWU6cMOkOnNz',
                         server.requests[0][2]['Authorization'])

    def test_credentials_are_not_sent_to_other_hosts(self):
        other = self.serve(file_servers.image(b'x' * 10))
        server = self.serve(lambda handler: file_servers.send(
            handler, 302, Location=(
                '/there' if handler.path == '/here' else other.url + '/x')))
        self.assertEqual(10, self.probe(server.url + '/here', 'me',
                                        'secret').bytes)
        self.assertIn('Authorization', server.requests[1][2])
        self.assertNotIn('Authorization', other.requests[0][2])


class TestRedirects(ProbeTestCase):

    def redirecting_server(self, location, code=302, pair=None):
        return self.serve(lambda handler: file_servers.send(
            handler, code, Location=location), pair)

    def test_redirect_codes(self):
        target = self.serve(file_servers.image(b'x' * 10))
        for code in 301, 302, 303, 307, 308:
            server = self.redirecting_server(target.url + '/x.iso', code)
            self.assertEqual(10, self.probe(server.url + '/').bytes)

    def test_every_redirect_target_is_checked(self):
        target = self.serve(file_servers.image(b'x' * 10))
        for location in (
                'http://169.254.169.254/latest/meta-data',
                f'http://127.2.0.1:{target.port}/', 'ftp://127.0.0.1/',
                'file:///etc/passwd', 'http://2130706433/', 'http://:1/',
                'http://[::ffff:169.254.169.254]/', '//0.0.0.0/'):
            server = self.redirecting_server(location)
            error = self.assertRaises(
                errors.InvalidValue, self.probe, server.url + '/a.iso',
                allowed_hosts=('127.0.0.1', '169.254.0.0/16', '0.0.0.0/8'))
            self.assertIn('redirects', str(error))
        self.assertEqual([], target.requests)

    def test_redirect_to_closed_port(self):
        # Bound but not listening: no other program can listen there.
        with socket.socket() as bound:
            bound.bind(('127.0.0.1', 0))
            server = self.redirecting_server(
                f'http://127.0.0.1:{bound.getsockname()[1]}/')
            self.assertIn('refused', str(
                self.refused('unreachable', server.url + '/a.iso')))

    def test_connection_lost_during_tls_handshake(self):
        with socketserver.TCPServer(('127.0.0.1', 0),
                                    socketserver.BaseRequestHandler) as server:
            thread = threading.Thread(target=server.serve_forever,
                                      kwargs={'poll_interval': 0.01})
            thread.start()
            self.addCleanup(thread.join)
            self.addCleanup(server.shutdown)
            self.assertIn('closed the connection', str(self.refused(
                'unreachable',
                f'https://127.0.0.1:{server.server_address[1]}/a.iso')))

    def test_redirect_loop(self):
        server = self.serve(lambda handler: file_servers.send(
            handler, 302, Location='/x' + handler.path))
        self.assertIn('more than 5', str(
            self.refused('unreachable', server.url + '/a.iso')))

    def test_redirect_from_https_to_http_is_refused(self):
        target = self.serve(file_servers.image(b'x' * 10))
        pair = file_servers.pair()
        server = self.redirecting_server(target.url + '/x', pair=pair)
        self.refused('tls', server.url + '/a.iso', certificates=pair[0])
        self.assertEqual([], target.requests)


class TestTls(ProbeTestCase):

    def test_certificate_is_verified(self):
        ca = file_servers.pair('CA', ca=True)
        server = self.serve(file_servers.image(b'x' * 10),
                            file_servers.pair(issuer=ca))
        url = server.url + '/a.iso'
        error = self.refused('tls', url, default_size=1 << 30)
        self.assertIn('VerifyCertificate', str(error))
        self.assertEqual([], server.requests)
        other = file_servers.pair('Other CA', ca=True)
        self.refused('tls', url, certificates=other[0])
        self.assertEqual(10, self.probe(
            url, certificates=other[0] + '\n' + ca[0]).bytes)
        self.assertEqual(10, self.probe(url, verify=False).bytes)

    def test_ca_file(self):
        ca = file_servers.pair('CA', ca=True)
        server = self.serve(file_servers.image(b'x' * 10),
                            file_servers.pair(issuer=ca))
        path = self.create_tempfiles([('ca', 'A comment\n' + ca[0])])[0]
        self.assertEqual(10, self.probe(server.url + '/a.iso',
                                        ca_file=path).bytes)
        self.assertRaises(errors.ConfigError, self.probe,
                          server.url + '/a.iso', ca_file='/nowhere')
        path = self.create_tempfiles([('none', 'nothing')])[0]
        self.assertRaises(errors.ConfigError, self.probe,
                          server.url + '/a.iso', ca_file=path)

    def test_self_signed_certificate(self):
        pair = file_servers.pair()
        server = self.serve(file_servers.image(b'x' * 10), pair)
        self.assertEqual(10, self.probe(server.url + '/a.iso',
                                        certificates=pair[0]).bytes)

    def test_certificate_for_another_name(self):
        pair = file_servers.pair('other.example')
        server = self.serve(file_servers.image(b'x' * 10), pair)
        self.refused('tls', server.url + '/a.iso', certificates=pair[0])

    def test_https_url_of_http_server(self):
        server = self.serve(file_servers.image(b'x'))
        self.refused('tls', server.url.replace('http:', 'https:') + '/a')
