# SPDX-License-Identifier: Apache-2.0
import base64

from oslotest import base

from sushy_kubevirt.operator import authority
from sushy_kubevirt.operator import secrets
from tests.unit.operator import bodies


def encoded(text):
    return base64.b64encode(text.encode()).decode()


class SecretsTestCase(base.BaseTestCase):

    def test_nothing_secret_is_kept(self):
        pair = authority.make('any')
        secret = bodies.secret(annotations={
            'kubectl.kubernetes.io/last-applied-configuration': 'a secret',
            'bmc.kubevirt.io/allow-from': 'lab'})
        secret['data'].update(secrets.data(pair))
        seen = secrets.look(secret)
        for text in ('a secret', encoded('a secret'), 'PRIVATE KEY',
                     secret['data'][secrets.KEY]):
            self.assertNotIn(text, repr(seen))
        self.assertEqual(pair.certificate, seen.certificate)
        self.assertEqual({'bmc.kubevirt.io/allow-from': 'lab'},
                         seen.obj['metadata']['annotations'])
        del secret['metadata']['annotations']['bmc.kubevirt.io/allow-from']
        self.assertNotIn('a secret', repr(secrets.look(secret)))

    def test_digest(self):
        one = secrets.look(bodies.secret()).digest
        self.assertEqual(one, secrets.look(bodies.secret('far')).digest)
        for other in ({'username': 'b', 'password': 'a secret'},
                      {'username': 'admin', 'password': 'b'},
                      {'username': 'admin'},
                      {'username': 'admin', 'password': 'a secret',
                       'role': 'ReadOnly'}):
            self.assertNotEqual(one, secrets.look(
                bodies.secret(**other)).digest)

    def test_certificate(self):
        pair, other = authority.make('one'), authority.make('other')
        for certificate, key, good in (
                (pair.certificate, pair.key, True),
                (pair.certificate, other.key, False),
                (pair.certificate, 'no key', False),
                ('none', pair.key, False),
                (pair.certificate, '', False)):
            seen = secrets.look({'metadata': {}, 'data': secrets.data(
                authority.Pair(certificate, key))})
            self.assertEqual(certificate if good else None, seen.certificate)
        for data in (None, {}, {'tls.crt': '!', 'tls.key': '!'},
                     {'tls.crt': '/w==', 'tls.key': '/w=='}):
            self.assertIsNone(secrets.look(
                {'metadata': {}, 'data': data}).certificate)

    def test_unfit(self):
        ipmi = (('ipmi', 'username'), ('ipmi', 'password'))
        name = (('redfish', 'username'),)
        for data, unfit in (
                ({'username': 'a' * 16, 'password': 'b' * 20}, ()),
                ({'username': 'a' * 17, 'password': 'b'}, ipmi[:1]),
                ({'username': 'a', 'password': 'b' * 21}, ipmi[1:]),
                ({'username': 'ä' * 9, 'password': 'ß' * 11}, ipmi),
                ({'username': 'a\nb', 'password': 'b\x7f'}, ipmi + name),
                ({'username': 'a:b', 'password': 'b'}, name),
                ({'username': 'a', 'password': 'b', 'role': 'root'},
                 (('redfish', 'role'),))):
            with self.subTest(data=data):
                self.assertEqual(unfit, secrets.look(
                    bodies.secret(**data)).unfit)
