# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.kube import api_responses


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
