# SPDX-License-Identifier: Apache-2.0
import hashlib
import io
import socket
import threading

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine.media import upload_stream
from sushy_kubevirt.machine import options
from tests.fixtures import file_servers

OPTIONS = options.MediaOptions(allow_loopback=True)
TOKEN = 'the.token'


class Proxy:
    """A fake of CDI's upload proxy.

    :param code: HTTP status of its responses
    :param after: number of bytes that it reads before it responds; None for
        all
    :param text: body of its responses
    """

    def __init__(self, code=200, after=None, text=b''):
        self.code = code
        self.after = after
        self.text = text
        self.digest = hashlib.sha256()
        self.length = 0
        self.complete = False
        self.begun = threading.Event()
        self.over = threading.Event()

    def __call__(self, handler):
        try:
            for piece in self._pieces(handler):
                self.digest.update(piece)
                self.length += len(piece)
                self.begun.set()
                if self.after is not None and self.length >= self.after:
                    break
            else:
                self.complete = True
            handler.close_connection = True
            file_servers.send(handler, self.code, self.text)
        finally:
            self.over.set()

    def _pieces(self, handler):
        if handler.headers.get('Transfer-Encoding') == 'chunked':
            while size := int(handler.rfile.readline(), 16):
                yield handler.rfile.read(size)
                handler.rfile.readline()
            return
        left = int(handler.headers['Content-Length'])
        while left:
            piece = handler.rfile.read1(min(left, 65536))
            if not piece:
                raise OSError
            left -= len(piece)
            yield piece


class TestUpload(base.BaseTestCase):

    CONTENT = b'0123456789abcdef' * 100000

    def setUp(self):
        super().setUp()
        self.proxy = Proxy()

    def serve(self, answer, pair=None):
        return self.useFixture(file_servers.Server(answer, pair))

    def stream(self, answer=None, proxy_pair=None, proxy_ca='', **more):
        self.source = self.serve(answer or file_servers.image(self.CONTENT))
        self.target = self.serve(self.proxy, proxy_pair)
        upload_stream.stream(
            model.Source(self.source.url + '/a.iso', 'me', 'secret'),
            self.target.url, TOKEN, OPTIONS, proxy_ca=proxy_ca, **more)

    def assert_fails(self, kind, *args, **more):
        error = self.assertRaises(kind, self.stream, *args, **more)
        self.assertFalse(self.proxy.complete and self.proxy.code < 300)
        self.assertNotIn(TOKEN, str(error))
        self.assertNotIn('secret', str(error))
        return error

    def assert_uploaded(self):
        self.assertTrue(self.proxy.complete)
        self.assertEqual(hashlib.sha256(self.CONTENT).digest(),
                         self.proxy.digest.digest())

    def test_uploads_image_and_reports_progress(self):
        reports = []
        self.stream(progress=lambda *args: reports.append(args))
        self.assert_uploaded()
        [(method, path, headers)] = self.target.requests
        self.assertEqual(('POST', '/v1beta1/upload'), (method, path))
        self.assertEqual('Bearer ' + TOKEN, headers['Authorization'])
        self.assertEqual(str(len(self.CONTENT)), headers['Content-Length'])
        size = len(self.CONTENT)
        self.assertEqual((size, size), reports[-1])
        self.assertEqual(sorted(reports), reports)
        [(method, _path, headers)] = self.source.requests
        self.assertEqual('GET', method)
        self.assertEqual('Basic bWU6c2VjcmV0', headers['Authorization'])

    def send(self, readinto):
        self.target = self.serve(self.proxy)
        upload_stream.send(readinto, self.target.url, TOKEN, '', None, None,
                           upload_stream.Stop())

    def test_sends_image_of_a_client(self):
        self.send(io.BytesIO(self.CONTENT).readinto)
        self.assert_uploaded()

    def test_broken_image_of_a_client_is_not_complete(self):
        content = io.BytesIO(self.CONTENT)

        def readinto(buffer):
            if content.tell():
                raise errors.InvalidValue('ImageFile', 'a')
            return content.readinto(buffer)

        self.assertRaises(errors.InvalidValue, self.send, readinto)
        self.assertTrue(self.proxy.over.wait(30))
        self.assertFalse(self.proxy.complete)

    def test_upload_over_tls(self):
        pair = file_servers.pair()
        self.stream(proxy_pair=pair, proxy_ca=pair[0])
        self.assert_uploaded()

    def test_proxy_with_untrusted_certificate(self):
        error = self.assert_fails(errors.Unavailable,
                                  proxy_pair=file_servers.pair(),
                                  proxy_ca=file_servers.pair('Other')[0])
        self.assertIn('self-signed', str(error))
        self.assertEqual([], self.target.requests)

    def send_without_length(self, handler):
        """Send the image without its length."""
        handler.close_connection = True
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(self.CONTENT)

    def test_image_without_length_is_sent_chunked(self):
        self.stream(self.send_without_length)
        self.assert_uploaded()
        self.assertEqual('chunked',
                         self.target.requests[0][2]['Transfer-Encoding'])

    def test_known_length_is_sent(self):
        self.stream(self.send_without_length, length=len(self.CONTENT))
        self.assert_uploaded()
        self.assertIn('Content-Length', self.target.requests[0][2])

    def test_truncated_image_fails(self):
        def short(handler):
            handler.close_connection = True
            handler.send_response(200)
            handler.send_header('Content-Length', str(len(self.CONTENT)))
            handler.end_headers()
            handler.wfile.write(self.CONTENT[:500000])
        error = self.assert_fails(errors.MediaUnreachable, short)
        self.assertIn('500000 of 1600000', str(error))
        self.proxy = Proxy()
        self.assert_fails(errors.MediaUnreachable, self.send_without_length,
                          length=len(self.CONTENT) + 1)
        self.proxy = Proxy()

        def broken_chunks(handler):
            handler.close_connection = True
            handler.send_response(200)
            handler.send_header('Transfer-Encoding', 'chunked')
            handler.end_headers()
            handler.wfile.write(b'ffff\r\n' + bytes(100))
        self.assert_fails(errors.MediaUnreachable, broken_chunks)

    def test_source_responds_with_error(self):
        error = self.assert_fails(
            errors.MediaUnreachable,
            lambda handler: file_servers.send(handler, 404))
        self.assertEqual('missing', error.kind)
        self.assertEqual([], self.target.requests)

    def test_proxy_responds_with_error(self):
        for code, kind in ((400, errors.Rejected), (401, errors.Unavailable),
                           (409, errors.Rejected),
                           (500, errors.Unavailable),
                           (503, errors.Unavailable)):
            for after in None, 1000:
                self.proxy = Proxy(code, after, b'too small')
                error = self.assert_fails(kind)
                self.assertIn(str(code), str(error))
                self.assertIn('too small', str(error))

    def test_proxy_refuses_connection(self):
        with file_servers.Server(self.proxy) as gone:
            url = gone.url
        source = self.serve(file_servers.image(b'x'))
        error = self.assertRaises(
            errors.Unavailable, upload_stream.stream,
            model.Source(source.url + '/a'), url, TOKEN, OPTIONS)
        self.assertIn('Connection refused', str(error))

    def test_invalid_proxy_urls(self):
        source = self.serve(file_servers.image(b'x'))
        for url in 'ftp://a', 'http://', '':
            self.assertRaises(
                errors.ConfigError, upload_stream.stream,
                model.Source(source.url + '/a'), url, TOKEN, OPTIONS)
        # Without a scheme, as in CDI's own configuration.
        target = self.serve(self.proxy)
        self.assertRaises(
            errors.Unavailable, upload_stream.stream,
            model.Source(source.url + '/a'), f'127.0.0.1:{target.port}',
            TOKEN, OPTIONS)
        self.assertEqual([], target.requests)


