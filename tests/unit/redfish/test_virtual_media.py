# SPDX-License-Identifier: Apache-2.0
import gzip
import io
import lzma
import os

import fixtures
import werkzeug.test

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import media
from tests.unit.redfish import base
from tests.unit.redfish import fakes

URL = 'http://host/a.iso'
INSERT = '/Actions/VirtualMedia.InsertMedia'
EJECT = '/Actions/VirtualMedia.EjectMedia'


class MediaTestCase(base.RedfishTestCase):
    """Test case whose ``path`` is that of the CD drive."""

    ROOT = 'Systems'

    def setUp(self):
        super().setUp()
        self.path = f'/redfish/v1/{self.ROOT}/{fakes.A}/VirtualMedia/Cd'

    def put_medium(self, **changes):
        """Put a medium into the drive."""
        medium = fakes.MEDIUM._replace(**changes)
        self.machine.media['Cd'] = medium
        return medium

    def inserted(self):
        """Return the sources of the inserts."""
        return [call[2] for call in self.machine.calls
                if call[0] == 'insert_media']


class TestUpload(MediaTestCase):

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


class TestWithoutWebPage(MediaTestCase):

    CONFIG = {**TestUpload.CONFIG, 'SUSHY_EMULATOR_KUBEVIRT_WEB_PAGE': False}

    def test_accepts_no_uploads(self):
        self.assertNotIn('Oem', self.get())
        self.send('POST', '/Upload', None, 404)


class TestSystems(MediaTestCase):

    def test_collection(self):
        above = self.path.rpartition('/')[0]
        body = self.get(path=above)
        self.assertEqual(above, body['@odata.id'])
        self.assertEqual(
            [{'@odata.id': above + '/Cd'}, {'@odata.id': above + '/USBStick'}],
            body['Members'])

    def test_links_stay_below_system_or_manager(self):
        self.put_medium()
        text = self.client.get(self.path).text
        other = {'Systems': 'Managers', 'Managers': 'Systems'}[self.ROOT]
        self.assertNotIn(f'/{other}/{fakes.A}/VirtualMedia', text)
        body = self.get()
        for target in (body['Certificates']['@odata.id'],
                       body['Actions']['#VirtualMedia.InsertMedia'][
                           '@Redfish.ActionInfo']):
            self.get(path=target)

    def test_empty_drive(self):
        body = self.get()
        self.assertEqual(self.path, body['@odata.id'])
        self.assertEqual(['CD', 'DVD'], body['MediaTypes'])
        self.assertFalse(body['Inserted'])
        for name in ('Image', 'ImageName', 'WriteProtected', 'UserName',
                     'Password', 'TransferMethod', 'TransferProtocolType'):
            self.assertIsNone(body[name], name)
        self.assertEqual('NotConnected', body['ConnectedVia'])
        self.assertTrue(body['VerifyCertificate'])
        self.assertEqual({'State': 'Enabled', 'Health': 'OK'},
                         body['Status'])

    def test_usb_stick(self):
        body = self.get(path=self.path.replace('/Cd', '/USBStick'))
        self.assertEqual(['USBStick'], body['MediaTypes'])

    def test_unknown_devices_get_404(self):
        for more in '', '/Certificates', '/InsertMediaActionInfo':
            self.get(path=self.path.replace('/Cd', '/Floppy') + more,
                     code=404)
            # The internal drive of HTTP boot is not exposed.
            self.get(path=self.path.replace('/Cd', '/HttpBoot') + more,
                     code=404)

    def test_importing_medium(self):
        self.put_medium(method='Stream')
        body = self.get()
        self.assertEqual((URL, 'a.iso', True, True, 'URI'), (
            body['Image'], body['ImageName'], body['Inserted'],
            body['WriteProtected'], body['ConnectedVia']))
        self.assertEqual((None, None, 'Stream', 'HTTP'), (
            body['UserName'], body['Password'], body['TransferMethod'],
            body['TransferProtocolType']))
        self.assertEqual(('Updating', 'OK'), (
            body['Status']['State'], body['Status']['Health']))
        [condition] = body['Status']['Conditions']
        self.assertEqual(['attempt-1', '41'], condition['MessageArgs'])
        self.assertIn('41 percent', condition['Message'])
        self.assertIn('Import is running', condition['Message'])

    def test_medium_that_the_guest_keeps(self):
        def keep(device_id, verify=None):
            self.put_medium(state=media.State.EJECTING, task='',
                            reason='SyncFailed', message='the tray')

        self.machine.eject_media = keep
        body = self.send('POST', '/Actions/VirtualMedia.EjectMedia', {},
                         200)
        [entry] = body['error']['@Message.ExtendedInfo']
        self.assertIn('the tray', entry['Message'])
        found = self.get()
        self.assertTrue(found['Inserted'])
        self.assertEqual(('Updating', 'Warning'), (
            found['Status']['State'], found['Status']['Health']))
        [condition] = found['Status']['Conditions']
        self.assertEqual(['Inserted', 'SyncFailed'],
                         condition['MessageArgs'])

    def test_failed_import(self):
        self.put_medium(state=media.State.FAILED, reason='Error',
                        message='expected status code 200, got 404')
        status = self.get()['Status']
        self.assertEqual(('Enabled', 'Critical'),
                         (status['State'], status['Health']))
        [condition] = status['Conditions']
        self.assertIn('got 404', condition['Message'])
        self.assertEqual('Critical', condition['Severity'])

    def test_ready_medium(self):
        self.put_medium(state=media.State.READY)
        self.assertEqual({'State': 'Enabled', 'Health': 'OK'},
                         self.get()['Status'])

    def test_restart_pending(self):
        self.put_medium(state=media.State.READY, pending_restart=True,
                        restart_cause='The gate is off.')
        [condition] = self.get()['Status']['Conditions']
        self.assertIn('ResetRequired', condition['MessageId'])
        self.assertIn('after a restart. The gate is off.',
                      condition['Message'])

    def test_action_info(self):
        body = self.get('/InsertMediaActionInfo')
        found = {one['Name']: one for one in body['Parameters']}
        self.assertTrue(found['Image']['Required'])
        self.assertEqual(['HTTP', 'HTTPS'],
                         found['TransferProtocolType']['AllowableValues'])


