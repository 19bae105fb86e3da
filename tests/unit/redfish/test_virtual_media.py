# SPDX-License-Identifier: Apache-2.0
import fixtures

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import media
from tests.unit.redfish import fakes
from tests.unit.redfish import media_case

URL = media_case.URL
INSERT = '/Actions/VirtualMedia.InsertMedia'
EJECT = '/Actions/VirtualMedia.EjectMedia'


class TestSystems(media_case.MediaTestCase):

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


class TestInsert(media_case.MediaTestCase):

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


class TestPatch(media_case.MediaTestCase):

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
