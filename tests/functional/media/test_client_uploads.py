# SPDX-License-Identifier: Apache-2.0
"""Images that clients upload, with each server; CDI really gets them."""

import gzip
from http import client
import itertools
import json
import os
import pathlib
import select
import signal
import ssl
import subprocess
from urllib import parse

import fixtures
import requests
from websockets import exceptions

from tests.fixtures import base
from tests.fixtures import console_client
from tests.fixtures import emulator
from tests.fixtures import image_server
from tests.fixtures import redfish_pod
from tests.fixtures import virtual_media_case

PREFIX = virtual_media_case.PREFIX
DEVICE = '/redfish/v1/Systems/1/VirtualMedia/Cd'
SESSIONS = '/redfish/v1/SessionService/Sessions'
ACCOUNTS = '/redfish/v1/AccountService/Accounts'
BOUNDARY = 'b0undary'
HEAD = (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="ImageFile"; '
        'filename="slow.iso"\r\n\r\n').encode()
CONTENT = os.urandom(2 ** 20)

#: Bytes that a test sends, and that the request announces.
PART, WHOLE = 2 ** 20, 2 ** 26


class Sender:
    """A client that sends an image piece by piece.

    :param url: base URL of the service
    :param device: path of the device
    :param headers: dict of additional headers
    :param ca: path of a CA certificate
    """

    def __init__(self, url, device, headers=None, ca=None):
        found = parse.urlsplit(url)
        if ca is None:
            self.link = client.HTTPConnection(found.netloc, timeout=60)
        else:
            self.link = client.HTTPSConnection(
                found.netloc, timeout=60,
                context=ssl.create_default_context(cafile=ca))
        self.link.putrequest('POST', device + '/Upload')
        for name, value in {
                'Content-Type': f'multipart/form-data; boundary={BOUNDARY}',
                'Content-Length': str(WHOLE), **(headers or {})}.items():
            self.link.putheader(name, value)
        self.link.endheaders()

    def send(self, data=HEAD + bytes(PART)):
        self.link.send(data)

    def send_until_refused(self):
        """Send the rest.

        :returns: status code of the response; None if the service closed the
            connection first
        """
        try:
            for _ in range(WHOLE // PART):
                self.link.send(bytes(PART))
        except OSError:
            pass
        try:
            return self.link.getresponse().status
        except (OSError, client.HTTPException):
            return None


class UploadTestCase(virtual_media_case.MediaTestCase):
    """Of each server: how it reads a body, and stops to read it."""

    SERVER = 'werkzeug'

    @classmethod
    def setUpClass(cls):
        cls.storage = pathlib.Path(cls.share(fixtures.TempDir()).path)
        cls.SANDBOX_ARGUMENTS = ('--storage', cls.storage)
        base.SandboxTestCase.setUpClass.__func__(cls)
        cls.images = cls.share(image_server.ImageServer())
        url, ca = cls.sandbox.upload_proxy()
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(), {
                PREFIX + 'MINIMUM_SIZE': 2 ** 20,
                PREFIX + 'UPLOAD_PROXY_URL': url,
                PREFIX + 'UPLOAD_PROXY_CA': str(ca)}, cls.SERVER, threads=8))

    def upload(self, content=CONTENT, name='a.iso', parameters=None,
               expect=(202, 204), **options):
        files = {'ImageFile': (name, content)}
        if parameters is not None:
            files = {'InsertParameters': (
                None, json.dumps(parameters), 'application/json'), **files}
        return self.emulator.request(
            'POST', self.device + '/Upload', files=files, expect=expect,
            **options)

    def disk(self):
        """Return the content of the only disk."""
        [volume] = self.sandbox.list('datavolumes')
        return (self.storage / 'default' / volume['metadata']['name']
                / 'disk.img').read_bytes()

    def message(self, answer):
        return answer.json()['error']['message']

    def sender(self):
        """Start an upload; return its `Sender` when CDI gets the image."""
        found = Sender(self.emulator.url, self.device)
        self.addCleanup(found.link.close)
        found.send()
        self.until(lambda: self.read()['Image'])
        self.until(lambda: self.task()['PercentComplete'])
        return found

    def task(self):
        [member] = self.emulator.request(
            'GET', virtual_media_case.TASKS).json()['Members']
        return self.emulator.request('GET', member['@odata.id']).json()

    def test_raw_image(self):
        self.make()
        self.assertEqual(
            self.device + '/Upload', self.read()['Oem']['SushyKubevirt'][
                'MultipartHttpPushUri'])
        answer = self.upload()
        if answer.status_code == 202:
            self.until(lambda: self.emulator.request(
                'GET', answer.headers['Location']).status_code == 204)
        body = self.wait_ready()
        self.assertEqual(
            ('upload:a.iso', 'a.iso', True, 'Applet', 'Upload', None, True),
            tuple(body[name] for name in (
                'Image', 'ImageName', 'Inserted', 'ConnectedVia',
                'TransferMethod', 'TransferProtocolType', 'WriteProtected')))
        self.assertEqual(CONTENT, self.disk()[:len(CONTENT)])
        self.assertEqual(100, self.task()['PercentComplete'])
        # The next one replaces it, in the other device nothing changes.
        other = CONTENT[::-1]
        self.upload(other, 'b.iso')
        self.assertEqual('b.iso', self.wait_ready()['ImageName'])
        self.until(lambda: len(self.sandbox.list('datavolumes')) == 1)
        self.assertEqual(other, self.disk()[:len(other)])
        # The URL stands for the file, it is no source.
        self.assertIn('Upload resource', self.message(
            self.insert('upload:b.iso', expect=400)))
        self.eject()
        self.wait_clean()

    def test_compressed_image_that_is_larger_than_the_disk(self):
        self.make()
        self.upload(gzip.compress(CONTENT), 'a.iso.gz',
                    {'Size': len(CONTENT)},
                    headers={'Expect': '100-continue'})
        self.wait_ready()
        self.assertEqual(CONTENT, self.disk()[:len(CONTENT)])
        self.eject()
        self.wait_clean()

    def test_chunked_body(self):
        self.make()

        def body(*pieces):
            return self.emulator.request(
                'POST', self.device + '/Upload', data=iter(pieces),
                headers={'Content-Type':
                         f'multipart/form-data; boundary={BOUNDARY}'})

        end = f'\r\n--{BOUNDARY}--\r\n'.encode()
        answer = body(HEAD, CONTENT, end)
        self.assertEqual(400, answer.status_code)
        self.assertIn('Size in InsertParameters', self.message(answer))
        self.wait_clean()
        answer = body(
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; '
            f'name="InsertParameters"\r\n\r\n{{"Size": {len(CONTENT)}}}\r\n'
            .encode(), HEAD, CONTENT, end)
        self.assertIn(answer.status_code, (202, 204), answer.text)
        self.wait_ready()
        self.assertEqual(CONTENT, self.disk()[:len(CONTENT)])
        # A body that ends early, though as a valid chunked one.
        answer = body(HEAD.replace(b'name="I', b'name="InsertParameters"\r\n'
                                   b'\r\n{"Size": 9000000}\r\n--'
                                   + BOUNDARY.encode() + b'\r\nContent-'
                                   b'Disposition: form-data; name="I'),
                      CONTENT)
        self.assertEqual(400, answer.status_code, answer.text)
        self.assertIn('ends early', self.wait_failed())
        self.eject()
        self.wait_clean()

    def test_client_that_disconnects(self):
        self.make()
        self.sender().link.close()
        self.assertIn('upload the image again', self.wait_failed())
        self.assertEqual('UploadFailed',
                         self.read()['Status']['Conditions'][0][
                             'MessageArgs'][3])
        self.eject()
        self.wait_clean()

    def test_eject_during_upload(self):
        self.make()
        sender = self.sender()
        self.assertEqual('slow.iso', self.read()['ImageName'])
        self.eject()
        self.assertIn(sender.send_until_refused(), (409, None))
        self.wait_clean()