class TestManagers(TestSystems):

    ROOT = 'Managers'


class TestInsert(MediaTestCase):

    def test_insert_with_image_only(self):
        self.send('POST', INSERT, {'Image': URL}, 204)
        self.assertEqual([media.Source(URL)], self.inserted())

    def test_insert_with_all_parameters(self):
        self.send('POST', INSERT, {
            'Image': URL, 'Inserted': True, 'WriteProtected': False,
            'UserName': 'me', 'Password': 's3cret',
            'TransferProtocolType': 'HTTP', 'TransferMethod': 'Upload'}, 204)
        self.assertEqual([media.Source(
            URL, 'me', 's3cret', False, None, 'Upload', 'HTTP')],
            self.inserted())

    def test_insert_with_null_parameters(self):
        self.send('POST', INSERT, {
            'Image': URL, 'Inserted': None, 'WriteProtected': None,
            'UserName': None, 'Password': None,
            'TransferProtocolType': None, 'TransferMethod': None}, 204)
        self.assertEqual([media.Source(URL)], self.inserted())

    def test_extra_members_that_agree(self):
        for more in ({'MediaType': 'DVD', 'MediaTypes': ['CD', 'DVD']},
                     {'MediaType': None, 'MediaTypes': [], 'Oem': None},
                     {'Action': 'InsertVirtualMedia', 'Target': '/Oem/Hp'},
                     {'Action': '#VirtualMedia.InsertMedia', 'Oem': {}},
                     {'Oem': {'Hpe': {'BootOnNextServerReset': False,
                                      '@odata.type': '#HpeiLO.x'},
                              'Dell': None, '@odata.type': '#x'}}):
            self.machine.calls.clear()
            self.send('POST', INSERT, {'Image': URL, **more}, 204)
            self.assertEqual([media.Source(URL)], self.inserted(), more)

    def test_extra_members_that_could_change_the_result(self):
        unknown, value = 'ActionParameterUnknown', (
            'ActionParameterValueNotInList')
        for more, key, name in (
                ({'MediaType': 'USBStick'}, value, 'MediaType'),
                ({'MediaTypes': ['CD', 'Floppy']}, value, 'MediaTypes'),
                ({'Action': 'EjectVirtualMedia'}, value, 'Action'),
                ({'Action': None}, 'ActionParameterValueTypeError', 'Action'),
                ({'Target': '/Oem/Other'}, value, 'Target'),
                ({'Oem': 'Hpe'}, 'ActionParameterValueTypeError', 'Oem'),
                ({'Oem': {'Hpe': 'x'}}, unknown, 'Oem/Hpe'),
                ({'Oem': {'Hpe': {'BootOnNextServerReset': True}}}, unknown,
                 'Oem/Hpe/BootOnNextServerReset'),
                ({'BootOnNextServerReset': True}, unknown,
                 'BootOnNextServerReset')):
            answer = self.send('POST', INSERT, {'Image': URL, **more}, 400)
            [(found, arguments)] = self.entries(answer)
            self.assertEqual(key, found)
            self.assertIn(name, arguments)
        self.assertEqual([], self.machine.calls)
        answer = self.send('POST', INSERT, {'Image': URL, 'Oem': {
            'Hpe': {'BootOnNextServerReset': True}}}, 400)
        self.assertIn('BootSourceOverrideTarget', str(answer))

    def test_rejects_invalid_bodies(self):
        for body, key in (
                ({}, 'ActionParameterMissing'),
                ({'Image': None}, 'ActionParameterValueTypeError'),
                ({'Image': URL, 'Inserted': False},
                 'ActionParameterValueError'),
                ({'Image': URL, 'TransferProtocolType': 'NFS'},
                 'ActionParameterValueNotInList'),
                ({'Image': URL, 'TransferMethod': 'stream'},
                 'ActionParameterValueNotInList'),
                ({'Image': URL, 'Password': 7},
                 'ActionParameterValueTypeError'),
                ({'Image': URL, 'Verify': True}, 'ActionParameterUnknown')):
            answer = self.send('POST', INSERT, body, 400)
            self.assertEqual([key], [one[0] for one in self.entries(answer)])
        self.assertEqual([], self.machine.calls)

    def fails(self, error, code):
        self.machine.fails = error
        return self.entries(
            self.send('POST', INSERT, {'Image': URL}, code))[0]

    def test_maps_errors_of_the_machine(self):
        self.assertEqual(
            ('ActionParameterValueError',
             ['Image', 'VirtualMedia.InsertMedia']),
            self.fails(errors.InvalidValue('Image', URL), 400))
        for kind, code, key in (
                ('missing', 400, 'ResourceMissingAtURI'),
                ('unauthorized', 400, 'ResourceAtUriUnauthorized'),
                ('tls', 400, 'CouldNotEstablishConnection'),
                ('unreachable', 400, 'CouldNotEstablishConnection'),
                ('size', 400, 'CouldNotEstablishConnection'),
                ('server', 502, 'CouldNotEstablishConnection')):
            found = self.fails(
                errors.MediaUnreachable('It said no', URL, kind), code)
            self.assertEqual((key, URL), (found[0], found[1][0]))
        # The response does not say which images exist on a server.
        self.machine.fails = errors.MediaUnreachable('404', URL, 'missing')
        log = self.useFixture(fixtures.FakeLogger())
        answer = self.send('POST', INSERT, {'Image': URL}, 400)
        self.assertIn('Image not reachable: 404', log.output)
        self.assertNotIn('/redfish/v1/ and', str(answer))
        self.fails(errors.Unsupported('Install CDI'), 501)
        self.fails(errors.Rejected('exceeded quota'), 409)
        self.fails(errors.WrongState('not now'), 409)
        self.fails(errors.Unavailable('away'), 503)

    def test_responses_contain_no_password(self):
        self.machine.fails = errors.InvalidValue('Password', '')
        for body in ({'Image': URL, 'UserName': 'me', 'Password': 's3cret'},
                     {'Image': 7, 'Password': 's3cret'},
                     {'Image': URL, 'Password': ['s3cret']}):
            for answer in (self.client.post(self.path + INSERT, json=body),
                           self.client.patch(self.path, json=body)):
                self.assertEqual(400, answer.status_code)
                self.assertNotIn('s3cret', answer.text)

    def test_insert_reports_required_reset(self):
        self.machine.insert_media = lambda *_, **__: self.put_medium(
            pending_restart=True)
        answer = self.send('POST', INSERT, {'Image': URL}, 200)
        self.assertEqual([('ResetRequired', [
            f'/redfish/v1/Systems/{fakes.A}/Actions/ComputerSystem.Reset',
            'PowerCycle'])], self.entries(answer))

    def test_respond_async(self):
        for prefer in ('respond-async', 'return=minimal, Respond-Async;x=y'):
            answer = self.client.post(
                self.path + INSERT, json={'Image': URL},
                headers={'Prefer': prefer})
            self.assertEqual(202, answer.status_code)
            self.assertEqual('/redfish/v1/TaskService/TaskMonitors/attempt-1',
                             answer.headers['Location'])
            self.assertEqual('attempt-1', answer.json['Id'])
            # respond-async overrides the configured wait.
            self.assertEqual(
                ('insert_media', 'Cd', media.Source(URL), False),
                self.machine.calls[-1])
        for prefer in 'wait=100', 'no-respond-async', '':
            answer = self.client.post(
                self.path + INSERT, json={'Image': URL},
                headers={'Prefer': prefer})
            self.assertEqual(204, answer.status_code)

    def test_respond_async_without_tasks(self):
        self.app.config['SUSHY_EMULATOR_FEATURE_SET'] = 'vmedia'
        answer = self.client.post(
            self.path + INSERT, json={'Image': URL},
            headers={'Prefer': 'respond-async'})
        self.assertEqual(204, answer.status_code)
        body = self.get()
        self.assertNotIn('Certificates', body)

    def test_respond_async_for_completed_import(self):
        self.machine.insert_media = lambda *_, **__: self.put_medium(
            state=media.State.READY)
        answer = self.client.post(
            self.path + INSERT, json={'Image': URL},
            headers={'Prefer': 'respond-async'})
        self.assertEqual(204, answer.status_code)

    def test_eject(self):
        self.put_medium()
        self.send('POST', EJECT, {}, 204)
        answer = self.client.post(self.path + EJECT)
        self.assertEqual(204, answer.status_code)
        self.send('POST', EJECT, {
            'Action': 'EjectVirtualMedia', 'Target': '/Oem/Hp',
            'MediaType': 'CD', 'Oem': {'Hpe': {}}}, 204)
        self.assertEqual([('eject_media', 'Cd')] * 3, self.machine.calls)
        for more in ({'Force': True}, {'Action': 'InsertVirtualMedia'},
                     {'MediaType': 'USBStick'}, {'Oem': {'Hpe': {'a': 1}}}):
            self.send('POST', EJECT, more, 400)
        self.assertEqual([('eject_media', 'Cd')] * 3, self.machine.calls)


