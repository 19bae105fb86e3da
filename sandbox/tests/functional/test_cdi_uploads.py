# SPDX-License-Identifier: Apache-2.0
"""CDI: uploads, their tokens and proxy, and failures."""

import base64
import gzip
import json
import os
import threading
import time

import requests

from kubevirt_sandbox.testing import sandbox
from tests.functional import cdi

IMAGE = os.urandom(70000) + bytes(900000) + b'the end'
TOKENS = ('/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/%s/'
          'uploadtokenrequests')


class UploadTest(cdi.CdiTestCase):

    def setUp(self):
        super().setUp()
        self.proxy, self.ca = self.cluster.upload_proxy()

    def ready(self, size='64Mi', **more):
        name = self.create_volume({'upload': {}}, size, **more)
        self.wait_phase(name, 'UploadReady')
        return name

    def token(self, name, namespace=sandbox.NAMESPACE):
        answer = self.cluster.request('POST', TOKENS % namespace, {
            'apiVersion': 'upload.cdi.kubevirt.io/v1beta1',
            'kind': 'UploadTokenRequest', 'metadata': {'name': name},
            'spec': {'pvcName': name}})
        self.assertIn(answer.status_code, (200, 201))
        return answer.json()['status']['token']

    def send(self, token, data=None, path='/v1beta1/upload', method='POST',
             **more):
        headers = {'Authorization': 'Bearer ' + token} if token else {}
        with requests.Session() as session:
            session.trust_env = False
            return session.request(
                method, self.proxy + path, data=data, verify=str(self.ca),
                headers=headers, timeout=30, **more)

    def test_uploads_disk(self):
        name = self.ready()
        volume = self.get_volume(name)
        self.assertEqual('N/A', volume['status']['progress'])
        self.assertEqual('Pod is running',
                         self.condition(volume, 'Running')['reason'])
        answer = self.send(self.token(name), IMAGE)
        self.assertEqual((200, ''), (answer.status_code, answer.text))
        volume = self.wait_phase(name, 'Succeeded')
        running = self.condition(volume, 'Running')
        self.assertEqual(('False', 'Completed', 'Upload Complete'), (
            running['status'], running['reason'], running['message']))
        self.assertIn(('Normal', 'UploadSucceeded',
                       f'Successfully uploaded into {name}'),
                      self.events(name))
        if not self.external:
            self.assertTrue(self.disk(name).read_bytes().startswith(IMAGE))
        answer = self.send(self.token(name), IMAGE)
        self.assertEqual(
            (503, f'rejecting Upload Request for PVC {name} that already '
             'finished uploading'), (answer.status_code, answer.text))

    def test_upload_endpoints(self):
        def pieces():
            for at in range(0, len(IMAGE), 100000):
                yield IMAGE[at:at + 100000]
        for path, data, files in (
                ('upload', pieces(), None),
                ('upload-async', gzip.compress(IMAGE), None),
                ('upload-form', None, {'file': IMAGE}),
                ('upload-form-async', None, {'file': IMAGE})):
            name = self.ready()
            answer = self.send(self.token(name), data, '/v1beta1/' + path,
                               files=files)
            self.assertEqual(200, answer.status_code, path)
            self.wait_phase(name, 'Succeeded')
            if not self.external:
                self.assertTrue(
                    self.disk(name).read_bytes().startswith(IMAGE), path)

    def test_head_and_put(self):
        name = self.ready()
        for path, code in (('/v1beta1/upload-async', 200),
                           ('/v1beta1/upload', 404)):
            self.assertEqual(code, self.send(
                self.token(name), path=path, method='HEAD').status_code)
        self.assertEqual(404, self.send(
            self.token(name), IMAGE, method='PUT').status_code)
        self.assertEqual('UploadReady',
                         self.get_volume(name)['status']['phase'])

    def test_rejects_invalid_tokens(self):
        name = self.ready()
        token = self.token(name)
        head, body, signature = token.split('.')
        claims = json.loads(base64.urlsafe_b64decode(body + '=='))
        self.assertEqual(300, claims['exp'] - claims['iat'])
        claims['name'] = 'another'
        forged = base64.urlsafe_b64encode(json.dumps(
            claims).encode()).rstrip(b'=').decode()
        for wrong, code in (
                (None, 400), ('', 400), ('not a token', 400),
                ('a.b.c', 401), ('.'.join((head, forged, signature)), 401),
                ('.'.join((head, body, '')), 401)):
            self.assertEqual(code, self.send(wrong, IMAGE).status_code,
                             wrong)
        self.assertEqual('UploadReady',
                         self.get_volume(name)['status']['phase'])

    def test_rejects_upload_without_upload_volume(self):
        answer = self.send(self.token('nowhere'), IMAGE)
        self.assertEqual(
            (503, 'rejecting Upload Request for PVC nowhere that doesn&#x27;'
             't exist'), (answer.status_code, answer.text))
        name = self.create_volume({'blank': {}})
        self.assertEqual(503, self.send(self.token(name),
                                        IMAGE).status_code)

    def test_rejects_large_disk_and_accepts_another(self):
        name = self.ready('2Mi')
        answer = self.send(self.token(name), bytes(3 * cdi.MIB))
        self.assertEqual(400, answer.status_code)
        self.assertIn('effective image size is larger than the reported '
                      'available storage', answer.text)
        self.assertEqual(200, self.send(self.token(name),
                                        IMAGE).status_code)
        self.wait_phase(name, 'Succeeded')

    def test_rejects_concurrent_upload(self):
        name = self.ready()
        token = self.token(name)
        begun, unblock = threading.Event(), threading.Event()

        def slowly():
            yield IMAGE[:500000]
            begun.set()
            unblock.wait(40)
            yield IMAGE[500000:]
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(self.send(token, slowly())))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(unblock.set)
        self.assertTrue(begun.wait(20))
        deadline = time.monotonic() + 30
        # The proxy may not have received the first upload yet.
        while not self.external and not self.disk(name).exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertEqual(503, self.send(token, IMAGE).status_code)
        unblock.set()
        thread.join()
        self.assertEqual([200], [a.status_code for a in answers])
        self.wait_phase(name, 'Succeeded')

    def test_interrupted_upload_can_be_repeated(self):
        name = self.ready()

        def broken():
            yield IMAGE[:500000]
            raise RuntimeError('the client is gone')
        self.assertRaises(RuntimeError, self.send, self.token(name),
                          broken())
        self.assertEqual('UploadReady',
                         self.get_volume(name)['status']['phase'])
        deadline = time.monotonic() + 30
        while True:
            # The proxy may not have ended the first upload yet.
            code = self.send(self.token(name), IMAGE).status_code
            if code == 200 or time.monotonic() > deadline:
                break
        self.assertEqual(200, code)
        self.wait_phase(name, 'Succeeded')

    def test_deletion_during_upload_removes_disk(self):
        self.need_sandbox()
        name = self.ready()
        unblock = threading.Event()

        def slowly():
            yield IMAGE[:500000]
            unblock.wait(40)
            yield IMAGE[500000:]
        answers = []

        def send():
            try:
                answers.append(self.send(token, slowly()).status_code)
            except requests.RequestException:
                answers.append(None)
        token = self.token(name)
        thread = threading.Thread(target=send)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(unblock.set)
        deadline = time.monotonic() + 30
        while not self.disk(name).exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.delete_volume(name)
        self.assertFalse(self.disk(name).parent.exists())
        unblock.set()
        thread.join()
        self.assertNotIn(200, answers)
