# SPDX-License-Identifier: Apache-2.0
"""Virtual media through Redfish, with an emulator, CDI and image servers.

CDI really downloads the images, and uploads really transfer them.
"""

import concurrent.futures
import contextlib
import time

import sushy

from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import file_servers
from tests.fixtures import image_server
from tests.fixtures import redfish_case
from tests.fixtures import virtual_media_case


class TestMedia(virtual_media_case.MediaTestCase):

    def test_sushy_inserts_and_ejects(self):
        for place in 'system', 'manager':
            self.make('RerunOnFailure')
            uid = self.sandbox.wait_running(self.name)['metadata']['uid']
            system = self.sushy()
            owner = system if place == 'system' else system.managers[0]
            found = {one.identity: one
                     for one in owner.virtual_media.get_members()}
            self.assertEqual({'Cd', 'USBStick'}, set(found))
            cd = found['Cd']
            self.assertFalse(cd.inserted)
            self.assertIn(sushy.VIRTUAL_MEDIA_CD, cd.media_types)
            cd.insert_media(self.url())
            cd.refresh(force=True)
            self.assertTrue(cd.inserted)
            self.assertEqual((self.url(), self.name + '.iso'),
                             (cd.image, cd.image_name))
            self.wait_ready()
            # The running guest has it, in the same VMI.
            self.sandbox.wait(
                'virtualmachineinstances', self.name,
                lambda vmi: len(vmi['spec']['volumes']) == 2)
            self.assertEqual(uid, self.sandbox.vmi(self.name)[
                'metadata']['uid'])
            cd.eject_media()
            cd.refresh(force=True)
            self.assertFalse(cd.inserted)
            cd.eject_media()
            self.sandbox.delete('virtualmachines', self.name)
        self.wait_clean()

    def test_insert_of_same_and_other_image(self):
        self.make()
        self.insert()
        self.wait_ready()
        names = [one['metadata']['uid']
                 for one in self.sandbox.list('datavolumes')]
        self.insert()
        self.assertEqual(names, [one['metadata']['uid'] for one in
                                 self.sandbox.list('datavolumes')])
        self.insert(self.url('other.iso'))
        self.assertEqual(self.url('other.iso'), self.wait_ready()['Image'])
        self.eject()
        self.wait_clean()

    def test_import_with_credentials(self):
        self.make()
        url = self.url('private/a.iso')
        for body in ({}, {'UserName': 'me', 'Password': 'wrong'}):
            [(key, where, _text)] = self.refused(
                'POST',
                self.device + virtual_media_case.INSERT,
                dict(body, Image=url),
                400,
            )
            self.assertEqual(('ResourceAtUriUnauthorized', url),
                             (key, where))
        self.wait_clean()
        self.insert(url, UserName='me', Password=virtual_media_case.PASSWORD)
        self.wait_ready()
        self.assert_not_exposed(virtual_media_case.PASSWORD)
        self.eject()
        self.wait_clean()
        # Credentials in a URL are removed from it.
        self.insert(url.replace('//', f'//me:{virtual_media_case.PASSWORD}@'))
        self.assertEqual(url, self.wait_ready()['Image'])
        self.assert_not_exposed(virtual_media_case.PASSWORD)
        # The same with sushy.
        cd = self.sushy().virtual_media.get_members()[0]
        cd.eject_media()
        cd.insert_media(
            url,
            username='me',
            password=virtual_media_case.PASSWORD)
        self.wait_ready()
        cd.eject_media()
        self.wait_clean()

    def test_certificates_of_image_servers(self):
        self.make()
        ca = file_servers.pair('CA', ca=True)
        server = self.useFixture(file_servers.Server(
            file_servers.image(b'x' * 5000), file_servers.pair(issuer=ca)))
        url = server.url + '/a.iso'
        [(key, where)] = self.refused(
            'POST',
            self.device + virtual_media_case.INSERT,
            {'Image': url},
            400,
        )
        self.assertEqual(('CouldNotEstablishConnection', url), (key, where))
        cd = self.sushy().virtual_media.get_members()[0]
        cd.certificates.create_member(ca[0], sushy.CertificateType.PEM)
        cd.certificates.refresh(force=True)
        [member] = cd.certificates.get_members()
        self.assertEqual(ca[0], member.certificate_string)
        self.assertEqual('CA', member.subject.common_name)
        locations = self.emulator.request(
            'GET', '/redfish/v1/CertificateService/CertificateLocations')
        self.assertEqual(1, len(locations.json()['Links']['Certificates']))
        cd.insert_media(url)
        self.wait_ready()
        cd.eject_media()
        self.wait_no_data_volumes()
        # Replace it by the certificate of another CA.
        other = file_servers.pair('Other CA', ca=True)
        root = sushy.Sushy(self.emulator.url + '/redfish/v1/')
        root.get_certificate_service().replace_certificate(
            member.path, other[0], sushy.CertificateType.PEM)
        self.insert(url, 400)
        cd.set_verify_certificate(False)
        self.assertFalse(self.read()['VerifyCertificate'])
        cd.insert_media(url)
        self.wait_ready()
        cd.eject_media()
        for one in self.emulator.request(
                'GET', self.device + '/Certificates').json()['Members']:
            self.emulator.request('DELETE', one['@odata.id'], expect=204)
        cd.set_verify_certificate(True)
        self.insert(url, 400)

    def wait_no_data_volumes(self):
        self.until(lambda: not self.sandbox.list('datavolumes'))

    def test_invalid_certificates(self):
        self.make()
        certificate, key = file_servers.pair()
        for text in ('', 'x', certificate + key, key, certificate * 2,
                     certificate[:100]):
            answer = self.emulator.request(
                'POST', self.device + '/Certificates',
                {'CertificateString': text, 'CertificateType': 'PEM'},
                expect=400)
            self.assertNotIn('PRIVATE', answer.text)
        for body in ({}, {'CertificateString': certificate},
                     {'CertificateString': certificate,
                      'CertificateType': 'PKCS7'},
                     {'CertificateString': 7, 'CertificateType': 'PEM'}):
            self.emulator.request('POST', self.device + '/Certificates',
                                  body, expect=400)
        self.emulator.request('DELETE', self.device + '/Certificates/1',
                              expect=404)

    def test_failed_import(self):
        self.make()
        self.images.missing = self.name
        self.insert()
        began = time.monotonic()
        self.assertIn('404', self.wait_failed())
        self.assertLess(time.monotonic() - began, 30)
        [task] = self.remaining()[1]
        body = self.emulator.request('GET', task['@odata.id']).json()
        self.assertEqual(('Exception', 'Critical'),
                         (body['TaskState'], body['TaskStatus']))
        self.emulator.request('GET', body['TaskMonitor'], expect=400)
        # The next insert works.
        self.images.missing = None
        self.insert(self.url('good.iso'))
        self.wait_ready()
        self.eject()
        self.wait_clean()

    def test_hostile_urls(self):
        self.make()
        redirect = self.useFixture(file_servers.Server(
            lambda handler: file_servers.send(
                handler, 302,
                Location='http://169.254.169.254/latest/meta-data')))
        urls = ('', 'x', 'file:///etc/passwd', 'ftp://127.0.0.1/a',
                'nfs://host/a', 'http://', 'http://2130706433/a.iso',
                'http://0x7f.1/a', 'http://0177.0.0.1/', 'http://127.1/',
                'http://169.254.169.254/latest/meta-data',
                'http://[::ffff:169.254.169.254]/', 'http://0.0.0.0/',
                'http://[::]/', 'http://[fe80::1%25lo]/',
                'http://[fd00:ec2::254]/', 'http://169.254.1.1/',
                'http://224.0.0.1/', 'http://a\r\nb/', 'http://a b/',
                'http://a\\@127.0.0.1/', 'http://host:99999/',
                'http://x/' + 'y' * 5000, redirect.url + '/a.iso',
                f'http://me:{virtual_media_case.PASSWORD}@/x')
        for url in urls:
            for method, where, body in (
                    ('POST', self.device +
                     virtual_media_case.INSERT, {'Image': url}),
                    ('PATCH', self.device, {'Image': url})):
                if method == 'PATCH' and not url:
                    continue  # an empty Image ejects
                answer = self.emulator.request(method, where, body,
                                               expect=400)
                [entry] = answer.json()['error']['@Message.ExtendedInfo']
                self.assertEqual(['#/Image'], entry['RelatedProperties'])
                self.assertLess(len(answer.text), 3000)
                self.assertNotIn(virtual_media_case.PASSWORD, answer.text)
        self.wait_clean()
        self.assert_not_exposed(virtual_media_case.PASSWORD)


