# SPDX-License-Identifier: Apache-2.0
"""YAML for parsers that follow YAML 1.2, as those in Go do."""

from oslotest import base
import yaml

from sushy_kubevirt.kube import yaml_writer


class YamlWriterTestCase(base.BaseTestCase):

    def test_text_that_looks_like_another_type_is_quoted(self):
        for text in ('12345678901234e5', '1e5', '1E+5', '.5e3', '1.e3', '-1e0',
                     '0o17', '0X1F', '-0B1', '1_e5', '0_9', '+_.1', 'y', 'N',
                     'no', '1', '1.5', '~', '2026-01-01'):
            for value in {text: ''}, {'a': text}, [text]:
                written = yaml_writer.dump([value])
                self.assertIn(f"'{text}'", written)
                self.assertEqual(value, yaml.safe_load(written))

    def test_other_text_is_not_quoted(self):
        for text in ('e5', '1e', '1e5a', 'yes-no', 'ny', '0o8', '0X', '_1',
                     '10.96.0.1'):
            self.assertEqual(f'a: {text}\n', yaml_writer.dump([{'a': text}]))

    def test_other_types(self):
        value = {'b': [1, -2, 1.5, 1e300, True, None], 'a': {}}
        self.assertEqual(
            'b:\n- 1\n- -2\n- 1.5\n- 1.0e+300\n- true\n- null\na: {}\n',
            yaml_writer.dump([value]))

    def test_documents(self):
        self.assertEqual('a: 1\n---\nb: 2\n',
                         yaml_writer.dump([{'a': 1}, {'b': 2}]))
        self.assertEqual('---\na: 1\n', yaml_writer.dump(
            [{'a': 1}], explicit_start=True))
