# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import api_responses
from sushy_kubevirt.kube import errors


class ParseTestCase(base.BaseTestCase):

    def test_parses_deeply_nested_json(self):
        # The deepest nesting that an API server accepts; brackets in strings
        # do not count.
        deep = '{"f:]}[\\"{":[' * 4990 + '{"a": 1}, "]"' + ']}' * 4990
        text = ('{"items": [{"metadata": {"name": "a", "managedFields": [%s, '
                '1]}}, {"metadata": {"name": "b", "text": "}\\\\\\"]"}}]}'
                % deep)
        one, other = api_responses.parse(text.encode())['items']
        self.assertEqual('a', one['metadata']['name'])
        first, second = one['metadata']['managedFields']
        self.assertEqual(1, second)
        self.assertEqual(['f:]}[\"{'], list(first))
        self.assertEqual({'name': 'b', 'text': '}\\"]'}, other['metadata'])

    def test_invalid_json_is_a_value_error(self):
        for data in b'', b'{', b'[' * 5000, b'nothing':
            self.assertRaises(ValueError, api_responses.parse, data)


class ErrorTestCase(base.BaseTestCase):

    def test_undeclared_field_is_final(self):
        call = api_responses.ApiCall('patch', api_resources.VM, 'dev', 'a')
        for text, expected in (
                ('failed to create typed patch object (dev/a; kubevirt.io/v1, '
                 'Kind=VirtualMachine): errors:\n  .spec.x: field not '
                 'declared in schema\n  .spec.y: field not declared in '
                 'schema', errors.Rejected),
                ('failed to create typed patch object (dev/a; kubevirt.io/v1, '
                 'Kind=VirtualMachine): .spec.x: expected string, got 7',
                 errors.Rejected),
                ('failed to create typed patch object (dev/a): busy',
                 errors.ServerError)):
            self.assertIs(expected, type(api_responses.error_from_status(
                500, text, None, call)))