class TestMediaWithoutHotplug(virtual_media_case.MediaTestCase):

    GATES = {'on': ['RebootPolicy'], 'off': ['DeclarativeHotplugVolumes']}

    def test_reset_required(self):
        self.make('RerunOnFailure', empty=False)
        self.sandbox.wait_running(self.name)
        answer = self.insert(expect=200)
        [entry] = answer.json()['error']['@Message.ExtendedInfo']
        self.assertIn('ResetRequired', entry['MessageId'])
        where, kind = entry['MessageArgs']
        self.assertIn('DeclarativeHotplugVolumes is off; switch it on in the '
                      'KubeVirt object', entry['Message'])
        self.until(lambda: 'ResetRequired' in self.read()['Status'].get(
            'Conditions', [{}])[-1].get('MessageId', '')
            and self.read()['Status']['State'] == 'Enabled')
        self.emulator.request('POST', where, {'ResetType': kind}, expect=204)
        self.wait_ready()
        self.sandbox.delete('virtualmachines', self.name)
        self.wait_clean()


class TestHttpBoot(virtual_media_case.MediaTestCase):

    def make(self):
        super().make()
        # Whether there is CDI is looked up in the background.
        self.until(lambda: 'UefiHttp' in self.emulator.system(self.uuid)[
            'Boot']['BootSourceOverrideTarget@Redfish.AllowableValues'])

    def patch(self, expect=204, **boot):
        return self.emulator.request('PATCH', self.path, {'Boot': boot},
                                     expect=expect)

    def test_http_boot_once(self):
        self.make()
        self.patch(BootSourceOverrideTarget='UefiHttp',
                   BootSourceOverrideEnabled='Once',
                   BootSourceOverrideMode='UEFI', HttpBootUri=self.url())
        body = self.emulator.system(self.uuid)['Boot']
        self.assertEqual(('UefiHttp', 'Once', self.url()), (
            body['BootSourceOverrideTarget'],
            body['BootSourceOverrideEnabled'], body['HttpBootUri']))
        # The virtual media devices do not show it.
        self.assertFalse(self.read()['Inserted'])
        [task] = self.remaining()[1]
        self.until(lambda: self.emulator.request(
            'GET', task['@odata.id']).json()['TaskState'] == 'Completed')
        self.emulator.reset(self.uuid, 'On')
        self.assertEqual('cdrom:bmc-http',
                         self.sandbox.wait_boot(self.name, 1)['device'])
        self.emulator.reset(self.uuid, 'ForceRestart')
        self.assertEqual('disk:root',
                         self.sandbox.wait_boot(self.name, 2)['device'])
        self.patch(HttpBootUri='')
        self.wait_clean()

    def test_invalid_http_boot_uris(self):
        self.make()
        for uri, code in (
            ('http://169.254.169.254/', 400),
            ('x', 400),
            (self.url('none'), 400),
            (f'http://me:{virtual_media_case.PASSWORD}@127.0.0.1/', 400),
        ):
            answer = self.patch(
                code, BootSourceOverrideTarget='UefiHttp', HttpBootUri=uri,
                BootSourceOverrideMode='UEFI')
            self.assertNotIn(virtual_media_case.PASSWORD, answer.text)
            [entry] = answer.json()['error']['@Message.ExtendedInfo']
            self.assertNotIn('Image', entry['MessageArgs'])
        self.assertEqual(['#/Boot/HttpBootUri'], entry['RelatedProperties'])
        self.assertEqual([], self.remaining()[1])
        body = self.emulator.system(self.uuid)['Boot']
        self.assertEqual('None', body['BootSourceOverrideTarget'])

    def test_refused_change_leaves_nothing(self):
        self.make()
        # KubeVirt has changed the new VM's metadata before.
        self.sandbox.wait('virtualmachines', self.name, lambda vm: vm.get(
            'status', {}).get('printableStatus'))
        uri = self.url()
        legacy = {'BootSourceOverrideTarget': 'UefiHttp',
                  'BootSourceOverrideEnabled': 'Once', 'HttpBootUri': uri}
        pxe = {'BootSourceOverrideTarget': 'Pxe'}
        long = 'x' * 300
        for path, body, code in (
            ('', {'Boot': legacy}, 409),
            ('', {'Boot': legacy, 'IndicatorLED': 'Lit'}, 409),
            ('', {'Boot': pxe, 'AssetTag': long}, 400),
            ('', {'Boot': {**pxe, 'BootOrder': ['Boot9999']}}, 400),
            ('', {'Boot': {'BootSourceOverrideMode': 'UEFI',
                           'HttpBootUri': uri}, 'AssetTag': long}, 400),
            ('', {'Boot': {**legacy, 'BootSourceOverrideMode': 'UEFI'},
                  'AssetTag': long}, 400),
            ('', {'PowerRestorePolicy': 'AlwaysOff', 'AssetTag': long,
                  'IndicatorLED': 'Lit'}, 400),
            ('/Bios/Settings', {'Attributes': {
                'BootMode': 'UEFI', 'Mine': 'x' * 20000}}, 400),
            ('/VirtualMedia/Cd', {'VerifyCertificate': False,
                                  'Image': self.url('none')}, 400),
        ):
            before = self.sandbox.vm(self.name)
            self.emulator.request('PATCH', self.path + path, body,
                                  expect=code)
            after = self.sandbox.vm(self.name)
            for member in 'spec', 'metadata':
                for vm in before, after:
                    for changing in 'resourceVersion', 'managedFields':
                        vm[member].pop(changing, None)
                self.assertEqual(before[member], after[member], body)
        self.assertIsNone(
            self.emulator.system(self.uuid)['Boot']['HttpBootUri'])
        # Those of other tests may still be in deletion.
        self.assertEqual([], [
            volume for volume in self.sandbox.list('datavolumes')
            if volume['metadata']['name'].startswith(self.name + '-')])

    def test_several_properties_are_one_patch(self):
        self.make()
        # A second patch would be refused.
        self.sandbox.fault(403, verb='PATCH', where='/virtualmachines/',
                           after=1)
        self.addCleanup(self.sandbox.clear_faults)
        self.emulator.request('PATCH', self.path, {
            'Boot': {'BootSourceOverrideTarget': 'Pxe'}, 'AssetTag': 'x',
            'IndicatorLED': 'Lit', 'PowerRestorePolicy': 'AlwaysOff'},
            expect=204)
        body = self.emulator.system(self.uuid)
        self.assertEqual(('Pxe', 'x', 'Lit', 'AlwaysOff'), (
            body['Boot']['BootSourceOverrideTarget'], body['AssetTag'],
            body['IndicatorLED'], body['PowerRestorePolicy']))
        self.sandbox.clear_faults()
        self.sandbox.fault(403, verb='PATCH', where='/virtualmachines/',
                           after=1)
        where = self.path + '/Bios/Settings'
        attributes = {'BootMode': 'UEFI', 'SecureBoot': 'Enabled', 'Mine': 1}
        self.emulator.request('PATCH', where, {'Attributes': attributes},
                              expect=204)
        found = self.emulator.request('GET', where).json()['Attributes']
        self.assertEqual(attributes, {name: found.get(name)
                                      for name in attributes})