class TestStop(base.BaseTestCase):

    def run_upload(self, stop, answer, proxy):
        source = self.useFixture(file_servers.Server(answer))
        target = self.useFixture(file_servers.Server(proxy))
        upload_stream.stream(
            model.Source(source.url + '/a'),
            target.url,
            TOKEN,
            OPTIONS,
            stop=stop,
        )

    def assert_stopped(self, answer, proxy):
        stop = upload_stream.Stop()

        def later():
            proxy.begun.wait(10)
            stop.set()
        thread = threading.Thread(target=later)
        thread.start()
        self.addCleanup(thread.join)
        self.assertRaises(upload_stream.Stopped, self.run_upload, stop, answer,
                          proxy)
        proxy.over.wait(10)
        self.assertFalse(proxy.complete)

    def test_stop_before_upload(self):
        stop = upload_stream.Stop()
        stop.set()
        self.assertTrue(stop.is_set())
        self.assertRaises(upload_stream.Stopped, self.run_upload, stop,
                          file_servers.image(b'x'), Proxy())

    def test_stop_while_source_is_silent(self):
        gate = threading.Event()
        self.addCleanup(gate.set)

        def answer(handler):
            handler.close_connection = True
            handler.send_response(200)
            handler.end_headers()
            handler.wfile.write(bytes(2 * upload_stream.PIECE))
            gate.wait(20)
        self.assert_stopped(answer, Proxy())

    def test_stop_while_proxy_reads_nothing(self):
        gate = threading.Event()
        self.addCleanup(gate.set)

        class Lazy(Proxy):
            def __call__(self, handler):
                handler.connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                self.begun.set()
                gate.wait(20)
                self.over.set()
        proxy = Lazy()
        stop = upload_stream.Stop()
        thread = threading.Thread(
            target=lambda: (proxy.begun.wait(10), stop.set()))
        thread.start()
        self.addCleanup(thread.join)
        self.assertRaises(
            upload_stream.Stopped, self.run_upload, stop,
            file_servers.image(bytes(50 << 20), ranges=False), proxy)
