# SPDX-License-Identifier: Apache-2.0
"""Strategic patches, protobuf, JSONPath, tables and ages."""
import datetime
import unittest

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import jsonpath
from kubevirt_sandbox.api import negotiation
from kubevirt_sandbox.api import patches
from kubevirt_sandbox.api import protobuf
from kubevirt_sandbox.api import strategic
from kubevirt_sandbox.api import tables


class MergePatchTestCase(unittest.TestCase):

    def test_cases_of_rfc_7386(self):
        for old, patch, wanted in (
                ({'a': 'b'}, {'a': 'c'}, {'a': 'c'}),
                ({'a': 'b'}, {'b': 'c'}, {'a': 'b', 'b': 'c'}),
                ({'a': 'b'}, {'a': None}, {}),
                ({'a': 'b', 'b': 'c'}, {'a': None}, {'b': 'c'}),
                ({'a': ['b']}, {'a': 'c'}, {'a': 'c'}),
                ({'a': 'c'}, {'a': ['b']}, {'a': ['b']}),
                ({'a': {'b': 'c'}}, {'a': {'b': 'd', 'c': None}},
                 {'a': {'b': 'd'}}),
                ({'a': [{'b': 'c'}]}, {'a': [1]}, {'a': [1]}),
                (['a', 'b'], ['c', 'd'], ['c', 'd']),
                ({'e': None}, {'a': 1}, {'e': None, 'a': 1}),
                ([1, 2], {'a': 'b', 'c': None}, {'a': 'b'}),
                ({}, {'a': {'bb': {'ccc': None}}}, {'a': {'bb': {}}})):
            self.assertEqual(wanted, patches.merge_patch(old, patch))


class StrategicTestCase(unittest.TestCase):

    POD = {'metadata': {'finalizers': ['a', 'b']}, 'spec': {
        'containers': [{'name': 'x', 'image': 'i', 'args': ['1']},
                       {'name': 'y'}], 'nodeName': 'n'}}

    def patched(self, change):
        return strategic.patch(core.POD, self.POD, change)

    def containers(self, change):
        return self.patched({'spec': {'containers': change}})['spec'][
            'containers']

    def test_merges_lists_by_key(self):
        self.assertEqual(
            [{'name': 'x', 'image': 'j', 'args': ['2']}, {'name': 'y'},
             {'name': 'z'}],
            self.containers([{'name': 'x', 'image': 'j', 'args': ['2']},
                             {'name': 'z'}]))

    def test_directives(self):
        self.assertEqual([{'name': 'x', 'image': 'i', 'args': ['1']}],
                         self.containers([{'name': 'y', '$patch': 'delete'}]))
        self.assertEqual([{'name': 'q'}], self.containers(
            [{'name': 'q'}, {'$patch': 'replace'}]))
        self.assertEqual({'nodeName': 'm'}, self.patched(
            {'spec': {'$patch': 'replace', 'nodeName': 'm'}})['spec'])
        self.assertEqual({'nodeName': 'n'}, self.patched(
            {'spec': {'$retainKeys': ['nodeName']}})['spec'])
        self.assertEqual(['b'], self.patched(
            {'metadata': {'$deleteFromPrimitiveList/finalizers': ['a']}})[
                'metadata']['finalizers'])
        self.assertEqual(['a', 'b', 'c'], self.patched(
            {'metadata': {'finalizers': ['b', 'c']}})['metadata'][
                'finalizers'])
        self.assertEqual(['y', 'x'], [c['name'] for c in self.patched(
            {'spec': {'$setElementOrder/containers': [
                {'name': 'y'}, {'name': 'x'}]}})['spec']['containers']])

    def test_rejects_invalid_patches(self):
        for change in ({'spec': {'containers': [{'image': 'i'}]}},
                       {'spec': {'$patch': 'nix'}},
                       {'spec': {'$retainKeys': 'x'}},
                       {'spec': {'$setElementOrder/containers': 'x'}}):
            self.assertRaises(errors.ApiError, self.patched, change)

    def test_patch_does_not_change_the_old_object(self):
        self.containers([{'name': 'x', 'image': 'j'}])
        self.assertEqual('i', self.POD['spec']['containers'][0]['image'])