class TestPatch(MediaTestCase):

    def test_insert(self):
        self.send('PATCH', '', {'Image': URL, 'Inserted': True,
                                'WriteProtected': True, 'UserName': 'me',
                                'Password': 's3cret'}, 204)
        self.assertEqual([media.Source(URL, 'me', 's3cret')],
                         self.inserted())

    def test_eject(self):
        for body in ({'Image': None, 'Inserted': False}, {'Image': None},
                     {'Image': ''}, {'Inserted': False}):
            self.machine.calls.clear()
            self.send('PATCH', '', body, 204)
            self.assertEqual([('eject_media', 'Cd')], self.machine.calls)

    def test_oem(self):
        def oem(boots):
            return {'Image': URL, 'Oem': {'Hpe': {
                'BootOnNextServerReset': boots}}}

        self.send('PATCH', '', oem(False), 204)
        self.assertEqual([media.Source(URL)], self.inserted())
        self.machine.calls.clear()
        answer = self.send('PATCH', '', oem(True), 400)
        self.assertEqual([('PropertyUnknown', [
            'Oem/Hpe/BootOnNextServerReset'])], self.entries(answer))
        self.assertEqual([], self.machine.calls)

    def test_patch_verify_certificate(self):
        self.send('PATCH', '', {'VerifyCertificate': False}, 204)
        self.assertFalse(self.get()['VerifyCertificate'])
        self.send('PATCH', '', {'VerifyCertificate': True, 'Image': URL},
                  204)
        self.assertTrue(self.get()['VerifyCertificate'])
        self.assertEqual([media.Source(URL, verify=True)], self.inserted())

    def test_patch_without_change(self):
        self.put_medium()
        self.send('PATCH', '', {'Inserted': True, 'WriteProtected': True},
                  204)
        self.assertEqual([], self.machine.calls)

    def test_rejects_invalid_bodies(self):
        for body, key in (
                ({'Image': URL, 'Inserted': False}, 'PropertyValueConflict'),
                ({'Image': None, 'Inserted': True}, 'PropertyMissing'),
                ({'Inserted': True}, 'PropertyMissing'),
                ({'WriteProtected': False}, 'PropertyMissing'),
                ({'UserName': 'me'}, 'PropertyMissing'),
                ({'Image': 7}, 'PropertyValueTypeError'),
                ({'VerifyCertificate': None}, 'PropertyValueTypeError'),
                ({'TransferMethod': 'x', 'Image': URL},
                 'PropertyValueNotInList'),
                ({'ImageName': 'x'}, 'PropertyNotWritable'),
                ({'Image': URL, 'Nonsense': 1}, 'PropertyUnknown'),
                ({}, 'NoOperation')):
            answer = self.send('PATCH', '', body, 400)
            self.assertEqual([key], [one[0] for one in self.entries(answer)],
                             body)
        self.assertEqual([], self.machine.calls)

    def test_maps_errors_of_the_machine(self):
        self.machine.fails = errors.InvalidValue('Image', URL)
        answer = self.send('PATCH', '', {'Image': URL}, 400)
        self.assertEqual([('PropertyValueIncorrect', ['Image', URL])],
                         self.entries(answer))

    def test_managers_have_the_same_actions(self):
        self.path = self.path.replace('Systems', 'Managers')
        self.send('PATCH', '', {'VerifyCertificate': False}, 204)
        self.send('POST', INSERT, {'Image': URL}, 204)
        self.assertTrue(self.get()['Inserted'])
        self.send('POST', EJECT, {}, 204)
        self.assertFalse(self.get()['Inserted'])


