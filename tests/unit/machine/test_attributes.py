# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import attributes
from tests.unit.machine import fakes


class GetTestCase(base.BaseTestCase):

    def get(self, text):
        return attributes.get(fakes.vm(
            annotations={stored_names.ATTRIBUTES: text}))

    def test_returns_stored_values(self):
        self.assertEqual({'a': 'b', 'n': 5, 'f': 0.5, 't': True},
                         self.get('{"a":"b","n":5,"f":0.5,"t":true}'))

    def test_ignores_invalid_annotation(self):
        for text in ('', 'x', '[1]', '5', '[' * 100000,
                     '{"a":' + '9' * 5000 + '}'):
            self.assertEqual({}, self.get(text))

    def test_ignores_values_outside_json_or_redfish(self):
        self.assertEqual({'a': 'b'}, self.get(
            '{"a":"b","nan":NaN,"inf":-Infinity,"big":1e999,"null":null,'
            '"object":{},"list":[]}'))
