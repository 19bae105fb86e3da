# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from kubevirt_sandbox.api import bodies
from kubevirt_sandbox.api import errors


class TestText(base.BaseTestCase):

    def test_replaces_what_is_no_text(self):
        for parse in bodies.parse_json, bodies.parse_yaml:
            for raw, value in (
                    (br'{"a": "\ud83d"}', {'a': '\ufffd'}),
                    (br'{"a": ["x\ude00y"]}', {'a': ['x\ufffdy']}),
                    (br'{"\udfff": 1}', {'\ufffd': 1}),
                    (br'{"a": "\ud83d\ude00"}', {'a': '\U0001f600'}),
                    (br'{"a": "\\ud83d"}', {'a': '\\ud83d'}),
                    (b'{"a": "\xff"}', {'a': '\ufffd'})):
                self.assertEqual(value, parse(raw))

    def test_refuses_deep_values(self):
        for parse in bodies.parse_json, bodies.parse_yaml:
            for opening, closing in ((b'[', b']'), (b'{"a":', b'}')):
                parse(opening * 200 + b'1' + closing * 200)
                self.assertRaises(errors.ApiError, parse,
                                  opening * 202 + b'1' + closing * 202)

    def test_refuses_other_encodings(self):
        self.assertRaises(errors.ApiError, bodies.parse_json,
                          '{}'.encode('utf-16'))