class TestTasks(virtual_media_case.MediaTestCase):

    def start(self, url=None):
        """Insert with a task; return the response."""
        return self.insert(url, 202, {'Prefer': 'respond-async'})

    def test_task_is_polled_to_its_end(self):
        self.make()

        def poll():
            answer = self.emulator.request('GET', monitor)
            if answer.status_code == 202:
                self.assertIn(answer.json()['TaskState'],
                              ('Starting', 'Running'))
                self.assertIn('Retry-After', answer.headers)
            return answer.status_code

        with self.images.hold(self.name):
            answer = self.start()
            monitor = answer.headers['Location']
            task = answer.json()
            self.assertEqual(f'Import of {self.name}.iso', task['Name'])
            self.assertEqual(202, poll())
        self.assertEqual(204, self.until(
            lambda: (code := poll()) != 202 and code))
        body = self.emulator.request('GET', task['@odata.id']).json()
        self.assertEqual(('Completed', 100),
                         (body['TaskState'], body['PercentComplete']))
        # An insert of the same image needs no task.
        self.insert(expect=204, headers={'Prefer': 'respond-async'})
        self.eject()
        self.emulator.request('GET', monitor, expect=404)
        self.wait_clean()

    def test_task_progress(self):
        self.make()
        seen = []

        def state():
            body = self.emulator.request('GET', path).json()
            seen.append(body['PercentComplete'])
            return body['TaskState']

        with self.images.hold(self.name):
            path = self.start(self.url(f'size-2000000-{self.name}.iso')
                              ).json()['@odata.id']
            self.until(lambda: state() == 'Running' and 0 < seen[-1] < 100)
        self.until(lambda: state() == 'Completed')
        self.assertEqual(sorted(seen), seen)
        self.eject()

    def test_sushy_polls_task(self):
        self.make()
        with self.images.hold(self.name):
            monitor = self.start().headers['Location']
            root = sushy.Sushy(self.emulator.url + '/redfish/v1/')
            [task] = root.get_task_service().tasks.get_members()
            self.assertIn(task.task_state, (sushy.TASK_STATE_STARTING,
                                            sushy.TASK_STATE_RUNNING))
            watch = root.get_task_monitor(monitor)
            self.assertTrue(watch.is_processing)
        self.until(lambda: not watch.check_is_processing)
        self.eject()

    def test_cancelled_task(self):
        self.make()
        for part in 'TaskMonitor', '@odata.id':
            with self.images.hold(self.name):
                task = self.start().json()
                self.emulator.request('DELETE', task[part], expect=204)
                self.assertFalse(self.read()['Inserted'])
                self.wait_clean()

    def test_unknown_task_is_not_found(self):
        self.emulator.request(
            'GET',
            virtual_media_case.TASKS +
            '/42',
            expect=404)


