# SPDX-License-Identifier: Apache-2.0
import io

from oslotest import base

from sushy_kubevirt.redfish.protocol import http_framing
from tests.fixtures import malformed_requests


class TestCheck(base.BaseTestCase):

    def code(self, protocol='HTTP/1.1', **headers):
        environ = {'SERVER_PROTOCOL': protocol, 'HTTP_HOST': 'x', **headers}
        code = http_framing.check(
            {name: value for name, value in environ.items()
             if value is not None})
        return code

    def test_host(self):
        for host in 'x', 'a_b.example:8000', 'x:', '10.0.0.1', '[::1]:443':
            self.assertIsNone(self.code(HTTP_HOST=host))
        for host in (None, '', 'x,x', 'a b', 'a@x', 'x:y', 'x:65536', '::1',
                     '[::1', '[1:2]', 'x/', '\xe9', '[10.0.0.1]'):
            self.assertEqual(400, self.code(HTTP_HOST=host), host)
        self.assertIsNone(self.code('HTTP/1.0', HTTP_HOST=None))
        self.assertEqual(400, self.code('HTTP/1.0', HTTP_HOST=''))

    def test_names_and_addresses(self):
        for host, name in (('X.Example:80', 'x.example'),
                           ('[::0001]:80', '::1'),
                           ('[fe80::1%25eth0]', 'fe80::1')):
            self.assertEqual(name, http_framing.host_name(host))

    def test_absolute_uri_replaces_host(self):
        environ = {'SERVER_PROTOCOL': 'HTTP/1.1', 'HTTP_HOST': 'x',
                   'REQUEST_URI': 'HTTP://y:80/redfish/v1/?a=http://z/'}
        self.assertIsNone(http_framing.check(environ))
        self.assertEqual('y:80', environ['HTTP_HOST'])
        for target in 'http:///x', 'http://a@y/', 'https://y:z':
            environ['REQUEST_URI'] = target
            self.assertEqual(400, http_framing.check(environ))

    def test_transfer_encoding(self):
        for coding, code in (
                ('chunked', None), (' Chunked', None), ('gzip', 400),
                ('chunked, gzip', 400), ('chunked, chunked', 400), ('', 400),
                ('gzip, chunked', 501), ('x\tchunked', 400)):
            self.assertEqual(code, self.code(HTTP_TRANSFER_ENCODING=coding))
        self.assertEqual(400, self.code('HTTP/1.0',
                                        HTTP_TRANSFER_ENCODING='chunked'))
        self.assertEqual(400, self.code(HTTP_TRANSFER_ENCODING='chunked',
                                        CONTENT_LENGTH='4'))

    def test_content_length(self):
        for length, code in (('4', None), ('', None), ('-4', 400),
                             ('\xb2', 400), ('4,4', 400),
                             (str(2 ** 64 - 1), None), ('0' * 5000, 400)):
            self.assertEqual(code, self.code(CONTENT_LENGTH=length))


class TestChunkedBody(base.BaseTestCase):

    def read(self, data):
        stream = io.BytesIO(data)
        body = http_framing.ChunkedBody(stream)
        return body.read(), stream.read()

    def test_reads_chunks_and_trailers(self):
        self.assertEqual((b'abcdef', b'rest'), self.read(
            b'3\r\nabc\r\n03;a;b="c\\"d"\r\ndef\r\n0\r\nX: y\r\n\r\nrest'))
        self.assertEqual((b'', b''), self.read(b'0\r\n\r\n'))

    def test_reads_into_a_small_buffer(self):
        body = http_framing.ChunkedBody(io.BytesIO(b'3\r\nabc\r\n0\r\n\r\n'))
        self.assertEqual([b'ab', b'c', b'', b''],
                         [body.read(2) for _ in range(4)])

    def test_refuses_malformed_chunks(self):
        for body in malformed_requests.CHUNKS.values():
            self.assertRaises(OSError, self.read, body)
        for body in (b'', b'4\r\nab', b'4\r\nabcd', b'4\r\nabcd\r\n', b'0\r\n',
                     b'4;a=' + b'x' * 10000 + b'\r\nabcd\r\n0\r\n\r\n'):
            self.assertRaises(OSError, self.read, body)


class TestCheckedBody(base.BaseTestCase):

    def test_reports_an_invalid_body_each_time(self):
        class Stream:
            def read(self, size):
                self.read = lambda size: b''
                raise ValueError

        body = http_framing.CheckedBody(Stream())
        for _ in range(2):
            self.assertRaises(OSError, body.read, 1)
