# SPDX-License-Identifier: Apache-2.0
"""The map of the code is up to date, and its names exist."""

from oslotest import base

from tools import code_map


class CodeMapTestCase(base.BaseTestCase):

    def test_page_is_up_to_date(self):
        self.assertEqual(
            code_map.page(), code_map.PAGE.read_text(),
            f'run: python -m tools.code_map > {code_map.PAGE}')

    def test_flows_pass_what_exists(self):
        self.assertEqual(4, len(code_map.FLOWS))
        for _title, steps in code_map.FLOWS:
            for reference, _what in steps:
                self.assertTrue(callable(code_map.resolve(reference)),
                                reference)
