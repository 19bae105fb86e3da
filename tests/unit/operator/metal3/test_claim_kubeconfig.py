# SPDX-License-Identifier: Apache-2.0
import base64
import contextlib
import io
import json

from oslotest import base

from sushy_kubevirt.operator.metal3 import claim_kubeconfig
from sushy_kubevirt.operator import naming

URL = 'https://api.test:6443'


class ClaimKubeconfigTestCase(base.BaseTestCase):

    def test_objects(self):
        made = claim_kubeconfig.objects('claims', 'lab', ['metal', 'metal'])
        self.assertEqual(
            [('ServiceAccount', 'lab', 'claims'), ('Role', 'lab', 'claims'),
             ('RoleBinding', 'lab', 'claims'),
             ('Role', 'metal', 'claims-of-lab'),
             ('RoleBinding', 'metal', 'claims-of-lab')],
            [(one['kind'], one['metadata']['namespace'],
              one['metadata']['name']) for one in made])
        for one in made:
            # The operator changes and deletes what has its own label.
            self.assertFalse(naming.made_by_us(one))
            if one['kind'] == 'RoleBinding':
                self.assertEqual(
                    [{'kind': 'ServiceAccount', 'namespace': 'lab',
                      'name': 'claims'}], one['subjects'])
                self.assertEqual(one['metadata']['name'],
                                 one['roleRef']['name'])
        granted = {what for one in made if one['kind'] == 'Role'
                   for rule in one['rules'] for what in rule['resources']}
        self.assertEqual({'hostclaims', 'hostclaims/status', 'secrets',
                          'hardwaredata'}, granted)

    def test_kubeconfig(self):
        found = json.loads(claim_kubeconfig.kubeconfig(
            URL, 'PEM', 'T', 'lab'))
        self.assertEqual({
            'server': URL, 'certificate-authority-data': base64.b64encode(
                b'PEM').decode()}, found['clusters'][0]['cluster'])
        self.assertEqual({'token': 'T'}, found['users'][0]['user'])
        self.assertEqual('lab', found['contexts'][0]['context']['namespace'])
        self.assertNotIn('PEM', claim_kubeconfig.kubeconfig(
            URL, None, 'T', 'lab'))

    def test_name_in_certificate(self):
        found = json.loads(claim_kubeconfig.kubeconfig(
            URL, None, 'T', 'lab', 'api.lab'))
        self.assertEqual({'server': URL, 'tls-server-name': 'api.lab'},
                         found['clusters'][0]['cluster'])

    def test_addresses_of_one_cluster(self):
        pod = {'KUBERNETES_SERVICE_HOST': '10.96.0.1'}
        for good in URL, 'https://192.0.2.1:6443', 'https://[2001:db8::1]':
            self.assertEqual(good, claim_kubeconfig.reachable(good, pod))
        for bad in ('https://127.0.0.1:6443', 'https://[::1]:6443',
                    'https://localhost', 'https://kubernetes.default.svc',
                    'https://x.cluster.local', 'https://10.96.0.1'):
            self.assertRaisesRegex(
                Exception, '--server', claim_kubeconfig.reachable, bad, pod)

    def test_arguments(self):
        parse = claim_kubeconfig.parser().parse_args
        self.assertEqual(
            (365 * 86400, 600, 7200), tuple(parse(
                ['lab', *words]).duration for words in (
                    (), ('--duration', '10m'), ('--duration', '2h'))))
        self.assertEqual(URL, parse(['lab', '--server', URL + '/']).server)
        for words, text in (
                ((), 'NAMESPACE'), (('La',), 'name of a namespace'),
                (('lab', '--duration', '9m'), 'is not a time of 10m'),
                (('lab', '--duration', '1y'), 'is not a time of 10m'),
                (('lab', '--server', 'http://api'), 'is not a URL'),
                (('lab', '--server', 'https://me:pw@api'), 'is not a URL')):
            with self.subTest(words=words):
                said = io.StringIO()
                with contextlib.redirect_stderr(said):
                    self.assertRaises(SystemExit, parse, words)
                self.assertIn(text, said.getvalue())
