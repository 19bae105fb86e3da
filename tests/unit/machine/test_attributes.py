# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from sushy_kubevirt.machine import attributes
from tests.unit.machine import fakes


class GetTestCase(base.BaseTestCase):

    def get(self, text):
        return attributes.get(fakes.vm(
            annotations={attributes.ATTRIBUTES: text}))

    def test_what_was_set(self):
        self.assertEqual({'a': 'b', 'n': 5, 'f': 0.5, 't': True},
                         self.get('{"a":"b","n":5,"f":0.5,"t":true}'))

    def test_what_nobody_could_set(self):
        for text in ('', 'x', '[1]', '5', '[' * 100000,
                     '{"a":' + '9' * 5000 + '}'):
            self.assertEqual({}, self.get(text))

    def test_values_that_json_or_redfish_do_not_have(self):
        self.assertEqual({'a': 'b'}, self.get(
            '{"a":"b","nan":NaN,"inf":-Infinity,"big":1e999,"null":null,'
            '"object":{},"list":[]}'))
