# SPDX-License-Identifier: Apache-2.0
"""CDI: imports of DataVolumes and validation."""

import gzip
import hashlib
import lzma
import os
import shutil
import subprocess
import tempfile

from kubevirt_sandbox.testing import sandbox
from tests.functional import cdi

IMAGE = os.urandom(70000) + bytes(900000) + b'the end'


class ImportTest(cdi.CdiTestCase):

    def test_imports_over_http(self):
        name = self.create_volume(self.web.put('/a.iso', IMAGE))
        volume = self.wait_phase(name, 'Succeeded')
        status = volume['status']
        self.assertEqual((name, '100.0%'),
                         (status['claimName'], status['progress']))
        self.assertNotIn('restartCount', status)
        self.assertEqual(
            [('Bound', 'True', 'Bound', f'PVC {name} Bound'),
             ('Ready', 'True', None, None),
             ('Running', 'False', 'Completed', 'Import Complete')],
            sorted((c['type'], c['status'], c.get('reason'),
                    c.get('message')) for c in status['conditions']))
        events = self.events(name)
        for reason, message in (
                ('Bound', f'PVC {name} Bound'),
                ('ImportSucceeded', f'Successfully imported into PVC {name}')):
            self.assertIn(('Normal', reason, message), events)

    def test_claim_has_room_for_file_system(self):
        name = self.create_volume(self.web.put('/a.iso', IMAGE), '10Mi')
        self.wait_phase(name, 'Succeeded')
        claim = self.claim(name)
        self.assertEqual('11114906',
                         claim['spec']['resources']['requests']['storage'])
        owner, = claim['metadata']['ownerReferences']
        self.assertEqual(('DataVolume', name, True, True), (
            owner['kind'], owner['name'], owner['controller'],
            owner['blockOwnerDeletion']))

    def test_writes_sparse_disk(self):
        name = self.create_volume(self.web.put('/a.iso', IMAGE), '10Mi')
        self.wait_phase(name, 'Succeeded')
        disk = self.disk(name)
        content = disk.read_bytes()
        self.assertTrue(content.startswith(IMAGE))
        self.assertEqual(10 * cdi.MIB, len(content))
        self.assertLess(disk.stat().st_blocks * 512, 300000)
        self.delete_volume(name)
        self.assertFalse(disk.exists())

    def test_decompresses_images(self):
        for ending, pack in (('gz', gzip.compress), ('xz', lzma.compress)):
            name = self.create_volume(
                self.web.put('/a.' + ending, pack(IMAGE)))
            self.wait_phase(name, 'Succeeded')
            if not self.external:
                self.assertTrue(self.disk(name).read_bytes().startswith(
                    IMAGE), ending)

    def test_converts_qcow2_to_raw(self):
        if shutil.which('qemu-img') is None:
            self.skipTest('qemu-img is not installed')
        with tempfile.TemporaryDirectory() as home:
            raw, made = home + '/raw', home + '/qcow2'
            with open(raw, 'wb') as file:
                file.write(IMAGE + bytes(-len(IMAGE) % 512))
            subprocess.run(['qemu-img', 'convert', '-f', 'raw', '-O',
                            'qcow2', raw, made], check=True)
            with open(made, 'rb') as file:
                content = file.read()
            subprocess.run(['qemu-img', 'create', '-f', 'qcow2', '-F', 'raw',
                            '-b', '/etc/hostname', made, '1M'], check=True,
                           stdout=subprocess.DEVNULL)
            with open(made, 'rb') as file:
                hostile = file.read()
        name = self.create_volume(self.web.put('/a.qcow2', content))
        self.wait_phase(name, 'Succeeded')
        self.assertTrue(self.disk(name).read_bytes().startswith(IMAGE))
        _, message = self.wait_failure(self.web.put('/b.qcow2', hostile))
        self.assertIn('invalid backing file /etc/hostname', message)

    def test_blank_disk(self):
        name = self.create_volume({'blank': {}}, '4Mi')
        self.assertEqual('100.0%', self.wait_phase(
            name, 'Succeeded')['status']['progress'])
        if not self.external:
            self.assertEqual(bytes(4 * cdi.MIB),
                             self.disk(name).read_bytes())

    def test_clones_claim(self):
        first = self.create_volume(self.web.put('/a.iso', IMAGE))
        self.wait_phase(first, 'Succeeded')
        copy = self.create_volume(
            {'pvc': {'namespace': sandbox.NAMESPACE, 'name': first}},
            size=None)
        self.wait_phase(copy, 'Succeeded')
        if not self.external:
            self.assertTrue(self.disk(copy).read_bytes().startswith(IMAGE))

    def test_reports_progress(self):
        self.need_sandbox()
        # So small that it arrives at once.
        url = self.web.put('/slow.iso', os.urandom(5000))
        self.cluster.request('POST', '/sandbox/imports', {
            # In five seconds, of which a pause may take some.
            'url': 'slow.iso$', 'rate': 1000}, expect=204)
        self.addCleanup(self.cluster.request, 'DELETE', '/sandbox/imports')
        name = self.create_volume(url)
        volume = self.wait_volume(name, lambda volume: '%' in volume.get(
            'status', {}).get('progress', ''))
        percent = float(volume['status']['progress'].rstrip('%'))
        self.assertTrue(0 <= percent < 100, percent)
        self.assertEqual('ImportInProgress', volume['status']['phase'])
        self.assertEqual(
            [('Ready', 'False', 'TransferRunning'),
             ('Running', 'True', 'Pod is running')],
            sorted((c['type'], c['status'], c['reason'])
                   for c in volume['status']['conditions']
                   if c['type'] != 'Bound'))
        self.wait_volume(name, lambda volume: percent < float(
            volume['status']['progress'].rstrip('%')) < 100)
        self.wait_phase(name, 'Succeeded')

    def test_concurrent_imports(self):
        for number in range(20):
            self.web.put(f'/gate/{number}.iso',
                         os.urandom(500000) + b'%d' % number)
        names = [self.create_volume(self.web.url + f'/gate/{number}.iso')
                 for number in range(20)]
        for name in names:
            self.wait_phase(name, 'ImportInProgress')
        self.web.gate.set()
        for number, name in enumerate(names):
            self.wait_phase(name, 'Succeeded')
            if not self.external:
                self.assertTrue(self.disk(name).read_bytes().startswith(
                    self.web.files[f'/gate/{number}.iso']))

    def test_verifies_checksum(self):
        url = self.web.put('/a.iso', IMAGE)
        good = hashlib.sha256(IMAGE).hexdigest()
        name = self.create_volume({'http': {
            'url': url, 'checksum': 'sha256:' + good}})
        self.wait_phase(name, 'Succeeded')
        name = self.create_volume({'http': {
            'url': url, 'checksum': 'md5:' + 32 * '0'}})
        volume = self.wait_phase(name, 'Failed')
        self.assertEqual('ChecksumError', self.condition(
            volume, 'Running')['reason'])
        self.assertIn('checksum mismatch: expected md5:00',
                      self.condition(volume, 'Running')['message'])
        if not self.external:
            self.assertFalse(self.disk(name).exists())


