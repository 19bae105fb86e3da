# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.kube import api_responses


class ParsedTestCase(base.BaseTestCase):

    def test_what_is_nested_too_deep(self):
        # As deep as an API server takes it; brackets in texts do not count.
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

    def test_what_is_none(self):
        for data in b'', b'{', b'[' * 5000, b'nothing':
            self.assertRaises(ValueError, api_responses.parse, data)
