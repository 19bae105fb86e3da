# SPDX-License-Identifier: Apache-2.0
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import media
from tests.fixtures import file_servers
from tests.unit.redfish import base
from tests.unit.redfish import fakes

PEM, KEY = file_servers.pair('images.example', ca=True)
OTHER = file_servers.pair('other.example')[0]
SERVICE = '/redfish/v1/CertificateService'
REPLACE = SERVICE + '/Actions/CertificateService.ReplaceCertificate'


class TestCertificates(base.RedfishTestCase):

    def setUp(self):
        super().setUp()
        self.path += '/VirtualMedia/Cd/Certificates'

    def post(self, text=PEM, kind='PEM', code=201):
        return self.client.post(self.path, json={
            'CertificateString': text, 'CertificateType': kind})

    def test_create_read_delete(self):
        self.assertEqual([], self.get()['Members'])
        self.assertEqual(['PEM'],
                         self.get()['@Redfish.SupportedCertificates'])
        # Text around the PEM block is dropped.
        answer = self.post('A comment\r\n' + PEM.replace('\n', '\r\n'))
        self.assertEqual(201, answer.status_code)
        self.assertEqual(self.path + '/1', answer.headers['Location'])
        self.assertEqual([{'@odata.id': self.path + '/1'}],
                         self.get()['Members'])
        body = self.get('/1')
        self.assertEqual((PEM, 'PEM'), (body['CertificateString'],
                                        body['CertificateType']))
        self.assertEqual({'CommonName': 'images.example'}, body['Subject'])
        self.assertEqual(body['Subject'], body['Issuer'])
        self.assertLess(body['ValidNotBefore'], body['ValidNotAfter'])
        self.assertRegex(body['Fingerprint'], '^([0-9A-F]{2}:){31}..$')
        self.send('DELETE', '/1', None, 204)
        self.get('/1', code=404)
        self.send('DELETE', '/1', None, 404)

    def test_certificates_of_manager(self):
        self.post()
        self.path = self.path.replace('Systems', 'Managers')
        body = self.get('/1')
        self.assertEqual(self.path + '/1', body['@odata.id'])

    def test_rejects_invalid_certificates(self):
        for text, kind in (('', 'PEM'), ('x', 'PEM'), (PEM[:200], 'PEM'),
                           (PEM + OTHER, 'PEM'), (PEM + KEY, 'PEM'),
                           (KEY, 'PEM'), (PEM, 'PKCS7'), (PEM, 'PEMchain'),
                           ('\ud800', 'PEM'), (7, 'PEM'), (PEM, None)):
            answer = self.post(text, kind)
            self.assertEqual(400, answer.status_code)
            self.check_error(answer)
            self.assertNotIn('PRIVATE', answer.text)
        for body in ({}, {'CertificateString': PEM},
                     {'CertificateType': 'PEM'}):
            self.send('POST', '', body, 400)
        self.assertEqual([], self.machine.calls)

    def test_unparsable_stored_certificate(self):
        self.machine.certificates.append(media.Certificate('1', 'nonsense'))
        body = self.get('/1')
        self.assertEqual('nonsense', body['CertificateString'])
        self.assertNotIn('Subject', body)

    def replace(self, uri, code=204, text=OTHER, **more):
        answer = self.client.post(REPLACE, json={
            'CertificateString': text, 'CertificateType': 'PEM',
            'CertificateUri': uri, **more})
        self.assertEqual(code, answer.status_code, answer.text)
        return answer

    def test_replace(self):
        self.post()
        answer = self.replace(self.path + '/1')
        self.assertEqual(self.path + '/2', answer.headers['Location'])
        self.get('/1', code=404)
        self.assertEqual(OTHER, self.get('/2')['CertificateString'])
        managers = self.path.replace('Systems', 'Managers')
        answer = self.replace({'@odata.id': managers + '/2'}, text=PEM)
        self.assertEqual(managers + '/3', answer.headers['Location'])

    def test_refused_replacement_leaves_nothing(self):
        self.post()
        before = self.machine.media_certificates('Cd')
        delete = self.machine.delete_media_certificate
        calls = iter((errors.AccessDenied('no'),))

        def fail_once(*args):
            for error in calls:
                raise error
            delete(*args)

        self.machine.delete_media_certificate = fail_once
        self.replace(self.path + '/1', 500)
        self.assertEqual(before, self.machine.media_certificates('Cd'))

    def test_replace_with_single_vm(self):
        app = fakes.application(self, self.cluster,
                                SUSHY_EMULATOR_KUBEVIRT_VM='default/vm-a')
        self.client = app.test_client()
        self.post()
        number = 1
        for owner, location in (
                ('Systems/1', 'Systems/1'), ('Managers/BMC', 'Managers/1'),
                ('Systems/' + fakes.A, 'Systems/1')):
            path = '/redfish/v1/%s/VirtualMedia/Cd/Certificates/%d'
            answer = self.replace(path % (owner, number),
                                  text=(PEM, OTHER)[number % 2])
            number += 1
            self.assertEqual(path % (location, number),
                             answer.headers['Location'])

    def test_rejects_invalid_replacement(self):
        self.post()
        for uri, code in ((self.path + '/2', 404), (self.path, 404),
                          ('/redfish/v1/', 404), ({}, 404), (7, 400),
                          (self.path.replace('Cd', 'Floppy') + '/1', 404),
                          (self.path.replace(fakes.A, fakes.OTHER) + '/1',
                           404)):
            self.replace(uri, code)
        self.replace(self.path + '/1', 400, text='x')
        self.replace(self.path + '/1', 400, Nonsense=1)
        self.assertEqual(PEM, self.get('/1')['CertificateString'])

    def test_certificate_locations(self):
        self.post()
        body = self.get(path=SERVICE)
        for where in (body['CertificateLocations']['@odata.id'],
                      body['Actions'][
                          '#CertificateService.ReplaceCertificate'][
                          '@Redfish.ActionInfo']):
            self.get(path=where)
        [one, _usb] = self.get(path=SERVICE + '/CertificateLocations')[
            'Links']['Certificates']
        self.get(path=one['@odata.id'])