class HttpOptionsTest(cdi.CdiTestCase):
    """Credentials, headers, certificates and redirects."""

    def require_password(self, handler):
        wanted = 'Basic bWU6c2VjcmV0'  # me:secret
        if handler.headers.get('Authorization') == wanted:
            handler.answer(200, IMAGE)
        else:
            handler.answer(401, WWW_Authenticate='Basic realm="images"')

    def test_credentials_of_secret(self):
        url = self.web.put('/a.iso', self.require_password)
        secret = self.create_secret(accessKeyId='me', secretKey='secret')
        name = self.create_volume({'http': {'url': url,
                                            'secretRef': secret}})
        self.wait_phase(name, 'Succeeded')
        wrong = self.create_secret(accessKeyId='me', secretKey='other')
        name, message = self.wait_failure({'http': {
            'url': url, 'secretRef': wrong}})
        self.assertEqual(
            'Unable to connect to http data source: expected status code '
            '200, got 401. Status: 401 Unauthorized', message)
        for text in (str(self.events(name)), str(self.get_volume(name)),
                     str(self.claim(name))):
            self.assertNotIn('other', text)

    def test_hides_credentials_of_url(self):
        url = self.web.put('/a.iso', self.require_password)
        name = self.create_volume(url.replace('//', '//me:secret@'))
        self.wait_phase(name, 'Succeeded')
        _, message = self.wait_failure('http://me:secret@127.0.0.1:1/a.iso')
        self.assertIn('"http://me:***@127.0.0.1:1/a.iso"', message)

    def test_waits_for_missing_secret(self):
        url = self.web.put('/a.iso', self.require_password)
        secret = self.create_secret(accessKeyId='me', secretKey='secret')
        self.cluster.delete('secrets', secret)
        name = self.create_volume({'http': {'url': url,
                                            'secretRef': secret}})
        self.assertEqual(f'secret "{secret}" not found', self.wait_running(
            name, 'CreateContainerConfigError'))
        self.assertEqual('ImportScheduled',
                         self.get_volume(name)['status']['phase'])
        self.cluster.create('secrets', {
            'metadata': {'name': secret}, 'stringData': {
                'accessKeyId': 'me', 'secretKey': 'secret'}})
        self.wait_phase(name, 'Succeeded')

    def test_extra_headers(self):
        secret = self.create_secret(any='X-Secret: hidden')
        url = self.web.put('/a.iso', IMAGE)
        name = self.create_volume({'http': {
            'url': url, 'extraHeaders': ['X-Plain: seen'],
            'secretExtraHeaders': [secret]}})
        self.wait_phase(name, 'Succeeded')
        for _, _, headers in self.web.requests:
            self.assertEqual(('seen', 'hidden', 'cdi-golang-importer'), (
                headers['X-Plain'], headers['X-Secret'],
                headers['User-Agent']))

    def test_verifies_certificate(self):
        web, tls = self.secure_web()
        url = web.put('/a.iso', IMAGE)
        _, message = self.wait_failure(url)
        self.assertEqual(
            'Unable to connect to http data source: HTTP request errored: '
            f'Get "{url}": tls: failed to verify certificate: x509: '
            'certificate signed by unknown authority', message)
        trusted = self.create_config_map(**{'any.pem': tls.ca.read_text()})
        name = self.create_volume({'http': {'url': url,
                                            'certConfigMap': trusted}})
        self.wait_phase(name, 'Succeeded')
        name = self.create_volume({'http': {'url': url,
                                            'insecureSkipVerify': True}})
        self.wait_phase(name, 'Succeeded')

    def test_https_to_http_server(self):
        _, message = self.wait_failure(self.web.put('/a.iso', IMAGE).replace(
            'http:', 'https:'))
        self.assertTrue(message.endswith(
            'http: server gave HTTP response to HTTPS client'), message)

    def test_follows_redirects(self):
        target = self.web.put('/a.iso', self.require_password)

        def redirect(handler):
            handler.answer(302, Location=target)
        url = self.web.put('/b.iso', redirect)
        secret = self.create_secret(accessKeyId='me', secretKey='secret')
        name = self.create_volume({'http': {'url': url,
                                            'secretRef': secret}})
        self.wait_phase(name, 'Succeeded')

        def redirect_to_itself(handler):
            handler.answer(302, Location='/c.iso')
        _, message = self.wait_failure(self.web.put(
            '/c.iso', redirect_to_itself))
        self.assertIn('stopped after 10 redirects', message)

    def test_server_without_head_or_length(self):
        def answer(handler):
            if handler.command == 'HEAD':
                handler.answer(405)
                return
            handler.send_response(200)
            handler.send_header('Transfer-Encoding', 'chunked')
            handler.end_headers()
            for at in range(0, len(IMAGE), 100000):
                piece = IMAGE[at:at + 100000]
                handler.wfile.write(b'%x\r\n%s\r\n' % (len(piece), piece))
            handler.wfile.write(b'0\r\n\r\n')
        name = self.create_volume(self.web.put('/a.iso', answer))
        self.wait_phase(name, 'Succeeded')
        if not self.external:
            self.assertTrue(self.disk(name).read_bytes().startswith(IMAGE))