class TestTasks(MediaTestCase):

    SERVICE = '/redfish/v1/TaskService'
    TASK = SERVICE + '/Tasks/attempt-1'
    MONITOR = SERVICE + '/TaskMonitors/attempt-1'

    def test_service(self):
        body = self.get(path=self.SERVICE)
        self.assertTrue(body['ServiceEnabled'])
        self.assertEqual(self.SERVICE + '/Tasks', body['Tasks']['@odata.id'])
        answer = self.client.patch(self.SERVICE, json={
            'ServiceEnabled': False})
        self.assertEqual(400, answer.status_code)

    def test_no_tasks_without_import(self):
        self.assertEqual([], self.get(path=self.SERVICE + '/Tasks')[
            'Members'])
        for path in self.TASK, self.MONITOR, self.SERVICE + '/Tasks/42':
            self.get(path=path, code=404)
            self.assertEqual(404, self.client.delete(
                path if path[-1] != '2' else self.TASK).status_code)

    def test_running_task(self):
        self.put_medium()
        self.assertEqual(
            [{'@odata.id': self.TASK}],
            self.get(path=self.SERVICE + '/Tasks')['Members'])
        body = self.get(path=self.TASK)
        self.assertEqual(('Running', 'OK', 41), (
            body['TaskState'], body['TaskStatus'], body['PercentComplete']))
        self.assertEqual(self.MONITOR, body['TaskMonitor'])
        self.assertEqual('2026-01-02T03:04:05.000Z', body['StartTime'])
        answer = self.client.get(self.MONITOR)
        self.assertEqual(202, answer.status_code)
        self.assertEqual(self.MONITOR, answer.headers['Location'])
        self.assertEqual('Running', answer.json['TaskState'])

    def test_completed_and_failed_tasks(self):
        self.put_medium(state=media.State.READY)
        body = self.get(path=self.TASK)
        self.assertEqual(('Completed', 100), (
            body['TaskState'], body['PercentComplete']))
        self.assertEqual(204, self.client.get(self.MONITOR).status_code)
        self.put_medium(state=media.State.READY, pending_restart=True)
        self.assertEqual(200, self.client.get(self.MONITOR).status_code)
        self.put_medium(state=media.State.FAILED, reason='Error',
                        message='no')
        body = self.get(path=self.TASK)
        self.assertEqual(('Exception', 'Critical'), (
            body['TaskState'], body['TaskStatus']))
        answer = self.client.get(self.MONITOR)
        self.assertEqual(400, answer.status_code)
        self.check_error(answer)

    def test_waiting_task(self):
        self.put_medium(state=media.State.WAITING, progress=None)
        body = self.get(path=self.TASK)
        self.assertEqual(('Starting', 0), (
            body['TaskState'], body['PercentComplete']))

    def test_delete_cancels_import(self):
        for path in self.TASK, self.MONITOR:
            for state in media.State.IMPORTING, media.State.FAILED:
                self.put_medium(state=state)
                self.assertEqual(204, self.client.delete(path).status_code)
                self.assertIsNone(self.machine.medium('Cd'))
                self.assertEqual(404, self.client.get(path).status_code)
            self.put_medium(state=media.State.READY)
            self.assertEqual(409, self.client.delete(path).status_code)

    def test_task_omits_query_of_url(self):
        self.put_medium(url=URL + '?signature=s3cret')
        self.assertNotIn('s3cret', self.client.get(self.TASK).text)

    def test_task_of_http_boot(self):
        self.machine.media['HttpBoot'] = fakes.MEDIUM
        self.assertIn('HttpBoot', self.get(path=self.TASK)['Description'])
