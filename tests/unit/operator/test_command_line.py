# SPDX-License-Identifier: Apache-2.0
"""The command line of the operator."""

import contextlib
import io
import os

import fixtures
from oslotest import base

from sushy_kubevirt.operator import command_line
from tests.fixtures import authority


def parse(*words, **environ):
    return command_line.parse(words, environ)


class OptionsTestCase(base.BaseTestCase):

    def refused(self, *words):
        output = io.StringIO()
        with contextlib.redirect_stderr(output):
            end = self.assertRaises(SystemExit, parse, *words)
        self.assertEqual(2, end.code)
        return output.getvalue().splitlines()[-1]

    def test_defaults(self):
        found = parse()
        self.assertEqual((None, None, (), 'sushy-kubevirt-system'), (
            found.kubeconfig, found.context, found.namespaces,
            found.system_namespace))
        self.assertEqual(('sushy-kubevirt-emulator',), found.allowed_images)
        self.assertEqual(('127.0.0.1', 8080), found.listen)
        self.assertEqual((True, 30), (found.leader_election,
                                      found.lease_seconds))
        self.assertIsNone(found.auto_create)

    def test_defaults_from_pod_environment(self):
        found = parse(POD_NAME='operator-1', POD_NAMESPACE='bmcs',
                      POD_IP='fd00::7')
        self.assertEqual(('bmcs', ('fd00::7', 8080)), (
            found.system_namespace, found.listen))
        self.assertTrue(found.identity.startswith('operator-1_'))
        self.assertNotEqual(
            found.identity, parse(POD_NAME='operator-1').identity)

    def test_namespace_option(self):
        found = parse('--namespace', 'a', '--namespace', 'b',
                      '--namespace', 'a')
        self.assertEqual(('a', 'b'), found.namespaces)
        for wrong in ('A', '', 'a.b', 'a/b', '-a', 'a' * 64):
            self.assertEqual(
                'sushy-kubevirt-operator: error: argument --namespace: '
                f'{wrong!r} is not a name of a namespace',
                self.refused('--namespace=' + wrong))

    def test_allowed_images_default_to_image(self):
        self.assertEqual(
            ('registry.test:5000/lab/bmc',),
            parse('--image', 'registry.test:5000/lab/bmc:2').allowed_images)
        self.assertEqual(('a/*', 'b'), parse(
            '--allowed-images', 'a/*', '--allowed-images', 'b',
            '--image', 'c').allowed_images)
        self.refused('--image', '')
        self.refused('--image', 'a b')

    def test_auto_create_selectors(self):
        for text in ('bmc=auto', 'bmc==auto', 'bmc!=auto', 'bmc', '!bmc',
                     'bmc.kubevirt.io/auto=true', 'bmc in (a, b)',
                     'bmc notin (a,b),tier=x', 'a=,b', 'a in (x,y),!b',
                     ' a = b , c '):
            self.assertEqual(text.strip(),
                             parse('--auto-create', text).auto_create)
        for text in ('', ' ', 'a b', 'a=b c', 'a in b', 'a in (b', ',a',
                     'a,,b', '=b', 'A/b/c', 'a=b/c', 'a>1', 'a=(b)'):
            self.refused('--auto-create', text)

    def test_metrics_addresses(self):
        for text, found in (('127.0.0.1:0', ('127.0.0.1', 0)),
                            ('[::]:9', ('::', 9)), ('', None)):
            self.assertEqual(found,
                             parse('--metrics-address', text).listen)
        for text in ('8080', ':8080', 'localhost:80', '127.0.0.1',
                     '127.0.0.1:x', '127.0.0.1:65536', '127.0.0.1:-1'):
            self.refused('--metrics-address', text)

    def test_upload_proxy_options(self):
        found = parse()
        self.assertEqual((None, None), (found.upload_proxy_url,
                                        found.upload_proxy_ca))
        self.assertEqual(
            'https://cdi-uploadproxy.cdi.svc', parse(
                '--upload-proxy-url', 'https://cdi-uploadproxy.cdi.svc/'
            ).upload_proxy_url)
        for text in ('', 'cdi', 'ftp://cdi', 'https://', 'https://a/b',
                     'https://me:x@a', 'https://a b', 'https://a?b'):
            self.refused('--upload-proxy-url', text)
        folder = self.useFixture(fixtures.TempDir()).path
        path = os.path.join(folder, 'ca.pem')
        pem = authority.Authority().pem
        for text in (pem, pem + authority.Authority().pem):
            with open(path, 'w') as stream:
                stream.write(text)
            self.assertEqual(text, parse(
                '--upload-proxy-ca', path).upload_proxy_ca)
        with open(path, 'w') as stream:
            stream.write('nothing')
        self.refused('--upload-proxy-ca', path)
        missing = os.path.join(folder, 'none')
        self.assertIn('none has no certificates: No such file',
                      self.refused('--upload-proxy-ca', missing))

    def test_numeric_options(self):
        self.assertEqual(3, parse('--lease-seconds', '3').lease_seconds)
        for text in ('2', '3.5', '-5', 'x', '10000', ''):
            self.refused('--lease-seconds=' + text)
        self.assertEqual(1, parse('--max-unavailable', '1').max_unavailable)
        for text in ('0', '-1', 'x', '1.5', '01'):
            self.refused('--max-unavailable=' + text)
        for text in '30m', '0.5', '2':
            self.assertEqual(text, parse('--bmc-cpu', text).bmc_cpu)
        for text in ('0', '0m', '-1', 'x', '', '1 2'):
            self.refused('--bmc-cpu=' + text)

    def test_pull_secrets(self):
        self.assertEqual((), parse().pull_secrets)
        self.assertEqual(('registry', 'lab.2'), parse(
            '--image-pull-secret=registry', '--image-pull-secret=lab.2',
            '--image-pull-secret=registry').pull_secrets)
        for text in ('', 'Registry', 'a/b', '-a', 'a..b', 'a' * 254):
            self.refused('--image-pull-secret=' + text)

    def test_pod_user(self):
        for words, user in (((), 'auto'), (('--pod-user=auto',), 'auto'),
                            (('--pod-user=none',), None),
                            (('--pod-user=1000',), 1000)):
            self.assertEqual(user, parse(*words).pod_user)
        for text in ('0', '-1', '2147483648', 'root', '', '1.5', '010'):
            self.refused('--pod-user=' + text)

    def test_pod_labels_and_annotations(self):
        self.assertEqual(({}, {}), (parse().pod_labels,
                                    parse().pod_annotations))
        found = parse('--pod-label=a=b', '--pod-label=example.com/c=',
                      '--pod-annotation=example.com/note=x=y, z')
        self.assertEqual({'a': 'b', 'example.com/c': ''}, found.pod_labels)
        self.assertEqual({'example.com/note': 'x=y, z'},
                         found.pod_annotations)
        for text in ('a', '=b', 'a=b c', 'a b=c', 'a/b/c=d', 'a=-'):
            self.refused('--pod-label=' + text)
        for text in ('a', '=b', 'a b=c', 'a/b/c=d', 'a..b/c=d', 'a.-b/c=d',
                     'x' * 254 + '/c=d'):
            self.refused('--pod-annotation=' + text)
            self.refused('--pod-label=' + text)
        self.assertEqual({'x' * 253 + '/c': 'd'}, parse(
            f"--pod-label={'x' * 253}/c=d").pod_labels)

    def test_invalid_choices_and_arguments(self):
        self.refused('--log-format', 'xml')
        self.refused('--log-level', 'loud')
        self.refused('--image-pull-policy', 'Sometimes')
        self.refused('--nonsense')
        self.refused('word')