class TestMany(virtual_media_case.MediaTestCase):

    def test_many_inserts_leave_no_objects(self):
        self.make()
        for number in range(30):
            self.insert(self.url(f'{number % 3}.iso'), expect=204)
            self.assertTrue(self.read()['Inserted'])
            self.eject()
            self.assertFalse(self.read()['Inserted'])
        self.wait_clean()

    def test_twenty_machines_at_once(self):
        devices = []
        for _ in range(20):
            self.make()
            devices.append((self.device, self.url()))

        def turn(where):
            device, url = where
            self.emulator.request(
                'POST',
                device + virtual_media_case.INSERT,
                {'Image': url},
                expect=204,
            )
            self.until(lambda: self.emulator.request('GET', device).json()[
                'Status'] == {'State': 'Enabled', 'Health': 'OK'})
            body = self.emulator.request('GET', device).json()
            self.emulator.request(
                'POST',
                device +
                virtual_media_case.EJECT,
                {},
                expect=204)
            return body['Image']
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            self.assertEqual([url for _, url in devices],
                             list(pool.map(turn, devices)))
        self.wait_clean()

    def test_concurrent_inserts_and_ejects(self):
        self.make()

        def turn(number):
            body = {} if number % 3 == 0 else {'Image': self.url(
                f'{number}.iso')}
            answer = self.emulator.request(
                'POST',
                self.device
                + (
                    virtual_media_case.INSERT
                    if body
                    else virtual_media_case.EJECT
                ),
                body,
            )
            return answer.status_code
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            codes = set(pool.map(turn, range(24)))
        self.assertEqual(set(), codes - {200, 204, 409, 503})
        self.eject()
        self.assertFalse(self.read()['Inserted'])
        self.wait_clean()