class GunicornUploadTestCase(UploadTestCase):

    SERVER = 'gunicorn'


class ServiceUploadTestCase(UploadTestCase):
    """With what does not depend on the server."""

    SERVER = 'pod'

    def test_qcow2_image(self):
        self.make()
        self.device = self.path + '/VirtualMedia/USBStick'
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        raw, image = folder / 'a.raw', folder / 'a.qcow2'
        raw.write_bytes(CONTENT + bytes(2 ** 25))
        subprocess.run(['qemu-img', 'convert', '-f', 'raw', '-O', 'qcow2',
                        '-c', raw, image], check=True)
        self.upload(image.read_bytes(), parameters={'WriteProtected': False})
        self.assertFalse(self.wait_ready()['WriteProtected'])
        self.assertEqual(raw.read_bytes(), self.disk()[:2 ** 25 + 2 ** 20])
        self.eject()
        self.wait_clean()

    def test_hostile_file_names(self):
        self.make()
        for name, shown in (
                ('../../etc/passwd', 'passwd'), ('C:\\a\\b.iso', 'C:ab.iso'),
                ('a"b\'.iso', 'a"b\'.iso'),
                ('<img src=x onerror=f()>', '<img src=x onerror=f()>'),
                ('e\u0301\u202e\U0001f4bf?#%2f.iso',
                 'e\u0301\U0001f4bf?#%2f.iso')):
            self.upload(name=name)
            body = self.wait_ready()
            self.assertEqual(shown, body['ImageName'])
            self.assertEqual(shown, parse.unquote(
                body['Image'].removeprefix('upload:')))
            self.assertEqual(f'Import of {shown}', self.task()['Name'])
        self.eject()
        self.wait_clean()
        for name in b'x' * 10000, b'', b'a/', b'\xff\xfe.iso':
            answer = self.emulator.request(
                'POST', self.device + '/Upload', data=HEAD.replace(
                    b'slow.iso', name) + b'x\r\n--b0undary--\r\n',
                headers={'Content-Type':
                         f'multipart/form-data; boundary={BOUNDARY}'})
            self.assertEqual(400, answer.status_code, answer.text)
        self.assertEqual(([], []), self.remaining())

    def test_task_deleted_during_upload(self):
        self.make()
        sender = self.sender()
        self.emulator.request('DELETE', self.task()['@odata.id'], expect=204)
        self.assertIn(sender.send_until_refused(), (409, None))
        self.wait_clean()

    def test_other_insert_during_upload(self):
        self.make()
        sender = self.sender()
        self.upload()
        self.assertIn(sender.send_until_refused(), (409, None))
        self.assertEqual('a.iso', self.wait_ready()['ImageName'])
        self.assertEqual(CONTENT, self.disk()[:len(CONTENT)])
        self.eject()
        self.wait_clean()

    def test_vm_deleted_during_upload(self):
        self.make()
        sender = self.sender()
        self.sandbox.delete('virtualmachines', self.name)
        self.assertIn(sender.send_until_refused(), (404, 409, None))
        self.wait_clean()

    def test_exceeded_quota(self):
        self.make()
        self.sandbox.create('resourcequotas', {
            'metadata': {'name': 'small'},
            'spec': {'hard': {'requests.storage': '1Mi'}}})
        self.addCleanup(self.sandbox.delete, 'resourcequotas', 'small')
        self.assertIn('quota', self.message(self.upload(expect=409)))
        self.eject()
        self.wait_clean()

    def test_image_larger_than_its_size(self):
        self.make()
        answer = self.upload(os.urandom(2 ** 22),
                             parameters={'Size': 2 ** 20}, expect=409)
        self.assertIn('larger than', self.message(answer))
        self.assertIn('larger than', self.wait_failed())
        self.eject()
        self.wait_clean()