class ProtobufTestCase(unittest.TestCase):

    # What `kubectl create configmap foo --from-literal=a=b` sent (1.32).
    CONFIG_MAP = (b'k8s\0\n\x0f\n\x02v1\x12\tConfigMap\x12\x1d\n\x13\n\x03foo'
                  b'\x12\0\x1a\0"\0*\x002\x008\0B\0\x12\x06\n\x01a\x12\x01b'
                  b'\x1a\0"\0')

    def test_decodes_config_map(self):
        self.assertEqual(
            {'apiVersion': 'v1', 'kind': 'ConfigMap',
             'metadata': {'name': 'foo'}, 'data': {'a': 'b'}},
            protobuf.decode(self.CONFIG_MAP))

    def test_decodes_event(self):
        def field(number, content):
            if isinstance(content, int):
                return bytes([number << 3, content])
            return bytes([number << 3 | 2, len(content)]) + content

        made = (field(1, field(1, b'Host.Up') + field(3, b'lab'))
                + field(2, field(1, b'BareMetalHost') + field(3, b'n0'))
                + field(3, b'Up') + field(4, b'It is up')
                + field(5, field(1, b'metal3'))
                + field(6, field(1, 60)) + field(8, 2) + field(9, b'Normal')
                + field(10, b''))
        kind = field(1, b'v1') + field(2, b'Event')
        self.assertEqual({
            'apiVersion': 'v1', 'kind': 'Event',
            'metadata': {'name': 'Host.Up', 'namespace': 'lab'},
            'involvedObject': {'kind': 'BareMetalHost', 'name': 'n0'},
            'reason': 'Up', 'message': 'It is up',
            'source': {'component': 'metal3'},
            'firstTimestamp': '1970-01-01T00:01:00Z', 'count': 2,
            'type': 'Normal'}, protobuf.decode(
                b'k8s\0' + field(1, kind) + field(2, made)))

    def test_rejects_malformed_data(self):
        for raw in (b'', b'k8s', b'k8s\0\xff', b'{}', b'k8s\0\n\xff\xff\xff',
                    self.CONFIG_MAP[:-8], b'k8s\0' + b'\x80' * 20,
                    self.CONFIG_MAP.replace(b'foo', b'\xff\xfe\xfd')):
            with self.assertRaises(errors.ApiError, msg=raw) as caught:
                protobuf.decode(raw)
            self.assertIn(caught.exception.code, (400, 415))


class JsonPathTestCase(unittest.TestCase):

    OBJ = {'a': {'b': [{'t': 'x', 'v': 1}, {'t': 'y', 'v': 2}],
                 'c.d/e': 'f', 'l': ['m', 'n']}}

    def test_finds_paths(self):
        for path, wanted in (
                ('.a.b[0].v', [1]), ('.a.b[-1].v', [2]),
                ('.a.b[*].v', [1, 2]), ('.a.b[5].v', []),
                ('.a.b[?(@.t=="y")].v', [2]),
                (".a.b[?(@.t=='x')].v", [1]), ('.a.b[?(@.t!="x")].v', [2]),
                ("['a']['c.d/e']", ['f']), (r'.a.c\.d/e', ['f']),
                ('.none.x', []), ('.a.l', [['m', 'n']]), ('.a.b.v', []),
                ('{.a.l[0]}', ['m']), ('a.l[1]', ['n']), ('.a[', [])):
            self.assertEqual(wanted, jsonpath.find(path, self.OBJ), path)


class AgeTestCase(unittest.TestCase):

    def test_ages_as_in_kubectl(self):
        for seconds, wanted in (
                (0, '0s'), (119, '119s'), (120, '2m'), (183, '3m3s'),
                (600, '10m'), (3 * 3600, '3h'), (3 * 3600 + 60, '3h1m'),
                (9 * 3600 + 60, '9h'), (49 * 3600, '2d1h'),
                (10 * 86400, '10d'), (800 * 86400, '2y')):
            then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(
                seconds=seconds)
            self.assertEqual(wanted, tables.age(then.isoformat()))
        self.assertEqual('<unknown>', tables.age(None))
        self.assertEqual('<invalid>', tables.age('x'))


class AcceptTestCase(unittest.TestCase):

    def test_selects_first_supported_type(self):
        form = negotiation.Form
        for header, wanted in (
                (None, form()), ('*/*', form()),
                ('application/json', form()),
                ('application/yaml', form('application/yaml')),
                ('application/json;as=Table;v=v1;g=meta.k8s.io,'
                 'application/json', form(view='Table', version='v1')),
                ('application/json;as=Table;v=v1beta1;g=meta.k8s.io,'
                 'application/json', form()),
                ('text/html;q=0.9, application/json;q=0.1', form())):
            self.assertEqual(wanted, negotiation.accepted(header), header)
