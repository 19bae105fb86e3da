# SPDX-License-Identifier: Apache-2.0
import os
import sys

from oslotest import base

from kubevirt_sandbox.api import core
from kubevirt_sandbox.workloads import environment
from kubevirt_sandbox.workloads import fields


class Store:
    """Objects by kind and name."""

    def __init__(self, **objects):
        self.objects = objects

    def find(self, kind, namespace, name):
        return self.objects.get(f'{kind.singular}_{name}')


POD = {'metadata': {'name': 'p', 'namespace': 'n', 'uid': 'u',
                    'labels': {'app': 'web'}},
       'spec': {'nodeName': 'node-0'}, 'status': {'podIP': '127.54.0.9'}}


def make(store=None):
    return fields.Fields(store or Store(), lambda: POD)


class ExpandTestCase(base.BaseTestCase):

    def test_expands_variables(self):
        self.assertEqual('1 $(B) $(A) $', environment.expand(
            '$(A) $(B) $$(A) $', {'A': '1'}))


class PlacesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.places = environment.Places(
            {'/etc/bmc': '/pod/a', '/etc/bmc/tls/': '/pod/b'}, '127.54.0.9')

    def assert_real(self, text, expected):
        self.assertEqual(expected, self.places.real(text))

    def test_replaces_mount_paths(self):
        self.assert_real('/etc/bmc', '/pod/a')
        self.assert_real('/etc/bmc/user', '/pod/a/user')
        self.assert_real('/etc/bmc/tls/crt', '/pod/b/crt')
        self.assert_real('--file=/etc/bmc/user', '--file=/pod/a/user')
        self.assert_real('a:/etc/bmc:/etc/bmc/tls', 'a:/pod/a:/pod/b')
        self.assert_real("open('/etc/bmc/x')", "open('/pod/a/x')")

    def test_keeps_other_paths(self):
        for text in ('/etc/bmc2', '/etc/bmc-2/x', '/srv/etc/bmc',
                     'http://host/etc/bmc', '/etc/bmc.d'):
            self.assert_real(text, text)

    def test_replaces_wildcard_address_by_pod_address(self):
        self.assert_real('0.0.0.0:80', '127.54.0.9:80')
        self.assert_real('[::]:80', '127.54.0.9:80')
        self.assert_real('--listen=0.0.0.0', '--listen=127.54.0.9')
        for text in ('0.0.0.0/0', '10.0.0.0', '0.0.0.0.1', '[::]/0'):
            self.assert_real(text, text)


class VariablesTestCase(base.BaseTestCase):

    def test_variables_of_all_sources(self):
        store = Store(secret_s={'data': {'k': 'dw==', 'bad key': 'dw=='}},
                      configmap_c={'data': {'k': 'v'}})
        self.assertEqual({
            'S_k': 'w', 'a': '1', 'b': '1 2', 'c': 'w', 'd': 'v',
            'ip': '127.54.0.9', 'app': 'web', 'cpu': '2'},
            environment.variables({
                'resources': {'limits': {'cpu': '1500m'}},
                'envFrom': [{'prefix': 'S_', 'secretRef': {'name': 's'}},
                            {'configMapRef': {'name': 'no',
                                              'optional': True}}],
                'env': [
                    {'name': 'a', 'value': '1'},
                    {'name': 'b', 'value': '$(a) 2'},
                    {'name': 'c', 'valueFrom': {
                        'secretKeyRef': {'name': 's', 'key': 'k'}}},
                    {'name': 'd', 'valueFrom': {
                        'configMapKeyRef': {'name': 'c', 'key': 'k'}}},
                    {'name': 'none', 'valueFrom': {'secretKeyRef': {
                        'name': 's', 'key': 'no', 'optional': True}}},
                    {'name': 'ip', 'valueFrom': {
                        'fieldRef': {'fieldPath': 'status.podIP'}}},
                    {'name': 'app', 'valueFrom': {'fieldRef': {
                        'fieldPath': "metadata.labels['app']"}}},
                    {'name': 'cpu', 'valueFrom': {'resourceFieldRef': {
                        'resource': 'limits.cpu'}}}]}, make(store)))

    def test_error_names_missing_object(self):
        found = self.assertRaises(
            fields.Missing, environment.variables, {'env': [{
                'name': 'a', 'valueFrom': {'secretKeyRef': {
                    'name': 's', 'key': 'k'}}}]}, make())
        self.assertEqual('secret "s" not found', str(found))

    def test_data_of_secrets_is_bytes(self):
        store = Store(secret_s={'data': {'k': '/w=='}})
        self.assertEqual({'k': b'\xff'}, make(store).data(core.SECRET, 's'))


class MakeTestCase(base.BaseTestCase):

    def test_replaces_paths_once(self):
        words, env = environment.make(
            {'command': ['run', '$(DIR)/x'], 'args': ['$(HOME)']},
            {'DIR': '/data'}, {'HOME': '/data'},
            environment.Places({'/data': '/pod/data'}, ''))
        self.assertEqual(['run', '/pod/data/x', '/pod/data'], words)
        self.assertEqual({'DIR': '/pod/data', 'HOME': '/data'}, env)


class BaseTestCase(base.BaseTestCase):

    def path(self, programs):
        return environment.base('/home', 'pod', ('127.0.0.1', 6443),
                                programs)['PATH'].split(os.pathsep)

    def test_programs_are_looked_up_first(self):
        own = os.path.dirname(sys.executable)
        self.assertEqual(own, self.path(None)[0])
        self.assertEqual(['/image/bin', own], self.path('/image/bin')[:2])