class SharedThreadsTestCase(base.SandboxTestCase):
    """Gunicorn's threads, of which what lasts leaves half."""

    VMS = 1

    def setUp(self):
        super().setUp()
        url, ca = self.sandbox.upload_proxy()
        self.server = self.useFixture(emulator.Emulator(
            self.sandbox.bmc_account(), {
                PREFIX + 'MINIMUM_SIZE': 2 ** 20,
                PREFIX + 'UPLOAD_PROXY_URL': url,
                PREFIX + 'UPLOAD_PROXY_CA': str(ca)}, 'gunicorn', threads=4))
        [self.path] = self.server.systems()
        self.device = self.path + '/VirtualMedia/Cd'

    def console(self):
        """Open a console; return its client, None if it is one too many."""
        found = console_client.Client(
            self.server.url + self.path + '/SerialConsole')
        self.addCleanup(found.close)
        try:
            found.notice('is off')
        except exceptions.ConnectionClosed as exc:
            self.assertEqual(1013, exc.rcvd.code)
            return None
        return found

    def event_stream(self):
        """Open a stream; return its response, None if it is one too many."""
        answer = requests.get(
            self.server.url + '/redfish/v1/EventService/SSE', stream=True,
            timeout=60)
        self.addCleanup(answer.close)
        if answer.status_code == 503:
            return None
        answer.raise_for_status()
        return answer

    def upload(self):
        """Begin to upload; return its `Sender`, None if it is one too many."""
        found = Sender(self.server.url, self.device)
        self.addCleanup(found.link.close)
        found.send()
        self.until(lambda: self.inserted() or select.select(
            [found.link.sock], [], [], 0)[0])
        if self.inserted():
            return found
        self.assertEqual(503, found.link.getresponse().status)
        return None

    def inserted(self):
        return self.request('GET', self.device, 200).json()['Inserted']

    def request(self, method, path, expect, body=None):
        # Gunicorn may close an idle connection just when it is used.
        return self.server.request(method, path, body, expect=expect,
                                   headers={'Connection': 'close'}, timeout=20)

    def test_what_lasts_leaves_threads_for_requests(self):
        every = self.upload, self.console, self.event_stream
        for kinds in itertools.permutations(every):
            # What was closed before is noticed a moment later.
            opened = [self.until(kind) for kind in kinds[:2]]
            for kind in (kinds[2], *every[1:]):
                self.assertIsNone(kind())
            for _ in range(8):
                self.request('GET', '/redfish/v1', 200)
            for one in opened:
                getattr(one, 'link', one).close()
            self.request('POST', self.device
                         + '/Actions/VirtualMedia.EjectMedia', 204, {})


