# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import query_parameters


class TestParse(base.BaseTestCase):

    def assert_rejected(self, text):
        exc = self.assertRaises(
            error_responses.RedfishError,
            query_parameters.parse,
            text)
        return exc.status, exc.entries[0]['MessageId'].rpartition('.')[2]

    def test_ignores_other_parameters(self):
        for text in ('', 'x', 'x=1&y', 'excerpt=foo', '%ff=%ff', '&&'):
            self.assertIsNone(query_parameters.parse(text))

    def test_parses_all_parameters(self):
        self.assertEqual(
            query_parameters.Query(
                select=(('Name',), ('Boot', 'Mode')),
                expand='.',
                levels=3,
                top=5,
                skip=0,
            ),
            query_parameters.parse(
                '$select=Name,%20Boot/Mode&$expand=.($levels=3)'
                '&$top=5&$skip=0&x=y'
            ),
        )
        self.assertEqual(
            query_parameters.Query(
                only=True),
            query_parameters.parse('only'))
        self.assertEqual(query_parameters.Query(expand='*'),
                         query_parameters.parse('%24expand=%2A'))
        self.assertEqual('~', query_parameters.parse('$expand=~').expand)

    def test_rejects_unsupported_parameters(self):
        for text in '$x', '$filter=Name%20eq%20x', '$orderby=Name', '$':
            self.assertEqual((501, 'QueryParameterUnsupported'),
                             self.assert_rejected(text))

    def test_rejects_invalid_values(self):
        for text in ('only=1', '$select=', '$select=a,,b', '$select=a//b',
                     '$select=<x>', '$expand=', '$expand=Name',
                     '$expand=*(levels=1)', '$expand=.($levels=x)',
                     '$expand=..', '$expand=.&$expand=.',
                     '&'.join('a=1' for _ in range(100)),
                     '$select=' + ','.join('a' * 101)):
            self.assertEqual((400, 'QueryParameterValueFormatError'),
                             self.assert_rejected(text))
        for text in '$top=', '$top=x', '$skip=1.5', '$top=1' + '0' * 30:
            self.assertEqual((400, 'QueryParameterValueTypeError'),
                             self.assert_rejected(text))
        for text in ('$top=-1', '$skip=-1', '$expand=.($levels=0)',
                     '$expand=.($levels=7)', '$expand=*($levels=999999999)'):
            self.assertEqual((400, 'QueryParameterOutOfRange'),
                             self.assert_rejected(text))

    def test_rejects_invalid_combinations(self):
        for text in 'only&$top=1', '$expand=.&only', 'only&$select=Name':
            self.assertEqual((400, 'QueryCombinationInvalid'),
                             self.assert_rejected(text))
        self.assertEqual(
            query_parameters.Query(
                only=True),
            query_parameters.parse('only&x=1'))