class AdmissionTest(cdi.CdiTestCase):

    DENIED = ('admission webhook "datavolume-validate.cdi.kubevirt.io" '
              'denied the request:  ')

    def assert_refused(self, message, *args, **more):
        self.assertEqual(self.DENIED + message,
                         self.refuse_volume(*args, **more))

    def test_rejects_invalid_urls(self):
        for url, message in (
                ('', 'spec.source source URL is empty'),
                ('not a url', 'spec.source Invalid source URL: not a url'),
                ('http://a b/', 'spec.source Invalid source URL: '
                 'http://a b/'),
                ('http://a:port/', 'spec.source Invalid source URL: '
                 'http://a:port/'),
                ('ftp://127.0.0.1/a.iso', 'spec.source Invalid source URL '
                 'scheme: ftp://127.0.0.1/a.iso'),
                ('/a.iso', 'spec.source Invalid source URL scheme: /a.iso')):
            self.assert_refused(message, {'http': {'url': url}})

    def test_rejects_invalid_sizes(self):
        self.assert_refused('Storage size is missing', self.web.url,
                            size=None)
        self.assert_refused('Storage size can\'t be equal or less than zero',
                            self.web.url, size='0')
        self.assert_refused('Storage size should be at least 1MiB',
                            self.web.url, size='1000k')
        self.assert_refused('PVC size is missing', self.web.url,
                            storage=None,
                            pvc={'accessModes': ['ReadWriteOnce']})

    def test_rejects_invalid_specs(self):
        self.assert_refused('Missing Data volume PVC', self.web.url,
                            storage=None)
        self.assert_refused(
            'Duplicate storage definition, both target storage and target '
            'pvc defined', self.web.url, pvc={})
        self.assert_refused('Missing Data volume source', {})
        self.assert_refused('Multiple Data volume sources', {
            'blank': {}, 'upload': {}})
        self.assert_refused(
            'Data volume should have either Source or SourceRef, or be '
            'externally populated', None)
        self.assert_refused(
            'Unsupported value: "Often": supported values: "ReadOnlyMany", '
            '"ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"',
            self.web.url, storage={
                'accessModes': ['Often'],
                'resources': {'requests': {'storage': '64Mi'}}})
        self.assert_refused(
            'Invalid checksum format: invalid md5 hash length: expected 32 '
            'hex characters, got 2',
            {'http': {'url': self.web.url, 'checksum': 'md5:ab'}})

    def test_rejects_violations_of_schema(self):
        self.refuse_volume({'http': {}})
        self.refuse_volume(self.web.url, 'much')
        self.refuse_volume(self.web.url, contentType='iso')

    def test_spec_is_immutable(self):
        name = self.create_volume(self.web.put('/a.iso', IMAGE))
        self.assertEqual(
            self.DENIED + 'Cannot update DataVolume Spec', self.call(
                'PATCH', cdi.VOLUMES % sandbox.NAMESPACE + '/' + name,
                {'spec': {'preallocation': True}}, 422,
                content_type='application/merge-patch+json'))

    def test_rejects_name_of_existing_claim(self):
        claim = self.cluster.create('persistentvolumeclaims', {
            'metadata': {'generateName': 'test-'}, 'spec': {
                'accessModes': ['ReadWriteOnce'],
                'resources': {'requests': {'storage': '1Mi'}}}})
        name = claim['metadata']['name']
        self.addCleanup(self.cluster.delete, 'persistentvolumeclaims', name)
        self.assert_refused(f'Destination PVC {sandbox.NAMESPACE}/{name} '
                            'already exists', self.web.url, name=name)

    def test_rejects_existing_name(self):
        name = self.create_volume(self.web.put('/a.iso', IMAGE))
        self.assertIn('already exists', self.refuse_volume(
            self.web.url, name=name, code=409))


class RegistryTest(cdi.CdiTestCase):
    """Disks of container images."""

    @classmethod
    def setUpClass(cls):
        file = tempfile.NamedTemporaryFile()
        cls.addClassCleanup(file.close)
        file.write(IMAGE)
        file.flush()
        cls.ARGUMENTS = ('--image', f'images.test/disk:1={file.name}')
        super().setUpClass()

    def test_imports(self):
        self.need_sandbox()
        name = self.create_volume(
            {'registry': {'url': 'docker://images.test/disk:1'}})
        self.wait_phase(name, 'Succeeded')
        self.assertTrue(self.disk(name).read_bytes().startswith(IMAGE))

    def test_missing_image(self):
        name = self.create_volume(
            {'registry': {'url': 'docker://images.test/other:1'}})
        running = self.wait_running(name, 'ImagePullFailed')
        self.assertIn('failed to pull image', str(running))