class PodUploadTestCase(base.SandboxTestCase):
    """A BMC's pod, with its rights."""

    VMS = 1

    def setUp(self):
        super().setUp()
        self.pod = self.useFixture(redfish_pod.RedfishPod(
            self.sandbox, proxy=self.sandbox.upload_proxy()))

    def memory(self, name):
        with open(f'/proc/{self.pod.process.pid}/status') as stream:
            return next(int(line.split()[1]) for line in stream
                        if line.startswith(name + ':'))

    def status(self):
        return self.pod.request('GET', DEVICE).json()['Status']

    def test_200_mib_in_bounded_memory(self):
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'x'
        path.write_bytes(bytes(2 ** 20))
        user = f'user = "{redfish_pod.USER}:{self.pod.password}"\n'

        def upload():
            answer = self.pod.curl(
                DEVICE + '/Upload', '-F', f'ImageFile=@{path}', config=user)
            self.assertIn(answer.code, (202, 204), answer.text)

        upload()    # loads modules
        os.truncate(path, 200 * 2 ** 20)
        with open(f'/proc/{self.pod.process.pid}/clear_refs', 'w') as stream:
            stream.write('5')
        before = self.memory('VmRSS')
        upload()
        self.assertLess(self.memory('VmHWM') - before, 16 * 1024)
        self.pod.request('POST', DEVICE + virtual_media_case.EJECT, {},
                         expect=204)

    def test_refuses_before_the_body(self):
        for headers, code in (({}, 401), ({'X-Auth-Token': 'x'}, 401)):
            sender = Sender(self.pod.url, DEVICE, headers, self.pod.ca)
            self.assertEqual(code, sender.link.getresponse().status)
            sender.link.close()

    def session(self, user, password):
        """Open a session; return its token and its path."""
        headers = self.pod.request('POST', SESSIONS, {
            'UserName': user, 'Password': password}, expect=201).headers
        return headers['X-Auth-Token'], headers['Location']

    def sender(self, token):
        """Start an upload; return its `Sender` when CDI gets the image."""
        found = Sender(self.pod.url, DEVICE, {'X-Auth-Token': token},
                       self.pod.ca)
        self.addCleanup(found.link.close)
        found.send()
        self.until(lambda: self.status()['State'] == 'Updating')
        return found

    def failed(self):
        """Wait until the medium has failed; return the message."""
        self.until(lambda: self.status()['Health'] == 'Critical')
        return self.status()['Conditions'][0]['Message']

    def test_upload_ends_with_its_session(self):
        token, path = self.session(redfish_pod.USER, self.pod.password)
        sender = self.sender(token)
        self.pod.request('DELETE', path, expect=204)
        self.assertIn('login', self.failed())
        self.assertIn(sender.send_until_refused(), (409, None))

    def test_upload_ends_when_its_account_may_not(self):
        account = self.pod.request('POST', ACCOUNTS, {
            'UserName': 'other', 'Password': 'a password',
            'RoleId': 'Administrator'}, expect=201).json()['@odata.id']
        token, _path = self.session('other', 'a password')
        sender = self.sender(token)
        self.pod.request('PATCH', account, {'RoleId': 'Operator'}, expect=200)
        self.assertIn('login', self.failed())
        self.assertIn(sender.send_until_refused(), (409, None))

    def test_killed_bmc(self):
        token, _path = self.session(redfish_pod.USER, self.pod.password)
        self.sender(token)
        os.kill(self.pod.process.pid, signal.SIGKILL)
        self.pod = self.useFixture(redfish_pod.RedfishPod(
            self.sandbox, proxy=self.sandbox.upload_proxy()))
        message = self.failed()
        self.assertIn('UploadInterrupted', message)
        self.assertIn('upload it again', message)


class WithoutProxyTestCase(base.EmulatorTestCase):

    def test_uploads_are_refused(self):
        [path] = self.emulator.systems()[:1]
        device = path + '/VirtualMedia/Cd'
        self.assertNotIn('Oem', self.emulator.request('GET', device).json())
        sender = Sender(self.emulator.url, device)
        self.addCleanup(sender.link.close)
        response = sender.link.getresponse()
        self.assertEqual(501, response.status)
        self.assertIn(PREFIX + 'UPLOAD_PROXY_URL', response.read().decode())
