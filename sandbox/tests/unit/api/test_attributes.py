# SPDX-License-Identifier: Apache-2.0
import unittest

from kubevirt_sandbox.api import attributes
from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import request_path

A = attributes.Attributes
NS = '/api/v1/namespaces/'
SUB = '/apis/subresources.kubevirt.io/v1/namespaces/n/'

#: (method, path, query, attributes)
REQUESTS = (
    ('GET', NS + 'n/pods', {}, A('list', '', 'pods', '', 'n')),
    ('HEAD', NS + 'n/pods/a', {}, A('get', '', 'pods', '', 'n', 'a')),
    ('GET', '/api/v1/pods', {'watch': '1'}, A('watch', '', 'pods')),
    ('GET', NS + 'n/pods', {'fieldSelector': 'metadata.name=a'},
     A('list', '', 'pods', '', 'n', 'a')),
    ('GET', NS + 'n/pods', {
        'fieldSelector': 'status.phase=x,metadata.name==a', 'watch': 'true'},
     A('watch', '', 'pods', '', 'n', 'a')),
    ('GET', NS + 'n/pods', {'fieldSelector': 'metadata.name!=a'},
     A('list', '', 'pods', '', 'n')),
    ('GET', NS + 'n/pods', {'fieldSelector': 'metadata.name=a/b'},
     A('list', '', 'pods', '', 'n')),
    ('DELETE', NS + 'n/pods', {'fieldSelector': 'metadata.name=a'},
     A('deletecollection', '', 'pods', '', 'n')),
    ('DELETE', NS + 'n/pods/a', {}, A('delete', '', 'pods', '', 'n', 'a')),
    ('POST', NS + 'n/pods', {}, A('create', '', 'pods', '', 'n')),
    ('PATCH', NS + 'n/pods/a/status', {},
     A('patch', '', 'pods', 'status', 'n', 'a')),
    ('POST', NS + 'n/serviceaccounts/a/token', {},
     A('create', '', 'serviceaccounts', 'token', 'n', 'a')),
    ('GET', NS + 'n', {}, A('get', '', 'namespaces', '', 'n', 'n')),
    ('PUT', NS + 'n/finalize', {},
     A('update', '', 'namespaces', 'finalize', 'n', 'n')),
    ('GET', NS, {}, None),
    ('PUT', SUB + 'virtualmachines/a/start', {},
     A('update', 'subresources.kubevirt.io', 'virtualmachines', 'start', 'n',
       'a')),
    ('GET', SUB + 'virtualmachineinstances/a/vnc/screenshot', {},
     A('get', 'subresources.kubevirt.io', 'virtualmachineinstances', 'vnc',
       'n', 'a')),
    ('GET', '/apis/subresources.kubevirt.io/v1/version', {},
     A('list', 'subresources.kubevirt.io', 'version')),
    ('GET', '/apis/kubevirt.io/v1', {}, None))

JANE = auth.User('jane')

#: (attributes, message, details of the Status)
FORBIDDEN = (
    (A('list', '', 'secrets', '', 'n'),
     'secrets is forbidden: User "jane" cannot list resource "secrets" in '
     'API group "" in the namespace "n"', {'kind': 'secrets'}),
    (A('get', 'kubevirt.io', 'virtualmachines', 'status', '', 'a'),
     'virtualmachines.kubevirt.io "a" is forbidden: User "jane" cannot get '
     'resource "virtualmachines/status" in API group "kubevirt.io" at the '
     'cluster scope',
     {'name': 'a', 'group': 'kubevirt.io', 'kind': 'virtualmachines'}),
    (A('get', path='/<x>'),
     'forbidden: User "jane" cannot get path "/&lt;x&gt;"', {}))


class AttributesTestCase(unittest.TestCase):

    def test_attributes_of_requests(self):
        for method, path, query, wanted in REQUESTS:
            with self.subTest(method=method, path=path, query=query):
                target = request_path.parse(path)
                if wanted is None:
                    if target is not None:
                        self.assertFalse(target.name)
                    continue
                self.assertEqual(wanted, attributes.of_target(
                    method, target, query))

    def test_messages_of_forbidden_requests(self):
        for wanted, message, details in FORBIDDEN:
            status = attributes.forbidden(JANE, wanted).status()
            self.assertEqual((403, 'Forbidden', message, details), (
                status['code'], status['reason'], status['message'],
                status['details']))

    def test_attributes_of_impersonation(self):
        user = auth.User('system:serviceaccount:n:a', ('g',), 'u',
                         (('k', ('v',)),))
        self.assertEqual([
            A('impersonate', '', 'serviceaccounts', '', 'n', 'a'),
            A('impersonate', '', 'groups', name='g'),
            A('impersonate', 'authentication.k8s.io', 'uids', name='u'),
            A('impersonate', 'authentication.k8s.io', 'userextras', 'k',
              name='v')], attributes.of_impersonation(user))