class TestUpload(virtual_media_case.MediaTestCase):
    """The emulator uploads images that CDI cannot import."""

    @classmethod
    def setUpClass(cls):
        base.SandboxTestCase.setUpClass.__func__(cls)
        cls.images = cls.share(image_server.ImageServer())
        url, ca = cls.sandbox.upload_proxy()
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(), {
                **cls.SETTINGS, virtual_media_case.PREFIX + 'MODE': 'upload',
                virtual_media_case.PREFIX + 'WAIT': 20,
                virtual_media_case.PREFIX + 'UPLOAD_PROXY_URL': url,
                virtual_media_case.PREFIX + 'UPLOAD_PROXY_CA': str(ca)}))

    def test_upload(self):
        self.make()
        pair = file_servers.pair()
        content = b'0123456789' * 300000
        server = self.useFixture(file_servers.Server(
            file_servers.image(content), pair))
        self.emulator.request('PATCH', self.device,
                              {'VerifyCertificate': False}, expect=204)
        self.insert(server.url + '/a.iso', expect=204)
        # The request waited for the upload.
        self.assertEqual({'State': 'Enabled', 'Health': 'OK'},
                         self.read()['Status'])
        [volume] = self.sandbox.list('datavolumes')
        self.assertEqual('Succeeded', volume['status']['phase'])
        self.assertIn('upload', volume['spec']['source'])
        self.assertEqual({'sushy-kubevirt'}, {
            headers['User-Agent'] for _, _, headers in server.requests})
        self.eject()
        self.emulator.request('PATCH', self.device,
                              {'VerifyCertificate': True}, expect=204)
        self.wait_clean()

    def test_upload_with_task(self):
        self.make()

        def slow(handler):
            if handler.command == 'GET':
                time.sleep(0.5)
            file_servers.send(handler, 200, b'x' * 5000)
        server = self.useFixture(file_servers.Server(slow))
        answer = self.insert(server.url + '/a.iso', 202,
                             {'Prefer': 'respond-async'})
        self.until(lambda: self.emulator.request(
            'GET', answer.headers['Location']).status_code == 204)
        self.eject()
        self.wait_clean()

    def test_upload_with_credentials(self):
        self.make()
        url = self.url('private/b.iso')
        self.insert(
            url,
            UserName='me',
            Password=virtual_media_case.PASSWORD,
            expect=204)
        self.assertEqual([], [
            one for one in self.sandbox.list('secrets')
            if one['metadata']['name'].startswith(self.name)])
        self.assert_not_exposed(virtual_media_case.PASSWORD)
        self.eject()
        self.wait_clean()

    def test_interrupted_download(self):
        self.make()

        def short(handler):
            if handler.command == 'HEAD':
                file_servers.send(handler, 200, b'x' * 500000)
                return
            handler.close_connection = True
            handler.send_response(200)
            handler.send_header('Content-Length', '500000')
            handler.end_headers()
            handler.wfile.write(b'x' * 200000)
        server = self.useFixture(file_servers.Server(short))
        began = time.monotonic()
        answer = self.insert(server.url + '/a.iso', expect=400)
        self.assertLess(time.monotonic() - began, 40)
        self.assertIn('200000 of 500000', answer.text)
        self.wait_clean()


class TestWithoutCdi(redfish_case.RedfishTestCase):

    SANDBOX_ARGUMENTS = ('--no-cdi',)
    SETTINGS = {virtual_media_case.PREFIX + 'ALLOW_LOOPBACK': True}

    def test_insert_without_cdi_is_unsupported(self):
        self.make()
        device = self.path + '/VirtualMedia/Cd'
        body = self.emulator.request('GET', device, expect=200).json()
        self.assertFalse(body['Inserted'])
        images = self.useFixture(image_server.ImageServer())
        began = time.monotonic()
        answer = self.emulator.request(
            'POST', device + virtual_media_case.INSERT,
            {'Image': images.url + '/a.iso'},
            expect=501)
        self.assertLess(time.monotonic() - began, 20)
        self.assertIn('Containerized Data Importer', answer.text)
        self.emulator.request('POST', device +
                              virtual_media_case.EJECT, {}, expect=204)
        cd = self.sushy().virtual_media.get_members()[0]
        with contextlib.suppress(sushy.exceptions.ServerSideError):
            cd.insert_media(images.url + '/a.iso')
            self.fail('It was inserted')
