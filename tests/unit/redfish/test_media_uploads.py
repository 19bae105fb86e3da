# SPDX-License-Identifier: Apache-2.0
import gzip
import io
import lzma
import os

import werkzeug.test

from sushy_kubevirt.kube import errors
from tests.unit.redfish import media_case


class TestUpload(media_case.MediaTestCase):

    CONFIG = {'SUSHY_EMULATOR_KUBEVIRT_MEDIA_UPLOAD_PROXY_URL':
              'https://proxy'}

    QCOW2 = b'QFI\xfb' + bytes(20) + (2 ** 32).to_bytes(8, 'big')

    def upload(self, *parts, code=202, headers=None, data=None):
        """Upload a form of (name, file name or None, content)."""
        if data is None:
            data = b''
            for name, file, content in parts:
                data += (f'--x\r\nContent-Disposition: form-data; '
                         f'name="{name}"' + (
                             '' if file is None else f'; filename="{file}"')
                         + '\r\n\r\n').encode() + content + b'\r\n'
            data += b'--x--\r\n'
        answer = self.client.post(
            self.path + '/Upload', data=data, headers=headers,
            content_type='multipart/form-data; boundary=x')
        self.assertEqual(code, answer.status_code, answer.text)
        if code >= 400:
            self.check_error(answer)
        return answer

    def uploaded(self):
        """Return (name, size, content, write-protected) of each upload."""
        return [(call[2], call[3].bytes, *call[4:])
                for call in self.machine.calls if call[0] == 'upload_media']

    def test_uri(self):
        self.assertEqual({'SushyKubevirt': {
            'MultipartHttpPushUri': self.path + '/Upload'}},
            self.get()['Oem'])

    def test_image(self):
        answer = self.upload(('ImageFile', 'a.iso', b'content'))
        self.assertIn('/TaskMonitors/', answer.headers['Location'])
        [(name, size, content, protected)] = self.uploaded()
        self.assertEqual(('a.iso', b'content', True),
                         (name, content, protected))
        # The Content-Length of the form.
        self.assertTrue(7 < size < 200)
        body = self.get()
        self.assertEqual(
            '/redfish/v1/TaskService/Tasks/attempt-1',
            body['Oem']['SushyKubevirt']['Task']['@odata.id'])
        self.assertEqual('upload:a.iso', body['Image'])
        self.assertEqual('Applet', body['ConnectedVia'])
        self.assertEqual('Upload', body['TransferMethod'])
        self.assertIsNone(body['TransferProtocolType'])

    def test_parameters(self):
        for file in (None, 'blob'):
            self.upload(
                ('InsertParameters', file,
                 b'{"Size": 5000, "WriteProtected": false}'),
                ('ImageFile', 'a.iso', b'content'))
            self.assertEqual(('a.iso', 5000, b'content', False),
                             self.uploaded()[-1])

    def test_size_of_the_disk(self):
        self.upload(('ImageFile', 'a', self.QCOW2))
        self.assertEqual(2 ** 32, self.uploaded()[-1][1])
        answer = self.upload(('ImageFile', 'a.gz', b'\x1f\x8b'), code=400)
        self.assertIn('as Size in InsertParameters', answer.text)
        # Also one that is smaller than the file, whose content cannot be
        # compressed.
        content = os.urandom(5000)
        for size, packed in (
                (5000, gzip.compress(content)), (5000, lzma.compress(content)),
                (9000, b'\x1f\x8b'), (2, b'\x1f\x8b')):
            self.upload(('InsertParameters', None, b'{"Size": %d}' % size),
                        ('ImageFile', 'a.gz', packed))
            self.assertEqual(size, self.uploaded()[-1][1])

    def test_content_like_a_boundary(self):
        content = (b'\r\n--x' + b'y' * 70000 + b'\r\n\r\n--') * 3
        self.upload(('ImageFile', 'a', content))
        self.assertEqual(content, self.uploaded()[-1][2])

    def test_invalid_forms(self):
        image = ('ImageFile', 'a', b'c')
        for parts in (
                [], [('Other', None, b'')], [('ImageFile', None, b'c')],
                [('ImageFile', '', b'c')], [('ImageFile', 'x' * 256, b'c')],
                [('ImageFile', 'a', b'')],
                [image, ('InsertParameters', None, b'{}')],
                *([('InsertParameters', None, text), image] for text in (
                    b'', b'[]', b'{', b'{"Size": 0}', b'{"Size": true}',
                    b'{"Size": "1"}', b'{"Image": "x"}',
                    b'{"Size": 9999999999999999999}', b' ' * 2 ** 17))):
            self.upload(*parts, code=400)
        for data in (b'x', b'--x\r\n', b'--x\r\n\r\n\r\n--x--',
                     b'--x\r\nContent-Disposition: form-data; '
                     b'name="ImageFile"; filename="\xff"\r\n\r\nc\r\n--x--',
                     b'--x\r\nA: ' + b'y' * 2 ** 18,
                     b'--x\r\nContent-Disposition: form-data; '
                     b'name="ImageFile"; filename="a"\r\n\r\nc'):
            self.upload(data=data, code=400)
        self.assertEqual([], self.uploaded())

    def test_other_requests(self):
        environ = werkzeug.test.EnvironBuilder(
            self.path + '/Upload', method='POST',
            content_type='multipart/form-data; boundary=x').get_environ()
        del environ['CONTENT_LENGTH']
        self.assertEqual('411 LENGTH REQUIRED',
                         werkzeug.test.run_wsgi_app(self.app, environ)[1])
        self.send('POST', '/Upload', {}, 415)
        answer = self.client.post(self.path + '/Upload', data=b'x',
                                  content_type='multipart/form-data')
        self.assertEqual(415, answer.status_code)
        self.upload(('ImageFile', 'a', b'c'), code=403,
                    headers={'Sec-Fetch-Site': 'same-site'})
        for origin in 'http://other', 'null', 'http://localhost:1':
            self.upload(('ImageFile', 'a', b'c'), code=403,
                        headers={'Origin': origin})
        for headers in ({'Origin': 'http://localhost'}, {
                'Origin': 'http://proxy', 'X-Auth-Token': 'x'}):
            self.upload(('ImageFile', 'a', b'c'), headers=headers)
        self.machine.fails = errors.Unsupported('no proxy')
        self.upload(data=b'x', code=501)

    def test_counts_while_the_body_is_read(self):
        uploads = self.app.sushy_kubevirt.services.uploads
        owner = ':127.0.0.1'
        for _ in range(uploads.share - 1):
            self.addCleanup(uploads.take(owner).close)

        class Body(io.BytesIO):
            def readinto(body, buffer):
                answers.append(self.upload(data=b'x', code=503))
                # Others have some left.
                uploads.take('other').close()
                return super().readinto(buffer)

        for _ in range(2):      # the second one after the end of the first
            answers = []
            answer = self.client.post(
                self.path + '/Upload', input_stream=Body(b'x'),
                content_length=1,
                content_type='multipart/form-data; boundary=x')
            self.assertEqual(400, answer.status_code, answer.text)
            self.assertIn('Retry-After', answers[0].headers)

    def test_url_of_an_upload_is_no_source(self):
        self.upload(('ImageFile', 'a', b'c'))
        self.send('PATCH', '', {'TransferProtocolType': 'HTTP'}, 400)


class TestUploadBelowManager(TestUpload):

    ROOT = 'Managers'


class TestWithoutWebPage(media_case.MediaTestCase):

    CONFIG = {**TestUpload.CONFIG, 'SUSHY_EMULATOR_KUBEVIRT_WEB_PAGE': False}

    def test_accepts_no_uploads(self):
        self.assertNotIn('Oem', self.get())
        self.send('POST', '/Upload', None, 404)
